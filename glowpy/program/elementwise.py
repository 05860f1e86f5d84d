"""Operators that compute element by element, and conversions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.graph.node import NodeValue
from glowpy.program.weaver import Held, Number, Table, Weak, Weaver, common_kind
from glowpy.support.errors import UserError

__all__ = ["elementwise", "kind_of"]

elementwise = Table()


_PYTHONS: dict[Any, Any] = {
    np.add: operator.add,
    np.subtract: operator.sub,
    np.multiply: operator.mul,
    np.true_divide: operator.truediv,
    np.floor_divide: operator.floordiv,
    np.mod: operator.mod,
    np.power: operator.pow,
    np.negative: operator.neg,
    np.absolute: abs,
}
"""What Python computes exactly of its own numbers."""


def _folded(function: Callable[..., Any], operands: Sequence[Number]) -> Number:
    """What Python's numbers give. Raises UserError where that is no number."""
    exact = _PYTHONS.get(function, function)
    with np.errstate(all="ignore"):
        try:
            number = exact(*operands)
            np.array(number, np.int64 if isinstance(number, int) else np.float64)
        except (TypeError, ValueError, ArithmeticError) as error:
            raise UserError(
                f"{function.__name__} of {', '.join(map(repr, operands))}: {error}"
            ) from None
    value: Number = number.item() if isinstance(number, np.generic) else number
    return value


def _elementwise(mnemonic: str, function: Any, w: Weaver, *operands: Held, to_float: bool) -> Held:
    if all(isinstance(operand, int | float) for operand in operands):
        return _folded(function, operands)  # type: ignore[arg-type]
    values, weak = w.joint(operands)
    if to_float and not values[0].type.kind.is_float:
        values = [w.lifted(Weak(value), ElemKind.F64) for value in values]
    return w.wrapped(w.node(mnemonic, *values), weak)


def _simple(mnemonic: str, function: Any, *aliases: Any, to_float: bool = False) -> None:
    rule = partial(_elementwise, mnemonic, function, to_float=to_float)
    name = function.__name__
    count = function.nin
    if count == 1:
        elementwise(function, *aliases, name=name)(lambda w, x: rule(w, x))
    else:
        elementwise(function, *aliases, name=name)(lambda w, a, b: rule(w, a, b))


_simple("add", np.add)
_simple("sub", np.subtract)
_simple("mul", np.multiply)
_simple("max", np.maximum)
_simple("min", np.minimum)
_simple("neg", np.negative)
_simple("abs", np.absolute, abs)
_simple("sign", np.sign)
_FLOATS: dict[str, Any] = {
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "sqrt": np.sqrt,
    "reciprocal": np.reciprocal,
    "exp": np.exp,
    "log": np.log,
    "tanh": np.tanh,
    "sin": np.sin,
    "cos": np.cos,
}
"""What gives floats, of integers of the source as well."""
for _mnemonic, _function in _FLOATS.items():
    _simple(_mnemonic, _function, to_float=True)
elementwise.names.update({math.exp: "exp", math.log: "log", math.sqrt: "sqrt", math.sin: "sin"})
elementwise.names.update(
    {math.cos: "cos", math.tanh: "tanh", math.floor: "floor", math.ceil: "ceil"}
)


@elementwise(np.true_divide)
def _divide(w: Weaver, a: Held, b: Held) -> Held:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.true_divide, (a, b))
    values, weak = w.joint((a, b))
    if not values[0].type.kind.is_float:
        values = [w.lifted(Weak(value), ElemKind.F64) for value in values]
    return w.wrapped(w.node("div", *values), weak)


def _integers(w: Weaver, what: str, a: Held, b: Held) -> tuple[list[NodeValue], bool]:
    values, weak = w.joint((a, b))
    if not values[0].type.kind.is_integer:
        raise UserError(
            f"expected integers for {what}, got {values[0].type}", note="use np.floor(a / b)"
        )
    return values, weak


def _floor_quotient(w: Weaver, a: NodeValue, b: NodeValue) -> NodeValue:
    """The quotient of integers rounded down; `div` truncates."""
    quotient = w.node("div", a, b)
    rest = w.node("sub", a, w.node("mul", quotient, b))
    zero, one = w.splat(0, a.type.kind), w.splat(1, a.type.kind)
    signs = w.node("xor", w.node("lt", rest, zero), w.node("lt", b, zero))
    inexact = w.node("not", w.node("eq", rest, zero))
    lower = w.node("and", signs, inexact)
    return w.node("select", lower, w.node("sub", quotient, one), quotient)


@elementwise(np.floor_divide)
def _floor_divide(w: Weaver, a: Held, b: Held) -> Held:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.floor_divide, (a, b))
    (x, y), weak = _integers(w, "//", a, b)
    return w.wrapped(_floor_quotient(w, x, y), weak)


@elementwise(np.mod)
def _mod(w: Weaver, a: Held, b: Held) -> Held:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.mod, (a, b))
    (x, y), weak = _integers(w, "%", a, b)
    return w.wrapped(w.node("sub", x, w.node("mul", _floor_quotient(w, x, y), y)), weak)


_MAX_POWER = 64


@elementwise(np.power)
def _power(w: Weaver, a: Held, b: Held) -> Held:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.power, (a, b))
    if isinstance(b, int) and 0 < b <= _MAX_POWER and (b == 2 or not common_kind([a]).is_float):
        (x,), weak = w.joint((a,))
        power = x
        for bit in bin(b)[3:]:
            power = w.node("mul", power, power)
            power = w.node("mul", power, x) if bit == "1" else power
        return w.wrapped(power, weak)
    values, weak = w.joint((a, b))
    if not values[0].type.kind.is_float:
        raise UserError(
            f"expected an exponent from 1 to {_MAX_POWER} for integers, got {values[0].type}",
            note="convert with .astype(np.float32)",
        )
    return w.wrapped(w.node("pow", *values), weak)


