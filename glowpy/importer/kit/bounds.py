"""Between which numbers elements are, as far as it follows from how they are computed: interval arithmetic.

What elements decide has room for the most that they can say. Ends of intervals are rounded as elements are, so that
they hold for floats, too; NaN has no place among numbers, and whoever reads extents clamps it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from math import inf
from typing import TypeAlias

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    AbsNode,
    AddNode,
    ArgMaxNode,
    ArgMinNode,
    BroadcastNode,
    CeilNode,
    ClipNode,
    ConcatNode,
    ConvertNode,
    CosNode,
    CumSumNode,
    DivNode,
    DynamicSliceNode,
    ErfNode,
    ExpNode,
    ExtentsNode,
    FloorNode,
    GatherNode,
    HardSigmoidNode,
    LogNode,
    MaxNode,
    MinNode,
    MulNode,
    NegNode,
    NonMaxSuppressionNode,
    NonZeroNode,
    PadNode,
    ReduceAddNode,
    ReduceMaxNode,
    ReduceMeanNode,
    ReduceMinNode,
    ReluNode,
    ReshapeNode,
    RoundNode,
    SelectNode,
    SigmoidNode,
    SignNode,
    SinNode,
    SliceNode,
    SoftmaxNode,
    SoftplusNode,
    SplatNode,
    SqrtNode,
    SubNode,
    TanhNode,
    TopKNode,
    TransposeNode,
    UniqueNode,
)
from glowpy.support.rules import Rules
from glowpy.support.symbolic import highest, lowest

__all__ = ["bounds_of", "interval_of"]

Bounds: TypeAlias = tuple[float, float]
"""The least and the greatest that an element can be."""

_ANYTHING: Bounds = -inf, inf
_bounds: Rules[Callable[..., Bounds]] = Rules("bounds")
"""`@_bounds(XNode)` functions take the result and the bounds of the node's inputs."""


def bounds_of(value: NodeValue) -> tuple[int | None, int | None]:
    """Between which integers the elements are, as far as it follows from how they are computed.

    None for an end that does not follow, as integers of 32 bits may be beyond it.
    """
    low, high = interval_of(value)
    least, most = ElemKind.I32.limits
    return (
        math.floor(low) if low > least else None,
        math.ceil(high) if high < most else None,
    )


def interval_of(root: NodeValue) -> Bounds:
    """The least and the greatest that an element can be; infinite where that does not follow.

    Every value is looked at once.
    """
    intervals: dict[NodeValue, Bounds] = {}
    work = [root]
    while work:
        value = work[-1]
        node = value.node
        rule = None if node is None else _bounds.get(type(node))
        inputs = node.inputs if node is not None and rule is not None else ()
        missing = [operand for operand in inputs if operand not in intervals]
        if missing:
            work += missing
            continue
        work.pop()
        low, high = (
            rule(value, *(intervals[operand] for operand in inputs)) if rule else _stored(value)
        )
        intervals[value] = _within(value.type.kind, low, high)
    return intervals[root]


_WIDENED = {ElemKind.F16: 2.0**-7, ElemKind.BF16: 2.0**-4}
"""How much narrow floats may be off, which are rounded here and there."""


def _within(kind: ElemKind, low: float, high: float) -> Bounds:
    """The same bounds, as elements of a kind can have them: integers that wrap may be all that there are."""
    if kind is ElemKind.BOOL:
        return 0, 1
    if kind.is_integer:
        least, most = kind.limits
        return (low, high) if least <= low and high <= most else (least, most)
    if not kind.is_float or math.isnan(low) or math.isnan(high):
        return _ANYTHING
    if kind in _WIDENED:
        return low - abs(low) * _WIDENED[kind], high + abs(high) * _WIDENED[kind]
    with np.errstate(over="ignore"):
        return float(kind.dtype.type(low)), float(kind.dtype.type(high))


def _stored(value: NodeValue) -> Bounds:
    """Those of a constant; what a kind can be, of all else."""
    constant = value.constant
    if constant is not None and not constant.type.is_empty and not constant.type.kind.is_code:
        return constant.array.min().item(), constant.array.max().item()
    return value.type.kind.limits if value.type.kind.is_integer else _ANYTHING


# What moves elements.


@_bounds(ReshapeNode)
@_bounds(TransposeNode)
@_bounds(BroadcastNode)
@_bounds(SliceNode)
@_bounds(ReduceMaxNode)
@_bounds(ReduceMinNode)
@_bounds(ReduceMeanNode)
def _same(result: NodeValue, input: Bounds) -> Bounds:
    """Those of the input, whose mean is rounded again and again."""
    slack = _slack(result)
    return input[0] - abs(input[0]) * slack, input[1] + abs(input[1]) * slack


def _slack(result: NodeValue) -> float:
    """How much a sum of floats, or a mean, may be off, as a part of it."""
    kind = result.type.kind
    return (
        0.0
        if kind.is_integer
        else _terms(result) * (2.0**-52 if kind is ElemKind.F64 else 2.0**-23)
    )


def _terms(result: NodeValue) -> int:
    """How many elements a sum or a mean is of at most; 0 for all else."""
    match result.node:
        case ReduceAddNode() | ReduceMeanNode() as node:
            return math.prod(highest(node.input.type.shape[axis]) for axis in node.axes)
        case CumSumNode() as node:
            return highest(node.input.type.shape[node.axis])
        case _:
            return 0


@_bounds(GatherNode)
@_bounds(DynamicSliceNode)
def _gathered(result: NodeValue, input: Bounds, indices: Bounds) -> Bounds:
    del result, indices
    return input


