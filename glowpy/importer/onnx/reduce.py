"""Import of reductions."""

from __future__ import annotations

from collections.abc import Callable

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import normalize_axis
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, reshape
from glowpy.importer.kit.numbers import counted
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.symbolic import product

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
    return n.f.create_reduce_mean(n.name, value, axes).result


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
        given_axes = n.known_ints(1) if n.has(1) else ()
    else:
        given_axes = n.integers("axes") or ()
    if not given_axes and not n.flag("noop_with_empty_axes"):
        given_axes = tuple(range(type.rank))
    axes = tuple(sorted({normalize_axis(axis, type.rank) for axis in given_axes}))
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


@from_onnx("ArgMax", "ArgMin")
def _arg(n: OnnxNode) -> Value:
    """The i64 position of the extreme along an axis: the first one, or the last; a NaN is the most extreme."""
    axis, type = n.axis(n.type(0).rank, 0), n.type(0)
    create = n.f.create_arg_min if n.proto.op_type == "ArgMin" else n.f.create_arg_max
    positions = create(n.name, n.input(0), axis, n.flag("select_last_index")).result
    if n.flag("keepdims", True):
        return positions
    return reshape(n, positions, [size for i, size in enumerate(type.shape) if i != axis])


@from_onnx("Hardmax")
def _hardmax_1(n: OnnxNode) -> Value:
    """Below opset 13 all dimensions from `axis` on are one."""
    shape = n.type(0).shape
    axis = n.axis(len(shape), 1)
    flat = reshape(n, n.value(0), (product(shape[:axis]), product(shape[axis:])))
    return reshape(n, _hot(n, n.operand(flat), 1), shape)


@from_onnx("Hardmax", since=13)
def _hardmax_13(n: OnnxNode) -> Value:
    return _hot(n, n.input(0), n.axis(n.type(0).rank, -1))


def _hot(n: OnnxNode, x: NodeValue, axis: int) -> Value:
    """One at the first maximum along an axis, zero elsewhere."""
    if x.type.count == 0:
        return x
    size, trailing = x.type.shape[axis], (1,) * (x.type.rank - 1 - axis)
    places = n.operand(counted(n, size).reshaped(size, *trailing).value, f"{n.name}_places")
    hot = n.f.create_eq(n.name, places, n.f.create_arg_max(n.name, x, axis, last=False))
    return convert(n, hot.result, x.type.kind)


@from_onnx("CumSum", since=11)
@from_onnx("CumProd", since=26)
def _running(n: OnnxNode) -> NodeValue:
    """Sums or products of all elements before and at each position."""
    axis = normalize_axis(int(n.known_scalar(1)), n.type(0).rank)
    exclusive, reverse = n.flag("exclusive"), n.flag("reverse")
    create = n.f.create_cum_sum if n.proto.op_type == "CumSum" else n.f.create_cum_prod
    return create(n.name, n.input(0), axis, exclusive, reverse).result
