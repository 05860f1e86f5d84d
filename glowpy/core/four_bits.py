"""Integers of 4 bits as files have them, two in a byte: rows of them, transposed, as right sides of products are.

Eight neighbours in depth are a word of a row, the first in its lowest bits: whoever packs words need not take it apart.
"""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type

__all__ = ["columns_of_4_bits", "row_words", "rows_of_columns"]

_OPERATION = "columns of 4 bits"
_BYTES_OF_A_WORD = 4


def columns_of_4_bits(rows: Tensor, depth: int) -> Tensor:
    """The first `depth` integers of each row of bytes, [N, ...], as columns: [depth, N] in u8."""
    count, size = rows.type.extents

    def columns(bytes: Array) -> Array:
        codes = np.empty((count, size, 2), np.uint8)
        np.bitwise_and(bytes, 15, out=codes[..., 0])
        np.right_shift(bytes, 4, out=codes[..., 1])
        return codes.reshape(count, 2 * size)[:, :depth].T

    return Tensor.derived(Type(ElemKind.U8, (depth, count)), _OPERATION, [rows], columns)


def rows_of_columns(tensor: Tensor) -> Tensor | None:
    """The rows of bytes that `columns_of_4_bits` made a tensor of, if it did, and the tensor is not there already."""
    if tensor.derivation is None:
        return None
    operation, inputs = tensor.derivation
    return inputs[0] if operation == _OPERATION else None


def row_words(bytes: Array, depth: int) -> Array:
    """Rows of bytes as words of eight integers; what is beyond `depth` is anything."""
    words = -(-depth // 8)
    whole = bytes[:, : words * _BYTES_OF_A_WORD]
    missing = words * _BYTES_OF_A_WORD - whole.shape[1]
    if missing:
        whole = np.pad(whole, ((0, 0), (0, missing)))
    return np.ascontiguousarray(whole).view(np.dtype("<u4"))
