"""Operators on whole tensors: reductions, products, shapes, elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeGuard

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.frontends.python.elementwise import kind_of
from glowpy.frontends.python.graph_builder import (
    GraphBuilder,
    GraphValue,
    Number,
    Table,
    WeaklyTyped,
    common_kind,
    described,
)
from glowpy.graph.node import NodeValue
from glowpy.support.errors import UserError

__all__ = ["tensors"]

tensors = Table()


def _axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    axes = range(rank) if axis is None else _integers(axis)
    for axis_number in axes:
        if not -rank <= axis_number < rank:
            raise UserError(f"expected an axis of a tensor of rank {rank}, got {axis_number}")
    places = sorted({axis_number % rank for axis_number in axes})
    if len(places) != len(axes):
        raise UserError(f"expected every axis once, got {axes}")
    return tuple(places)


def _integers(value: Any) -> tuple[int, ...]:
    """An integer, or several. Raises UserError for anything else."""
    integers = value if isinstance(value, tuple) else (value,)
    if not all(_is_integer(integer) for integer in integers):
        raise UserError(f"expected an integer or a tuple of integers, got {value!r}")
    return integers


def _is_integer(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)


def _reduced(
    mnemonic: str, w: GraphBuilder, x: GraphValue, axis: int | Sequence[int] | None, keepdims: bool
) -> GraphValue:
    value = _summable(w, mnemonic, w.tensor(x))
    axes = _axes(axis, value.type.rank)
    if mnemonic in ("reduce_max", "reduce_min") and any(not value.type.extents[a] for a in axes):
        raise UserError(f"expected elements to choose from, got {value.type}")
    result = w.node(mnemonic, value, axes) if axes else value
    extents = [n for i, n in enumerate(value.type.shape) if i not in axes]
    return result if keepdims else w.node("reshape", result.type.with_shape(tuple(extents)), result)


def _summable(w: GraphBuilder, mnemonic: str, value: NodeValue) -> NodeValue:
    """A value in the kind that numpy adds or multiplies in: 64 bits for integers and booleans, f64 for means."""
    kind = value.type.kind
    if kind.is_float or mnemonic not in ("reduce_add", "reduce_mul", "reduce_mean"):
        return value
    wide = ElemKind.I64 if kind.is_signed or kind is ElemKind.BOOL else ElemKind.U64
    wide = ElemKind.F64 if mnemonic == "reduce_mean" else wide
    return value if kind is wide else w.node("convert", value.type.with_kind(wide), value)


def _reduction(mnemonic: str, method: str, *callees: Any) -> None:
    def rule(
        w: GraphBuilder, x: GraphValue, *, axis: Any = None, keepdims: bool = False
    ) -> GraphValue:
        return _reduced(mnemonic, w, x, axis, keepdims)

    tensors(*callees, name=method, method=method)(rule)


_reduction("reduce_add", "sum", np.sum)
_reduction("reduce_mul", "prod", np.prod)
_reduction("reduce_max", "max", np.max)
_reduction("reduce_min", "min", np.min)
_reduction("reduce_mean", "mean", np.mean)


def _extreme(mnemonic: str, method: str, callee: Any) -> None:
    def rule(w: GraphBuilder, x: GraphValue, *, axis: int | None = None) -> GraphValue:
        value = w.tensor(x)
        if axis is None:  # as numpy: the place in a row of all elements
            value, axis = w.node("reshape", value.type.with_shape((value.type.count,)), value), 0
        places = _axes(axis, value.type.rank)
        if len(places) != 1:
            raise UserError(f"expected one axis, got {axis}")
        index = w.node(mnemonic, value, *places)
        extents = [n for i, n in enumerate(value.type.shape) if i not in places]
        return w.node("reshape", index.type.with_shape(tuple(extents)), index)

    tensors(callee, name=method, method=method)(rule)


_extreme("arg_max", "argmax", np.argmax)
_extreme("arg_min", "argmin", np.argmin)


@tensors(np.dot, method="dot")
def _dot(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
    (x, y), _ = w.joint((a, b))
    if min(x.type.rank, y.type.rank) == 0 or max(x.type.rank, y.type.rank) > 2:
        note = "use @ for stacks of matrices, * for numbers"
        raise UserError(f"expected vectors or matrices, got {x.type} and {y.type}", note=note)
    return _matmul(w, x, y)


@tensors(np.matmul)
def _matmul(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
    (x, y), _ = w.joint((a, b))
    if not x.type.rank or not y.type.rank:
        raise UserError(f"expected matrices or vectors, got {x.type} and {y.type}")
    wide_x = _reshaped(w, x, (1, *x.type.extents)) if x.type.rank == 1 else x
    wide_y = _reshaped(w, y, (*y.type.extents, 1)) if y.type.rank == 1 else y
    product = w.node("mat_mul", wide_x, wide_y)
    shape = list(product.type.extents)
    if y.type.rank == 1:
        del shape[-1]
    if x.type.rank == 1:
        del shape[-1 if y.type.rank == 1 else -2]
    return _reshaped(w, product, shape)


def _reshaped(w: GraphBuilder, value: NodeValue, shape: Sequence[int]) -> NodeValue:
    if tuple(shape) == value.type.shape:
        return value
    return w.node("reshape", value.type.with_shape(tuple(shape)), value)


@tensors(np.reshape, method="reshape")
def _reshape(w: GraphBuilder, x: GraphValue, *, shape: int | Sequence[int]) -> GraphValue:
    value = w.tensor(x)
    extents = [*_integers(shape)]
    count = math.prod(value.type.extents)
    if extents.count(-1) == 1:
        rest = math.prod(n for n in extents if n != -1)
        if not rest:
            raise UserError(f"expected a shape without -1 beside 0, got {shape}")
        extents[extents.index(-1)] = count // rest
    if math.prod(extents) != count or min(extents, default=0) < 0:
        raise UserError(f"expected a shape of {count} elements, got {shape}")
    return _reshaped(w, value, extents)


@tensors(np.transpose, method="transpose")
def _transpose(w: GraphBuilder, x: GraphValue, *, axes: Sequence[int] | None = None) -> GraphValue:
    value = w.tensor(x)
    rank = value.type.rank
    shuffle = tuple(range(rank))[::-1] if axes is None else _integers(axes)
    if sorted(axis % max(rank, 1) for axis in shuffle) != list(range(rank)):
        raise UserError(f"expected every axis of a tensor of rank {rank} once, got {axes}")
    return w.node("transpose", value, tuple([axis % rank for axis in shuffle]))


@tensors(np.concatenate)
def _concatenate(w: GraphBuilder, parts: GraphValue, *, axis: int = 0) -> GraphValue:
    if not isinstance(parts, tuple) or not parts:
        raise UserError("expected a tuple of at least one tensor")
    values, _ = w.joint(parts)
    return w.node("concat", values, _axes(axis, values[0].type.rank)[0])


@tensors(np.stack)
def _stack(w: GraphBuilder, parts: GraphValue, *, axis: int = 0) -> GraphValue:
    if not isinstance(parts, tuple) or not parts:
        raise UserError("expected a tuple of at least one tensor")
    values, _ = w.joint(parts)
    (place,) = _axes(axis, values[0].type.rank + 1)
    shape = list(values[0].type.extents)
    shape.insert(place, 1)
    return w.node("concat", [_reshaped(w, value, shape) for value in values], place)


@tensors(np.full)
def _full(
    w: GraphBuilder, shape: GraphValue, fill_value: GraphValue, *, dtype: Any = None
) -> GraphValue:
    kind = kind_of(dtype) if dtype is not None else common_kind([fill_value])
    extents = _integers(w.known(shape))
    if min(extents, default=0) < 0:
        raise UserError(f"expected a shape of integers from 0, got {extents}")
    if isinstance(fill_value, bool | int | float):
        return w.node("splat", Type(kind, extents), fill_value)
    value = w.tensor(fill_value)
    if value.type.kind is not kind:
        value = w.node("convert", value.type.with_kind(kind), value)
    padded = _reshaped(w, value, (*[1] * (len(extents) - value.type.rank), *value.type.extents))
    return w.node("broadcast", Type(kind, extents), padded)


@tensors(np.zeros)
def _zeros(w: GraphBuilder, shape: GraphValue, *, dtype: Any = np.float64) -> GraphValue:
    return _full(w, shape, 0, dtype=dtype)


@tensors(np.ones)
def _ones(w: GraphBuilder, shape: GraphValue, *, dtype: Any = np.float64) -> GraphValue:
    return _full(w, shape, 1, dtype=dtype)


@tensors(np.arange)
def _arange(
    w: GraphBuilder,
    *,
    start: Number,
    stop: Number | None = None,
    step: Number = 1,
    dtype: Any = None,
) -> GraphValue:
    bounds = (0, start, step) if stop is None else (start, stop, step)
    if not step or not all(isinstance(bound, int | float) for bound in bounds):
        raise UserError(f"expected numbers, and a step other than 0, got {bounds}")
    kind = None if dtype is None else kind_of(dtype).dtype
    try:
        array = np.arange(*bounds, dtype=kind)
    except (MemoryError, OverflowError, ValueError) as error:
        raise UserError(f"arange of {', '.join(map(repr, bounds))}: {error}") from None
    return w.f.module.create_constant(w.name, array).value


@tensors(np.zeros_like)
def _zeros_like(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return w.node("splat", w.tensor(x).type, 0)


@tensors(np.ones_like)
def _ones_like(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return w.node("splat", w.tensor(x).type, 1)


@tensors()
def _index(w: GraphBuilder, x: GraphValue, *places: GraphValue) -> GraphValue:
    """`x[...]`: a place is an integer, a slice, None (a new axis), or ..., which stands for all other axes."""
    if isinstance(x, tuple):
        return _item(x, w.known(places[0] if len(places) == 1 else places))
    value = w.tensor(x)
    shape: list[int] = []
    cuts: list[range] = []
    taken: list[tuple[int, NodeValue | WeaklyTyped]] = []
    for place in _spread(places, value.type):
        if place is None:
            shape.append(1)
            continue
        axis = len(cuts)
        extent = value.type.extents[axis]
        if isinstance(place, NodeValue | WeaklyTyped):
            taken.append((axis, place))
            cuts.append(range(extent))
        elif isinstance(place, slice):
            cuts.append(_cut(w.known(place), extent))
            shape.append(len(cuts[-1]))
        else:
            start = _place(place, extent)
            cuts.append(range(start, start + 1))
    if cuts != [range(extent) for extent in value.type.extents]:
        sliced = value.type.with_shape(tuple([len(cut) for cut in cuts]))
        starts, steps = [cut.start for cut in cuts], [cut.step for cut in cuts]
        value = w.node("slice", sliced, value, tuple(starts), tuple(steps))
    for axis, place in taken:
        value = _taken(w, value, place, axis)
    return _reshaped(w, value, shape)


@tensors()
def _row(w: GraphBuilder, x: GraphValue, place: GraphValue) -> GraphValue:
    """Takes the item of one turn of a loop: an item of a tuple, or a row of a tensor."""
    if isinstance(x, tuple):
        return _item(x, w.known(place))
    value = w.tensor(x)
    row = w.node("gather", value, _reshaped(w, w.lifted(place, ElemKind.I64), (1,)), 0)
    return _reshaped(w, row, value.type.extents[1:])


def _item(items: tuple[GraphValue, ...], place: Any) -> GraphValue:
    if isinstance(place, slice):
        return tuple([items[index] for index in _cut(place, len(items))])
    return items[_place(place, len(items))]


def _spread(places: Sequence[GraphValue], type: Type) -> list[GraphValue]:
    """A place for every axis: ..., or the end, stands for as many slices of everything as are missing."""
    count = sum(place is not None and place is not ... for place in places)
    if count > type.rank or sum(place is ... for place in places) > 1:
        raise UserError(f"expected at most {type.rank} places in {type}, got {count}")
    first = next((i for i, place in enumerate(places) if place is ...), len(places))
    missing: list[GraphValue] = [slice(None)] * (type.rank - count)
    return [*places[:first], *missing, *places[first + 1 :]]


def _cut(place: slice, extent: int) -> range:
    """The places along an axis, or in a tuple, that a slice takes."""
    bounds = (place.start, place.stop, place.step)
    if not all(bound is None or _is_integer(bound) for bound in bounds) or place.step == 0:
        raise UserError(f"expected a slice of integers, with a step other than 0, got {place}")
    cut = range(*place.indices(extent))
    return cut or range(0)


def _place(place: GraphValue, extent: int) -> int:
    """A place that is known, counted from the start."""
    if not _is_integer(place):
        raise UserError(f"expected an integer as a place, got {described(place)}")
    if not -extent <= place < extent:
        raise UserError(f"expected a place from {-extent} to {extent - 1}, got {place}")
    return place % extent


def _taken(
    w: GraphBuilder, value: NodeValue, place: NodeValue | WeaklyTyped, axis: int
) -> NodeValue:
    """One element along an axis, which stays with an extent of 1; negative places count from the end."""
    index = w.lifted(place, common_kind([place]))
    if index.type.rank or not index.type.kind.is_integer:
        note = "np.where chooses by conditions, a loop takes several elements"
        raise UserError(f"expected one integer as a place, got {index.type}", note=note)
    if index.type.kind is not ElemKind.I64:
        index = w.node("convert", index.type.with_kind(ElemKind.I64), index)
    if not value.type.extents[axis]:
        raise UserError(
            f"expected a place in a tensor without elements, {value.type}, to be a slice"
        )
    w.check(index, value.type.extents[axis])
    return w.node("gather", value, _reshaped(w, index, (1,)), axis)
