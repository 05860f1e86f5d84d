"""Requirements of operands that rules share: element kinds, axes, and arithmetic wide enough to be a reference."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import steps_of
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Operand, value_of
from glowpy.graph.rounding import wide, wide_type
from glowpy.support.errors import UserError

__all__ = [
    "accumulable",
    "as_stored",
    "bounds",
    "expect_axes",
    "expect_axis",
    "expect_floats",
    "expect_numbers",
    "expect_same_kind",
    "factors",
    "widened",
]


def expect_floats(name: str, type: Type) -> None:
    """Raises UserError unless operand `name` holds floating-point numbers."""
    if not type.kind.is_float:
        raise UserError(f"expected {name} of a floating-point kind, got {type}")


def expect_numbers(name: str, type: Type) -> None:
    """Raises UserError unless operand `name` holds numbers; bool is none."""
    if type.kind is ElemKind.BOOL:
        raise UserError(f"expected {name} of a number kind, got {type}")


def expect_same_kind(like: Type, **operands: Type) -> None:
    """Raises UserError that names the first operand of another element kind than `like`."""
    for name, type in operands.items():
        if type.kind is not like.kind:
            raise UserError(f"expected {name} of kind {like.kind.value}, got {type}")


def expect_axis(axis: int, rank: int) -> int:
    """`axis`. Raises UserError unless it counts from the front, as kernels need it."""
    if rank == 0:
        raise UserError("expected an input of a rank of at least 1, got a scalar")
    if not 0 <= axis < rank:
        raise UserError(f"expected an axis from 0 to {rank - 1}, got {axis}")
    return axis


def expect_axes(axes: Sequence[int], rank: int) -> None:
    """Raises UserError unless `axes` count from the front, are distinct, and ascend."""
    for axis in axes:
        expect_axis(axis, rank)
    if list(axes) != sorted(set(axes)):
        raise UserError(f"expected distinct axes in ascending order, got {list(axes)}")


def accumulable(array: Array) -> Array:
    """The elements as sums are computed: floats in f64, integers and bool as they are."""
    dtype = array.dtype
    wide = np.result_type(
        dtype, np.float64
    )  # complex numbers stay: derivatives are tested with them
    return array.astype(wide) if ElemKind.of(dtype).is_float else array


def factors(tensor: Tensor) -> Array:
    """The elements as products accumulate: f16 and bf16 in f32, steps of quantized ones in f64, all else as it is."""
    if tensor.type.quant is not None:
        return steps_of(tensor.type, tensor.array)
    return tensor.array.astype(np.float32) if tensor.type.kind.is_half else tensor.array


def as_stored(sums: Array, kind: ElemKind) -> Array:
    """Sums of products in another kind; those of steps wrap."""
    steps = kind.is_integer and ElemKind.of(sums.dtype).is_float
    return (sums.astype(np.int64) if steps else sums).astype(kind.dtype)


def bounds(kind: ElemKind) -> tuple[float, float]:
    """The lowest and the highest element of a kind; minus and plus infinity for floats."""
    if kind.is_float:
        return -math.inf, math.inf
    if kind is ElemKind.BOOL:
        return False, True
    return kind.limits


def widened(f: Function, name: str, operand: Operand) -> Operand:
    """`operand` as f32 if it is f16 or bf16, for rules whose every step would round."""
    value = value_of(operand)
    if value.constant is not None or not value.type.kind.is_half:
        return wide(f, value)
    return f.create_convert(name, wide_type(value.type), value)
