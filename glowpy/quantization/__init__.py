"""Quantization: what values are like, which ranges are chosen for them, and how integers stand for these."""

from glowpy.quantization.calibration import (
    Calibration,
    Entropy,
    MeanSquaredError,
    MinMax,
    MovingAverage,
    Percentile,
)
from glowpy.quantization.conversion import Conversion, Outcome
from glowpy.quantization.convert import convert, quantize
from glowpy.quantization.dynamic import quantize_dynamic
from glowpy.quantization.estimate import Estimate, LayerEstimate, estimate
from glowpy.quantization.halves import halve, output_fidelities
from glowpy.quantization.inspect import inspect
from glowpy.quantization.method import AtRunTime, ByProfile, Method, WeightsOnly
from glowpy.quantization.optimized import optimized
from glowpy.quantization.options import Options
from glowpy.quantization.profile import Profile, ProfiledValue
from glowpy.quantization.profiling import Profiler, profile
from glowpy.quantization.report import Report, report
from glowpy.quantization.report_page import report_page
from glowpy.quantization.schema import Schema, quant_of_bias, quant_of_range, quant_of_weights
from glowpy.quantization.search import Searched, SearchState, search
from glowpy.quantization.statistics import Statistics
from glowpy.quantization.weights import quantize_weights

__all__ = [
    "AtRunTime",
    "ByProfile",
    "Calibration",
    "Conversion",
    "Entropy",
    "Estimate",
    "LayerEstimate",
    "MeanSquaredError",
    "Method",
    "MinMax",
    "MovingAverage",
    "Options",
    "Outcome",
    "Percentile",
    "Profile",
    "ProfiledValue",
    "Profiler",
    "Report",
    "Schema",
    "SearchState",
    "Searched",
    "Statistics",
    "WeightsOnly",
    "convert",
    "estimate",
    "halve",
    "inspect",
    "optimized",
    "output_fidelities",
    "profile",
    "quant_of_bias",
    "quant_of_range",
    "quant_of_weights",
    "quantize",
    "quantize_dynamic",
    "quantize_weights",
    "report",
    "report_page",
    "search",
]
