"""Readers of model formats: files in, modules out."""

from glowpy.importer.onnx.model import OnnxModel, load, read_model
from glowpy.importer.onnx.node import ValueNeededError
from glowpy.importer.onnx.signature import ValueInfo

__all__ = ["OnnxModel", "ValueInfo", "ValueNeededError", "load", "read_model"]
