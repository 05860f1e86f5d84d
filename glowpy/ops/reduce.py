"""Rules of reductions and running sums."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.channel_axis import resized
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.graph.nodes_gen import (
    ArgMaxNode,
    ArgMinNode,
    CumProdNode,
    CumSumNode,
    ReduceAddNode,
    ReduceMaxNode,
    ReduceMeanNode,
    ReduceMinNode,
    ReduceMulNode,
)
from glowpy.ir.insts_gen import (
    ArgMaxInst,
    ArgMinInst,
    CumProdInst,
    CumSumInst,
    ReduceAddInst,
    ReduceMaxInst,
    ReduceMinInst,
    ReduceMulInst,
)
from glowpy.lower import lower
from glowpy.ops.elementwise import scalar
from glowpy.ops.operands import (
    accumulable,
    bounds,
    expect_axes,
    expect_axis,
    expect_numbers,
    widened,
)
from glowpy.ops.positions import positions, restored, rows_along
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, Expr, product

__all__: list[str] = []


@infer(ReduceAddNode, ReduceMulNode, ReduceMeanNode)
def _infer_arithmetic(input: Type, *, axes: Sequence[int]) -> Type:
    expect_numbers("input", input)
    return _reduced(input, axes)


@infer(ReduceMaxNode, ReduceMinNode)
def _infer_extremum(input: Type, *, axes: Sequence[int]) -> Type:
    return _reduced(input, axes)


def _reduced(input: Type, axes: Sequence[int]) -> Type:
    expect_axes(axes, input.rank)
    if input.quant is not None and input.quant.axis in axes:
        raise UserError(f"expected axes other than the channel axis, got {list(axes)} of {input}")
    return resized(input, [1 if axis in axes else size for axis, size in enumerate(input.shape)])


@interpret(ReduceAddInst)
def _reduce_add(result: Tensor, input: Tensor, *, axes: Sequence[int]) -> None:
    wide = accumulable(input.array)
    summed = np.sum(wide, axis=tuple(axes), keepdims=True, dtype=wide.dtype)
    result.array[...] = summed.astype(result.array.dtype)


@interpret(ReduceMulInst)
def _reduce_mul(result: Tensor, input: Tensor, *, axes: Sequence[int]) -> None:
    wide = accumulable(input.array)
    product = np.prod(wide, axis=tuple(axes), keepdims=True, dtype=wide.dtype)
    result.array[...] = product.astype(result.array.dtype)


@interpret(ReduceMaxInst)
def _reduce_max(result: Tensor, input: Tensor, *, axes: Sequence[int]) -> None:
    """The lowest element of the kind where nothing is reduced; logical or for bool."""
    wide, initial = accumulable(input.array), bounds(input.type.kind)[0]
    result.array[...] = np.max(wide, axis=tuple(axes), keepdims=True, initial=initial)


@interpret(ReduceMinInst)
def _reduce_min(result: Tensor, input: Tensor, *, axes: Sequence[int]) -> None:
    """The highest element of the kind where nothing is reduced; logical and for bool."""
    wide, initial = accumulable(input.array), bounds(input.type.kind)[1]
    result.array[...] = np.min(wide, axis=tuple(axes), keepdims=True, initial=initial)


# The mean: a sum in a kind that holds it, divided by the count.


@lower(ReduceMeanNode)
def _lower_reduce_mean(f: Function, n: ReduceMeanNode) -> Operand:
    count = product(n.input.type.shape[axis] for axis in n.axes)
    mean = _mean_of_floats if n.type.kind.is_float else _mean_of_integers
    result = value_of(mean(f, n, count))
    return result if result.type == n.type else f.create_convert(n.name, n.type, result)


def _mean_of_floats(f: Function, n: ReduceMeanNode, count: Dim) -> Operand:
    total = f.create_reduce_add(n.name, widened(f, n.name, n.input), n.axes)
    if isinstance(count, Expr):
        return f.create_div(n.name, total, _counted(f, n, total.type, count))
    factor = 1 / count if count else math.inf
    return f.create_mul(n.name, total, scalar(f, f"{n.name}_factor", total.type, factor))


def _counted(f: Function, n: ReduceMeanNode, like: Type, count: Dim) -> Operand:
    """A count of elements, in a type that broadcasts to another one."""
    if isinstance(count, int):
        return scalar(f, f"{n.name}_count", like, count)
    extents = f.create_extents(f"{n.name}_count", (count,))
    if like.kind is not ElemKind.I64:
        return f.create_convert(f"{n.name}_count", extents.type.with_kind(like.kind), extents)
    return extents


def _mean_of_integers(f: Function, n: ReduceMeanNode, count: Dim) -> Operand:
    """Summed in 64 bits, where a sum of narrower elements does not overflow, and truncated towards zero."""
    kind = ElemKind.I64 if n.type.kind.size < ElemKind.I64.size else n.type.kind
    operand = n.input
    if operand.type.kind is not kind:
        operand = f.create_convert(n.name, operand.type.with_kind(kind), operand).result
    total = f.create_reduce_add(n.name, operand, n.axes)
    return f.create_div(n.name, total, _counted(f, n, total.type, count))


@derivative(ReduceAddNode)
def _differentiate_reduce_add(f: Function, n: ReduceAddNode, g: NodeValue) -> list[Operand | None]:
    return [f.create_broadcast(n.name, n.input.type, g)]


@derivative(ReduceMeanNode)
def _differentiate_reduce_mean(
    f: Function, n: ReduceMeanNode, g: NodeValue
) -> list[Operand | None]:
    count = product(n.input.type.shape[axis] for axis in n.axes)
    share: Operand
    if isinstance(count, Expr):
        share = f.create_div(n.name, g, _counted(f, n, g.type, count))
    else:
        factor = scalar(f, f"{n.name}_factor", g.type, 1 / max(count, 1))
        share = f.create_mul(n.name, g, factor)
    return [f.create_broadcast(n.name, n.input.type, share)]


@derivative(ReduceMulNode)
def _differentiate_reduce_mul(f: Function, n: ReduceMulNode, g: NodeValue) -> list[Operand | None]:
    """The product of all other elements, which is not that of all divided by one: elements may be 0."""
    factors: list[NodeValue] = [n.input]
    for axis in n.axes[:-1]:
        factors.append(f.create_reduce_mul(n.name, factors[-1], (axis,)).result)
    flow: Operand = g
    for axis, factor in zip(reversed(n.axes), reversed(factors), strict=False):
        before = f.create_cum_prod(n.name, factor, axis, True, False)
        after = f.create_cum_prod(n.name, factor, axis, True, True)
        flow = f.create_mul(n.name, flow, f.create_mul(n.name, before, after))
    return [flow]


@derivative(ReduceMaxNode, ReduceMinNode)
def _differentiate_extremum(
    f: Function, n: ReduceMaxNode | ReduceMinNode, g: NodeValue
) -> list[Operand | None]:
    """Elements that share the extremum share its gradient."""
    mask = f.create_convert(n.name, n.input.type, f.create_eq(n.name, n.input, n.result))
    share = f.create_div(n.name, g, f.create_reduce_add(n.name, mask, n.axes))
    return [f.create_mul(n.name, mask, share)]


# The places of extremes (ONNX ArgMax, ArgMin).


@infer(ArgMaxNode, ArgMinNode)
def _infer_arg(input: Type, *, axis: int, last: bool) -> Type:
    del last
    expect_numbers("input", input)
    if input.shape[expect_axis(axis, input.rank)] == 0:
        raise UserError(f"expected elements to search along dimension {axis}, got {input}")
    if input.quant is not None and input.quant.axis == axis:
        raise UserError(f"expected one scale along dimension {axis}, got {input}")
    shape = tuple(1 if at == axis else size for at, size in enumerate(input.shape))
    return Type(ElemKind.I64, shape)


def _positions(
    result: Tensor, input: Tensor, axis: int, last: bool, search: Callable[..., Array]
) -> None:
    """Numpy finds the first one; the last one is the first from the end."""
    if result.array.size == 0:
        return
    wide = accumulable(input.array)
    if not last:
        result.array[...] = search(wide, axis=axis, keepdims=True)
    else:
        back = search(np.flip(wide, axis), axis=axis, keepdims=True)
        result.array[...] = input.type.shape[axis] - 1 - back


@interpret(ArgMaxInst)
def _arg_max(result: Tensor, input: Tensor, *, axis: int, last: bool) -> None:
    _positions(result, input, axis, last, np.argmax)


@interpret(ArgMinInst)
def _arg_min(result: Tensor, input: Tensor, *, axis: int, last: bool) -> None:
    _positions(result, input, axis, last, np.argmin)


# Running sums and products (ONNX CumSum, CumProd).


@infer(CumSumNode, CumProdNode)
def _infer_running(input: Type, *, axis: int, exclusive: bool, reverse: bool) -> Type:
    del exclusive, reverse
    expect_numbers("input", input)
    expect_axis(axis, input.rank)
    return Type(input.kind, input.shape)


@interpret(CumSumInst)
def _cum_sum(result: Tensor, input: Tensor, *, axis: int, exclusive: bool, reverse: bool) -> None:
    _run(np.add, result, input, axis, exclusive, reverse)


@interpret(CumProdInst)
def _cum_prod(result: Tensor, input: Tensor, *, axis: int, exclusive: bool, reverse: bool) -> None:
    _run(np.multiply, result, input, axis, exclusive, reverse)


def _run(
    step: np.ufunc, result: Tensor, input: Tensor, axis: int, exclusive: bool, reverse: bool
) -> None:
    """Totals of none, one, two... elements, in order; the last or the first of them is not asked for."""
    way = -1 if reverse else 1
    wide = np.moveaxis(accumulable(input.array), axis, 0)[::way]
    begin = np.full((1, *wide.shape[1:]), step.identity, wide.dtype)
    totals = step.accumulate(np.concatenate([begin, wide]), axis=0, dtype=wide.dtype)
    sums = (totals[:-1] if exclusive else totals[1:])[::way]
    result.array[...] = np.moveaxis(sums, 0, axis).astype(result.array.dtype)


@derivative(CumSumNode)
def _differentiate_cum_sum(f: Function, n: CumSumNode, g: NodeValue) -> list[Operand | None]:
    """An element is part of all sums after it."""
    return [f.create_cum_sum(n.name, g, n.axis, n.exclusive, not n.reverse)]


@derivative(CumProdNode)
def _differentiate_cum_prod(f: Function, n: CumProdNode, g: NodeValue) -> list[Operand | None]:
    """Each product without one of its factors, for each factor: elements may be 0. Takes n * n elements for n.

    Row j has the running products of all elements but number j, in whose place is 1.
    """
    rows, flow = rows_along(f, n.name, n.input, n.axis), rows_along(f, n.name, g, n.axis)
    number, count = rows.type.shape
    places = positions(f, n.name, count)
    column = f.create_reshape(n.name, places.type.with_shape((count, 1)), places).result
    wide = rows.type.with_shape((number, count, count))
    lines = f.create_reshape(n.name, wide.with_shape((number, 1, count)), rows)
    itself = f.create_eq(n.name, column, places)
    one, zero = scalar(f, n.name, wide, 1), scalar(f, n.name, wide, 0)
    others = f.create_select(n.name, itself, one, f.create_broadcast(n.name, wide, lines))
    products = f.create_cum_prod(n.name, others, 2, n.exclusive, n.reverse)
    before, after = (places, column) if n.reverse else (column, places)
    reaches = (f.create_lt if n.exclusive else f.create_le)(n.name, before, after)
    flows = f.create_reshape(n.name, lines.type, flow)
    terms = f.create_select(n.name, reaches, f.create_mul(n.name, products, flows), zero)
    total = f.create_reshape(n.name, rows.type, f.create_reduce_add(n.name, terms, (2,))).result
    return [restored(f, n.name, total, n.input.type, n.axis)]
