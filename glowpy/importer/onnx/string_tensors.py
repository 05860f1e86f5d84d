"""Constants of a model as arrays, of `str` objects for strings."""

from __future__ import annotations

import math
from typing import TypeAlias

from onnx import SparseTensorProto, TensorProto

from glowpy.core.tensor import Array
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.tensor import decode, decode_sparse
from glowpy.importer.value_types import strings
from glowpy.support.errors import UserError

__all__ = ["Stored", "decoded"]

_MAX_RANK = 32
"""Highest rank of a constant of strings."""

Stored: TypeAlias = TensorProto | SparseTensorProto
"""A constant of a model."""


def decoded(name: str, stored: Stored, stores: Stores) -> Array:
    """The elements of a constant, as an array. Raises UserError where they do not fit its shape."""
    if isinstance(stored, SparseTensorProto):
        return decode_sparse(stored, stores).array
    if stored.data_type != TensorProto.STRING:
        return decode(stored, stores).array
    array = strings(f"tensor '{name}'", list(stored.string_data))
    dims = list(stored.dims)
    if min(dims, default=0) < 0 or len(dims) > _MAX_RANK or array.size != math.prod(dims):
        raise UserError(
            f"tensor '{name}': expected the shape of its {array.size} strings, got {dims[:16]}"
        )
    return array.reshape(dims)
