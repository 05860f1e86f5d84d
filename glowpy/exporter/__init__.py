"""Writers of model formats: modules in, files out."""

from glowpy.exporter.onnx.model import save

__all__ = ["save"]
