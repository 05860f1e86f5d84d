"""Operators of ai.onnx.ml that look something up by a string, or give one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from glowpy.core.tensor import Array
from glowpy.session.host.node import HostNode, on_host
from glowpy.support.errors import UserError

__all__: list[str] = []


class _Known(dict[Any, Any]):
    """A table with a default for all other keys."""

    def __init__(self, keys: Sequence[Any], values: Array, default: Any) -> None:
        super().__init__(zip(keys, values.tolist(), strict=True))
        self._default = default

    def __missing__(self, key: Any) -> Any:
        """The default."""
        return self._default


def _lookup(keys: Sequence[Any], values: Array, default: Any) -> Callable[[Array], Array]:
    """The value at each key, and the default for all else; NaN is equal to NaN."""
    if len(keys) != len(values):
        raise UserError(f"expected a value for each key, got {len(keys)} and {len(values)}")
    if all(isinstance(key, int) for key in keys) and [*keys] == [*range(len(keys))]:
        return _table(values, default)
    table = _Known([_key(key) for key in keys], values, default)
    of_floats = any(isinstance(key, float) for key in keys)

    def compute(input: Array) -> Array:
        items = input.reshape(-1).tolist()
        if of_floats:
            items = [_key(item) for item in items]
        labels = map(table.__getitem__, items)  # all in C but for what is not known
        return np.fromiter(labels, values.dtype, len(items)).reshape(input.shape)

    return compute


def _table(values: Array, default: Any) -> Callable[[Array], Array]:
    """The value at each number from 0 on, and the default for all else."""
    table = np.empty(len(values) + 2, values.dtype)
    table[0] = table[-1] = default
    table[1:-1] = values
    return lambda input: table.take(input + np.int64(1), mode="clip")


def _key(key: Any) -> Any:
    return "NaN" if isinstance(key, float) and key != key else key


@on_host("LabelEncoder")
def _label_encoder(n: HostNode) -> Callable[[Array], Array]:
    """Encodes labels for all opsets: the attributes that are there tell which is meant."""
    classes = n.texts("classes_strings")
    if classes:
        numbers = np.arange(len(classes), dtype=np.int64)
        return _both_ways(n, np.array(classes, object), numbers)
    keys, values = _column(n, "keys"), _column(n, "values")
    return _lookup(keys.tolist(), values, _default(n, values))


def _column(n: HostNode, what: str) -> Array:
    """The attribute `what`, of which there are some for each type. Raises UserError if there is none."""
    array = n.array(f"{what}_tensor")
    if array is not None:
        return array.reshape(-1)
    if texts := n.texts(f"{what}_strings"):
        return np.array(texts, object)
    if integers := n.integers(f"{what}_int64s"):
        return np.array(integers, np.int64)
    if reals := n.reals(f"{what}_floats"):
        return np.array(reals, np.float32)
    raise UserError(f"expected {what}_strings, {what}_int64s, {what}_floats or {what}_tensor")


def _default(n: HostNode, values: Array) -> Any:
    given = n.array("default_tensor")
    if given is not None:
        if given.size != 1:
            raise UserError(f"expected one element in default_tensor, got {given.size}")
        return given.reshape(-1)[0]
    if values.dtype == object:
        return n.text("default_string", "_Unused")
    return (
        n.real("default_float", -0.0)
        if values.dtype.kind == "f"
        else n.integer("default_int64", -1)
    )


@on_host("Gather")
def _gather(n: HostNode) -> Callable[[Array, Array], Array]:
    """Gathers strings that only the session reads, at places that are known to be in range."""
    axis = n.integer("axis", 0)
    return lambda input, places: _taken(input, places, axis % input.ndim)


def _taken(input: Array, places: Array, axis: int) -> Array:
    """Takes elements at some places along an axis; a column is a slice, which takes a fifth of the time."""
    if places.shape != (1,):
        return input.take(places, axis)
    place = int(places[0])
    return input[(*[slice(None)] * axis, slice(place, place + 1 or None))]


@on_host("ArrayFeatureExtractor")
def _extract(n: HostNode) -> Callable[[Array, Array], Array]:
    """As `Gather`, along the last axis of at least two."""
    del n
    return lambda input, places: _taken(input, places.reshape(-1), input.ndim - 1)


@on_host("CategoryMapper")
def _category_mapper(n: HostNode) -> Callable[[Array], Array]:
    integers = np.array(n.integers("cats_int64s") or (), np.int64)
    return _both_ways(n, np.array(n.texts("cats_strings"), object), integers)


def _both_ways(n: HostNode, texts: Array, integers: Array) -> Callable[[Array], Array]:
    """Integers for strings, and strings for integers: what comes says what is meant."""
    to_integers = _lookup(texts.tolist(), integers, n.integer("default_int64", -1))
    to_texts = _lookup(integers.tolist(), texts, n.text("default_string", "_Unused"))
    return lambda input: (to_integers if input.dtype == object else to_texts)(input)
