"""What the kernels of products are told about their operands: dimensions that are one loop in memory are one dimension.

A convolution that looks at one pixel at a time takes an image, or a whole batch, as one long row of pixels; left sides
that all meet one right side are one long matrix. Whether they do is decided here alone, for all extents of symbols at
once: kernels walk the dimensions that they are told, and units and tiles are those of the same dimensions. A kernel
that decided by the extents of a run, of which some are 1, would walk other units than its caller counted.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from glowpy.backends.cpu.insts_gen import CpuBlockMatmulInst, CpuConvInst, CpuMatmulInst
from glowpy.core.strides import merged_loops, strides_of
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
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


def boxes_of(inst: Instruction) -> list[Box]:
    """The box of every operand, in order. That of a result of a product only counts: the epilogue knows the strides."""
    rule = _rules.get(type(inst))
    return _own_boxes(inst) if rule is None else rule(inst)


def is_pointwise(inst: CpuConvInst) -> bool:
    """Whether every pixel of the result is computed of the pixel at the same place, for all extents."""
    return prod(inst.kernels) == prod(inst.strides) == 1 and all(pad == 0 for pad in inst.pads)


def _own_boxes(inst: Instruction) -> list[Box]:
    return [Box(ref.value.type.shape, ref.value.strides) for ref in inst.operands]


@_rules(CpuConvInst)
def _conv(inst: CpuConvInst) -> list[Box]:
    result, input, *others = _own_boxes(inst)
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
def _matmul(inst: CpuMatmulInst | CpuBlockMatmulInst) -> list[Box]:
    result, lhs, rhs, *others = _own_boxes(inst)
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


def _dense(shape: Shape) -> Box:
    return Box(shape, strides_of(shape))


def _step_of(value: Value, first: int, last: int) -> Dim | None:
    """How far apart neighbours are along the dimensions from `first` to before `last`; None if these are no loop."""
    loops = merged_loops(value.type.shape[first:last], value.strides[first:last])
    if len(loops) > 1:
        return None
    return loops[0][1] if loops else value.strides[last - 1]
