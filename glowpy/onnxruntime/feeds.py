"""Converts the inputs of a run for glowpy's sessions: lists and values to arrays, and elements to strings."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from glowpy.core.tensor import Array
from glowpy.onnxruntime.errors import Fail, InvalidArgument
from glowpy.onnxruntime.values import OrtValue

__all__ = ["fed"]

_KEYS = {"int64": (int, np.integer), "string": (str,)}
"""The types that a map's keys may have, by how ONNX spells their type."""


def fed(name: str, value: Any, type: str, dtype: np.dtype[np.generic] | None) -> Any:
    """An input of a declared type.

    Raises Fail for None, RuntimeError for what is neither an array, a list nor a value, and for keys of a map that are
    of another type, InvalidArgument for an array of numbers in place of strings.
    """
    if value is None and not type.startswith("optional("):
        raise Fail(f"'{name}': expected {type}, got None")
    if isinstance(value, OrtValue):
        value = value.numpy()
    if type == "tensor(string)":
        return _texts(name, value)
    if type.startswith("map("):
        return _map(name, value, type.removeprefix("map(").partition(",")[0])
    if type and not type.startswith("tensor("):
        return value
    match value:
        case np.ndarray():
            return value
        case list():
            try:
                return np.array(value, dtype)
            except (TypeError, ValueError) as error:
                raise RuntimeError(f"'{name}': expected a list of numbers: {error}") from error
        case _:
            what = value.__class__.__name__
            raise RuntimeError(f"'{name}': expected an array, a list or an OrtValue, got {what}")


def _texts(name: str, value: Any) -> Any:
    """Strings: numbers among objects are spelled, and bytes without a type are UTF-8."""
    if isinstance(value, np.ndarray) and value.dtype.kind == "V":
        items = [item.tobytes() for item in value.reshape(-1)]
        return _array(items, value.shape)
    if isinstance(value, np.ndarray) and value.dtype.kind not in "OSUT":
        raise InvalidArgument(
            f"'{name}': unexpected input data type: expected strings, got {value.dtype}"
        )
    if isinstance(value, list) or (isinstance(value, np.ndarray) and value.dtype.kind == "O"):
        array = np.asarray(value, object)
        items = array.reshape(-1).tolist()
        try:
            "".join(items)  # a fifth of the time that asking each takes
        except TypeError:
            if not {*map(type, items)} <= {str, bytes}:
                texts = [i if isinstance(i, str | bytes) else str(i) for i in items]
                return _array(texts, array.shape)
        return array
    return value


def _array(items: list[Any], shape: tuple[int, ...]) -> Array:
    array = np.empty(len(items), object)
    array[:] = items
    return array.reshape(shape)


def _map(name: str, value: Any, key_type: str) -> Any:
    if not isinstance(value, Mapping):
        return value
    for key in value:
        if key_type in _KEYS and not isinstance(key, _KEYS[key_type]):
            c_type = "int64_t" if key_type == "int64" else "string"
            raise RuntimeError(
                f"Unexpected key type  {key.__class__}, it cannot be linked to C type {c_type} "
                f"for input '{name}'."
            )
    return value
