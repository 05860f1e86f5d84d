"""Rules of indexed access."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.channel_axis import gathered
from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import (
    DynamicSliceNode,
    GatherNode,
    ScatterAddNode,
    ScatterMaxNode,
    ScatterMinNode,
    ScatterMulNode,
    ScatterNode,
)
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import (
    DynamicSliceInst,
    GatherInst,
    ScatterAddInst,
    ScatterInst,
    ScatterMaxInst,
    ScatterMinInst,
    ScatterMulInst,
)
from glowpy.ops.elementwise import scalar
from glowpy.ops.operands import accumulable, expect_axis, expect_numbers
from glowpy.ops.positions import extent, number, positions
from glowpy.support.errors import UserError
from glowpy.support.symbolic import product

__all__: list[str] = []

INDEX_KINDS = (ElemKind.I32, ElemKind.I64)


@infer(GatherNode)
def _infer_gather(input: Type, indices: Type, *, axis: int) -> Type:
    size = input.shape[expect_axis(axis, input.rank)]
    if indices.kind not in INDEX_KINDS:
        raise UserError(f"expected indices of kind i32 or i64, got {indices}")
    if size == 0 and indices.count:
        raise UserError(f"expected elements to gather along dimension {axis}, got {input}")
    return gathered(input, axis, indices.shape)


@interpret(GatherInst)
def _gather(result: Tensor, input: Tensor, indices: Tensor, *, axis: int) -> None:
    if result.array.size == 0:
        return
    size = input.type.extents[axis]
    if size == 0:  # of an open dimension
        result.array[...] = 0
        return
    result.array[...] = np.take(input.array, _inside(indices, size), axis=axis)


def _inside(indices: Tensor, size: int) -> Array:
    """Returns the rows that indices lead to: negative ones count from the end, others are clamped into the range."""
    wide = indices.array.astype(np.int64)
    return np.clip(np.where(wide < 0, wide + size, wide), 0, size - 1)


@derivative(GatherNode)
def _differentiate_gather(f: Function, n: GatherNode, g: NodeValue) -> list[Operand | None]:
    return [_added_along(f, n.name, n.input.type, g, n.indices, n.axis), None]


def _added_along(
    f: Function, name: str, input: Type, g: NodeValue, places: NodeValue, axis: int
) -> NodeValue:
    """Slices, as rows of a matrix, added up where they come from along a dimension of a type."""
    picks = places.type
    others = [other for other in range(input.rank) if other != axis]
    picked = range(axis, axis + picks.rank)
    shuffle = (*picked, *(at for at in range(g.type.rank) if at not in picked))
    rows = g.type.with_shape((picks.count, product(input.shape[other] for other in others)))
    updates = f.create_reshape(name, rows, f.create_transpose(name, g, shuffle))
    wide = f.create_convert(name, picks.with_kind(ElemKind.I64), places)
    indices = f.create_reshape(name, wide.type.with_shape((picks.count,)), wide)
    nothing = f.create_splat(name, rows.with_shape((input.shape[axis], *rows.shape[1:])), 0.0)
    summed = f.create_scatter_add(name, nothing, indices, updates)
    ahead = g.type.with_shape((input.shape[axis], *(input.shape[other] for other in others)))
    back = (*range(1, axis + 1), 0, *range(axis + 1, input.rank))
    return f.create_transpose(name, f.create_reshape(name, ahead, summed), back).result


@derivative(DynamicSliceNode)
def _differentiate_dynamic_slice(
    f: Function, n: DynamicSliceNode, g: NodeValue
) -> list[Operand | None]:
    """The gradients are added up at the places that were taken, of which several may be the first or the last."""
    last = f.create_sub(n.name, extent(f, n.name, n.input.type.shape[n.axis]), number(f, n.name, 1))

    def limited(places: Operand) -> NodeValue:
        least = f.create_max(n.name, places, number(f, n.name, 0))
        return f.create_min(n.name, least, last).result

    steps = f.create_mul(
        n.name, positions(f, n.name, n.type.shape[n.axis]), number(f, n.name, n.step)
    )
    places = limited(f.create_add(n.name, limited(n.start), steps))
    return [_added_along(f, n.name, n.input.type, g, places, n.axis), None]


@verify(DynamicSliceNode)
def _verify_dynamic_slice(n: DynamicSliceNode) -> Iterator[str]:
    input, axis = n.input.type, expect_axis(n.axis, n.input.type.rank)
    if n.start.type != Type(ElemKind.I64, (1,)):
        yield f"expected start of type i64[1], got {n.start.type}"
    shape = (*input.shape[:axis], *n.type.shape[axis : axis + 1], *input.shape[axis + 1 :])
    if n.type != Type(input.kind, shape):
        yield f"result has type {n.type}, expected that of {input} but for dimension {axis}"
    if n.step == 0:
        yield "expected a step other than 0"


@interpret(DynamicSliceInst)
def _dynamic_slice(result: Tensor, input: Tensor, start: Tensor, *, axis: int, step: int) -> None:
    if result.array.size == 0:
        return
    last, count = input.type.extents[axis] - 1, result.type.extents[axis]
    if last < 0:
        result.array[...] = 0
        return
    first = min(max(int(start.array[0]), 0), last)
    places = np.clip(first + step * np.arange(count), 0, last)
    result.array[...] = np.take(input.array, places, axis=axis)


# Scatters: rows of a matrix are changed, one after the other.


@infer(ScatterNode)
def _infer_scatter(input: Type, indices: Type, updates: Type) -> Type:
    return _updated(input, indices, updates)


def _updated(input: Type, indices: Type, updates: Type) -> Type:
    if input.rank != 2:
        raise UserError(f"expected a matrix, got {input}")
    if indices.kind is not ElemKind.I64 or indices.rank != 1:
        raise UserError(f"expected indices in a vector of i64, got {indices}")
    rows = Type(input.kind, (*indices.shape, input.shape[1]))
    if updates.kind is not input.kind or not is_same_shape(updates.shape, rows.shape):
        raise UserError(f"expected updates of type {rows}, got {updates}")
    if input.shape[0] == 0 and indices.count:
        raise UserError(f"expected rows to update, got {input}")
    return input


@infer(ScatterAddNode, ScatterMulNode, ScatterMaxNode, ScatterMinNode)
def _infer_reducing(input: Type, indices: Type, updates: Type) -> Type:
    expect_numbers("input", input)
    return _updated(input, indices, updates)


@interpret(ScatterInst)
def _scatter(result: Tensor, input: Tensor, indices: Tensor, updates: Tensor) -> None:
    """Assigns rows; numpy keeps the last of several assignments to one row."""
    result.array[...] = input.array
    if input.array.shape[0]:
        result.array[_inside(indices, input.array.shape[0])] = updates.array


def _reduce(
    step: np.ufunc, result: Tensor, input: Tensor, indices: Tensor, updates: Tensor
) -> None:
    """Rounded once, as halves are computed in f32 elsewhere."""
    kind = input.type.kind
    wide = accumulable(input.array) if kind.is_half else input.array.copy()
    if wide.shape[0]:
        rows = updates.array.astype(wide.dtype)
        step.at(wide, _inside(indices, wide.shape[0]), rows)
    result.array[...] = wide.astype(kind.dtype)


@interpret(ScatterAddInst)
def _scatter_add(result: Tensor, input: Tensor, indices: Tensor, updates: Tensor) -> None:
    _reduce(np.add, result, input, indices, updates)


@interpret(ScatterMulInst)
def _scatter_mul(result: Tensor, input: Tensor, indices: Tensor, updates: Tensor) -> None:
    _reduce(np.multiply, result, input, indices, updates)


@interpret(ScatterMaxInst)
def _scatter_max(result: Tensor, input: Tensor, indices: Tensor, updates: Tensor) -> None:
    _reduce(np.maximum, result, input, indices, updates)


@interpret(ScatterMinInst)
def _scatter_min(result: Tensor, input: Tensor, indices: Tensor, updates: Tensor) -> None:
    _reduce(np.minimum, result, input, indices, updates)


@derivative(ScatterAddNode)
def _differentiate_scatter_add(
    f: Function, n: ScatterAddNode, g: NodeValue
) -> list[Operand | None]:
    return [g, None, f.create_gather(n.name, g, n.indices, 0)]


@derivative(ScatterNode)
def _differentiate_scatter(f: Function, n: ScatterNode, g: NodeValue) -> list[Operand | None]:
    """Only the last update of a row matters; a row that has none keeps its elements."""
    numbers = positions(f, n.name, n.indices.type.shape[0])
    column = Type(ElemKind.I64, (n.indices.type.shape[0], 1))
    updates = f.create_reshape(n.name, column, numbers)
    none = f.create_splat(n.name, column.with_shape((n.input.type.shape[0], 1)), -1)
    last = f.create_scatter(n.name, none, n.indices, updates)
    kept = f.create_eq(n.name, last, none)
    counts = f.create_eq(n.name, f.create_gather(n.name, last, n.indices, 0), updates)
    zero, taken = scalar(f, n.name, g.type, 0), f.create_gather(n.name, g, n.indices, 0)
    return [
        f.create_select(n.name, kept, g, zero),
        None,
        f.create_select(n.name, counts, taken, zero),
    ]


@derivative(ScatterMaxNode, ScatterMinNode)
def _differentiate_scatter_extremum(
    f: Function, n: ScatterMaxNode | ScatterMinNode, g: NodeValue
) -> list[Operand | None]:
    """Elements that share the extremum share its gradient."""

    def matches(value: NodeValue, result: Operand) -> Operand:
        return f.create_convert(n.name, value.type, f.create_eq(n.name, value, result))

    rows = matches(n.input, n.result)
    updates = matches(n.updates, f.create_gather(n.name, n.result, n.indices, 0))
    count = f.create_scatter_add(n.name, rows, n.indices, updates)
    share = f.create_div(n.name, g, count)
    taken = f.create_gather(n.name, share, n.indices, 0)
    return [f.create_mul(n.name, share, rows), None, f.create_mul(n.name, taken, updates)]


@derivative(ScatterMulNode)
def _differentiate_scatter_mul(
    f: Function, n: ScatterMulNode, g: NodeValue
) -> list[Operand | None]:
    """The product of all other factors, which is not that of all divided by one: factors may be 0."""
    one, zero = scalar(f, n.name, g.type, 1), scalar(f, n.name, g.type, 0)
    zeros = [f.create_eq(n.name, factor, zero) for factor in (n.input, n.updates)]
    others = [
        f.create_select(n.name, is_zero, one, factor)
        for is_zero, factor in zip(zeros, (n.input, n.updates), strict=True)
    ]
    ones = [
        f.create_convert(n.name, factor.type, is_zero)
        for is_zero, factor in zip(zeros, (n.input, n.updates), strict=True)
    ]
    count = f.create_scatter_add(n.name, ones[0], n.indices, ones[1])
    product = f.create_mul(n.name, g, f.create_scatter_mul(n.name, others[0], n.indices, others[1]))
    without = f.create_select(n.name, f.create_eq(n.name, count, zero), product, zero)
    only = f.create_select(n.name, f.create_eq(n.name, count, one), product, zero)

    def flow(index: int, without: Operand, only: Operand) -> Operand:
        return f.create_select(
            n.name, zeros[index], only, f.create_div(n.name, without, others[index])
        )

    taken = [f.create_gather(n.name, value, n.indices, 0) for value in (without, only)]
    return [flow(0, without, only), None, flow(1, *taken)]
