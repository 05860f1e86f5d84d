"""The packed layouts of weights, as libjit/README.md says: blocks of output channels, zeros at the end."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.support.symbolic import ceil_div, static

__all__ = [
    "dot_of",
    "filter_pieces",
    "matrix_pieces",
    "pack_depthwise_filter",
    "pack_filter",
    "pack_matrix",
    "packed_shape",
    "tile_lanes",
    "unpack_depthwise_filter",
    "unpack_filter",
    "unpack_matrix",
]


_HALVED_LANES = 16
"""HALF_TILES of libjit.h."""
_PIECE = 1 << 22
"""Bytes of weights that are packed at a time."""


def dot_of(kind: ElemKind) -> int:
    """How many neighbours in depth are packed together: four 8-bit integers or two of 16 bits, a word, or one."""
    if kind in (ElemKind.I8, ElemKind.U8):
        return 4
    return 2 if kind in (ElemKind.BF16, ElemKind.I16) else 1


def tile_lanes(weights: Type, lanes: int) -> int:
    """The lanes of the vectors of tiles for packed weights, out of those of whole vectors.

    Half of them where blocks are not made of whole vectors, of floats of which one has `_HALVED_LANES`.
    """
    (length,) = static([weights.shape[-1]])
    is_whole = weights.kind is not ElemKind.F32 or lanes != _HALVED_LANES or length % lanes == 0
    return lanes if is_whole else lanes // 2


def packed_shape(shape: Shape, block: int, dot: int = 1) -> Shape:
    """Returns the shape of packed matrices [..., K, N]: [..., ceil(N / block), ceil(K / dot), block * dot]."""
    *batch, depth, columns = shape
    return (*batch, ceil_div(columns, block), ceil_div(depth, dot), block * dot)


def pack_matrix(matrix: Array, block: int, dot: int = 1) -> Array:
    """[..., K, N] to [..., ceil(N / block), ceil(K / dot), block * dot]."""
    flat = [piece.reshape(-1) for piece in matrix_pieces(matrix, block, dot)]
    empty = np.empty(0, matrix.dtype)
    return np.concatenate(flat or [empty]).reshape(static(packed_shape(matrix.shape, block, dot)))


def matrix_pieces(matrix: Array, block: int, dot: int = 1) -> Iterator[Array]:
    """`pack_matrix` in parts that follow each other: some blocks each, so that large weights are never there twice."""
    *batch, depth, columns = matrix.shape
    step = max(_PIECE // max(depth * block * matrix.itemsize, 1), 1) * block
    steps = ceil_div(depth, dot)
    for index in np.ndindex(*batch):
        for first in range(0, columns, step):
            part = matrix[index][:, first : first + step]
            blocks = ceil_div(part.shape[1], block)
            rest = steps * dot - depth, blocks * block - part.shape[1]
            if any(rest):
                part = np.pad(part, ((0, rest[0]), (0, rest[1])))
            words = part.reshape(steps, dot, blocks, block).transpose(2, 0, 3, 1)
            yield np.ascontiguousarray(words.reshape(blocks, steps, block * dot))


def pack_filter(filter: Array, group: int, block: int, dot: int = 1) -> Array:
    """O x KH x KW x I to [group][ceil(O / group / block)][KH][KW][ceil(I / dot)][block * dot]."""
    *taps, depth = filter.shape[1:]
    packed = pack_matrix(_matrices(filter, group, dot), block, dot)
    return packed.reshape(*packed.shape[:2], *taps, ceil_div(depth, dot), block * dot)


def filter_pieces(filter: Array, group: int, block: int, dot: int = 1) -> Iterator[Array]:
    """`pack_filter` in parts that follow each other."""
    return matrix_pieces(_matrices(filter, group, dot), block, dot)


def _matrices(filter: Array, group: int, dot: int) -> Array:
    """Returns for each group the matrix whose columns are its outputs; the words of each tap are whole."""
    rest = -filter.shape[-1] % dot
    padded = np.pad(filter, ((0, 0),) * (filter.ndim - 1) + ((0, rest),)) if rest else filter
    outputs, depth = len(filter) // group, prod(padded.shape[1:])
    return padded.reshape(group, outputs, depth).transpose(0, 2, 1)


def pack_depthwise_filter(filter: Array) -> Array:
    """C x KH x KW x I to [KH][KW][I][C]."""
    return np.ascontiguousarray(filter.transpose(1, 2, 3, 0))


def unpack_matrix(packed: Array, columns: int, dot: int = 1) -> Array:
    """[..., ceil(N / block), K / dot, block * dot] to [..., K, N], where N is `columns`."""
    *batch, blocks, steps, words = packed.shape
    rank, block = len(batch), words // dot
    apart = packed.reshape(*batch, blocks, steps, block, dot)
    matrix = apart.transpose(*range(rank), rank + 1, rank + 3, rank, rank + 2)
    return matrix.reshape(*batch, steps * dot, blocks * block)[..., :columns]


def unpack_filter(packed: Array, outputs: int, dot: int = 1) -> Array:
    """[group][ceil(O / group / block)][KH][KW][I / dot][block * dot] to O x KH x KW x I, where O is `outputs`."""
    group, blocks, height, width, steps, words = packed.shape
    rows = packed.reshape(group, blocks, height * width * steps, words)
    matrix = unpack_matrix(rows, outputs // group, dot)
    return matrix.transpose(0, 2, 1).reshape(outputs, height, width, steps * dot)


def unpack_depthwise_filter(packed: Array) -> Array:
    """[KH][KW][I][C] to C x KH x KW x I."""
    return packed.transpose(3, 0, 1, 2)
