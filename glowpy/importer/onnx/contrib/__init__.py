"""Operators that onnxruntime adds to ONNX's: what its graph optimizer and its transformer tool write into files.

Most are of the domain `com.microsoft`; those of `com.microsoft.nchwc` work on channels in blocks, and a few are of
ONNX's own domain. They mean what onnxruntime's kernels for the CPU compute, where its documentation leaves that open.
"""

from __future__ import annotations

from glowpy.importer.onnx.contrib import (
    activation,
    attention,
    blocks,
    conv,
    decoder,
    experts,
    four_bits,
    group_query,
    inverse,
    matmul,
    nchwc,
    norm,
    quant,
    recurrent,
    rotary,
    shape,
)

__all__ = ["FAMILIES"]

FAMILIES = (
    activation,
    attention,
    blocks,
    conv,
    decoder,
    experts,
    four_bits,
    group_query,
    inverse,
    matmul,
    nchwc,
    norm,
    quant,
    recurrent,
    rotary,
    shape,
)
"""The modules, whose import functions are registered when they are imported."""
