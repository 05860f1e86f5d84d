"""The Python classes of onnxruntime, where it has them."""

from glowpy.onnxruntime.adapters import AdapterFormat
from glowpy.onnxruntime.binding import IOBinding
from glowpy.onnxruntime.compiler import ModelCompiler
from glowpy.onnxruntime.devices import OrtDevice, OrtDeviceVendorId
from glowpy.onnxruntime.providers import check_and_normalize_provider_args
from glowpy.onnxruntime.session import InferenceSession
from glowpy.onnxruntime.sparse import SparseTensor
from glowpy.onnxruntime.values import OrtValue, copy_tensors

__all__ = [
    "AdapterFormat",
    "IOBinding",
    "InferenceSession",
    "ModelCompiler",
    "OrtDevice",
    "OrtDeviceVendorId",
    "OrtValue",
    "Session",
    "SparseTensor",
    "check_and_normalize_provider_args",
    "copy_tensors",
]

Session = InferenceSession
