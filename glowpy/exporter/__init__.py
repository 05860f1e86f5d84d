"""Writers of model formats: modules in, files out."""

from glowpy.exporter.onnx.dump import dump_onnx
from glowpy.exporter.onnx.model import save
from glowpy.exporter.onnx.model_copy import (
    Locate,
    Place,
    copied_model,
    set_dims,
    with_data_apart,
)

__all__ = ["Locate", "Place", "copied_model", "dump_onnx", "save", "set_dims", "with_data_apart"]
