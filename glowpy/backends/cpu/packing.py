"""The packed layouts of weights, as libjit/README.md says: blocks of output channels, zeros at the end."""

from __future__ import annotations

import numpy as np

from glowpy.core.shape import ceil_div
from glowpy.core.tensor import Array
from glowpy.core.type import Shape

__all__ = [
    "pack_depthwise_filter",
    "pack_filter",
    "pack_matrix",
    "packed_shape",
    "unpack_depthwise_filter",
    "unpack_filter",
    "unpack_matrix",
]


def packed_shape(shape: Shape, block: int) -> Shape:
    """The shape that matrices [..., K, N] have when they are packed: [..., ceil(N / block), K, block]."""
    *batch, depth, columns = shape
    return (*batch, ceil_div(columns, block), depth, block)


def pack_matrix(matrix: Array, block: int) -> Array:
    """[..., K, N] to [..., ceil(N / block), K, block]."""
    *batch, depth, columns = matrix.shape
    blocks = ceil_div(columns, block)
    padded = np.zeros((*batch, depth, blocks * block), matrix.dtype)
    padded[..., :columns] = matrix
    return np.ascontiguousarray(np.moveaxis(padded.reshape(*batch, depth, blocks, block), -2, -3))


def pack_filter(filter: Array, group: int, block: int) -> Array:
    """O x KH x KW x I to [group][ceil(O / group / block)][KH][KW][I][block]."""
    outputs, height, width, inputs = filter.shape
    outputs_of_group = outputs // group
    blocks = ceil_div(outputs_of_group, block)
    padded = np.zeros((group, blocks * block, height, width, inputs), filter.dtype)
    padded[:, :outputs_of_group] = filter.reshape(group, outputs_of_group, height, width, inputs)
    split = padded.reshape(group, blocks, block, height, width, inputs)
    return np.ascontiguousarray(split.transpose(0, 1, 3, 4, 5, 2))


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
