"""Functions of integers of 16 bits: 256 parabolas, whose coefficients are tables.

All integers with the same upper byte share a parabola, through what the function gives at the first, in the middle, and
at the first of the next; the lower byte says where on it. Of what is smooth that is wrong by at most h ** 3 / 124.7
times the third derivative, where h is 256 steps of the operand: rarely by a tenth of a step of the result. What bends
within a parabola is wrong by some ten steps there. What jumps, or has no slope somewhere, has no such form.
"""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    CeilNode,
    FloorNode,
    LogNode,
    ReciprocalNode,
    RoundNode,
    ShrinkNode,
    SignNode,
    SqrtNode,
    ThresholdedReluNode,
)
from glowpy.opt.dequantized import bytes_of

__all__ = ["interpolated", "is_smooth", "knots"]

_ROUGH = (
    CeilNode, FloorNode, LogNode, ReciprocalNode, RoundNode, ShrinkNode, SignNode, SqrtNode, ThresholdedReluNode,
)  # fmt: skip
"""Functions that jump, or have no slope near 0."""

_PARABOLAS = 256
_WIDTH = 256


def is_smooth(node: Node) -> bool:
    """Whether parabolas follow a function everywhere, but for bends."""
    return not isinstance(node, _ROUGH)


def knots(type: Type) -> Array:
    """Returns the numbers for the first and the middle integer of each parabola, and one beyond the last, in f32."""
    low, high = type.kind.limits
    steps = np.arange(low, high + 2, _WIDTH // 2, dtype=np.float32)
    steps -= np.float32(parameters(type).offsets[0])
    return np.asarray(steps * np.float32(parameters(type).scales[0]))


def interpolated(f: Function, name: str, value: NodeValue, results: Operand) -> NodeValue:
    """A function of stored integers of 16 bits, in f32, from what it gives at their `knots`."""
    coefficients = Type(ElemKind.F32, (_PARABOLAS,))
    first, middle, last = (
        f.create_slice(f"{name}_knots", coefficients, results, (start,), (2,)) for start in range(3)
    )

    def times(value: Operand, factor: float) -> Operand:
        return f.create_uncontracted_mul(
            name, value, f.create_splat(name, Type(ElemKind.F32, ()), factor)
        )

    bend = f.create_sub(name, f.create_add(name, first, last), times(middle, 2.0))
    rise = f.create_sub(name, f.create_sub(name, times(middle, 4.0), times(first, 3.0)), last)
    tables = first, times(rise, 1 / _WIDTH), times(bend, 2 / _WIDTH**2)

    shape = value.type.shape
    floats = Type(ElemKind.F32, shape)
    integers = f.create_storage_cast(f"{name}_integers", Type(value.type.kind, shape), value)
    high, low = bytes_of(f, name, integers.result)
    zero = f.create_splat(f"{name}_zero", Type(ElemKind.U8, ()), 0.0)
    place = f.create_subtract_offset(f"{name}_place", floats, low, zero)
    start, slope, curve = (
        f.create_lookup_table(f"{name}_table", floats, high, table) for table in tables
    )
    steep = f.create_add(name, slope, f.create_uncontracted_mul(name, place, curve))
    return f.create_add(name, start, f.create_uncontracted_mul(name, place, steep)).result