def _comparison(
    mnemonic: str, function: Any, w: Weaver, a: Held, b: Held, *, swap: bool, negate: bool
) -> Held:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(function, (a, b))
    (x, y), _ = w.joint((a, b))
    result = w.node(mnemonic, *((y, x) if swap else (x, y)))
    return w.node("not", result) if negate else result


_COMPARISONS: dict[Any, tuple[str, bool, bool]] = {
    np.equal: ("eq", False, False),
    np.not_equal: ("eq", False, True),
    np.less: ("lt", False, False),
    np.less_equal: ("le", False, False),
    np.greater: ("lt", True, False),
    np.greater_equal: ("le", True, False),
}
"""What compares, whether the other way round, and whether the opposite is meant."""


def _compare(function: Any, name: str, swap: bool, negate: bool) -> None:
    def rule(w: Weaver, a: Held, b: Held) -> Held:
        return _comparison(name, function, w, a, b, swap=swap, negate=negate)

    elementwise(function, name=function.__name__)(rule)


for _function, _meaning in _COMPARISONS.items():
    _compare(_function, *_meaning)


def _logic(mnemonic: str, w: Weaver, *operands: Held, bits: bool) -> Held:
    values, weak = w.joint(operands)
    kind = values[0].type.kind
    if kind is not ElemKind.BOOL and not (bits and kind.is_integer):
        raise UserError(f"expected booleans, got {values[0].type}", note="compare with != 0")
    return w.wrapped(w.node(mnemonic, *values), weak and kind is not ElemKind.BOOL)


_LOGIC: dict[Any, tuple[str, bool]] = {
    np.logical_and: ("and", False),
    np.logical_or: ("or", False),
    np.logical_xor: ("xor", False),
    np.bitwise_and: ("and", True),
    np.bitwise_or: ("or", True),
    np.bitwise_xor: ("xor", True),
}
"""The operator, and whether it takes the bits of integers as well."""


def _combine(function: Any, name: str, bits: bool) -> None:
    def rule(w: Weaver, a: Held, b: Held) -> Held:
        return _logic(name, w, a, b, bits=bits)

    elementwise(function, name=function.__name__)(rule)


for _function, _sense in _LOGIC.items():
    _combine(_function, *_sense)


@elementwise(np.logical_not)
def _logical_not(w: Weaver, x: Held) -> Held:
    return not x if isinstance(x, int | float) else _logic("not", w, x, bits=False)


@elementwise(np.isnan, math.isnan)
def _isnan(w: Weaver, x: Held) -> Held:
    return math.isnan(x) if isinstance(x, int | float) else w.node("is_nan", w.tensor(x))


@elementwise(np.where)
def _where(w: Weaver, condition: Held, a: Held, b: Held) -> Held:
    values, weak = w.joint((a, b))
    return w.wrapped(w.node("select", w.lifted(condition, ElemKind.BOOL), *values), weak)


@elementwise(np.clip, method="clip")
def _clip(w: Weaver, x: Held, low: Held | None, high: Held | None) -> Held:
    bounds = [bound for bound in (low, high) if bound is not None]
    (value, *limits), weak = w.joint((x, *bounds))
    if low is not None:
        value = w.node("max", value, limits[0])
    if high is not None:
        value = w.node("min", value, limits[-1])
    return w.wrapped(value, weak)


# ------------------------------------------------------------------------------------------------- kinds and numbers


@elementwise(method="astype")
def _astype(w: Weaver, x: Held, *, dtype: Any) -> Held:
    kind = kind_of(dtype)
    value = w.tensor(x)
    same = value.type.kind is kind
    return value if same else w.node("convert", value.type.with_kind(kind), value)


def kind_of(dtype: Any) -> ElemKind:
    """The element kind of a dtype, or what numpy makes one of. Raises UserError if there is none."""
    try:
        return ElemKind.of(np.dtype(dtype))
    except (TypeError, KeyError, UserError):
        raise UserError(f"expected an element kind, such as np.float32, got {dtype!r}") from None


def _cast(callee: Any, dtype: Any) -> None:
    def rule(w: Weaver, x: Held) -> Held:
        return _astype(w, x, dtype=dtype)

    elementwise(callee, name=callee.__name__)(rule)


_FLOAT_TYPES = (np.float16, np.float32, np.float64)
_INTEGER_TYPES = (np.int8, np.int16, np.int32, np.int64, np.uint8, np.uint16, np.uint32, np.uint64)
_PYTHON_TYPES = {float: np.float64, int: np.int64, bool: np.bool_}
_CASTS: dict[Any, Any] = {
    **{dtype: dtype for dtype in (*_FLOAT_TYPES, *_INTEGER_TYPES, np.bool_)},
    **_PYTHON_TYPES,
}
for _callee, _dtype in _CASTS.items():
    _cast(_callee, _dtype)


@elementwise()
def _extent(w: Weaver, x: Held, *, axis: int) -> Held:
    """`x.shape[axis]`, which is a number."""
    shape = w.tensor(x).type.extents
    if not -len(shape) <= axis < len(shape):
        raise UserError(f"expected an axis of a tensor of rank {len(shape)}, got {axis}")
    return shape[axis]


@elementwise(len)
def _len(w: Weaver, x: Held) -> Held:
    return len(x) if isinstance(x, tuple) else _extent(w, x, axis=0)
