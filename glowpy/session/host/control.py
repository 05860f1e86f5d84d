"""If, Loop, Scan and SequenceMap run by a session, round by round: each of their graphs is split as the model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.importer.bodies import (
    check_branches,
    check_loop,
    check_mapped,
    check_rounds,
    check_truth,
    one_length,
    scan_directions,
    scan_states,
)
from glowpy.importer.value_types import UNDEFINED, HostValue, TensorType, ValueType
from glowpy.rounds import ENDLESS, Rounds
from glowpy.session.host.node import Body, HostNode, on_host
from glowpy.support.errors import (
    FrozenError,
    NoRoomError,
    ResourceError,
    UserError,
)

__all__: list[str] = []

Outer = Mapping[str, HostValue]
"""Values of the graph around, which the graphs of a node read, by name."""


def _is_true(value: HostValue, what: str) -> bool:
    if not isinstance(value, np.ndarray) or value.dtype.kind != "b" or value.size != 1:
        check_truth(_type(value), what)
    return bool(value.item())


def _type(value: HostValue) -> Type | None:
    """The type of a tensor of numbers; None for all else."""
    is_tensor = isinstance(value, np.ndarray) and value.dtype.kind != "O"
    return Type(ElemKind.of(value.dtype), value.shape) if is_tensor else None


@on_host("If")
def _if(n: HostNode) -> Callable[..., tuple[HostValue, ...]]:
    check_branches(n)

    def compute(outer: Outer, condition: Array) -> tuple[HostValue, ...]:
        branch = "then_branch" if _is_true(condition, "the condition") else "else_branch"
        return tuple(n.bodies[branch]((), outer))

    return compute


@on_host("Loop")
def _loop(n: HostNode) -> Callable[..., tuple[HostValue, ...]]:
    check_loop(n)
    body = n.bodies["body"]
    counters = [(1,) * len(_extents(type)) for type in body.input_types[:2]]

    def compute(
        outer: Outer, limit: Array | None, condition: Array | None, *carried: HostValue
    ) -> tuple[HostValue, ...]:
        if limit is not None:
            check_rounds(_type(limit))
        most = ENDLESS if limit is None else int(limit.reshape(-1)[0])
        axes = [0] * (len(body.output_types) - 1 - len(carried))
        loop = Rounds([*carried], (), [[] for _ in axes], min(most, ENDLESS), counters)
        loop.goes_on = condition is None or _is_true(condition, "the condition")
        while not loop.is_over:
            if body.advance(loop, outer):
                continue
            keep, *results = body(loop.inputs(), outer)
            loop.goes_on = _is_true(keep, "the next condition")
            _end_round(loop, results)
        if loop.round:
            return (*loop.state, *_stacked(loop, axes))
        first = [np.array(0, np.int64), np.array(True), *loop.state]
        return (*loop.state, *_stacked_none(body, first, outer, axes))

    return compute


def _end_round(loop: Rounds, results: Sequence[HostValue]) -> None:
    """Notes what a round has given."""
    count = len(loop.state)
    loop.state = [*results[:count]]
    for rows, item in zip(loop.stacked, results[count:], strict=False):
        if not isinstance(item, np.ndarray):
            raise UserError("expected tensors to stack, got a sequence, an optional or a map")
        rows.append(item[np.newaxis])
    loop.round += 1


def _stacked(loop: Rounds, axes: Sequence[int]) -> list[Array]:
    """Stacks the results of rounds, one after the other along a new axis."""
    results = []
    for rows, axis in zip(loop.stacked, axes, strict=True):
        if len({part.shape[1:] for part in rows}) != 1:
            raise UserError("expected outputs of one shape in all rounds")
        stack = np.concatenate(rows)
        place = normalize_axis(axis, stack.ndim)
        results.append(np.moveaxis(stack, 0, place).copy() if place else stack)
    return results


def _stacked_none(
    body: Body, inputs: Sequence[HostValue], outer: Outer, axes: Sequence[int]
) -> list[Array]:
    """Creates the results of no rounds: their items have the extents that a round of these inputs would give.

    Where the model does not say all of them, a round is tried, and what it computes is forgotten. Perhaps there is
    none because none could run: then extents that are not known are 0, as they are in onnxruntime.
    """
    types = body.output_types[len(body.output_types) - len(axes) :]
    items = [_declared_item(type) for type in types]
    if not all(map(_is_known, types)):
        try:
            items = body(inputs, outer)[-len(axes) :]
        except UserError as error:
            if isinstance(error, FrozenError | NoRoomError | ResourceError):
                raise  # which is not about the round
    results = []
    for item, axis in zip(items, axes, strict=True):
        shape = list(item.shape)
        shape.insert(normalize_axis(axis, len(shape) + 1), 0)
        results.append(np.zeros(shape, item.dtype))
    return results


def _is_known(type: ValueType | None) -> bool:
    """Whether a type says the kind and every extent."""
    if not isinstance(type, TensorType) or type.element == UNDEFINED or type.dims is None:
        return False
    return all(isinstance(dim, int) for dim in type.dims)


def _declared_item(type: ValueType | None) -> Array:
    """Zeros of a type, as far as that is known."""
    if not isinstance(type, TensorType) or type.element == UNDEFINED:
        return np.zeros(_extents(type), np.float32)
    return np.zeros(_extents(type), type.dtype)


def _extents(type: ValueType | None) -> list[int]:
    """The extents of a tensor, with 0 for those that are not known; none without a rank."""
    dims = (type.dims or ()) if isinstance(type, TensorType) else ()
    return [dim if isinstance(dim, int) else 0 for dim in dims]


def _slice_of_none(item: Array, axis: int) -> Array:
    """Creates an item of the shape that a slice along an axis of no extent would have."""
    shape = [size for place, size in enumerate(item.shape) if place != axis]
    return np.full(shape, "", object) if item.dtype == object else np.zeros(shape, item.dtype)


@on_host("Scan")
def _scan(n: HostNode) -> Callable[..., tuple[HostValue, ...]]:
    body, num_states = n.bodies["body"], scan_states(n, n.num_inputs)
    ins = scan_directions(n, "scan_input", n.num_inputs - num_states)
    outs = scan_directions(n, "scan_output", len(body.output_types) - num_states)

    def compute(outer: Outer, *inputs: HostValue) -> tuple[HostValue, ...]:
        state, scanned = inputs[:num_states], inputs[num_states:]
        axes = [
            normalize_axis(axis, item.ndim) for (axis, _), item in zip(ins, scanned, strict=True)
        ]
        length = one_length([item.shape[axis] for axis, item in zip(axes, scanned, strict=True)])
        stacks = [
            _from_front(item, axis, backwards=back)
            for item, axis, (_, back) in zip(scanned, axes, ins, strict=True)
        ]
        loop = Rounds([*state], stacks, [[] for _ in outs], length, ())
        while not loop.is_over:
            if not body.advance(loop, outer):
                _end_round(loop, body(loop.inputs(), outer))
        places = [axis for axis, _ in outs]
        if length:
            stacked = _stacked(loop, places)
        else:
            slices = [_slice_of_none(item, axis) for item, axis in zip(scanned, axes, strict=True)]
            stacked = _stacked_none(body, [*state, *slices], outer, places)
        turned = [
            np.flip(item, axis) if back else item
            for item, (axis, back) in zip(stacked, outs, strict=True)
        ]
        return (*loop.state, *turned)

    return compute


def _from_front(item: Array, axis: int, *, backwards: bool) -> Array:
    """Moves the scanned axis to the front, and reverses it if the scan runs backwards."""
    moved = np.moveaxis(item, axis, 0)
    return np.ascontiguousarray(np.flip(moved, 0) if backwards else moved)


@on_host("SequenceMap")
def _sequence_map(n: HostNode) -> Callable[..., tuple[list[HostValue], ...]]:
    """Other inputs than the first are sequences of the same length, or tensors that every call gets."""
    check_mapped(n)
    body = n.bodies["body"]

    def compute(outer: Outer, *inputs: HostValue) -> tuple[list[HostValue], ...]:
        length = len(inputs[0])
        for item in inputs:
            if isinstance(item, list) and len(item) != length:
                raise UserError(f"expected sequences of the length {length}, got {len(item)}")
        lists: list[HostValue] = [[] for _ in range(n.num_outputs)]
        loop = Rounds(lists, (), [], length, (), mapped=inputs)
        while not loop.is_over:
            if not body.advance(loop, outer):
                for items, item in zip(loop.state, body(loop.inputs(), outer), strict=False):
                    items.append(item)
                loop.round += 1
        return tuple(loop.state)

    return compute
