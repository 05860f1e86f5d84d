"""Slices, ranges and shapes that elements decide: what is computed of them at run time, and within which bounds.

Where a slice ends is clamped into what is sliced, and so has a bound. Other extents need one that follows from how they
are computed: `bounds_of` looks at that. What has none must be known while compiling.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from typing import TypeAlias

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape, normalize_axis
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    AddNode,
    ArgMaxNode,
    ArgMinNode,
    BroadcastNode,
    ConcatNode,
    ConvertNode,
    DivNode,
    ExtentsNode,
    GatherNode,
    MaxNode,
    MinNode,
    MulNode,
    NegNode,
    NonMaxSuppressionNode,
    NonZeroNode,
    ReduceAddNode,
    ReduceMaxNode,
    ReduceMinNode,
    ReshapeNode,
    SelectNode,
    SliceNode,
    SplatNode,
    SubNode,
    TransposeNode,
    UniqueNode,
)
from glowpy.importer.onnx.data_movement import convert, reshape, slice_axis
from glowpy.importer.onnx.node import OnnxNode, Value
from glowpy.importer.onnx.numbers import Numbers, counted
from glowpy.support.errors import UserError
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, ceil_div, highest, least, lowest

__all__ = [
    "bounds_of",
    "computed_range",
    "computed_slices",
    "dims_of",
    "highest_of",
]

# Slices.


def computed_slices(n: OnnxNode, axes: Sequence[int] | None, steps: Sequence[int] | None) -> Value:
    """A slice whose starts or ends are computed at run time, of one axis after the other."""
    value = n.value(0)
    starts, ends = (convert(n, n.value(index), ElemKind.I64) for index in (1, 2))
    if starts.type.rank != 1 or not is_same_shape(starts.type.shape, ends.type.shape):
        raise UserError(f"expected vectors as starts and ends, got {starts.type} and {ends.type}")
    (length,) = starts.type.extents
    axes = range(length) if axes is None else axes
    steps = [1] * length if steps is None else steps
    if not length == len(axes) == len(steps) or 0 in steps:
        raise UserError(f"expected {length} axes, and steps other than 0, got {axes} and {steps}")
    for index, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = (slice_axis(n, places, 0, index, 1, 1) for places in (starts, ends))
        value = _sliced(n, value, normalize_axis(axis, value.type.rank), start, end, step)
    return value


def _sliced(n: OnnxNode, value: Value, axis: int, begin: Value, end: Value, step: int) -> Value:
    """Both are i64[1], count from the end if negative, and are clamped into the axis, as ONNX says."""
    size = value.type.shape[axis]
    whole = max(highest(size), 1)  # a longer step leads to the first element, too, but may overflow
    step = max(min(step, whole), -whole)
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = _clamped(Numbers(n, begin), size, least(0, high), high)
    last = _clamped(Numbers(n, end), size, low, high)
    distance = last - first if step > 0 else first - last
    extent = _found(n, distance.at_least(0), abs(step), highest(size))
    if first.known == 0 and step == 1 and isinstance(size, int):
        return slice_axis(n, value, axis, 0, extent, 1)
    shape = (*value.type.shape[:axis], extent, *value.type.shape[axis + 1 :])
    type, start = value.type.with_shape(shape), first.operand
    return n.f.create_dynamic_slice(n.name, type, n.operand(value), start, axis, step).result


def _clamped(place: Numbers, size: Dim, low: Dim, high: Dim) -> Numbers:
    return place.where(place >= 0, place + size).at_most(high).at_least(low)


def _found(n: OnnxNode, distance: Numbers, step: int, most: int) -> Dim:
    """How many steps it takes to cover a distance, an i64[1] between 0 and the most."""
    if step > 1:
        distance = (distance + (step - 1)) // step
    return n.found(distance.value, f"{n.name}_count", ceil_div(most, step))


# Extents with bounds.


def dims_of(n: OnnxNode, index: int) -> tuple[Dim, ...]:
    """Input `index`, a scalar or vector of integers, as extents: known ones, or such as the network finds.

    Raises ValueNeededError where it is not known how large one may be.
    """
    value = n.any_value(index)
    if not isinstance(value, NodeValue) or value.type.rank > 1 or not value.type.is_static:
        return n.known_dims(index)
    found: list[Dim] = []
    for place in range(int(highest(value.type.count))):
        source, at = _source(value, place)
        dim = _known(source, at)
        bounds = bounds_of(source) if dim is None else None
        if dim is None and (bounds is None or bounds[0] < 0):
            return n.known_dims(index)
        if dim is None and bounds is not None:
            elements = reshape(n, convert(n, source, ElemKind.I64), (source.type.count,))
            element = slice_axis(n, elements, 0, at, 1, 1)
            dim = n.found(element, f"{n.name}_size", bounds[1], bounds[0])
        assert dim is not None
        found.append(dim)
    return tuple(found)


def _source(value: NodeValue, place: int) -> tuple[NodeValue, int]:
    """The vector or scalar that an element of a vector comes from, and where it is there."""
    node = value.node
    while isinstance(node, ConcatNode | ReshapeNode) and node.inputs[0].type.rank < 2:
        for piece in node.inputs:
            if not isinstance(piece.type.count, int):
                return value, place
            if place < piece.type.count:
                value = piece
                break
            place -= piece.type.count
        node = value.node
    return value, place


def _known(value: NodeValue, place: int) -> Dim | None:
    """An element that is a constant or a known extent."""
    if value.constant is not None:
        return int(value.constant.array.reshape(-1)[place])
    return value.node.values[place] if isinstance(value.node, ExtentsNode) else None


def computed_range(n: OnnxNode) -> Value:
    """The integers from a start to a limit, of which one is computed at run time.

    Raises ValueNeededError for numbers of other kinds, and where it is not known how many there may be.
    """
    ends = [n.value(index) for index in range(2)]
    bounds = [known for known in map(_ends, ends) if known is not None]
    if len(bounds) < 2 or not n.kind(0).is_integer:
        for index in range(2):
            n.known(index)
    delta = int(n.known_scalar(2))
    if delta == 0:
        raise UserError("expected a delta other than 0")
    start, limit = (Numbers(n, convert(n, end, ElemKind.I64)).reshaped(1) for end in ends)
    (first, _), (_, last) = bounds if delta > 0 else bounds[::-1]
    distance = limit  # of a range from 0 on, which is one extent with others that are as large
    if bounds[0] != (0, 0) or delta < 0 or bounds[1][0] < 0:
        distance = (limit - start if delta > 0 else start - limit).at_least(0)
    extent = _found(n, distance, abs(delta), max(last - first, 0))
    return (counted(n, extent) * delta + start).to(n.kind(0)).value


def _ends(value: Value) -> tuple[int, int] | None:
    """The least and the greatest that a number can be; None if that is not known."""
    if isinstance(value, NodeValue):
        return bounds_of(value)
    item = int(value.array.reshape(-1)[0])
    return item, item


Bounds: TypeAlias = tuple[float, float]
"""The least and the greatest that an element can be."""

_ANYTHING: Bounds = -inf, inf
_bounds: Rules[Callable[..., Bounds]] = Rules("bounds")
"""`@_bounds(XNode)` functions take the result and the bounds of the node's inputs."""


