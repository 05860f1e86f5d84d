"""Writes a model anew in a later opset, for tools that read an older one wrongly."""

from __future__ import annotations

from pathlib import Path

import onnx
from onnx import version_converter

__all__ = ["write_upgraded"]


def write_upgraded(path: Path, to: Path, opset: int) -> None:
    """Writes the model in `path` to `to`, in `opset` at least. Raises what onnx raises where it cannot convert it."""
    model = onnx.load(path)
    if any(
        opset_import.domain in ("", "ai.onnx") and opset_import.version < opset
        for opset_import in model.opset_import
    ):
        model = version_converter.convert_version(model, opset)
    onnx.save(model, to)
