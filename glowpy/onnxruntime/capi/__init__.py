"""Where code written for onnxruntime imports exceptions from."""

from glowpy.onnxruntime.capi import (
    _pybind_state,
    onnxruntime_inference_collection,
    onnxruntime_pybind11_state,
)

__all__ = ["_pybind_state", "onnxruntime_inference_collection", "onnxruntime_pybind11_state"]