def bounds_of(value: NodeValue) -> tuple[int, int] | None:
    """Between which integers the elements are, as far as it follows from how they are computed.

    None if it does not: they may be what integers of 32 bits are.
    """
    low, high = _of(value, {})
    widest = ElemKind.I32.limits
    return (int(low), int(high)) if widest[0] < low and high < widest[1] else None


def highest_of(value: NodeValue) -> int | None:
    """The highest integer that an element can be; None if that does not follow from how they are computed."""
    _, high = _of(value, {})
    return int(high) if high < ElemKind.I32.limits[1] else None


def _of(root: NodeValue, known: dict[NodeValue, Bounds]) -> Bounds:
    work = [root]
    while work:
        value = work[-1]
        node = value.node
        rule = None if node is None else _bounds.get(type(node))
        inputs = node.inputs if node is not None and rule is not None else ()
        missing = [operand for operand in inputs if operand not in known]
        if missing:
            work += missing
            continue
        work.pop()
        low, high = rule(value, *(known[operand] for operand in inputs)) if rule else _stored(value)
        known[value] = _within(value.type.kind, low, high)
    return known[root]


def _within(kind: ElemKind, low: float, high: float) -> Bounds:
    """The same bounds, if elements of a kind can have them: else numbers wrapped, and may be all that there are."""
    if kind is ElemKind.BOOL:
        return 0, 1
    if not kind.is_integer:
        return _ANYTHING
    least, most = kind.limits
    return (low, high) if least <= low and high <= most else (least, most)


