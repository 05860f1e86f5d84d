"""Matrices of small integers with a scale for each block of neighbours."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, NodeValue
from glowpy.support.symbolic import ceil_div

__all__ = ["BlockForm", "decoded", "integers_in_blocks", "stored_in_blocks"]

_PIECE = 1 << 20
"""Weights that are looked at at a time."""


@dataclass(frozen=True)
class BlockForm:
    """How weights are stored.

    Attributes:
        bits: The bits of an integer: 4 or 8.
        block: How many neighbours have a scale in common.
        symmetric: Whether zero is stored as 0; else each block has a zero of its own.
    """

    bits: int
    block: int
    symmetric: bool

    @property
    def limits(self) -> tuple[int, int]:
        """The lowest and the highest integer."""
        half = 1 << (self.bits - 1)
        return (-half, half - 1) if self.symmetric else (0, 2 * half - 1)

    @property
    def parts(self) -> Array:
        """Parts of a block's range that are tried as what integers reach: to round less may be worth a limit."""
        return (
            np.linspace(1.0, 0.7, 7, dtype=np.float32) if self.bits == 4 else np.ones(1, np.float32)
        )

    @property
    def kind(self) -> ElemKind:
        """Symmetric integers have a sign, and no zero but 0."""
        return ElemKind.I8 if self.symmetric else ElemKind.U8


def stored_in_blocks(f: Function, value: NodeValue, axis: int, form: BlockForm) -> NodeValue:
    """The numbers of a known matrix, all finite, from integers in blocks along dimension `axis`.

    Of each block the scale is taken that gives the least squared error.
    """
    return decoded(f, value, axis, form, integers_in_blocks(f.module, value, axis, form))


def integers_in_blocks(
    module: Module, value: NodeValue, axis: int, form: BlockForm
) -> tuple[Constant, Constant, Constant]:
    """The integers of a known matrix, and the scales and zeros of their blocks."""
    assert value.constant is not None
    matrix = value.constant.tensor.array
    columns = matrix if axis == 0 else matrix.T
    integers, scales, zeros = _rounded(columns, form)
    parts = [
        array if axis == 0 else np.ascontiguousarray(array.T) for array in (integers, scales, zeros)
    ]
    names = (value.name, f"{value.name}_scale", f"{value.name}_zero")
    input, scale, zero = (
        module.create_constant(name, Tensor.of(array).compact())
        for name, array in zip(names, parts, strict=True)
    )
    return input, scale, zero


def decoded(
    f: Function,
    value: NodeValue,
    axis: int,
    form: BlockForm,
    stored: tuple[Constant, Constant, Constant],
) -> NodeValue:
    """The numbers that the integers of `integers_in_blocks` stand for."""
    input, scale, zero = stored
    return f.create_dequantize_blocks(
        value.name, input, scale, zero, axis=axis, block=form.block, bits=form.bits
    ).result


def _rounded(matrix: Array, form: BlockForm) -> tuple[Array, Array, Array]:
    """Integers of [K, N], and scales and zeros of each block of K: some columns at a time."""
    depth, columns = matrix.shape
    blocks = ceil_div(depth, form.block)
    integers = np.empty((depth, columns), form.kind.dtype)
    scales = np.empty((blocks, columns), np.float32)
    zeros = np.empty((blocks, columns), form.kind.dtype)
    step = max(_PIECE // depth, 1)
    for first in range(0, columns, step):
        part = slice(first, first + step)
        piece = np.pad(matrix[:, part], ((0, -depth % form.block), (0, 0)))
        stacked = piece.reshape(blocks, form.block, -1)
        stored, scale, zero = _best(stacked, form)
        integers[:, part] = stored.reshape(-1, stored.shape[-1])[:depth]
        scales[:, part], zeros[:, part] = scale, zero
    return integers, scales, zeros


def _best(blocks: Array, form: BlockForm) -> tuple[Array, Array, Array]:
    """Quantizes blocks [B, block, N]: returns integers, and scales and zeros [B, N], with the least error tried."""
    low, high = form.limits
    lowest, highest = np.minimum(blocks.min(1), 0), np.maximum(blocks.max(1), 0)
    up, down = highest / np.float32(high), -lowest / np.float32(high)
    span = np.maximum(up, down) if form.symmetric else up + down
    unit = np.where(span > 0, span, np.float32(1))
    relative = blocks / unit[:, np.newaxis]  # squares of what f32 just holds would overflow
    least = np.full(lowest.shape, np.inf, np.float32)
    stored = np.zeros(blocks.shape, form.kind.dtype)
    scales = np.ones(lowest.shape, np.float32)
    zeros = np.zeros(lowest.shape, form.kind.dtype)
    for part in form.parts:
        scale = np.where(span > 0, span * part, unit)
        zero = np.zeros_like(scale)
        if not form.symmetric:
            zero = np.clip(np.rint(-lowest / unit), low, high)
        steps = np.clip(np.rint(blocks / scale[:, np.newaxis]) + zero[:, np.newaxis], low, high)
        numbers = (steps - zero[:, np.newaxis]) * (scale / unit)[:, np.newaxis]
        error = np.square(numbers - relative).sum(1)
        better = error < least
        least = np.where(better, error, least)
        np.copyto(stored, steps, where=better[:, np.newaxis], casting="unsafe")
        np.copyto(scales, scale, where=better)
        np.copyto(zeros, zero, where=better, casting="unsafe")
    return stored, scales, zeros
