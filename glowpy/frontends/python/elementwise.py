"""Operators that compute element by element, and conversions."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.frontends.python.graph_builder import (
    GraphBuilder,
    GraphValue,
    Number,
    Table,
    WeaklyTyped,
    common_kind,
)
from glowpy.graph.node import NodeValue
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
"""Python's own functions, which compute exactly with its numbers, by numpy's."""


def _folded(function: Callable[..., Any], operands: Sequence[Number]) -> Number:
    """Computes a function of Python's numbers. Raises UserError where the result is no number."""
    exact = _PYTHONS.get(function, function)
    with np.errstate(all="ignore"):
        try:
            number = exact(*operands)
            np.array(number, np.int64 if isinstance(number, int) else np.float64)
        except (TypeError, ValueError, ArithmeticError) as error:
            reason = "the result is too large" if isinstance(error, OverflowError) else error
            raise UserError(
                f"{function.__name__} of {', '.join(map(repr, operands))}: {reason}"
            ) from None
    value: Number = number.item() if isinstance(number, np.generic) else number
    return value


def _numbers(w: GraphBuilder, operands: Sequence[GraphValue]) -> tuple[list[NodeValue], bool]:
    """Operands in their common kind, and whether all of them give way; Python's booleans are integers."""
    values, weak = w.joint(operands)
    if weak and values[0].type.kind is ElemKind.BOOL:
        values = [w.lifted(WeaklyTyped(value), ElemKind.I64) for value in values]
    return values, weak


def _elementwise(
    mnemonic: str, function: Any, w: GraphBuilder, *operands: GraphValue, to_float: bool
) -> GraphValue:
    if all(isinstance(operand, int | float) for operand in operands):
        return _folded(function, operands)  # type: ignore[arg-type]
    tuples = [operand for operand in operands if isinstance(operand, tuple)]
    if mnemonic == "add" and len(tuples) == len(operands):
        return tuple(chain(*tuples))
    values, weak = _numbers(w, operands)
    if to_float and not values[0].type.kind.is_float:
        values = [w.lifted(WeaklyTyped(value), ElemKind.F64) for value in values]
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
"""Functions whose results are floats, of integers of the source as well."""
for _mnemonic, _function in _FLOATS.items():
    _simple(_mnemonic, _function, to_float=True)
elementwise.names.update({math.exp: "exp", math.log: "log", math.sqrt: "sqrt", math.sin: "sin"})
elementwise.names.update(
    {math.cos: "cos", math.tanh: "tanh", math.floor: "floor", math.ceil: "ceil"}
)


@elementwise(np.true_divide)
def _divide(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.true_divide, (a, b))
    values, weak = w.joint((a, b))
    if not values[0].type.kind.is_float:
        values = [w.lifted(WeaklyTyped(value), ElemKind.F64) for value in values]
    return w.wrapped(w.node("div", *values), weak)


def _floor_quotient(w: GraphBuilder, a: NodeValue, b: NodeValue) -> NodeValue:
    """The quotient of integers rounded down; `div` truncates."""
    quotient = w.node("div", a, b)
    rest = w.node("sub", a, w.node("mul", quotient, b))
    zero, one = w.splat(0, a.type.kind), w.splat(1, a.type.kind)
    signs = w.node("xor", w.node("lt", rest, zero), w.node("lt", b, zero))
    inexact = w.node("not", w.node("eq", rest, zero))
    lower = w.node("and", signs, inexact)
    return w.node("select", lower, w.node("sub", quotient, one), quotient)


def _divided(w: GraphBuilder, a: NodeValue, b: NodeValue) -> tuple[NodeValue, NodeValue]:
    """The quotient rounded down, and what is left, with the sign of the divisor."""
    kind = a.type.kind
    if kind.is_integer:
        quotient = _floor_quotient(w, a, b)
        return quotient, w.node("sub", a, w.node("mul", quotient, b))
    if not kind.is_float:
        raise UserError(f"expected numbers to divide, got {a.type}", note="use .astype(np.int64)")
    x, y = (w.lifted(WeaklyTyped(value), ElemKind.F64) for value in (a, b))
    zero = w.splat(0.0, ElemKind.F64)
    small = w.node("lt", w.node("abs", x), w.node("abs", y))
    none = w.node("sub", x, x)  # NaN where the dividend is infinite, else 0
    floor = w.node("add", w.node("floor", w.node("div", x, y)), none)
    quotient = w.node("select", small, zero, floor)
    rest = w.node("select", small, x, _difference(w, x, quotient, y))
    # It has the other sign also where the quotient was rounded up to an integer.
    apart = w.node("xor", w.node("lt", rest, zero), w.node("lt", y, zero))
    lower = w.node("and", apart, w.node("not", w.node("eq", rest, zero)))
    quotient = w.node("sub", quotient, w.node("select", lower, w.splat(1.0, ElemKind.F64), zero))
    rest = w.node("select", lower, w.node("add", rest, y), rest)
    return w.lifted(WeaklyTyped(quotient), kind), w.lifted(WeaklyTyped(rest), kind)


