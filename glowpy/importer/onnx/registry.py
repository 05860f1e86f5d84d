"""All import functions: importing this module fills the table that `handler_of` reads."""

from __future__ import annotations

from glowpy.importer.onnx import (
    activation,
    attention,
    calls,
    contrib,
    control,
    conv,
    einsum,
    elementwise,
    gather,
    image,
    loss,
    matmul,
    ml,
    norm,
    pool,
    quant,
    random,
    recurrent,
    reduce,
    sample,
    search,
    shape,
    signal,
    text,
)
from glowpy.importer.onnx.node import handler_of, registered

__all__ = ["FAMILIES", "handler_of", "registered"]

FAMILIES = (
    activation,
    attention,
    calls,
    control,
    conv,
    einsum,
    elementwise,
    gather,
    image,
    loss,
    matmul,
    norm,
    pool,
    quant,
    random,
    recurrent,
    reduce,
    sample,
    search,
    shape,
    signal,
    text,
    *contrib.FAMILIES,
    *ml.FAMILIES,
)
"""The modules, by the stems that operators, kernels and tests share."""
