"""Readers of model formats: files in, modules out."""

from glowpy.importer.onnx.host.model import HostModel, by_rounds, open_model
from glowpy.importer.onnx.host.types import HostInfo
from glowpy.importer.onnx.indices import raise_wrong
from glowpy.importer.onnx.model import OnnxModel, load, read_model
from glowpy.importer.onnx.node import RoundsError, ValueNeededError
from glowpy.importer.onnx.signature import ValueInfo

__all__ = [
    "HostInfo",
    "HostModel",
    "OnnxModel",
    "RoundsError",
    "ValueInfo",
    "ValueNeededError",
    "by_rounds",
    "load",
    "open_model",
    "raise_wrong",
    "read_model",
]
