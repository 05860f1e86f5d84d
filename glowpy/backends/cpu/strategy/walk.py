"""Loops that kernels are told to walk: dimensions that are one loop in memory are one dimension.

A convolution that looks at one pixel at a time takes an image, or a whole batch, as one long row of pixels; left sides
that all meet one right side are one long matrix. Whether they do is decided here alone, for all extents of symbols at
once: kernels walk the dimensions that they are told, and units and tiles are those of the same dimensions. A kernel
that decided by the extents of a run, of which some are 1, would walk other units than its caller counted.

A reduction's loops are decided here as well: code that finds out in a run which of them are 1, and with what they are
one, is several times as much.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from math import prod

from glowpy.backends.cpu.insts_gen import CpuBlockMatmulInst, CpuConvInst, CpuMatmulInst
from glowpy.core.strides import merged_loops, strides_of
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import ReduceAddInst, ReduceMaxInst, ReduceMinInst, ReduceMulInst
from glowpy.ir.value import Value
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, product

__all__ = ["Box", "boxes_of", "is_pointwise"]


@dataclass(frozen=True, slots=True)
class Box:
    """The elements of an operand as its kernel walks them."""

    shape: Shape
    strides: Shape


_rules: Rules[Callable[..., list[Box]]] = Rules("boxes")


def boxes_of(inst: Instruction, shapes: Sequence[Shape] | None = None) -> list[Box]:
    """The box of every operand, in order. That of a result of a product only counts: the epilogue knows the strides.

    Where an instruction is cut, operands of a part have other shapes than all of them.
    """
    own = _own_boxes(inst, shapes)
    rule = _rules.get(type(inst))
    return own if rule is None else rule(inst, own)


def is_pointwise(inst: CpuConvInst) -> bool:
    """Whether every pixel of the result is computed of the pixel at the same place, for all extents."""
    return prod(inst.kernels) == prod(inst.strides) == 1 and all(pad == 0 for pad in inst.pads)


def _own_boxes(inst: Instruction, shapes: Sequence[Shape] | None = None) -> list[Box]:
    values = [ref.value for ref in inst.operands]
    own = [value.type.shape for value in values] if shapes is None else shapes
    return [Box(shape, value.strides) for shape, value in zip(own, values, strict=True)]


@_rules(CpuConvInst)
def _conv(inst: CpuConvInst, own: Sequence[Box]) -> list[Box]:
    result, input, *others = own
    if not is_pointwise(inst):
        return [result, input, *others]
    for first in (0, 1):  # a whole batch, or each image
        step = _step_of(inst.input, first, 3)
        if step is not None:
            images, pixels = product(result.shape[:first]), product(result.shape[first:3])
            shape, distance = (images, 1, pixels), input.strides[0] if first else step
            return [
                _dense((*shape, result.shape[3])),
                Box((*shape, input.shape[3]), (distance, step, step, input.strides[3])),
                *others,
            ]
    return [result, input, *others]


@_rules(CpuMatmulInst, CpuBlockMatmulInst)
def _matmul(inst: CpuMatmulInst | CpuBlockMatmulInst, own: Sequence[Box]) -> list[Box]:
    result, lhs, rhs, *others = own
    step = _step_of(inst.lhs, 0, inst.lhs.type.rank - 1)
    if step is None or product(rhs.shape[:-3]) != 1:
        return [result, lhs, rhs, *others]
    rows = product(result.shape[:-1])
    return [
        _dense((rows, result.shape[-1])),
        Box((rows, lhs.shape[-1]), (step, lhs.strides[-1])),
        _dense(rhs.shape[-3:]),
        *others,
    ]


@_rules(ReduceAddInst, ReduceMaxInst, ReduceMinInst, ReduceMulInst)
def _reduce(
    inst: ReduceAddInst | ReduceMaxInst | ReduceMinInst | ReduceMulInst, own: Sequence[Box]
) -> list[Box]:
    """Loops that do not advance in the result where they are reduced; the last two are a plane.

    The innermost is the columns. Rows are the next one outside, but a reduced one if the columns are not.
    """
    result, input = own
    to = [0 if axis in inst.axes else step for axis, step in enumerate(result.strides)]
    loops = _merged(zip(input.shape, to, input.strides, strict=True))
    if len(loops) > 1:
        col = loops.pop()
        reduced = [place for place, loop in enumerate(loops) if loop[1] == 0]
        place = reduced[-1] if col[1] != 0 and reduced else len(loops) - 1
        loops += [loops.pop(place), col]
    sizes, steps, distances = zip(*loops, strict=True) if loops else ((), (), ())
    return [Box(sizes, steps), Box(sizes, distances)]


def _merged(loops: Iterable[tuple[Dim, Dim, Dim]]) -> list[tuple[Dim, Dim, Dim]]:
    """Merges dimensions, none of size 1, as far as possible; they are sizes with steps in two tensors."""
    merged: list[tuple[Dim, Dim, Dim]] = []
    for size, to, out_of in loops:
        if size == 1:
            continue
        if merged and merged[-1][1:] == (size * to, size * out_of):
            size *= merged.pop()[0]
        merged.append((size, to, out_of))
    return merged


def _dense(shape: Shape) -> Box:
    return Box(shape, strides_of(shape))


def _step_of(value: Value, first: int, last: int) -> Dim | None:
    """How far apart neighbours are along the dimensions from `first` to before `last`; None if these are no loop."""
    loops = merged_loops(value.type.shape[first:last], value.strides[first:last])
    if len(loops) > 1:
        return None
    return loops[0][1] if loops else value.strides[last - 1]
