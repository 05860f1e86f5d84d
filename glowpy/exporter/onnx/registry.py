"""All rules of `to_onnx`: importing this module fills the table."""

from __future__ import annotations

from glowpy.exporter.onnx import (
    activation,
    control,
    elementwise,
    gather,
    image,
    matmul,
    ml,
    norm,
    operator,
    pool,
    quant,
    recurrent,
    reduce,
    search,
    shape,
    signal,
)
from glowpy.exporter.onnx.graph import to_onnx

__all__ = ["FAMILIES", "to_onnx"]

FAMILIES = (
    activation, control, elementwise, gather, image, matmul, ml, norm, operator, pool, quant, recurrent,
    reduce, search, shape, signal,
)  # fmt: skip
"""The modules, by the stems that operators, kernels and tests share."""
