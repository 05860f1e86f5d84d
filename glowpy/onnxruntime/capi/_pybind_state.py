"""The package from which code written for onnxruntime reaches its extension module."""

from glowpy.onnxruntime.capi.onnxruntime_pybind11_state import *  # noqa: F403 -- that is what it is
