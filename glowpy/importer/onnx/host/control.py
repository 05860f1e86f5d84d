"""Operators with graphs, where machine code cannot have what goes in or out: each graph is split as the model is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
import onnx

from glowpy.core.shape import normalize_axis
from glowpy.core.tensor import Array
from glowpy.importer.onnx.host.node import HostNode, number, on_host
from glowpy.importer.onnx.host.types import HostValue, dtype_of
from glowpy.support.errors import UnsupportedError, UserError

__all__: list[str] = []

Outer = Mapping[str, HostValue]
"""What the graphs read of the graph around them."""


def _truth(what: str, condition: Array) -> bool:
    if condition.size != 1 or condition.dtype != np.bool_:
        raise UserError(f"expected one bool as {what}, got {condition.dtype} {condition.shape}")
    return bool(condition.reshape(-1)[0])


@on_host("If")
def _if(n: HostNode) -> Callable[..., tuple[HostValue, ...]]:
    def compute(outer: Outer, condition: Array) -> tuple[HostValue, ...]:
        branch = "then_branch" if _truth("condition", condition) else "else_branch"
        return tuple(n.bodies[branch]((), outer))

    return compute


@on_host("Loop")
def _loop(n: HostNode) -> Callable[..., tuple[HostValue, ...]]:
    body = n.bodies["body"]

    def compute(
        outer: Outer, trips: Array | None, condition: Array | None, *carried: HostValue
    ) -> tuple[HostValue, ...]:
        most = None if trips is None else number("trip count", trips)
        goes_on = condition is None or _truth("condition", condition)
        state, trip = list(carried), 0
        _check_outputs(body.output_types, 1 + len(state))
        rows: list[list[HostValue]] = []
        while goes_on and (most is None or trip < most):
            kept, *results = body([np.array(trip, np.int64), np.array(goes_on), *state], outer)
            goes_on = _truth("condition", kept)
            state = results[: len(state)]
            rows.append(results[len(state) :])
            trip += 1
        types = body.output_types[1 + len(state) :]
        return (*state, *_stacked(rows, types, [0] * len(types)))

    return compute


def _check_outputs(types: Sequence[object], least: int) -> None:
    if len(types) < least:
        raise UserError(f"expected a body that gives at least {least} outputs, got {len(types)}")


def _numbers(n: HostNode, name: str, count: int) -> Sequence[int]:
    """One number for each of what is scanned or stacked; zeros where none are given."""
    numbers = n.integers(name) or (0,) * count
    if len(numbers) != count:
        raise UserError(f"expected {count} numbers in {name}, got {len(numbers)}")
    return numbers


def _stacked(
    rows: Sequence[Sequence[HostValue]],
    types: Sequence[onnx.TypeProto | None],
    axes: Sequence[int],
) -> list[Array]:
    """What each trip gave, one after the other along a new axis: empty after none, as far as the types say."""
    results = []
    for index, (type, axis) in enumerate(zip(types, axes, strict=True)):
        items = [row[index] for row in rows]
        if items:
            if len({item.shape for item in items}) != 1:
                raise UserError("expected outputs of one shape in all trips")
            results.append(np.stack(items, normalize_axis(axis, items[0].ndim + 1)))
            continue
        tensor = onnx.TypeProto.Tensor() if type is None else type.tensor_type
        dims = [dim.dim_value for dim in tensor.shape.dim]
        dims.insert(normalize_axis(axis, len(dims) + 1), 0)
        results.append(np.zeros(dims, dtype_of(tensor.elem_type or 1)))
    return results


@on_host("Scan", since=9)
def _scan(n: HostNode) -> Callable[..., tuple[HostValue, ...]]:
    body, count = n.bodies["body"], n.integer("num_scan_inputs", 0)

    def compute(outer: Outer, *inputs: HostValue) -> tuple[HostValue, ...]:
        if not 1 <= count <= len(inputs):
            raise UserError(f"expected num_scan_inputs from 1 to {len(inputs)}, got {count}")
        state, scanned = list(inputs[: len(inputs) - count]), inputs[len(inputs) - count :]
        _check_outputs(body.output_types, len(state))
        given = _numbers(n, "scan_input_axes", count)
        axes = [normalize_axis(axis, item.ndim) for axis, item in zip(given, scanned, strict=True)]
        backward = _numbers(n, "scan_input_directions", count)
        lengths = {item.shape[axis] for axis, item in zip(axes, scanned, strict=True)}
        if len(lengths) != 1:
            raise UserError(f"expected inputs of one length, got {sorted(lengths)}")
        length = lengths.pop()
        rows: list[list[HostValue]] = []
        for trip in range(length):
            places = [length - 1 - trip if back else trip for back in backward]
            slices = [
                np.take(item, place, axis)
                for item, place, axis in zip(scanned, places, axes, strict=True)
            ]
            results = body([*state, *slices], outer)
            state = results[: len(state)]
            rows.append(results[len(state) :])
        types = body.output_types[len(state) :]
        outs = _numbers(n, "scan_output_axes", len(types))
        flipped = _numbers(n, "scan_output_directions", len(types))
        stacked = _stacked(rows, types, outs)
        turned = [
            np.flip(item, axis) if back else item
            for item, back, axis in zip(stacked, flipped, outs, strict=True)
        ]
        return (*state, *turned)

    return compute


@on_host("Scan", since=8)
def _batched_scan(n: HostNode) -> Callable[..., HostValue]:
    raise UnsupportedError(
        "Scan of opset 8 on strings or sequences is not supported",
        note="export the model at opset 9 or later",
    )


@on_host("SequenceMap", since=17)
def _sequence_map(n: HostNode) -> Callable[..., tuple[list[HostValue], ...]]:
    """Other inputs than the first are sequences of the same length, or tensors that every call gets."""
    body = n.bodies["body"]

    def compute(outer: Outer, *inputs: HostValue) -> tuple[list[HostValue], ...]:
        length = len(inputs[0])
        for item in inputs:
            if isinstance(item, list) and len(item) != length:
                raise UserError(f"expected sequences of the length {length}, got {len(item)}")
        rows = [
            body([item[i] if isinstance(item, list) else item for item in inputs], outer)
            for i in range(length)
        ]
        return tuple([row[index] for row in rows] for index in range(n.num_outputs))

    return compute
