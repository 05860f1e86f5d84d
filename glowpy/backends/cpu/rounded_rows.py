"""Rows of products rounded to 8 bits, with a scale for each block of depth: their types, and what they are in numpy.

Processors multiply integers with a sign by those without, and weights have none then: so the sum of each block's
integers is needed, too. Of weights of 4 bits the even ones of eight neighbours are in other bytes than the odd ones,
which is why rows have the even ones first.
"""

from __future__ import annotations

import numpy as np

from glowpy.backends.cpu.block_weights import WORD
from glowpy.backends.cpu.nodes_gen import CpuQuantizeBlocksNode
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, ceil_div

__all__ = ["depth_in_bytes", "in_order", "rounded_rows"]

_STEPS = 127
_LEAST_SCALE = np.finfo(np.float32).tiny


def depth_in_bytes(depth: Dim) -> Dim:
    """How many integers a row has, zeros at the end included."""
    return ceil_div(depth, WORD) * WORD


@infer(CpuQuantizeBlocksNode)
def _infer(input: Type, *, block: int, bits: int) -> tuple[Type, Type, Type]:
    if input.kind is not ElemKind.F32 or input.rank == 0:
        raise UserError(f"expected rows of f32, got {input}")
    if block < 1 or bits not in (4, 8):
        raise UserError(f"expected a block of at least 1 and 4 or 8 bits, got {block} and {bits}")
    *outer, depth = input.shape
    scales = Type(ElemKind.F32, (*outer, ceil_div(depth, block)))
    result = Type(ElemKind.I8, (*outer, depth_in_bytes(depth)))
    return result, scales, scales.with_kind(ElemKind.I32)


def rounded_rows(rows: Array, block: int, bits: int) -> tuple[Array, Array, Array]:
    """Integers, scales, and the sums of the integers of each block, as `cpu_quantize_blocks` gives them.

    A block with an infinite number has the scale NaN: so has its part of every product.
    """
    *outer, depth = rows.shape
    starts = np.arange(0, depth, block)
    largest = np.maximum.reduceat(np.abs(rows), starts, axis=-1)
    scales = np.where(np.isinf(largest), np.float32(np.nan), largest / np.float32(_STEPS))
    counts = scales >= _LEAST_SCALE
    inverse = np.where(counts, np.float32(1) / np.where(counts, scales, 1), np.float32(0))
    steps = np.rint(rows * np.repeat(inverse, block, -1)[..., :depth])
    integers = np.nan_to_num(steps, nan=-_STEPS).astype(np.int8)
    sums = np.add.reduceat(integers, starts, axis=-1, dtype=np.int32)
    padded = np.zeros((*outer, depth_in_bytes(depth)), np.int8)
    padded[..., :depth] = integers
    if bits == 4:
        padded = _split(padded, (WORD // 2, 2))
    return padded, scales, sums


def in_order(integers: Array, bits: int) -> Array:
    """Integers of rows in the order of depth again."""
    return _split(integers, (2, WORD // 2)) if bits == 4 else integers


def _split(integers: Array, shape: tuple[int, int]) -> Array:
    """Eight neighbours as a matrix, transposed."""
    return np.swapaxes(integers.reshape(*integers.shape[:-1], -1, *shape), -1, -2).reshape(
        integers.shape
    )
