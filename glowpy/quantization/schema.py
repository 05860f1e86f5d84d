"""Schemas: how the integers of a kind stand for the numbers of a range.

Zero is always exact: an integer stands for it. Scales are numbers that f32 has, because networks compute with these and
files hold them. A range of nothing but zero gets the scale 1.
"""

from __future__ import annotations

import math
from enum import StrEnum

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import BIAS_STEPS
from glowpy.core.tensor import Array
from glowpy.core.type import Quant
from glowpy.support.errors import UserError

__all__ = ["Schema", "quant_of_bias", "quant_of_range", "quant_of_weights"]

_KINDS = (ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.I32)
_LOWEST_SCALE = 2.0**-126


class Schema(StrEnum):
    """Which integers stand for a range.

    * `asymmetric`: the lowest stands for the lower end and the highest for the upper one; zero is where it falls, which
      in i16 is a multiple of 256.
    * `symmetric`: zero is the middle of the kind, 0 for signed ones, and the range reaches as far on either side; the
      lowest integer of a signed kind is not used.
    * `symmetric-u8`: as `asymmetric` for a range without negative numbers, whose zero is then the lowest integer; as
      `symmetric` for any other.
    * `power-of-two`: as `symmetric`, with a scale that is a power of two, so that a shift can replace a product.
    """

    ASYMMETRIC = "asymmetric"
    SYMMETRIC = "symmetric"
    SYMMETRIC_U8 = "symmetric-u8"
    POWER_OF_TWO = "power-of-two"


def quant_of_range(
    low: float, high: float, kind: ElemKind, schema: Schema = Schema.ASYMMETRIC
) -> Quant:
    """The parameters with which integers of a kind cover a range.

    Args:
        low: The lower end; the range is widened to zero where it is above it.
        high: The upper end; widened to zero as well.
        kind: i8, u8, i16 or i32.
        schema: Which integers stand for what.

    Raises UserError for another kind, and for a range whose ends are not finite or are in the wrong order.
    """
    if kind not in _KINDS:
        kinds = ", ".join(allowed_kind.value for allowed_kind in _KINDS)
        raise UserError(f"expected one of the kinds {kinds} to quantize to, got {kind.value}")
    if not (math.isfinite(low) and math.isfinite(high)):
        raise UserError(f"expected a finite range to quantize, got {low} to {high}")
    if low > high:
        raise UserError(f"expected a range from low to high, got {low} to {high}")
    low, high = min(low, 0.0), max(high, 0.0)
    lowest, highest = kind.limits
    asymmetric = schema is Schema.ASYMMETRIC or (schema is Schema.SYMMETRIC_U8 and low == 0)
    middle = 0 if lowest else (highest + 1) // 2
    if low == high:
        return Quant((1.0,), (0 if asymmetric else middle,))
    if asymmetric:
        if kind is ElemKind.I16:
            return _whole_bytes(low, high)
        scale = _in_f32(high / (highest - lowest) - low / (highest - lowest))
        offset = round(lowest - low / scale)
        return Quant((scale,), (min(max(offset, lowest), highest),))
    scale = max(-low, high) / (highest - middle)
    if schema is Schema.POWER_OF_TWO:
        mantissa, exponent = math.frexp(scale)
        scale = 2.0 ** (exponent - 1 if mantissa == 0.5 else exponent)
    return Quant((_in_f32(scale),), (middle,))


def _whole_bytes(low: float, high: float) -> Quant:
    """An asymmetric range in i16, whose offset is a multiple of 256.

    So the lower byte has none in products, and a function that bends at zero does so where two parabolas meet.
    """
    lowest, highest = ElemKind.I16.limits
    share = low / (low - high) if math.isfinite(low - high) else 1 / (1 - high / low)
    offset = lowest + 256 * min(max(round(256 * share), low < 0), 255)
    scale = max(low / (lowest - offset) if low else 0.0, high / (highest - offset))
    return Quant((_in_f32(scale),), (offset,))


