"""Quantization: what values are like, which ranges are chosen for them, and how integers stand for these."""

from glowpy.quantization.calibration import (
    Calibration,
    Entropy,
    MeanSquaredError,
    MinMax,
    MovingAverage,
    Percentile,
)
from glowpy.quantization.profile import Profile, ProfiledValue
from glowpy.quantization.profiling import Profiler, optimized, profile
from glowpy.quantization.schema import Schema, quant_of_bias, quant_of_range, quant_of_weights
from glowpy.quantization.statistics import Statistics

__all__ = [
    "Calibration",
    "Entropy",
    "MeanSquaredError",
    "MinMax",
    "MovingAverage",
    "Percentile",
    "Profile",
    "ProfiledValue",
    "Profiler",
    "Schema",
    "Statistics",
    "optimized",
    "profile",
    "quant_of_bias",
    "quant_of_range",
    "quant_of_weights",
]
