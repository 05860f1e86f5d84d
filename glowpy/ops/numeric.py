"""The numpy side of element-wise operators where numpy itself has no function with our meaning."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from glowpy.core.tensor import Array, Tensor, converted
from glowpy.core.type import Type

__all__ = [
    "convert",
    "divide",
    "erf",
    "power",
    "saturate",
    "scale_rounded",
    "select",
    "sigmoid",
    "steps",
    "store",
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


def erf(input: Array) -> Array:
    """The error function, element by element."""
    wide = np.frompyfunc(math.erf, 1, 1)(input.astype(np.float64))
    return np.asarray(wide, dtype=np.float64).astype(input.dtype)


def convert(input: Array, type: Type) -> Array:
    """`input` in another kind, as `converted` says."""
    return converted(input, type.kind)


def steps(lhs: Array, rhs: Array) -> Array:
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
