"""Meaning of quantization parameters in arithmetic: scales and offsets as arrays, and the types of exact sums.

Scales are doubles in a type. Arithmetic is in f32: it has each of them rounded, and ratios are quotients of these.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Type
from glowpy.support.errors import InternalError, UserError
from glowpy.support.symbolic import Dim

__all__ = [
    "BIAS_STEPS",
    "along_axis",
    "fits_4_bits",
    "has_steps_of",
    "in_f32",
    "offsets_of",
    "parameters",
    "range_of",
    "ratio_of",
    "scales_of",
    "steps_of",
    "sum_type",
]


BIAS_STEPS = 2.0**30
"""A bias in i32 has at most so many steps: as many are left for the sum that it is added to."""

_SAME_SCALE = 1e-6
"""A bias's scale may differ by so much from that of the sums it is added to: files say it in f32."""


def parameters(type: Type) -> Quant:
    """The parameters of a type that is known to be quantized."""
    if type.quant is None:
        raise InternalError(f"expected a quantized type, got {type}")
    return type.quant


def along_axis(type: Type, values: Array) -> Array:
    """One value for each channel in a shape that broadcasts to the type's; a scalar where there are no channels."""
    axis = parameters(type).axis
    return (
        values.reshape(()) if axis is None else values.reshape(-1, *(1,) * (type.rank - axis - 1))
    )


def scales_of(type: Type) -> Array:
    """The scales in f64, in a shape that broadcasts to the type's."""
    return along_axis(type, np.array(parameters(type).scales, np.float64))


def ratio_of(type: Type, other: Type) -> Array:
    """Returns the factors that turn steps of `type` into steps of `other`, in f32.

    It is the quotient of scales in f32, as onnxruntime has it: if it were rounded in any other way, one result in some
    ten thousand would differ by a step. Where scales are too large or too small for f32, they are divided in f64. What
    f32 does not hold is its largest number: one step is then more than the other type has, and 0 steps are 0.
    """
    scales, others = scales_of(type), scales_of(other)
    with np.errstate(over="ignore", divide="ignore", invalid="ignore"):
        ratio = scales.astype(np.float32) / others.astype(np.float32)
        usable = np.isfinite(ratio) & (ratio > 0)
        return np.where(usable, ratio, in_f32(scales / others))


def in_f32(numbers: Array) -> Array:
    """Numbers in f32; finite ones that are too large for it are its largest."""
    largest = float(np.finfo(np.float32).max)
    limited = np.where(np.isfinite(numbers), np.clip(numbers, -largest, largest), numbers)
    return limited.astype(np.float32)


def range_of(type: Type) -> tuple[float, float, float]:
    """Returns the lowest and the highest number of a type with one scale, and the step between neighbours."""
    (step,), (offset,) = parameters(type).scales, parameters(type).offsets
    lowest, highest = type.kind.limits
    return (lowest - offset) * step, (highest - offset) * step, step


def offsets_of(type: Type) -> Array:
    """The offsets in the type's kind, in a shape that broadcasts to the type's."""
    return along_axis(type, np.array(parameters(type).offsets, type.kind.dtype))


def steps_of(type: Type, stored: Array) -> Array:
    """How many steps stored integers lie above their offsets, in f64, which is exact; other numbers stay."""
    if type.quant is None:
        return stored
    return stored.astype(np.float64) - offsets_of(type).astype(np.float64)


def sum_type(input: Type, weights: Type, axis: int, shape: Sequence[Dim]) -> Type:
    """The type of exact sums of products, in i32: one step is the product of both steps.

    Args:
        input: Quantized as a whole.
        weights: Quantized as a whole, or for each index of `axis`: the columns of the sums, their last dimension.
        axis: See above.
        shape: The shape of the sums.

    Raises UserError where the parameters differ along another dimension.
    """
    left, right = parameters(input), parameters(weights)
    if left.axis is not None:
        raise UserError(f"expected an input quantized as a whole, got {input}")
    if right.axis not in (None, axis):
        raise UserError(f"expected weights quantized as a whole or along {axis}, got {weights}")
    scales = tuple(left.scales[0] * scale for scale in right.scales)
    columns = None if right.axis is None else len(shape) - 1
    return Type(ElemKind.I32, tuple(shape), Quant(scales, (0,) * len(scales), columns))


def has_steps_of(type: Type, sums: Type) -> bool:
    """Whether integers, channels in their last dimension, count in the steps of sums, as exactly as files say."""
    quant, expected = parameters(type), parameters(sums)
    have_no_axis = quant.axis is None and expected.axis is None
    channels = quant.axis == type.rank - 1 and expected.axis is not None
    return (
        (have_no_axis or channels)
        and not any(quant.offsets)
        and all(
            math.isclose(a, b, rel_tol=_SAME_SCALE)
            for a, b in zip(quant.scales, expected.scales, strict=True)
        )
    )


def fits_4_bits(integers: Tensor) -> bool:
    """Whether no stored integer of i8 or u8 needs more than 4 bits. Reads all of them."""
    low = -8 if integers.type.kind is ElemKind.I8 else 0
    return all(
        low <= piece.min(initial=0) and piece.max(initial=0) < low + 16
        for piece in integers.pieces()
    )
