"""The numpy side of element-wise operators where numpy itself has no function with our meaning."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor, converted
from glowpy.core.type import Type

__all__ = [
    "convert",
    "decode",
    "divide",
    "encode",
    "erf",
    "power",
    "saturate",
    "scale_rounded",
    "select",
    "sigmoid",
    "softplus",
    "store",
    "subtract_offset",
]

_SCALED_LIMIT = 1 << 22


def store(result: Tensor, function: Callable[..., Array], *inputs: Tensor) -> None:
    """Computes the result's elements from the inputs', which broadcast."""
    result.array[...] = function(*(tensor.array for tensor in inputs))


def divide(lhs: Array, rhs: Array) -> Array:
    """The quotient; integers truncate towards zero and give 0 where `rhs` is 0."""
    if not np.issubdtype(lhs.dtype, np.integer):
        quotient: Array = np.divide(lhs, rhs)
        return quotient
    safe = np.where(rhs == 0, 1, rhs).astype(rhs.dtype)
    floored = np.floor_divide(lhs, safe)
    inexact = (lhs - floored * safe) != 0
    truncated = floored + (inexact & ((lhs < 0) != (safe < 0))).astype(lhs.dtype)
    return np.where(rhs == 0, 0, truncated).astype(lhs.dtype)


def power(lhs: Array, rhs: Array) -> Array:
    """IEEE 754's pow. Where numpy takes square roots for it, -0.0 and -infinity are other values."""
    rooted = (rhs == 0.5) & ((lhs == 0) | (lhs == -np.inf))
    return np.asarray(np.where(rooted, np.abs(lhs), np.power(lhs, rhs)))


def select(condition: Array, lhs: Array, rhs: Array) -> Array:
    """Elements of `lhs` where `condition` holds, else of `rhs`."""
    return np.asarray(np.where(condition, lhs, rhs))


def sigmoid(input: Array) -> Array:
    """1 / (1 + exp(-input)), computed without overflow."""
    small = np.exp(-np.abs(input))
    result: Array = np.where(input >= 0, 1 / (1 + small), small / (1 + small)).astype(input.dtype)
    return result


def softplus(input: Array) -> Array:
    """log(1 + exp(input)), computed without overflow."""
    return np.asarray(np.maximum(input, 0) + np.log1p(np.exp(-np.abs(input))), dtype=input.dtype)


def erf(input: Array) -> Array:
    """The error function, element by element."""
    wide = np.frompyfunc(math.erf, 1, 1)(input.astype(np.float64))
    return np.asarray(wide, dtype=np.float64).astype(input.dtype)


def convert(input: Array, type: Type) -> Array:
    """`input` in another kind, as `converted` says."""
    return converted(input, type.kind)


def decode(input: Array) -> Array:
    """The floats, in f32, that codes stand for; of a byte with fewer bits the others are not looked at."""
    mask = (1 << ElemKind.of(input.dtype).code_bits) - 1
    input = (input.view(np.uint8) & np.uint8(mask)).view(input.dtype)
    return np.asarray(input.astype(np.float32))


def encode(input: Array, type: Type) -> Array:
    """The codes nearest to floats in f32, ties to even; beyond the range infinity, NaN, or the largest.

    In f8e8m0, which has powers of two only, ties go up, and what is not between the first and the last is NaN.
    In codes of 6 and 4 bits, which have none, NaN is 0.
    """
    if type.kind is ElemKind.F8E8M0:
        bits = input.view(np.uint32)
        nearest = np.where(bits < 0x600000, 0, (bits + np.uint32(0x400000)) >> 23)
        lost = (bits < 0x400000) | (bits > 0x7F000000)
        return np.where(lost, 0xFF, nearest).astype(np.uint8).view(type.kind.dtype)
    if type.kind.code_bits < 8:
        input = np.where(np.isnan(input), np.float32(0), input)
    with np.errstate(all="ignore"):
        return np.asarray(input.astype(type.kind.dtype))


def subtract_offset(lhs: Array, rhs: Array) -> Array:
    """The difference of stored integers, which wraps as i32, in f32."""
    with np.errstate(over="ignore"):
        difference: Array = (lhs.astype(np.int32) - rhs.astype(np.int32)).astype(np.float32)
    return difference


def saturate(lhs: Array, rhs: Array, type: Type) -> Array:
    """The nearest integer to `lhs`, halves to even, plus the offset `rhs`, limited to the kind; NaN is the lowest."""
    low, high = type.kind.limits
    rounded = np.rint(lhs).astype(np.float64) + rhs
    return np.clip(np.where(np.isnan(rounded), low, rounded), low, high).astype(type.kind.dtype)


def scale_rounded(lhs: Array, rhs: Array) -> Array:
    """The nearest integer to a product in f32, halves to even, with the floats whose bits `rhs` has."""
    with np.errstate(over="ignore", under="ignore", invalid="ignore"):
        product = lhs.astype(np.float32) * np.ascontiguousarray(rhs).view(np.float32)
    limited = np.clip(product, -_SCALED_LIMIT, _SCALED_LIMIT)
    return np.rint(np.where(np.isnan(product), -_SCALED_LIMIT, limited)).astype(np.int32)