def quant_of_weights(
    weights: Array, kind: ElemKind, schema: Schema = Schema.SYMMETRIC, axis: int | None = None
) -> Quant:
    """The parameters with which integers cover weights from the smallest to the largest.

    Args:
        weights: The weights, of any kind of float.
        kind: i8, u8, i16 or i32.
        schema: Which integers stand for what.
        axis: The dimension of channels, each of which gets a scale and an offset of its own; None for one of all.

    Raises UserError for weights that are not all finite, and as `quant_of_range` does.
    """
    numbers = np.asarray(weights, np.float64)
    if not np.isfinite(numbers).all():
        raise UserError("expected finite weights to quantize, got NaNs or infinities")
    if axis is None:
        return quant_of_range(numbers.min(initial=0.0), numbers.max(initial=0.0), kind, schema)
    if not 0 <= axis < numbers.ndim:
        raise UserError(f"expected a channel axis below {numbers.ndim}, got {axis}")
    axes = tuple(dim for dim in range(numbers.ndim) if dim != axis)
    lows, highs = numbers.min(axes, initial=0.0), numbers.max(axes, initial=0.0)
    quants = [
        quant_of_range(float(low), float(high), kind, schema)
        for low, high in zip(lows, highs, strict=True)
    ]
    scales = tuple(quant.scales[0] for quant in quants)
    return Quant(scales, tuple(quant.offsets[0] for quant in quants), axis)


def quant_of_bias(
    bias: Array, input: Quant, weights: Quant, kind: ElemKind = ElemKind.I32
) -> tuple[Quant, Quant]:
    """The parameters of a bias, and those of the weights with it.

    A bias in i32 counts in the steps of the sums that it is added to: one of the input times one of the weights. Where
    that is so little that i32 would not hold the bias and the sums, the steps of the weights become larger. In i8 and
    i16 it has a symmetric range of its own.

    Args:
        bias: One number for each channel, of any kind of float.
        input: The quantization of the layer's input, as a whole.
        weights: The quantization of its weights, as a whole or for each channel.
        kind: i8, i16 or i32.

    Raises UserError for a bias that is not finite, of another kind, or not one number for each channel, and for an
    input with channels.
    """
    numbers = np.asarray(bias, np.float64)
    if input.axis is not None:
        raise UserError("expected an input quantized as a whole, got one with channels")
    if numbers.ndim != 1 or len(weights.scales) not in (1, numbers.size):
        raise UserError(
            f"expected a bias of one number for each channel, got shape {numbers.shape}",
            note=f"the weights have {len(weights.scales)} scales",
        )
    if not np.isfinite(numbers).all():
        raise UserError("expected a finite bias to quantize, got NaNs or infinities")
    if kind not in (ElemKind.I8, ElemKind.I16, ElemKind.I32):
        raise UserError(f"expected one of the kinds i8, i16, i32 for a bias, got {kind.value}")
    quant = quant_of_weights(numbers, kind)
    if kind is not ElemKind.I32:
        return quant, weights
    reach = np.abs(numbers) if weights.axis is not None else np.abs(numbers).max(initial=0.0)
    least = np.broadcast_to(reach / (input.scales[0] * BIAS_STEPS), (len(weights.scales),))
    scales = tuple(
        scale if scale >= enough else _in_f32(enough)
        for scale, enough in zip(weights.scales, least.tolist(), strict=True)
    )
    axis = None if weights.axis is None else 0
    steps = tuple(input.scales[0] * scale for scale in scales)
    return Quant(steps, (0,) * len(steps), axis), Quant(scales, weights.offsets, weights.axis)


def _in_f32(scale: float) -> float:
    """The nearest scale that f32 has, and that has an inverse there."""
    largest = float(np.finfo(np.float32).max)
    return max(float(np.float32(min(scale, largest))), _LOWEST_SCALE)