def _difference(w: GraphBuilder, a: NodeValue, b: NodeValue, c: NodeValue) -> NodeValue:
    """Computes a - b * c in f64, with the error of the product taken off as well (Dekker 1971).

    All is scaled, by a power of two, where what is split would overflow.
    """
    one, less, more = (w.splat(factor, ElemKind.F64) for factor in (1.0, 2.0**-64, 2.0**64))
    is_large = w.node("lt", w.splat(2.0**900, ElemKind.F64), w.node("abs", a))
    a, c = (w.node("mul", value, w.node("select", is_large, less, one)) for value in (a, c))
    product = w.node("mul", b, c)
    (high_b, low_b), (high_c, low_c) = _halves(w, b), _halves(w, c)
    error = w.node("sub", w.node("mul", high_b, high_c), product)
    for factors in ((high_b, low_c), (low_b, high_c), (low_b, low_c)):
        error = w.node("add", error, w.node("mul", *factors))
    difference = w.node("sub", w.node("sub", a, product), error)
    return w.node("mul", difference, w.node("select", is_large, more, one))


def _halves(w: GraphBuilder, value: NodeValue) -> tuple[NodeValue, NodeValue]:
    """Two numbers of at most 27 bits whose sum is a value."""
    scaled = w.node("mul", value, w.splat(2.0**27 + 1, ElemKind.F64))
    high = w.node("sub", scaled, w.node("sub", scaled, value))
    return high, w.node("sub", value, high)


