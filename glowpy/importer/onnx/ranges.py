"""Ranges: known, computed of extents, or of numbers that are computed at run time, which bounds make an extent of."""

from __future__ import annotations

import math

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.bounds import interval_of
from glowpy.importer.kit.extents import exact_ratio
from glowpy.importer.kit.moves import convert
from glowpy.importer.kit.numbers import Numbers, counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode
from glowpy.support.errors import UserError
from glowpy.support.symbolic import UndecidedError, ceil_div, greatest

__all__ = ["imported_range"]


def imported_range(n: OnnxNode) -> Value:
    """The numbers from a start to a limit."""
    inputs = [n.any_value(index) for index in range(3)]
    if any(value.type.count != 1 for value in inputs if isinstance(value, Tensor)):
        raise UserError("expected scalars as start, limit and delta")
    if all(isinstance(value, Tensor) for value in inputs):
        return _known(n)
    if not any(isinstance(value, NodeValue) for value in inputs):
        numbers = _of_extents(n)
        if numbers is not None:
            return numbers
    return _computed(n)


def _known(n: OnnxNode) -> Tensor:
    start, limit, delta = (n.known(index).array.reshape(-1) for index in range(3))
    kind = n.type(0).kind
    wide = _wide(kind)
    first, last, step = (array.astype(wide.dtype)[0].item() for array in (start, limit, delta))
    if not step or not all(math.isfinite(number) for number in (first, last, step)):
        raise UserError("expected finite numbers and a delta other than 0")
    count = max(math.ceil((last - first) / step) if kind.is_float else -((first - last) // step), 0)
    type = Type(kind, (count,))
    if type.size > 1 << 28:
        raise n.unsupported(f"a range of {count} elements")
    steps = np.arange(count).astype(wide.dtype)
    positions = np.asarray(first, wide.dtype) + steps * np.asarray(step, wide.dtype)
    return Tensor(type, positions.astype(kind.dtype))


def _wide(kind: ElemKind) -> ElemKind:
    """Narrow floats count in f32, as opset 27 says."""
    return ElemKind.F32 if kind in (ElemKind.F16, ElemKind.BF16) else kind


def _of_extents(n: OnnxNode) -> Value | None:
    """One whose numbers are known extents, or floats that are exact; None for other floats."""
    items = [
        array.reshape(-1)[0] for index in range(3) if (array := n.known_array(index)) is not None
    ]
    try:
        pairs = [exact_ratio(item) for item in items]
    except UndecidedError:
        return None
    scale = math.lcm(*(divisor for _, divisor in pairs))
    start, limit, delta = (dim * (scale // divisor) for dim, divisor in pairs)
    if delta == 0:
        raise UserError("expected a delta other than 0")
    up = delta > 0
    count = ceil_div(limit - start if up else start - limit, delta if up else -delta)
    places = counted(n, greatest(count, 0))
    kind = n.kind(0)
    if scale == 1:
        return (places * delta + start).to(kind).value
    numbers = (places * delta + start).to(_wide(kind))
    return (numbers / scale).to(kind).value


def _computed(n: OnnxNode) -> Value:
    """One of which some numbers are computed at run time.

    Raises ValueNeededError where it is not known whether it goes up, or how many there may be.
    """
    kind, ends = n.kind(0), [_ends(n.value(index)) for index in range(3)]
    slowest, fastest = ends[2]
    if slowest == fastest == 0:
        raise UserError("expected a delta other than 0")
    if slowest <= 0 <= fastest:
        n.known(2)
    up = slowest > 0
    lower, upper = (ends[0], ends[1]) if up else (ends[1], ends[0])
    most = max(upper[1] - lower[0], 0) / min(abs(slowest), abs(fastest))
    wide = _wide(kind) if kind.is_float else ElemKind.I64
    start, limit, delta = (
        Numbers(n, convert(n, n.value(index), wide)).reshaped(1) for index in range(3)
    )
    distance = limit - start if up else start - limit
    if up and lower[0] == lower[1] == 0:
        distance = limit  # one extent with others that are as large
    count = _steps(distance, delta if up else -delta)
    if lower[1] > upper[0]:
        count = count.at_least(0)
    bound = math.ceil(most) if most < ElemKind.I32.limits[1] else None
    source = 0 if math.isinf(ends[0][0] if up else ends[0][1]) else 1
    extent = n.found(
        count.value, f"{n.name}_count", bound, _fewest(lower, upper, ends[2]), source=source
    )
    return (counted(n, extent).to(wide) * delta + start).to(kind).value


def _fewest(
    lower: tuple[float, float], upper: tuple[float, float], delta: tuple[float, float]
) -> int:
    """How many numbers there are at least between ends that are within bounds."""
    fewest = max(upper[0] - lower[1], 0) / max(map(abs, delta))
    return math.ceil(fewest) if fewest < ElemKind.I32.limits[1] else 0


def _steps(distance: Numbers, delta: Numbers) -> Numbers:
    """How many steps cover a distance, or less than one if that is not positive."""
    if distance.kind.is_float:
        return (distance.to(ElemKind.F64) / delta.to(ElemKind.F64)).ceil().to(ElemKind.I64)
    if delta.known is not None and delta.known == 1:
        return distance
    return (distance.at_least(0) + (delta - 1)) // delta


def _ends(value: Value) -> tuple[float, float]:
    """The least and the greatest that a number can be."""
    if isinstance(value, NodeValue):
        return interval_of(value)
    item = value.array.reshape(-1)[0].item()
    return item, item
