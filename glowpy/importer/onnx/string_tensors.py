"""Tensors of strings: arrays of `str` objects, from whatever spells text, and from the constants of a model."""

from __future__ import annotations

import math
import re
from operator import countOf
from typing import Any, TypeAlias

import numpy as np
from onnx import SparseTensorProto, TensorProto

from glowpy.core.tensor import Array
from glowpy.importer.onnx.stored import Stores
from glowpy.importer.onnx.tensor import decode, decode_sparse
from glowpy.support.errors import UserError

__all__ = ["Stored", "decoded", "strings"]

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


_SURROGATE = re.compile("[\ud800-\udfff]")
"""Half of a character in UTF-16, which Python's text may hold alone, and neither UTF-8 nor ONNX does."""


def strings(what: str, given: object) -> Array:
    """An array of `str` objects, from an array of text, of UTF-8 or of such objects, or nested lists.

    Raises UserError for elements that are no strings.
    """
    array: Array = np.asarray(given) if isinstance(given, np.ndarray) else np.array(given, object)
    if array.dtype.kind not in "OUST":
        raise UserError(f"{what}: expected an array of strings, got {array.dtype}")
    items = array.reshape(-1).tolist()
    if countOf(map(type, items), str) == len(items) and "".join(items).isascii():
        return array.astype(object)
    result = np.empty(array.size, object)
    result[:] = [_text(what, item) for item in items]
    return result.reshape(array.shape)


def _text(what: str, item: Any) -> str:
    """A string as Python has it. Raises UserError for anything else."""
    if isinstance(item, bytes):
        try:
            item = item.decode()
        except UnicodeDecodeError:
            raise UserError(f"{what}: expected strings in UTF-8, got {item[:40]!r}") from None
    if not isinstance(item, str):
        raise UserError(
            f"{what}: expected strings, got {'None' if item is None else type(item).__name__}"
        )
    if _SURROGATE.search(item):
        raise UserError(f"{what}: expected text that UTF-8 can spell, got {item[:40]!a}")
    return str(item)
