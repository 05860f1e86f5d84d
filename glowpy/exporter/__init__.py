"""Writers of model formats: modules in, files out."""

from glowpy.exporter.onnx.copied import (
    Locate,
    Place,
    copied_model,
    set_dims,
    with_data_apart,
)
from glowpy.exporter.onnx.dump import dump_onnx
from glowpy.exporter.onnx.model import save

__all__ = ["Locate", "Place", "copied_model", "dump_onnx", "save", "set_dims", "with_data_apart"]