def _stored(value: NodeValue) -> Bounds:
    constant = value.constant
    if constant is None or constant.type.is_empty or not constant.type.kind.is_integer:
        return _ANYTHING
    return int(constant.array.min()), int(constant.array.max())


@_bounds(ReshapeNode)
@_bounds(TransposeNode)
@_bounds(BroadcastNode)
@_bounds(SliceNode)
@_bounds(ReduceMaxNode)
@_bounds(ReduceMinNode)
def _same(result: NodeValue, input: Bounds) -> Bounds:
    del result
    return input


@_bounds(GatherNode)
def _gathered(result: NodeValue, input: Bounds, indices: Bounds) -> Bounds:
    del result, indices
    return input


@_bounds(ConcatNode)
def _joined(result: NodeValue, *inputs: Bounds) -> Bounds:
    del result
    return min(low for low, _ in inputs), max(high for _, high in inputs)


@_bounds(SelectNode)
def _selected(result: NodeValue, condition: Bounds, lhs: Bounds, rhs: Bounds) -> Bounds:
    del condition
    return _joined(result, lhs, rhs)


@_bounds(ConvertNode)
def _converted(result: NodeValue, input: Bounds) -> Bounds:
    return input if result.type.kind.is_integer else _ANYTHING


@_bounds(SplatNode)
def _splat(result: NodeValue) -> Bounds:
    value = result.node.attrs["value"] if isinstance(result.node, Node) else inf
    return value, value


@_bounds(ExtentsNode)
def _extents(result: NodeValue) -> Bounds:
    values = result.node.attrs["values"] if isinstance(result.node, Node) else ()
    return min(map(lowest, values), default=0), max(map(highest, values), default=0)


@_bounds(AddNode)
def _sum(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    return lhs[0] + rhs[0], lhs[1] + rhs[1]


@_bounds(SubNode)
def _difference(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    return lhs[0] - rhs[1], lhs[1] - rhs[0]


@_bounds(NegNode)
def _negative(result: NodeValue, input: Bounds) -> Bounds:
    del result
    return -input[1], -input[0]


@_bounds(MulNode)
def _product(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    if not result.type.kind.is_integer:
        return _ANYTHING
    ends = [one * other for one in lhs for other in rhs]
    return min(ends), max(ends)


@_bounds(DivNode)
def _quotient(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    """Integers are divided towards zero."""
    if not result.type.kind.is_integer or rhs[0] < 1:
        return _ANYTHING
    ends = [int(abs(one) // other) * (1 if one > 0 else -1) for one in lhs for other in rhs]
    return min(ends), max(ends)


@_bounds(MinNode)
def _least(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    return min(lhs[0], rhs[0]), min(lhs[1], rhs[1])


@_bounds(MaxNode)
def _greatest(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    return max(lhs[0], rhs[0]), max(lhs[1], rhs[1])


@_bounds(ReduceAddNode)
def _total(result: NodeValue, input: Bounds) -> Bounds:
    assert result.node is not None
    if not result.type.kind.is_integer:
        return _ANYTHING
    count = highest(result.node.inputs[0].type.count)
    return min(input[0] * count, 0), max(input[1] * count, 0)


@_bounds(ArgMaxNode)
@_bounds(ArgMinNode)
@_bounds(NonZeroNode)
@_bounds(UniqueNode)
@_bounds(NonMaxSuppressionNode)
def _places(result: NodeValue, *inputs: Bounds) -> Bounds:
    """Places in the first input, or how many there are of them. What is not defined is nothing that is read."""
    del inputs
    assert result.node is not None
    counts = [highest(value.type.count) for value in (*result.node.inputs[:2], result)]
    return 0, max(counts)
