"""Operators on sequences, optionals and maps."""

from __future__ import annotations

import reprlib
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np

from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array
from glowpy.importer.value_types import HostValue, MapType, TensorType
from glowpy.session.host.node import HostNode, number, on_host
from glowpy.support.errors import UserError

__all__: list[str] = []


@on_host("Identity")
def _identity(n: HostNode) -> Callable[[HostValue], HostValue]:
    """An array of its own, which is the caller's if it is an output."""
    return lambda value: value.copy() if isinstance(value, np.ndarray) else value


# Sequences.


@on_host("SequenceEmpty")
def _empty(n: HostNode) -> Callable[[], list[HostValue]]:
    return list


@on_host("SequenceConstruct")
def _construct(n: HostNode) -> Callable[..., list[HostValue]]:
    return lambda *items: list(items)


@on_host("SequenceLength")
def _length(n: HostNode) -> Callable[[list[HostValue]], Array]:
    return lambda items: np.array(len(items), np.int64)


def _position(given: Array | None, default: int, least: int, most: int) -> int:
    """A position; `most` is the highest one, and negative ones count from the end."""
    if given is None:
        return default
    position = number("position", given)
    if not least <= position <= most:
        raise UserError(f"expected a position from {least} to {most}, got {position}")
    return position


@on_host("SequenceInsert")
def _insert(n: HostNode) -> Callable[..., list[HostValue]]:
    def compute(items: list[HostValue], item: Array, at: Array | None = None) -> list[HostValue]:
        if items and items[0].dtype != item.dtype:
            raise UserError(f"expected an element of {items[0].dtype}, got {item.dtype}")
        position = _position(at, len(items), -len(items), len(items))
        position += len(items) if position < 0 else 0
        return [*items[:position], item, *items[position:]]

    return compute


@on_host("SequenceErase")
def _erase(n: HostNode) -> Callable[..., list[HostValue]]:
    def compute(items: list[HostValue], at: Array | None = None) -> list[HostValue]:
        if not items:
            raise UserError("expected a sequence of at least one tensor")
        position = _position(at, -1, -len(items), len(items) - 1) % len(items)
        return [*items[:position], *items[position + 1 :]]

    return compute


@on_host("SequenceAt")
def _at(n: HostNode) -> Callable[[list[HostValue], Array], HostValue]:
    return lambda items, at: items[_position(at, 0, -len(items), len(items) - 1)]


@on_host("ConcatFromSequence")
def _join(n: HostNode) -> Callable[[list[HostValue]], Array]:
    axis, stacked = n.integer("axis", 0), n.flag("new_axis")

    def compute(items: list[HostValue]) -> Array:
        if not items:
            raise UserError("expected a sequence of at least one tensor")
        axis_of = normalize_axis(axis, items[0].ndim + stacked)
        try:
            return np.stack(items, axis_of) if stacked else np.concatenate(items, axis_of)
        except ValueError:
            shapes = ", ".join(str(list(item.shape)) for item in items)
            raise UserError(f"expected tensors that fit together, got {shapes}") from None

    return compute


@on_host("SplitToSequence")
def _split(n: HostNode) -> Callable[..., list[HostValue]]:
    """Without `split`, slices of 1; a scalar gives equal parts, the last of which may be smaller."""
    axis, keep = n.integer("axis", 0), n.flag("keepdims", True)

    def compute(input: Array, split: Array | None = None) -> list[HostValue]:
        along = normalize_axis(axis, input.ndim)
        size = input.shape[along]
        if split is None:
            sizes = [1] * size
        elif split.ndim == 0:
            part = number("split", split)
            if part < 1:
                raise UserError(f"expected parts of at least 1, got {part}")
            sizes = [min(part, size - start) for start in range(0, size, part)]
        else:
            sizes = [int(item) for item in split.reshape(-1)]
        if sum(sizes) != size or min(sizes, default=0) < 0:
            raise UserError(f"expected sizes with the sum {size}, got {reprlib.repr(sizes)}")
        if split is None and not keep:
            return [*np.moveaxis(input, along, 0)] if input.ndim > 1 else _scalars(input)
        before, ends = (slice(None),) * along, [0, *np.cumsum(sizes, dtype=np.int64).tolist()]
        return [input[(*before, slice(start, end))] for start, end in pairwise(ends)]

    return compute


def _scalars(array: Array) -> list[HostValue]:
    """The elements of a vector as arrays, which iterating over it does not give."""
    return [array[place, ...] for place in range(array.size)]


