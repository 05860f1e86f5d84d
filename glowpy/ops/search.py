"""Rules of the operators that find elements: as many as there are, in results that have room for the most."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.autodiff.derivative import derivative
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import is_same_shape
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.infer import infer
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import (
    DefineNode,
    NonMaxSuppressionNode,
    NonZeroNode,
    TopKNode,
    UniqueNode,
)
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import (
    DefineInst,
    NonMaxSuppressionInst,
    NonZeroInst,
    TopKInst,
    UniqueInst,
)
from glowpy.ir.verifier import verify_inst
from glowpy.irgen import scratch
from glowpy.ops.operands import accumulable, expect_axis, expect_numbers
from glowpy.ops.positions import extent, positions, restored, rows_along
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, Expr, Symbol, highest, least

__all__: list[str] = []

_COUNT = Type(ElemKind.I64, (1,))


# Define: an element becomes an extent. Backends do that, as they know where extents are.


def _definition(input: Type, symbols: tuple[Dim, ...]) -> Iterator[str]:
    if input != Type(ElemKind.I64, (len(symbols),)):
        yield f"expected an i64 for each of {len(symbols)} symbols, got {input}"
    names = [str(dim) for dim in symbols if isinstance(dim, Expr) and _is_symbol(dim)]
    if len(set(names)) < len(symbols):
        yield f"expected different symbols, got {', '.join(map(str, symbols))}"


def _is_symbol(dim: Expr) -> bool:
    (atoms, factor), *others = dim.terms
    return not others and factor == 1 and len(atoms) == 1 and isinstance(atoms[0], Symbol)


@verify(DefineNode)
def _verify_define(n: DefineNode) -> Iterator[str]:
    yield from _definition(n.input.type, n.symbols)


@verify_inst(DefineInst)
def _verify_define_inst(inst: DefineInst) -> Iterator[str]:
    yield from _definition(inst.input.type, inst.symbols)


@interpret(DefineInst)
def _define(input: Tensor, *, symbols: tuple[int, ...]) -> None:
    """The interpreter goes on with the program for what the elements are."""
    del input, symbols


# NonZero.


@infer(NonZeroNode)
def _infer_non_zero(input: Type) -> tuple[Type, Type]:
    return Type(ElemKind.I64, (highest(input.count), input.rank)), _COUNT


@interpret(NonZeroInst)
def _non_zero(result: Tensor, count: Tensor, input: Tensor) -> None:
    places = np.argwhere(input.array)
    result.array[: len(places)] = places
    count.array[...] = len(places)


# Unique.


@infer(UniqueNode)
def _infer_unique(input: Type, *, sorted: bool) -> tuple[Type, Type, Type, Type]:
    del sorted
    if input.rank != 2:
        raise UserError(f"expected a matrix, got {input}")
    rows = input.shape[0]
    most = Type(ElemKind.I64, (highest(rows),))
    return most, Type(ElemKind.I64, (rows,)), most, _COUNT


@scratch(UniqueNode)
def _scratch_unique(n: UniqueNode) -> tuple[Type, ...]:
    """Keys of the rows and the rows themselves, before a pass of the sort and after it."""
    return (Type(ElemKind.I64, (4, n.input.type.shape[0])),)


@interpret(UniqueInst)
def _unique(
    result: Tensor,
    inverse: Tensor,
    counts: Tensor,
    count: Tensor,
    input: Tensor,
    memory: Tensor,
    *,
    sorted: bool,
) -> None:
    del memory
    rows = input.array
    columns = [rows[:, column] for column in range(rows.shape[1])]
    # As lexsort has it, the last key counts first. NaN is larger than all numbers.
    keys = [key for column in reversed(columns) for key in _ascending(column)]
    places = np.lexsort(keys) if keys else np.arange(len(rows))
    moved = rows[places]
    same = (moved[1:] == moved[:-1]) | ((moved[1:] != moved[1:]) & (moved[:-1] != moved[:-1]))
    begins = np.append(np.ones(min(len(rows), 1), np.bool_), ~same.all(1))
    groups = np.empty(len(rows), np.int64)
    groups[places] = np.cumsum(begins) - 1
    firsts = places[begins]
    if not sorted:
        new = np.empty(len(firsts), np.int64)
        new[np.argsort(firsts)] = np.arange(len(firsts))
        groups, firsts = new[groups], np.sort(firsts)
    result.array[: len(firsts)] = firsts
    inverse.array[...] = groups
    counts.array[: len(firsts)] = np.bincount(groups, minlength=len(firsts))
    count.array[...] = len(firsts)


def _ascending(column: Array) -> list[Array]:
    """Returns the keys by which a column is sorted, the least significant first."""
    if column.dtype.kind != "f":
        return [column]
    missing = np.isnan(column)
    return [np.where(missing, 0, column), missing]


# TopK.


@infer(TopKNode)
def _infer_top_k(input: Type, *, axis: int, k: Dim, largest: bool) -> tuple[Type, Type]:
    del largest
    expect_numbers("input", input)
    size = input.shape[expect_axis(axis, input.rank)]
    if k < 0 or k > size:
        raise UserError(f"expected a k from 0 to {size}, got {k}")
    shape = (*input.shape[:axis], k, *input.shape[axis + 1 :])
    return input.with_shape(shape), Type(ElemKind.I64, shape)


@scratch(TopKNode)
def _scratch_top_k(n: TopKNode) -> tuple[Type, ...]:
    """Keys and places of twice as many as are asked for, or of all, before a pass of the sort and after it."""
    room = least(2 * n.k, n.input.type.shape[n.axis])
    return (Type(ElemKind.I64, (4, room)),)


@derivative(TopKNode)
def _differentiate_top_k(
    f: Function, n: TopKNode, g: NodeValue | None, by_indices: None
) -> list[Operand | None]:
    """The gradients go to where the elements were found, in one vector of all elements."""
    del by_indices
    if g is None:
        return [None]
    input, size = n.input.type, n.input.type.shape[n.axis]
    indices = rows_along(f, n.name, n.results[1], n.axis)
    rows, count = indices.type.shape
    begins = f.create_mul(n.name, positions(f, n.name, rows), extent(f, n.name, size))
    column = f.create_reshape(n.name, indices.type.with_shape((rows, 1)), begins)
    flat = indices.type.with_shape((rows * count,))
    places = f.create_reshape(n.name, flat, f.create_add(n.name, indices, column))
    updates = f.create_reshape(
        n.name, g.type.with_shape((rows * count, 1)), rows_along(f, n.name, g, n.axis)
    )
    nothing = f.create_splat(n.name, g.type.with_shape((rows * size, 1)), 0)
    summed = f.create_scatter_add(n.name, nothing, places, updates)
    matrix = f.create_reshape(n.name, g.type.with_shape((rows, size)), summed).result
    return [restored(f, n.name, matrix, input, n.axis)]


@interpret(TopKInst)
def _top_k(
    result: Tensor,
    indices: Tensor,
    input: Tensor,
    memory: Tensor,
    *,
    axis: int,
    k: int,
    largest: bool,
) -> None:
    """A stable sort by rank; NaN has the highest, and equal elements have one."""
    del memory
    _, ranks = np.unique(accumulable(input.array), return_inverse=True)
    ranks = ranks.reshape(input.array.shape)
    order = np.argsort(-ranks if largest else ranks, axis=axis, kind="stable")
    places = order.take(np.arange(k), axis)
    indices.array[...] = places
    result.array[...] = np.take_along_axis(input.array, places, axis)


# NonMaxSuppression.


@infer(NonMaxSuppressionNode)
def _infer_non_max_suppression(
    boxes: Type,
    scores: Type,
    limit: Type,
    overlap: Type,
    threshold: Type,
    *,
    centers: bool,
    room: int,
) -> tuple[Type, Type]:
    del centers
    one = Type(ElemKind.F32, (1,))
    if boxes.kind is not ElemKind.F32 or not is_same_shape(boxes.shape[2:], (4,)):
        raise UserError(f"expected boxes f32[images x boxes x 4], got {boxes}")
    images, number, _ = boxes.shape
    shape = (images, *scores.shape[1:2], number)
    if scores.kind is not ElemKind.F32 or not is_same_shape(scores.shape, shape):
        raise UserError(f"expected scores f32[{images} x classes x {number}], got {scores}")
    if limit != _COUNT or overlap != one or threshold != one:
        raise UserError(
            f"expected i64[1], f32[1] and f32[1], got {limit}, {overlap} and {threshold}"
        )
    if room < 0:
        raise UserError(f"expected room for at least 0 boxes, got {room}")
    return Type(ElemKind.I64, (room, 3)), _COUNT


@scratch(NonMaxSuppressionNode)
def _scratch_non_max_suppression(n: NonMaxSuppressionNode) -> tuple[Type, ...]:
    """The candidates of a class, and the boxes that are kept of it: corners and areas, in blocks of `KEPT`."""
    number = n.boxes.type.shape[1]
    blocks = -(-number // KEPT)
    return Type(ElemKind.I64, (number,)), Type(ElemKind.F32, (blocks, 5, KEPT))


KEPT = 16
"""The number of boxes that are compared with one at a time."""


@interpret(NonMaxSuppressionInst)
def _non_max_suppression(
    result: Tensor,
    count: Tensor,
    boxes: Tensor,
    scores: Tensor,
    limit: Tensor,
    overlap: Tensor,
    threshold: Tensor,
    order: Tensor,
    kept: Tensor,
    *,
    centers: bool,
    room: int,
) -> None:
    del order, kept, room
    corners = _corners(boxes.array, centers)
    rows: list[tuple[int, int, int]] = []
    most = int(limit.array[0])
    for image, name in np.ndindex(*scores.array.shape[:2]):
        numbers = scores.array[image, name]
        candidates = np.flatnonzero(~(numbers <= threshold.array[0]))
        candidates = candidates[np.argsort(-numbers[candidates], kind="stable")]
        selection: list[int] = []
        for box in candidates if most > 0 else ():
            shares = _shares(corners[image, box], corners[image, selection])
            if not (shares > overlap.array[0]).any():
                selection.append(int(box))
            if len(selection) == most:
                break
        rows += [(image, name, box) for box in selection]
    result.array[: len(rows)] = np.array(rows, np.int64).reshape(-1, 3)
    count.array[...] = len(rows)


def _corners(boxes: Array, centers: bool) -> Array:
    """The lower ends of both sides, and the upper ones."""
    if centers:
        half = boxes[..., 2:] / np.float32(2)
        return np.concatenate([boxes[..., :2] - half, boxes[..., :2] + half], -1)
    low = np.minimum(boxes[..., :2], boxes[..., 2:])
    return np.concatenate([low, np.maximum(boxes[..., :2], boxes[..., 2:])], -1)


def _shares(box: Array, others: Array) -> Array:
    """How much of the union of a box with each of others is in both; 0 where there is no union."""
    sides = np.minimum(box[2:], others[:, 2:]) - np.maximum(box[:2], others[:, :2])
    common = np.maximum(sides, 0).prod(-1)
    areas = (others[:, 2:] - others[:, :2]).prod(-1)
    area = (box[2:] - box[:2]).prod()
    union = area + areas - common
    there = (area > 0) & (areas > 0) & (union > 0)
    return np.where(there, common / np.where(there, union, 1), 0)
