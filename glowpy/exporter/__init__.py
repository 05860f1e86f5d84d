"""Writers of model formats: modules in, files out."""

from glowpy.exporter.onnx.dump import dump_onnx
from glowpy.exporter.onnx.model import save

__all__ = ["dump_onnx", "save"]
