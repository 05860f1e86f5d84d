"""The packed layouts of weights, as libjit/README.md says: blocks of output channels, zeros at the end."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.core.shape import ceil_div
from glowpy.core.tensor import Array
from glowpy.core.type import Shape

__all__ = [
    "filter_pieces",
    "matrix_pieces",
    "pack_depthwise_filter",
    "pack_filter",
    "pack_matrix",
    "packed_shape",
    "unpack_depthwise_filter",
    "unpack_filter",
    "unpack_matrix",
]


_PIECE = 1 << 22
"""Bytes of weights that are packed at a time."""


def packed_shape(shape: Shape, block: int) -> Shape:
    """The shape that matrices [..., K, N] have when they are packed: [..., ceil(N / block), K, block]."""
    *batch, depth, columns = shape
    return (*batch, ceil_div(columns, block), depth, block)


def pack_matrix(matrix: Array, block: int) -> Array:
    """[..., K, N] to [..., ceil(N / block), K, block]."""
    flat = [piece.reshape(-1) for piece in matrix_pieces(matrix, block)]
    empty = np.empty(0, matrix.dtype)
    return np.concatenate(flat or [empty]).reshape(packed_shape(matrix.shape, block))


def matrix_pieces(matrix: Array, block: int) -> Iterator[Array]:
    """`pack_matrix` in parts that follow each other: some blocks each, so that large weights are never there twice."""
    *batch, depth, columns = matrix.shape
    step = max(_PIECE // max(depth * block * matrix.itemsize, 1), 1) * block
    for index in np.ndindex(*batch):
        for first in range(0, columns, step):
            part = matrix[index][:, first : first + step]
            blocks = ceil_div(part.shape[1], block)
            if part.shape[1] < blocks * block:
                part = np.pad(part, ((0, 0), (0, blocks * block - part.shape[1])))
            yield np.ascontiguousarray(part.reshape(depth, blocks, block).transpose(1, 0, 2))


def pack_filter(filter: Array, group: int, block: int) -> Array:
    """O x KH x KW x I to [group][ceil(O / group / block)][KH][KW][I][block]."""
    packed = pack_matrix(_matrices(filter, group), block)
    return packed.reshape(*packed.shape[:2], *filter.shape[1:], block)


def filter_pieces(filter: Array, group: int, block: int) -> Iterator[Array]:
    """`pack_filter` in parts that follow each other."""
    return matrix_pieces(_matrices(filter, group), block)


def _matrices(filter: Array, group: int) -> Array:
    """For each group the matrix whose columns are its outputs."""
    return filter.reshape(group, len(filter) // group, -1).transpose(0, 2, 1)


def pack_depthwise_filter(filter: Array) -> Array:
    """C x KH x KW x 1 to [KH][KW][C]."""
    return np.ascontiguousarray(filter[..., 0].transpose(1, 2, 0))


def unpack_matrix(packed: Array, columns: int) -> Array:
    """[..., ceil(N / block), K, block] to [..., K, N], where N is `columns`."""
    *batch, blocks, depth, block = packed.shape
    return np.moveaxis(packed, -3, -2).reshape(*batch, depth, blocks * block)[..., :columns]


def unpack_filter(packed: Array, outputs: int) -> Array:
    """[group][ceil(O / group / block)][KH][KW][I][block] to O x KH x KW x I, where O is `outputs`."""
    group, blocks, height, width, inputs, block = packed.shape
    padded = packed.transpose(0, 1, 5, 2, 3, 4).reshape(
        group, blocks * block, height, width, inputs
    )
    return padded[:, : outputs // group].reshape(outputs, height, width, inputs)


def unpack_depthwise_filter(packed: Array) -> Array:
    """[KH][KW][C] to C x KH x KW x 1."""
    return packed.transpose(2, 0, 1)[..., np.newaxis]