# Optionals: a value, or None.


@on_host("Optional")
def _optional(n: HostNode) -> Callable[..., HostValue]:
    return lambda value=None: value


@on_host("OptionalHasElement")
def _has_element(n: HostNode) -> Callable[..., Array]:
    return lambda value=None: np.array(value is not None)


@on_host("OptionalGetElement")
def _get_element(n: HostNode) -> Callable[[HostValue], HostValue]:
    def compute(value: HostValue) -> HostValue:
        if value is None:
            raise UserError("expected an optional with an element, got an empty one")
        return value

    return compute


# Maps.


def _keys(n: HostNode, texts: str, integers: str) -> list[Any]:
    keys = [*n.texts(texts), *(n.integers(integers) or ())]
    if not keys:
        raise UserError(f"expected {texts} or {integers}")
    return keys


@on_host("ZipMap")
def _zip_map(n: HostNode) -> Callable[[Array], list[dict[Any, float]]]:
    keys = _keys(n, "classlabels_strings", "classlabels_int64s")

    def compute(input: Array) -> list[dict[Any, float]]:
        rows = input.reshape(1, -1) if input.ndim == 1 else input
        if rows.ndim != 2 or rows.shape[1] != len(keys):
            raise UserError(f"expected {len(keys)} columns, got {list(input.shape)}")
        return maps(rows.tolist())

    def maps(rows: list[list[float]]) -> list[dict[Any, float]]:
        match keys:  # a display takes half of the time, and most classifiers have few classes
            case [a, b]:
                return [{a: x, b: y} for x, y in rows]
            case [a, b, c]:
                return [{a: x, b: y, c: z} for x, y, z in rows]
            case _:  # to ask whether the row is as long takes as much time again
                return [dict(zip(keys, row)) for row in rows]  # noqa: B905

    return compute


@on_host("DictVectorizer")
def _dict_vectorizer(n: HostNode) -> Callable[[Mapping[Any, Any]], Array]:
    places = {k: i for i, k in enumerate(_keys(n, "string_vocabulary", "int64_vocabulary"))}

    item = n.types[0].item if isinstance(n.types[0], MapType) else None
    dtype = item.dtype if isinstance(item, TensorType) else np.dtype(object)

    def compute(input: Mapping[Any, Any]) -> Array:
        unknown = [key for key in input if key not in places]
        if unknown:
            raise UserError(f"expected keys of the vocabulary, got {unknown[0]!r}")
        row: Array = np.full((1, len(places)), "" if dtype.kind == "O" else 0, dtype)
        for key, value in input.items():
            row[0, places[key]] = value
        return row

    return compute


_LONGEST = 1 << 24
"""Elements of a sparse row: a longer one is no row of features, but an attack on memory."""


@on_host("CastMap")
def _cast_map(n: HostNode) -> Callable[[Mapping[int, Any]], Array]:
    """Dense: values in the order of the keys. Sparse: a key is a place among `max_map`."""
    names = {"TO_FLOAT": np.float32, "TO_INT64": np.int64, "TO_STRING": object}
    to, form = n.text("cast_to", "TO_FLOAT"), n.text("map_form", "DENSE")
    length = n.integer("max_map", 1)
    if to not in names or form not in ("DENSE", "SPARSE"):
        raise UserError(f"expected a known cast_to and map_form, got '{to}' and '{form}'")
    if not 1 <= length <= _LONGEST:
        raise UserError(f"expected max_map from 1 to {_LONGEST}, got {length}")

    def convert(value: Any) -> Any:
        if to == "TO_STRING":
            return value if isinstance(value, str) else f"{float(value):.8g}"
        try:
            return float(value) if to == "TO_FLOAT" else int(np.int64(float(value)))
        except (ValueError, OverflowError):
            raise UserError(f"expected values that {to} can have, got {value!r:.40}") from None

    def compute(input: Mapping[int, Any]) -> Array:
        if form == "DENSE":
            row = np.empty(len(input), names[to])
            row[:] = [convert(input[key]) for key in sorted(input)]
            return row.reshape(1, -1)
        outside = [key for key in input if not 0 <= key < length]
        if outside:
            raise UserError(f"expected keys from 0 to {length - 1}, got {outside[0]}")
        row = np.full(length, "" if to == "TO_STRING" else 0, names[to])
        for key, value in input.items():
            row[key] = convert(value)
        return row.reshape(1, -1)

    return compute
