"""Slices and shapes that elements decide: what is computed of them at run time, and within which bounds.

Where a slice ends is clamped into what is sliced, and so has a bound; `Slice(x, i, i + 1)` has one row at most, and
exactly one where `i` is the number of one of as many rounds as there are rows. Other extents need a bound that follows
from how they are computed: `bounds_of` looks at that. What has none must be known while compiling.
"""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same, is_same_shape, normalize_axis
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConcatNode, ExtentsNode, ReshapeNode
from glowpy.importer.kit.bounds import bounds_of
from glowpy.importer.kit.distances import distance_between, is_known_within
from glowpy.importer.kit.importing import Importing
from glowpy.importer.kit.moves import convert, reshape, slice_axis
from glowpy.importer.kit.numbers import Numbers
from glowpy.importer.kit.values import Value
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, ceil_div, highest, least, lowest, static

__all__ = ["computed_slices", "found_dims", "known_element"]

# Slices.


def computed_slices(
    n: Importing,
    value: Value,
    starts: Value,
    ends: Value,
    axes: Sequence[int] | None,
    steps: Sequence[int] | None,
) -> Value:
    """A slice whose starts or ends are computed at run time, of one axis after the other."""
    starts, ends = (convert(n, places, ElemKind.I64) for places in (starts, ends))
    if starts.type.rank != 1 or not is_same_shape(starts.type.shape, ends.type.shape):
        raise UserError(f"expected vectors as starts and ends, got {starts.type} and {ends.type}")
    numbers = axes if axes is not None else steps
    if numbers is not None and not is_same(starts.type.count, len(numbers)):
        raise UserError(f"expected {len(numbers)} starts and ends, got {starts.type}")
    (length,) = starts.type.extents
    axes = range(length) if axes is None else axes
    steps = [1] * length if steps is None else steps
    if not length == len(axes) == len(steps) or 0 in steps:
        raise UserError(f"expected {length} axes, and steps other than 0, got {axes} and {steps}")
    for index, (axis, step) in enumerate(zip(axes, steps, strict=True)):
        start, end = (slice_axis(n, places, 0, index, 1, 1) for places in (starts, ends))
        value = _sliced(n, value, normalize_axis(axis, value.type.rank), start, end, step)
    return value


def _sliced(n: Importing, value: Value, axis: int, begin: Value, end: Value, step: int) -> Value:
    """Both are i64[1], count from the end if negative, and are clamped into the axis, as ONNX says."""
    size = value.type.shape[axis]
    limit = max(highest(size), 1)  # a longer step leads to the first element, too, but may overflow
    step = max(min(step, limit), -limit)
    low, high = (0, size) if step > 0 else (-1, size - 1)
    first = _clamped(Numbers(n, begin), size, least(0, high), high)
    span, is_exact = _known_span(n, begin, end, step, size)
    extent = ceil_div(span, abs(step))
    if not is_exact:
        last = _clamped(Numbers(n, end), size, low, high)
        distance = (last - first if step > 0 else first - last).at_least(0)
        extent = _found(n, distance, abs(step), min(highest(span), highest(size)))
    if first.known == 0 and step == 1 and isinstance(size, int):
        return slice_axis(n, value, axis, 0, extent, 1)
    shape = (*value.type.shape[:axis], extent, *value.type.shape[axis + 1 :])
    type, start = value.type.with_shape(shape), first.operand
    return n.f.create_dynamic_slice(n.name, type, n.operand(value), start, axis, step).result


def _known_span(n: Importing, begin: Value, end: Value, step: int, size: Dim) -> tuple[Dim, bool]:
    """From how many elements a slice takes its own at most, and whether it is known that it is from so many."""
    near, far = (begin, end) if step > 0 else (end, begin)
    span = distance_between(n.scope, near, far)
    if span is None or lowest(span) < 0:  # one end may count from the end
        return size, False
    last = size if step > 0 else size - 1
    is_inside = all(is_known_within(n.scope, place, 0, last) for place in (near, far))
    return span, is_inside


def _clamped(place: Numbers, size: Dim, low: Dim, high: Dim) -> Numbers:
    return place.where(place >= 0, place + size).at_most(high).at_least(low)


def _found(n: Importing, distance: Numbers, step: int, most: int) -> Dim:
    """How many steps it takes to cover a distance, an i64[1] between 0 and the most."""
    if step > 1:
        distance = (distance + (step - 1)) // step
    return n.found(distance.value, f"{n.name}_count", ceil_div(most, step))


# Extents with bounds.


def found_dims(
    n: Importing, value: NodeValue, index: int, *, signed: bool = False
) -> tuple[Dim, ...] | None:
    """The elements of a scalar or vector of integers, which is input `index`, as extents that the network finds.

    Where less than 0 means something, `signed` says so; None if it is not known whether an element means that. Raises
    ValueNeededError where it is not known how large one may be.
    """
    dims: list[Dim] = []
    (rank,) = static([value.type.count])
    for place in range(rank):
        source, at = _source(value, place)
        dim = _known(source, at)
        if dim is None:
            low, high = bounds_of(source)
            if signed and (low is None or low < 0):
                return None
            elements = reshape(n, convert(n, source, ElemKind.I64), (source.type.count,))
            element = slice_axis(n, elements, 0, at, 1, 1)
            dim = n.found(element, f"{n.name}_size", high, max(low or 0, 0), source=index)
        dims.append(dim)
    return tuple(dims)


def known_element(value: Value, place: int) -> float | None:
    """An element of a vector that is known, although others may not be."""
    if isinstance(value, Tensor):
        return float(value.array.reshape(-1)[place])
    source, at = _source(value, place)
    return None if source.constant is None else float(source.constant.array.reshape(-1)[at])


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
