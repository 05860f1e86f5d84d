"""Writers of model formats: modules in, files out."""

from glowpy.exporter.onnx.copied import Locate, Place, apart, copied_model
from glowpy.exporter.onnx.dump import dump_onnx
from glowpy.exporter.onnx.model import save

__all__ = ["Locate", "Place", "apart", "copied_model", "dump_onnx", "save"]
