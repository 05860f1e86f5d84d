"""Where code written for onnxruntime imports exceptions from."""

from glowpy.onnxruntime.capi import onnxruntime_pybind11_state

__all__ = ["onnxruntime_pybind11_state"]
