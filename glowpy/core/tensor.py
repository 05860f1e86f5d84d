"""`Tensor`: a type and the numpy array that holds its elements."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.support.errors import UserError

__all__ = ["Array", "Tensor", "converted", "stored"]

Array = npt.NDArray[Any]


def converted(array: Array, kind: ElemKind) -> Array:
    """Numbers in another kind.

    Floats that become integers truncate and saturate, and NaN becomes 0; integers that become integers wrap; bool means
    not zero.
    """
    if kind is ElemKind.BOOL:
        return np.asarray(array != 0)
    if kind.is_integer and ElemKind.of(array.dtype).is_float:
        return _saturated(array.astype(np.float64), kind)
    with np.errstate(all="ignore"):
        return np.asarray(array.astype(kind.dtype))


def _saturated(wide: Array, kind: ElemKind) -> Array:
    """The highest i64 and u64 round up in f64, so that what is not below them is too high."""
    least, greatest = kind.limits
    low, high = wide <= float(least), wide >= float(greatest)
    result = np.where(low | high | np.isnan(wide), 0.0, wide).astype(kind.dtype)
    result[low], result[high] = least, greatest
    return result


def stored(type: Type, value: float) -> Array:
    """The number `value` as elements of `type` hold it: an array that broadcasts to the type's shape.

    An element that is not quantized is the number in its kind, as `converted` says. A quantized one is value / scale,
    rounded to the nearest integer, halves to even, plus offset, within the limits of the kind (ONNX QuantizeLinear).
    Where it differs by channel, the array is as long as there are channels. Raises UserError for a NaN, which no
    quantized element stands for.
    """
    quant, dtype = type.quant, type.kind.dtype
    if quant is None:
        return converted(np.asarray(value, np.float64), type.kind)
    if np.isnan(value):
        raise UserError(f"expected a number, which elements of {type} stand for, got nan")
    with np.errstate(over="ignore"):
        steps = np.rint(np.float64(value) / np.array(quant.scales)) + np.array(quant.offsets)
    elements: Array = np.clip(steps, *type.kind.limits).astype(dtype)
    if quant.axis is None or len(set(elements.tolist())) == 1:
        return np.asarray(elements[0])
    return elements.reshape(-1, *(1,) * (type.rank - quant.axis - 1))


@dataclass(frozen=True, slots=True, eq=False)
class Tensor:
    """Elements with their type: the array has its shape and dtype, and may have zero strides (a splat)."""

    type: Type
    array: Array

    def __post_init__(self) -> None:
        if self.array.dtype != self.type.kind.dtype or self.array.shape != self.type.shape:
            raise UserError(
                f"expected an array of type {self.type}, got {self.array.dtype}{list(self.array.shape)}"
            )

    @classmethod
    def of(cls, array: Array) -> Tensor:
        """A tensor of the array's own kind and shape.

        Raises UserError for what is no array, and for a dtype that is no element kind.
        """
        if not isinstance(array, np.ndarray | np.generic):
            raise UserError(
                f"expected a numpy array, got {type(array).__name__}", note="numpy.array makes one"
            )
        try:
            kind = ElemKind.of(array.dtype)
        except KeyError:
            raise UserError(
                f"expected an array of numbers or booleans, got dtype {array.dtype}"
            ) from None
        return cls(Type(kind, array.shape), array)

    @classmethod
    def splat(cls, type: Type, value: float) -> Tensor:
        """The element `value` everywhere, in the memory of one; of a quantized type it is what is stored."""
        return cls(type, np.broadcast_to(np.asarray(value, type.kind.dtype), type.shape))

    @property
    def splat_value(self) -> float | int | None:
        """The value all elements share when the array says so by its strides or has one element, else None."""
        if self.array.size == 0 or (self.array.size > 1 and any(self.array.strides)):
            return None
        item = (
            self.array.reshape(-1)[0]
            if self.array.size == 1
            else self.array[(0,) * self.array.ndim]
        )
        return float(item) if self.type.kind.is_float else int(item)

    def compact(self) -> Tensor:
        """The same tensor, in the memory of one element where all have the same bits."""
        array = self.array
        if array.size < 2:
            return self
        first = array.reshape(-1)[0]
        if not (array == first).all() or array.tobytes() != first.tobytes() * array.size:
            return self
        return Tensor.splat(self.type, first)

    def digest(self) -> str:
        """SHA-256 of the elements in row-major order."""
        return hashlib.sha256(self.array.tobytes()).hexdigest()

    def equals(self, other: Tensor) -> bool:
        """Bit-for-bit equality of type and elements."""
        return self.type == other.type and self.array.tobytes() == other.array.tobytes()