def _extremum(python: Any, name: str) -> None:
    def rule(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
        for operand in (a, b):
            if isinstance(operand, NodeValue) and operand.type.rank:
                note = f"use np.{name} element by element, np.{python.__name__} of all elements"
                raise UserError(f"expected two numbers, got {operand.type}", note=note)
        return elementwise.rules[name](w, a, b)

    elementwise(python, name=python.__name__ + "_of_two")(rule)


_extremum(max, "maximum")
_extremum(min, "minimum")


@elementwise(np.floor_divide)
def _floor_divide(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.floor_divide, (a, b))
    (x, y), weak = w.joint((a, b))
    return w.wrapped(_divided(w, x, y)[0], weak)


@elementwise(np.mod)
def _mod(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.mod, (a, b))
    (x, y), weak = w.joint((a, b))
    return w.wrapped(_divided(w, x, y)[1], weak)


_MAX_POWER = 64


@elementwise(np.power)
def _power(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
    if not common_kind([a, b]).is_float and not isinstance(b, NodeValue):
        b = w.known(b)
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(np.power, (a, b))
    if isinstance(b, int) and 0 <= b <= _MAX_POWER and (b == 2 or not common_kind([a]).is_float):
        (x,), weak = _numbers(w, (a,))
        power = x if b else w.node("splat", x.type, 1)
        for bit in bin(b)[3:]:
            power = w.node("mul", power, power)
            power = w.node("mul", power, x) if bit == "1" else power
        return w.wrapped(power, weak)
    values, weak = w.joint((a, b))
    if not values[0].type.kind.is_float:
        raise UserError(
            f"expected an exponent that is a number from 0 to {_MAX_POWER} for integers, got {values[0].type}",
            note="convert with .astype(np.float32)",
        )
    return w.wrapped(w.node("pow", *values), weak)


def _comparison(
    mnemonic: str,
    function: Any,
    w: GraphBuilder,
    a: GraphValue,
    b: GraphValue,
    *,
    swap: bool,
    negate: bool,
) -> GraphValue:
    if isinstance(a, int | float) and isinstance(b, int | float):
        return _folded(function, (a, b))
    if isinstance(a, tuple) and isinstance(b, tuple) and mnemonic == "eq":
        return (w.known(a) == w.known(b)) is not negate
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
"""Comparisons by their functions: the instruction, whether operands are swapped, and whether its result is negated."""


def _compare(function: Any, name: str, swap: bool, negate: bool) -> None:
    def rule(w: GraphBuilder, a: GraphValue, b: GraphValue) -> GraphValue:
        return _comparison(name, function, w, a, b, swap=swap, negate=negate)

    elementwise(function, name=function.__name__)(rule)


for _function, _meaning in _COMPARISONS.items():
    _compare(_function, *_meaning)


def _truth(w: GraphBuilder, operand: GraphValue) -> NodeValue:
    """Whether elements are other than 0."""
    value = w.tensor(operand)
    kind = value.type.kind
    is_bool = kind is ElemKind.BOOL
    return value if is_bool else w.node("not", w.node("eq", value, w.splat(0, kind)))


def _bits(mnemonic: str, function: Any, w: GraphBuilder, *operands: GraphValue) -> GraphValue:
    if all(isinstance(operand, int) for operand in operands):
        return _folded(function, operands)  # type: ignore[arg-type]
    values, weak = w.joint(operands)
    kind = values[0].type.kind
    if kind.is_float:
        note = "compare with != 0, or convert with .astype(np.int64)"
        raise UserError(f"expected booleans or integers, got {values[0].type}", note=note)
    return w.wrapped(w.node(mnemonic, *values), weak)


def _combine(mnemonic: str, logical: Any, bitwise: Any) -> None:
    elementwise(logical, name=logical.__name__)(
        lambda w, a, b: w.node(mnemonic, _truth(w, a), _truth(w, b))
    )
    elementwise(bitwise, name=bitwise.__name__)(lambda w, a, b: _bits(mnemonic, bitwise, w, a, b))


_combine("and", np.logical_and, np.bitwise_and)
_combine("or", np.logical_or, np.bitwise_or)
_combine("xor", np.logical_xor, np.bitwise_xor)


@elementwise(np.invert)
def _invert(w: GraphBuilder, x: GraphValue) -> GraphValue:
    kind = common_kind([x])
    if kind is ElemKind.BOOL and not isinstance(x, NodeValue):
        raise UserError("expected an integer or an array, got a Python bool", note="write not")
    if isinstance(x, int):
        return ~x
    if kind is ElemKind.BOOL:
        return w.node("not", x)
    return _bits("xor", np.bitwise_xor, w, x, int(np.invert(np.zeros((), kind.dtype))))


@elementwise(np.logical_not)
def _logical_not(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return not x if isinstance(x, int | float) else w.node("not", _truth(w, x))


@elementwise(operator.not_)
def _not(w: GraphBuilder, x: GraphValue) -> GraphValue:
    """`not x`, of one element."""
    if isinstance(x, tuple) or x is None:
        return not x
    if isinstance(x, NodeValue) and math.prod(x.type.extents) != 1:
        note = "use np.logical_not element by element, or ~ of booleans"
        raise UserError(f"expected a condition of one element, got {x.type}", note=note)
    opposite = _logical_not(w, x)
    if not isinstance(opposite, NodeValue):
        return opposite
    return WeaklyTyped(w.node("reshape", opposite.type.with_shape(()), opposite))


@elementwise(np.isnan, math.isnan)
def _isnan(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return math.isnan(x) if isinstance(x, int | float) else w.node("is_nan", w.tensor(x))


@elementwise(np.where)
def _where(w: GraphBuilder, condition: GraphValue, x: GraphValue, y: GraphValue) -> GraphValue:
    if all(isinstance(operand, int | float) for operand in (condition, x, y)):
        return x if condition else y
    values, weak = w.joint((x, y))
    return w.wrapped(w.node("select", _truth(w, condition), *values), weak)


@elementwise(np.clip, method="clip")
def _clip(
    w: GraphBuilder, x: GraphValue, a_min: GraphValue = None, a_max: GraphValue = None
) -> GraphValue:
    if a_min is not None:
        x = elementwise.rules["maximum"](w, x, a_min)
    return x if a_max is None else elementwise.rules["minimum"](w, x, a_max)


# ------------------------------------------------------------------------------------------------- kinds and numbers


@elementwise(method="astype")
def _astype(w: GraphBuilder, x: GraphValue, *, dtype: Any) -> GraphValue:
    return _converted(w, x, dtype)


def _converted(w: GraphBuilder, x: GraphValue, dtype: Any) -> NodeValue:
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
    def rule(w: GraphBuilder, x: GraphValue) -> GraphValue:
        if isinstance(x, int | float) and callee in _PYTHON_TYPES:
            return _folded(callee, (x,))
        return w.wrapped(
            _converted(w, x, dtype), isinstance(x, WeaklyTyped) and callee in _PYTHON_TYPES
        )

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
def _shape(w: GraphBuilder, x: GraphValue) -> GraphValue:
    """`x.shape`: numbers, which are known while compiling, as all that follows."""
    return w.tensor(x).type.extents


@elementwise(np.ndim)
def _ndim(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return w.tensor(x).type.rank


@elementwise(np.size)
def _size(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return math.prod(w.tensor(x).type.extents)


@elementwise(name="dtype")
def _dtype_of(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return w.tensor(x).type.kind.dtype


@elementwise(len)
def _len(w: GraphBuilder, x: GraphValue) -> GraphValue:
    if isinstance(x, tuple):
        return len(x)
    extents = w.tensor(x).type.extents
    if not extents:
        raise UserError("expected a tuple, or a tensor of at least one dimension, got one of none")
    return extents[0]


@elementwise()
def _is_none(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return x is None


@elementwise()
def _is_not_none(w: GraphBuilder, x: GraphValue) -> GraphValue:
    return x is not None
