"""Instructions that only move elements, as loops of their own where no square is to be transposed.

A kernel of libjit finds out itself which loops there are, out of shapes and strides of any rank, and LLVM takes long to
reduce that to the one or two that are left. Here the loops are known before. A place inside a tensor is a view: so the
inputs of a concat that are equally large share one function.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from glowpy.backends.cpu.strategy.cut import Cut
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import (
    BroadcastInst,
    ExtractTensorInst,
    InsertTensorInst,
    TransposeInst,
    ViewInst,
)
from glowpy.ir.value import Value
from glowpy.llvm.stack import emit_nest, merged_axes
from glowpy.llvm.writer import Body
from glowpy.support.symbolic import Dim, highest, is_at_most

__all__ = ["Move", "emit_move", "move_of"]

_UNITS = {kind.size: kind for kind in (ElemKind.U8, ElemKind.U16, ElemKind.U32, ElemKind.U64)}
"""Kinds as which elements are moved: their bits, whatever they mean."""

_SHORT = 1 << 12
"""Bytes of a row that a loop of vectors copies sooner than a call does."""


@dataclass(frozen=True)
class Move:
    """A move of one element of an input to each place of a result.

    Attributes:
        result: Where the first element goes.
        input: Where it is from.
        shape: All indices.
        to: How far apart neighbours are in the result.
        out_of: How far apart they are in the input.
    """

    result: Value
    input: Value
    shape: Shape
    to: Shape
    out_of: Shape


def move_of(inst: Instruction) -> Move | None:
    """Returns the move that an instruction is; None where a kernel does better, or where nothing is moved."""
    move = _move(inst)
    if move is None or any(not is_at_most(0, step) for step in move.out_of):
        return None
    axes, _ = merged_axes(move.shape, (move.to, move.out_of))
    rows = [axis for axis in axes[:-1] if move.out_of[axis] == 1]
    return move if not rows or move.out_of[axes[-1]] in (0, 1) else None


def _move(inst: Instruction) -> Move | None:
    match inst:
        case InsertTensorInst():
            result, input = inst.result, inst.input
            place = _view(result, inst.offsets, input.type.shape)
            return Move(place, input, input.type.shape, result.strides, input.strides)
        case ExtractTensorInst():
            result, input = inst.result, inst.input
            steps = zip(input.strides, inst.steps, strict=True)
            out_of = tuple(stride * step for stride, step in steps)
            place = _view(input, inst.offsets, result.type.shape)
            return Move(result, place, result.type.shape, result.strides, out_of)
        case BroadcastInst():
            result, input = inst.result, inst.input
            axes = zip(input.type.shape, input.strides, strict=True)
            out_of = tuple(0 if size == 1 else stride for size, stride in axes)
            return Move(result, input, result.type.shape, result.strides, out_of)
        case TransposeInst():
            result, input = inst.result, inst.input
            out_of = tuple(input.strides[axis] for axis in inst.shuffle)
            return Move(result, input, result.type.shape, result.strides, out_of)
        case _:
            return None


def _view(whole: Value, offsets: Shape, shape: Shape) -> Value:
    """The elements of a tensor from a place on."""
    places = zip(offsets, whole.strides, strict=True)
    offset: Dim = sum((index * stride for index, stride in places), start=0)
    if offset == 0:
        return whole
    attrs = {"offset": offset, "strides": whole.strides}
    type = whole.type.with_kind(whole.type.kind)  # what integers stand for moves with them
    return ViewInst((whole,), attrs, name=whole.name, type=type.with_shape(shape)).value


def emit_move(body: Body, move: Move, cut: Cut | None, unit: str = "0") -> None:
    """The loops of a move, or of one part of it."""
    axes, counts = merged_axes(move.shape, (move.to, move.out_of))
    kind = _UNITS[move.result.type.kind.size]
    shape, pointers = move.shape, [body.pointer(move.result), body.pointer(move.input)]
    if cut is not None:
        axis = cut.axis
        shape = (*shape[:axis], cut.part, *shape[axis + 1 :])
        for index, steps in enumerate((move.to, move.out_of)):
            distance = body.number(cut.part * steps[axis] * kind.size)
            bytes = body.let(f"mul nsw {body.module.dim} {unit}, {distance}")
            pointers[index] = body.let(
                f"getelementptr i8, ptr {pointers[index]}, {body.module.dim} {bytes}"
            )
    body.loops_only = not axes or highest(counts[-1]) * kind.size <= _SHORT
    to, out_of = pointers

    def inner(index: Callable[[Shape], str]) -> None:
        element = body.load(kind, out_of, index(move.out_of))
        body.store(kind, element, to, index(move.to))

    emit_nest(body, shape, (move.to, move.out_of), inner)