@_bounds(PadNode)
def _padded(result: NodeValue, input: Bounds) -> Bounds:
    value = result.node.attrs["value"] if isinstance(result.node, Node) else inf
    return _joined(result, input, (value, value))


@_bounds(ConcatNode)
def _joined(result: NodeValue, *inputs: Bounds) -> Bounds:
    del result
    return min(low for low, _ in inputs), max(high for _, high in inputs)


@_bounds(SelectNode)
def _selected(result: NodeValue, condition: Bounds, lhs: Bounds, rhs: Bounds) -> Bounds:
    del condition
    return _joined(result, lhs, rhs)


@_bounds(SplatNode)
def _splat(result: NodeValue) -> Bounds:
    value = result.node.attrs["value"] if isinstance(result.node, Node) else inf
    return value, value


@_bounds(ExtentsNode)
def _extents(result: NodeValue) -> Bounds:
    values = result.node.attrs["values"] if isinstance(result.node, Node) else ()
    return min(map(lowest, values), default=0), max(map(highest, values), default=0)


@_bounds(ConvertNode)
def _converted(result: NodeValue, input: Bounds) -> Bounds:
    """Bounds of a conversion: floats become integers towards zero."""
    if not result.type.kind.is_integer:
        return input
    low, high = input
    return (low if low == -inf else math.trunc(low)), (high if high == inf else math.trunc(high))


# Arithmetic.


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


@_bounds(AbsNode)
def _magnitude(result: NodeValue, input: Bounds) -> Bounds:
    del result
    low, high = input
    return max(low, -high, 0), max(-low, high)


@_bounds(MulNode)
def _product(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    ends = [0 if 0 in (factor, other) else factor * other for factor in lhs for other in rhs]
    return min(ends), max(ends)


@_bounds(DivNode)
def _quotient(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    """Bounds of a quotient: integers are divided towards zero, and what is not finite divides nothing."""
    is_integer = result.type.kind.is_integer
    if rhs[0] < 1 and (is_integer or rhs[0] <= 0):
        return _ANYTHING
    ends = [_divided(dividend, other) for dividend in lhs for other in rhs]
    low, high = min(ends), max(ends)
    return (math.trunc(low), math.trunc(high)) if is_integer else (low, high)


def _divided(one: float, other: float) -> float:
    return 0.0 if other == inf else one / other


@_bounds(MinNode)
def _least(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    return min(lhs[0], rhs[0]), min(lhs[1], rhs[1])


@_bounds(MaxNode)
def _greatest(result: NodeValue, lhs: Bounds, rhs: Bounds) -> Bounds:
    del result
    return max(lhs[0], rhs[0]), max(lhs[1], rhs[1])


@_bounds(ReduceAddNode)
@_bounds(CumSumNode)
def _total(result: NodeValue, input: Bounds) -> Bounds:
    """Bounds of a sum: at most that of all elements, and 0 for none."""
    low, high = (0 if end == 0 else end * _terms(result) for end in input)
    slack = _slack(result)
    return min(low - abs(low) * slack, 0), max(high + abs(high) * slack, 0)


# Functions.


@_bounds(FloorNode)
@_bounds(CeilNode)
@_bounds(RoundNode)
def _whole(result: NodeValue, input: Bounds) -> Bounds:
    """Bounds of a rounding, in whatever direction."""
    del result
    low, high = input
    return (low if math.isinf(low) else math.floor(low)), (
        high if math.isinf(high) else math.ceil(high)
    )


@_bounds(ClipNode)
def _clipped(result: NodeValue, input: Bounds) -> Bounds:
    attrs = result.node.attrs if isinstance(result.node, Node) else {}
    low, high = (min(max(end, attrs["min"]), attrs["max"]) for end in input)
    return low, high


@_bounds(ReluNode)
@_bounds(SoftplusNode)
def _at_least_0(result: NodeValue, input: Bounds) -> Bounds:
    high = max(input[1], 0)
    return 0, high if isinstance(result.node, ReluNode) else high + 1


@_bounds(SqrtNode)
def _root_of(result: NodeValue, input: Bounds) -> Bounds:
    del result
    return _mapped(lambda number: math.sqrt(max(number, 0)), input)


@_bounds(ExpNode)
def _power_of(result: NodeValue, input: Bounds) -> Bounds:
    del result
    return _mapped(lambda number: math.exp(number) if number < _LARGEST_POWER else inf, input)


@_bounds(LogNode)
def _logarithm_of(result: NodeValue, input: Bounds) -> Bounds:
    del result
    return _mapped(lambda number: math.log(number) if number > 0 else -inf, input)


_LARGEST_POWER = 700
"""The exponential function of more is infinite."""
_OFF = 1e-5
"""How much a function may be off."""


def _mapped(function: Callable[[float], float], input: Bounds) -> Bounds:
    """Those of a growing function, and a little more, as it rounds."""
    low, high = map(function, input)
    return low - abs(low) * _OFF, high + abs(high) * _OFF


@_bounds(SigmoidNode)
@_bounds(HardSigmoidNode)
@_bounds(SoftmaxNode)
def _part(result: NodeValue, input: Bounds) -> Bounds:
    del result, input
    return 0, 1


@_bounds(TanhNode)
@_bounds(ErfNode)
@_bounds(SinNode)
@_bounds(CosNode)
@_bounds(SignNode)
def _between_signs(result: NodeValue, input: Bounds) -> Bounds:
    del result, input
    return -1, 1


@_bounds(TopKNode)
def _extreme(result: NodeValue, input: Bounds) -> Bounds:
    return input if result.index == 0 else _places(result)


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
