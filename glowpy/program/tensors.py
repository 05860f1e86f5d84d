"""Operators on whole tensors: reductions, products, shapes, elements."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.program.elementwise import kind_of
from glowpy.program.weaver import Held, Number, Table, Weaver, common_kind
from glowpy.support.errors import UserError

__all__ = ["tensors"]

tensors = Table()


def _axes(axis: int | Sequence[int] | None, rank: int) -> tuple[int, ...]:
    axes = range(rank) if axis is None else (axis,) if isinstance(axis, int) else axis
    for one in axes:
        if not -rank <= one < rank:
            raise UserError(f"expected an axis of a tensor of rank {rank}, got {one}")
    return tuple(sorted({one % rank for one in axes}))


def _reduced(
    mnemonic: str, w: Weaver, x: Held, axis: int | Sequence[int] | None, keepdims: bool
) -> Held:
    value = _summable(w, mnemonic, w.tensor(x))
    axes = _axes(axis, value.type.rank)
    if mnemonic in ("reduce_max", "reduce_min") and any(not value.type.extents[a] for a in axes):
        raise UserError(f"expected elements to choose from, got {value.type}")
    result = w.node(mnemonic, value, axes) if axes else value
    kept = [n for i, n in enumerate(value.type.shape) if i not in axes]
    return result if keepdims else w.node("reshape", result.type.with_shape(tuple(kept)), result)


def _summable(w: Weaver, mnemonic: str, value: NodeValue) -> NodeValue:
    """A value in the kind that numpy adds or multiplies in: 64 bits for integers and booleans, f64 for means."""
    kind = value.type.kind
    if kind.is_float or mnemonic not in ("reduce_add", "reduce_mul", "reduce_mean"):
        return value
    wide = ElemKind.I64 if kind.is_signed or kind is ElemKind.BOOL else ElemKind.U64
    wide = ElemKind.F64 if mnemonic == "reduce_mean" else wide
    return value if kind is wide else w.node("convert", value.type.with_kind(wide), value)


def _reduction(mnemonic: str, method: str, *callees: Any) -> None:
    def rule(w: Weaver, x: Held, *, axis: Any = None, keepdims: bool = False) -> Held:
        return _reduced(mnemonic, w, x, axis, keepdims)

    tensors(*callees, name=method, method=method)(rule)


_reduction("reduce_add", "sum", np.sum)
_reduction("reduce_mul", "prod", np.prod)
_reduction("reduce_max", "max", np.max)
_reduction("reduce_min", "min", np.min)
_reduction("reduce_mean", "mean", np.mean)


@tensors(np.argmax, method="argmax")
def _argmax(w: Weaver, x: Held, *, axis: int) -> Held:
    value = w.tensor(x)
    (chosen,) = _axes(axis, value.type.rank)
    index = w.node("arg_max", value, chosen)
    kept = [n for i, n in enumerate(value.type.shape) if i != chosen]
    return w.node("reshape", index.type.with_shape(tuple(kept)), index)


@tensors(np.dot, method="dot")
def _dot(w: Weaver, a: Held, b: Held) -> Held:
    (x, y), _ = w.joint((a, b))
    if min(x.type.rank, y.type.rank) == 0 or max(x.type.rank, y.type.rank) > 2:
        note = "use @ for stacks of matrices, * for numbers"
        raise UserError(f"expected vectors or matrices, got {x.type} and {y.type}", note=note)
    return _matmul(w, x, y)


@tensors(np.matmul)
def _matmul(w: Weaver, a: Held, b: Held) -> Held:
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


def _reshaped(w: Weaver, value: NodeValue, shape: Sequence[int]) -> NodeValue:
    if tuple(shape) == value.type.shape:
        return value
    return w.node("reshape", value.type.with_shape(tuple(shape)), value)


@tensors(np.reshape, method="reshape")
def _reshape(w: Weaver, x: Held, *, shape: int | Sequence[int]) -> Held:
    value = w.tensor(x)
    extents = [shape] if isinstance(shape, int) else list(shape)
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
def _transpose(w: Weaver, x: Held, *, axes: Sequence[int] | None = None) -> Held:
    value = w.tensor(x)
    rank = value.type.rank
    shuffle = tuple(range(rank))[::-1] if axes is None else tuple(axis % rank for axis in axes)
    if sorted(shuffle) != list(range(rank)):
        raise UserError(f"expected every axis of a tensor of rank {rank} once, got {axes}")
    return w.node("transpose", value, shuffle)


@tensors(np.concatenate)
def _concatenate(w: Weaver, parts: Held, *, axis: int = 0) -> Held:
    if not isinstance(parts, tuple) or not parts:
        raise UserError("expected a tuple of at least one tensor")
    values, _ = w.joint(parts)
    return w.node("concat", values, _axes(axis, values[0].type.rank)[0])


@tensors(np.stack)
def _stack(w: Weaver, parts: Held, *, axis: int = 0) -> Held:
    if not isinstance(parts, tuple) or not parts:
        raise UserError("expected a tuple of at least one tensor")
    values, _ = w.joint(parts)
    (place,) = _axes(axis, values[0].type.rank + 1)
    shape = list(values[0].type.extents)
    shape.insert(place, 1)
    return w.node("concat", [_reshaped(w, value, shape) for value in values], place)


@tensors(np.full)
def _full(w: Weaver, *, shape: int | Sequence[int], fill_value: Number, dtype: Any = None) -> Held:
    kind = kind_of(dtype) if dtype is not None else common_kind([fill_value])
    extents = (shape,) if isinstance(shape, int) else tuple(shape)
    return w.node("splat", Type(kind, extents), fill_value)


@tensors(np.zeros)
def _zeros(w: Weaver, *, shape: int | Sequence[int], dtype: Any = np.float64) -> Held:
    return _full(w, shape=shape, fill_value=0, dtype=dtype)


@tensors(np.ones)
def _ones(w: Weaver, *, shape: int | Sequence[int], dtype: Any = np.float64) -> Held:
    return _full(w, shape=shape, fill_value=1, dtype=dtype)


@tensors(np.zeros_like)
def _zeros_like(w: Weaver, x: Held) -> Held:
    return w.node("splat", w.tensor(x).type, 0)


@tensors(np.ones_like)
def _ones_like(w: Weaver, x: Held) -> Held:
    return w.node("splat", w.tensor(x).type, 1)


@tensors()
def _index(w: Weaver, x: Held, *places: Held, spec: Sequence[Any]) -> Held:
    """`x[...]`: `spec` has an int, a slice or None (a new axis) for each place; "given" is the next of `places`."""
    if isinstance(x, tuple):
        if len(spec) == 1 and isinstance(spec[0], int) and -len(x) <= spec[0] < len(x):
            return x[spec[0]]
        raise UserError(f"expected a constant place in a tuple of {len(x)}, got {spec}")
    value, given = w.tensor(x), iter(places)
    extents = value.type.extents
    if sum(place is not None for place in spec) > len(extents):
        raise UserError(f"expected at most {len(extents)} places in {value.type}, got {len(spec)}")
    cuts, shape, rest = [], [], list(extents)
    for place in spec:
        if place is None:
            shape.append(1)
            continue
        cut = _cut(place, rest.pop(0))
        cuts.append(cut)
        if isinstance(place, slice):
            shape.append(len(cut))
    cuts += [range(extent) for extent in rest]
    if [len(cut) for cut in cuts] != list(extents):
        sliced = value.type.with_shape(tuple([len(cut) for cut in cuts]))
        starts, steps = [cut.start for cut in cuts], [cut.step for cut in cuts]
        value = w.node("slice", sliced, value, tuple(starts), tuple(steps))
    axes = [axis for axis, place in enumerate(p for p in spec if p is not None) if place == "given"]
    for axis in axes:
        value = _taken(w, value, next(given), axis)
    return _reshaped(w, value, [*shape, *rest])


def _cut(place: Any, extent: int) -> range:
    """The places along an axis that are taken; all of them where the place is given later."""
    if place == "given":
        return range(extent)
    if isinstance(place, slice):
        cut = range(*place.indices(extent))
        if cut.step < 1:
            raise UserError(f"expected a positive step, got {cut.step}")
        return cut
    if not -extent <= place < extent:
        raise UserError(f"expected a place from {-extent} to {extent - 1}, got {place}")
    return range(place % extent, place % extent + 1)


def _taken(w: Weaver, value: NodeValue, place: Held, axis: int) -> NodeValue:
    """One element along an axis, which stays with an extent of 1; negative places count from the end."""
    index = w.lifted(place, common_kind([place]))
    if index.type.rank or not index.type.kind.is_integer:
        raise UserError(f"expected one integer as a place, got {index.type}")
    if index.type.kind is not ElemKind.I64:
        index = w.node("convert", index.type.with_kind(ElemKind.I64), index)
    extent = w.splat(value.type.extents[axis], ElemKind.I64)
    negative = w.node("lt", index, w.splat(0, ElemKind.I64))
    index = w.node("select", negative, w.node("add", index, extent), index)
    return w.node("gather", value, _reshaped(w, index, (1,)), axis)
