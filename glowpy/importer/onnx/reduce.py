"""Import of reductions."""

from __future__ import annotations

import math
from collections.abc import Callable

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.onnx.moves import convert, reshape
from glowpy.importer.onnx.node import OnnxNode, Value, from_onnx

__all__: list[str] = []

Axes = tuple[int, ...]
Reduction = Callable[[OnnxNode, NodeValue, Axes], NodeValue]


def _sum(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    return n.f.create_reduce_add(n.name, value, axes).result


def _prod(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    return n.f.create_reduce_mul(n.name, value, axes).result


def _max(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    return n.f.create_reduce_max(n.name, value, axes).result


def _min(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    return n.f.create_reduce_min(n.name, value, axes).result


def _mean(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    """Integers are summed and divided."""
    if value.type.kind.is_float:
        return n.f.create_reduce_mean(n.name, value, axes).result
    count = math.prod(value.type.shape[axis] for axis in axes)
    divisor = n.f.create_splat(f"{n.name}_count", Type(value.type.kind, ()), float(count))
    return n.f.create_div(n.name, _sum(n, value, axes), divisor).result


def _square_sum(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    return _sum(n, n.f.create_mul(n.name, value, value).result, axes)


def _log_sum_exp(n: OnnxNode, value: NodeValue, axes: Axes) -> NodeValue:
    """Shifted by the maximum, so that nothing overflows; by 0 where the maximum is infinite."""
    f = n.f
    top = _max(n, value, axes)
    zero = f.create_splat(f"{n.name}_zero", Type(value.type.kind, ()), 0.0)
    finite = f.create_eq(n.name, f.create_sub(n.name, top, top), zero)
    shift = f.create_select(n.name, finite, top, zero)
    total = _sum(n, f.create_exp(n.name, f.create_sub(n.name, value, shift)).result, axes)
    return f.create_add(n.name, f.create_log(n.name, total), shift).result


_REDUCTIONS: dict[str, Reduction] = {
    "ReduceSum": _sum,
    "ReduceProd": _prod,
    "ReduceMax": _max,
    "ReduceMin": _min,
    "ReduceMean": _mean,
    "ReduceSumSquare": _square_sum,
    "ReduceL1": lambda n, value, axes: _sum(n, n.f.create_abs(n.name, value).result, axes),
    "ReduceL2": lambda n, value, axes: n.f.create_sqrt(n.name, _square_sum(n, value, axes)).result,
    "ReduceLogSum": lambda n, value, axes: n.f.create_log(n.name, _sum(n, value, axes)).result,
    "ReduceLogSumExp": _log_sum_exp,
}
_ROOTED = frozenset({"ReduceL2", "ReduceLogSum", "ReduceLogSumExp"})
"""Reductions through a function that only floats have."""


@from_onnx(*_REDUCTIONS)
def _reduce(n: OnnxNode) -> Value:
    """Axes are an attribute, or an input from opset 18 on (ReduceSum: 13).

    Without axes all dimensions are reduced, unless a flag says that none is.
    """
    op_type, type = n.proto.op_type, n.type(0)
    if n.opset >= (13 if op_type == "ReduceSum" else 18):
        given = n.known_ints(1) if n.has(1) else ()
    else:
        given = n.integers("axes") or ()
    if not given and not n.flag("noop_with_empty_axes"):
        given = tuple(range(type.rank))
    axes = tuple(sorted({normalize_axis(axis, type.rank) for axis in given}))
    # A reduction over nothing still squares, takes logarithms, and so on; what only sums is left alone.
    kind = _computed_in(op_type, type.kind)
    operand = n.operand(convert(n, n.value(0), kind), n.proto.input[0])
    reduced = convert(n, _REDUCTIONS[op_type](n, operand, axes), type.kind)
    if n.flag("keepdims", True):
        return reduced
    return reshape(n, reduced, [size for i, size in enumerate(type.shape) if i not in axes])


def _computed_in(op_type: str, kind: ElemKind) -> ElemKind:
    if kind is ElemKind.BOOL:
        return ElemKind.U8
    return ElemKind.F64 if op_type in _ROOTED and not kind.is_float else kind
