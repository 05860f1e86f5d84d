"""Import of element-wise operators: those that mean what a node means, and those composed of several."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from onnx import TensorProto

from glowpy.core.elemkind import ElemKind
from glowpy.core.shape import broadcasts_to, is_same_shape
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.node import Node, NodeValue
from glowpy.importer.declared import Narrow
from glowpy.importer.elements import NARROW, kind_of
from glowpy.importer.kit.moves import convert, filled, full, reshape
from glowpy.importer.kit.numbers import Numbers
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.codes import to_codes
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.ops.elementwise import ONNX_ELEMENTWISE
from glowpy.support.errors import UserError

__all__: list[str] = []


def _register(op_type: str, since: int, cls: type[Node]) -> None:
    @from_onnx(op_type, since=since)
    def _(n: OnnxNode) -> NodeValue:
        return n.f.create(cls, n.name, _operands(n), {}).result


for (_op_type, _since), _cls in ONNX_ELEMENTWISE.items():
    _register(_op_type, _since, _cls)


def _operands(n: OnnxNode) -> list[NodeValue]:
    """The inputs; below opset 7, the second one placed under the first as the attributes `broadcast` and `axis` say."""
    if n.opset >= 7 or n.num_inputs != 2:
        return n.inputs()
    lhs, rhs = n.type(0), n.type(1)
    if not n.flag("broadcast"):
        if not is_same_shape(lhs.shape, rhs.shape):
            raise UserError(
                f"expected inputs of one shape without 'broadcast', got {lhs} and {rhs}"
            )
        return n.inputs()
    axis = n.integer("axis", lhs.rank - rhs.rank)
    axis = axis + lhs.rank if axis < 0 else axis
    trailing = lhs.rank - axis - rhs.rank
    fits = axis >= 0 and trailing >= 0
    if not fits or not broadcasts_to(rhs.shape, lhs.shape[axis : axis + rhs.rank]):
        raise UserError(f"{rhs} does not broadcast to {lhs} from dimension {axis} on")
    placed = reshape(n, n.value(1), (*rhs.shape, *(1,) * trailing))
    return [n.input(0), n.operand(placed, n.proto.input[1])]


@from_onnx("Greater")
def _greater(n: OnnxNode) -> NodeValue:
    lhs, rhs = _operands(n)
    return n.f.create_lt(n.name, rhs, lhs).result


@from_onnx("GreaterOrEqual", since=12)
def _greater_or_equal(n: OnnxNode) -> NodeValue:
    return n.f.create_le(n.name, n.input(1), n.input(0)).result


_ELEM_TYPES = frozenset(TensorProto.DataType.keys())

Chain = Callable[[OnnxNode, NodeValue, NodeValue], NodeValue]
_CHAINS: dict[str, Chain] = {
    "Sum": lambda n, lhs, rhs: n.f.create_add(n.name, lhs, rhs).result,
    "Max": lambda n, lhs, rhs: n.f.create_max(n.name, lhs, rhs).result,
    "Min": lambda n, lhs, rhs: n.f.create_min(n.name, lhs, rhs).result,
    "Mean": lambda n, lhs, rhs: n.f.create_add(n.name, lhs, rhs).result,
}


@from_onnx(*_CHAINS)
def _chain(n: OnnxNode) -> NodeValue:
    """Any number of inputs; below opset 8 they do not broadcast."""
    first, *rest = n.inputs()
    if n.opset < 8 and not all(is_same_shape(value.type.shape, first.type.shape) for value in rest):
        raise UserError("expected inputs of one shape below opset 8")
    result = first
    for value in rest:
        result = _CHAINS[n.proto.op_type](n, result, value)
    if n.proto.op_type == "Mean" and rest:
        count = _scalar(n, result.type.kind, n.num_inputs)
        result = n.f.create_div(n.name, result, count).result
    return result


def _scalar(n: OnnxNode, kind: ElemKind, value: float) -> NodeValue:
    """A scalar that broadcasts."""
    return n.f.create_splat(f"{n.name}_scalar", Type(kind, ()), float(value)).result


_EXPONENTS = 64
"""A power of an integer with a larger exponent is that of this one, or of the next: 1, -1, 0, or too large."""


@from_onnx("Pow")
def _pow(n: OnnxNode) -> Value:
    """The base's kind, whatever the exponent's (from opset 12 on). Integers are exact; what is too large wraps."""
    base, exponent = _operands(n)
    kind = base.type.kind
    if kind.is_float:
        exponent = n.operand(convert(n, exponent, kind))
        return n.f.create_pow(n.name, base, exponent).result
    exponent_value = n.value(1)
    power = exponent_value.splat_value if isinstance(exponent_value, Tensor) else None
    if (
        power is not None
        and 0 <= power <= 64
        and power == int(power)
        and exponent_value.type.rank == 0
    ):
        return _power(n, base, int(power))
    numbers, exponents = Numbers(n, base).to(ElemKind.I64), Numbers(n, exponent)
    integers = exponents.to(ElemKind.I64)
    result = _whole_power(numbers, integers)
    if exponents.kind.is_float:
        wide = [value.to(ElemKind.F64).operand for value in (numbers, exponents)]
        rough = Numbers(n, n.f.create_pow(n.name, *wide).result).to(ElemKind.I64)
        result = result.where(integers.to(exponents.kind).equals(exponents), rough)
    return result.to(kind).value


def _whole_power(base: Numbers, exponent: Numbers) -> Numbers:
    """Raises to powers by squaring. Below 0 the power is truncated: 0, but for 1 and -1, and infinite for 0."""
    size = abs(exponent)
    odd = size - size // 2 * 2
    left = size.where(size <= _EXPONENTS, odd + _EXPONENTS)
    result, factor = base * 0 + 1, base
    for _ in range(_EXPONENTS.bit_length()):
        half = left // 2
        result = (result * factor).where((left - half * 2).equals(1), result)
        left, factor = half, factor * factor
    most = ElemKind.I64.limits[1]
    inverse = (base * 0).where(abs(base) > 0, most)
    return result.where((exponent >= 0) | abs(base).equals(1), inverse)


def _power(n: OnnxNode, base: NodeValue, exponent: int) -> Value:
    """`base` multiplied by itself, by squaring."""
    result: NodeValue | None = None
    while exponent:
        if exponent & 1:
            result = base if result is None else n.f.create_mul(n.name, result, base).result
        exponent >>= 1
        base = n.f.create_mul(n.name, base, base).result if exponent else base
    return filled(n, base.type, 1) if result is None else result


@from_onnx("Cast")
def _cast(n: OnnxNode) -> Value:
    """To another kind. `saturate` and `round_mode` concern only 8-bit floats."""
    if n.opset < 6:
        name = n.text("to", "")
        if name not in _ELEM_TYPES:
            raise UserError(f"expected the name of an element type, got '{name}'")
        return convert(n, n.value(0), kind_of(TensorProto.DataType.Value(name)))
    to = n.integer("to", 0)
    return _cast_to(n, kind_of(to), NARROW.get(to))


def _cast_to(n: OnnxNode, wanted: ElemKind, narrow: Narrow | None) -> Value:
    """Converts to a kind; narrow integers keep only the lowest bits."""
    value = n.value(0)
    if wanted.is_code:
        return to_codes(n, value, wanted)
    if narrow is None:
        return convert(n, value, wanted)
    return _lowest_bits(n, convert(n, convert(n, value, ElemKind.I32), wanted), narrow.bits)


def _lowest_bits(n: OnnxNode, value: Value, bits: int) -> Value:
    """Keeps the lowest bits of wider integers, with the sign that the kind has."""
    kind, f = Type(value.type.kind, ()), n.f
    mask = f.create_splat(f"{n.name}_mask", kind, float((1 << bits) - 1))
    lowest = f.create_and(n.name, n.operand(value), mask)
    if not kind.kind.is_signed:
        return lowest.result
    half = f.create_splat(f"{n.name}_half", kind, float(1 << (bits - 1)))
    return f.create_sub(n.name, f.create_xor(n.name, lowest, half), half).result


@from_onnx("BitwiseAnd", since=18)
def _bitwise_and(n: OnnxNode) -> NodeValue:
    return n.f.create_and(n.name, n.input(0), n.input(1)).result


@from_onnx("BitwiseOr", since=18)
def _bitwise_or(n: OnnxNode) -> NodeValue:
    return n.f.create_or(n.name, n.input(0), n.input(1)).result


@from_onnx("BitwiseXor", since=18)
def _bitwise_xor(n: OnnxNode) -> NodeValue:
    return n.f.create_xor(n.name, n.input(0), n.input(1)).result


@from_onnx("BitwiseNot", since=18)
def _bitwise_not(n: OnnxNode) -> NodeValue:
    """Exclusive or with ones."""
    kind = n.type(0).kind
    ones = np.invert(np.zeros((), kind.dtype))
    mask = n.operand(Tensor.of(np.asarray(ones, kind.dtype)), f"{n.name}_ones")
    return n.f.create_xor(n.name, n.input(0), mask).result


@from_onnx("Mod", since=10)
def _mod(n: OnnxNode) -> Value:
    """Computes a remainder: with the sign of the dividend if `fmod` is set, else with that of the divisor.

    Floats are computed in f64, which is exact for f32 while the quotient is below 2**29.
    """
    kind, f = n.type(0).kind, n.f
    wide = ElemKind.F64 if kind.is_float else kind
    lhs, rhs = (n.operand(convert(n, n.value(i), wide), n.proto.input[i]) for i in (0, 1))
    zero = _scalar(n, wide, 0.0)
    quotient: Node = f.create_div(n.name, lhs, rhs)
    if kind.is_float:
        down, up = f.create_floor(n.name, quotient), f.create_ceil(n.name, quotient)
        quotient = f.create_select(n.name, f.create_lt(n.name, quotient, zero), up, down)
    left: Node = f.create_sub(n.name, lhs, f.create_mul(n.name, quotient, rhs))
    if kind.is_float:
        # An infinite divisor leaves a finite dividend as it is, but infinity times 0 would be NaN.
        small = f.create_lt(n.name, f.create_abs(n.name, lhs), f.create_abs(n.name, rhs))
        left = f.create_select(n.name, small, lhs, left)
    if not n.flag("fmod") and kind.is_signed:
        apart = f.create_xor(
            n.name, f.create_lt(n.name, left, zero), f.create_lt(n.name, rhs, zero)
        )
        some = f.create_not(n.name, f.create_eq(n.name, left, zero))
        moved = f.create_add(n.name, left, rhs)
        left = f.create_select(n.name, f.create_and(n.name, apart, some), moved, left)
    return convert(n, left.result, kind)


@from_onnx("BitCast", since=26)
def _bit_cast(n: OnnxNode) -> Value:
    """The same bits in another kind. A bool is a byte that is 0 or 1; of another byte, it is whether that is not 0."""
    to = n.integer("to", 0)
    value, wanted, narrow = n.value(0), kind_of(to), NARROW.get(to)
    kind, source = value.type.kind, n.narrow(0)
    if _bits(kind, source) != _bits(wanted, narrow):
        raise UserError(f"expected elements as wide as {kind.value}, got {wanted.value} as 'to'")
    if kind is wanted and source == narrow:
        return value
    if kind is ElemKind.BOOL:
        value, kind = convert(n, value, ElemKind.U8), ElemKind.U8
    if wanted is ElemKind.BOOL:
        byte = n.operand(_same_bits(n, value, ElemKind.U8))
        zero = _scalar(n, ElemKind.U8, 0.0)
        return n.f.create_not(n.name, n.f.create_eq(n.name, byte, zero)).result
    if narrow is not None:
        return _lowest_bits(n, _same_bits(n, value, narrow.kind), narrow.bits)
    if source is not None:
        value = _lowest_bits(n, _same_bits(n, value, ElemKind.U8), source.bits)
    return _same_bits(n, value, wanted)


def _bits(kind: ElemKind, narrow: Narrow | None) -> int:
    return narrow.bits if narrow else 4 if kind is ElemKind.F4E2M1 else 8 * kind.size


def _same_bits(n: OnnxNode, value: Value, kind: ElemKind) -> Value:
    if value.type.kind is kind:
        return value
    return n.f.create_bit_cast(n.name, value.type.with_kind(kind), n.operand(value)).result


@from_onnx("CastLike", since=15)
def _cast_like(n: OnnxNode) -> Value:
    return _cast_to(n, n.type(1).kind, n.narrow(1))


@from_onnx("IsInf", since=10)
def _is_inf(n: OnnxNode) -> Value:
    """Whether the input is an infinity of one of the signs asked for."""
    f, x = n.f, _computable(n, n.value(0))
    kind = x.type.kind
    high = f.create_eq(n.name, x, _scalar(n, kind, float("inf")))
    low = f.create_eq(n.name, x, _scalar(n, kind, float("-inf")))
    match n.flag("detect_positive", True), n.flag("detect_negative", True):
        case True, True:
            return f.create_or(n.name, high, low).result
        case True, False:
            return high.result
        case False, True:
            return low.result
        case _:
            return filled(n, n.type(0).with_kind(ElemKind.BOOL), 0)


@from_onnx("IsNaN", since=20)
def _is_nan(n: OnnxNode) -> NodeValue:
    """From this opset on, of codes as well."""
    return n.f.create_is_nan(n.name, _computable(n, n.value(0))).result


def _computable(n: OnnxNode, value: Value) -> NodeValue:
    """Codes in f32; all else as it is."""
    return n.operand(convert(n, value, ElemKind.F32) if value.type.kind.is_code else value)


@from_onnx("BitShift", since=11)
def _bit_shift(n: OnnxNode) -> Value:
    """Integers times or divided by a power of two from a table.

    Shifts below 0 or beyond the width shift everything out, as opset 28 says. To the right the sign moves in.
    """
    f, kind, direction = n.f, n.type(0).kind, n.text("direction", "")
    if direction not in ("LEFT", "RIGHT"):
        raise UserError(f"attribute 'direction': expected LEFT or RIGHT, got '{direction}'")

    def number(value: int) -> NodeValue:
        return n.operand(full(Type(kind, ()), value), f"{n.name}_number")

    x, places = n.input(0), n.input(1)
    # To the right, the sign bit alone is as good as everything, and its power of two would be negative.
    bits = 8 * kind.size - (1 if kind.is_signed and direction == "RIGHT" else 0)
    powers = (np.uint64(1) << np.arange(bits, dtype=np.uint64)).astype(kind.dtype)
    inside = f.create_and(
        n.name, f.create_le(n.name, number(0), places), f.create_lt(n.name, places, number(bits))
    )
    index = f.create_select(n.name, inside, places, number(0)).result
    table = n.operand(Tensor.of(powers), f"{n.name}_powers")
    power = f.create_gather(n.name, table, n.operand(convert(n, index, ElemKind.I64)), 0)
    if direction == "LEFT":
        shifted, rest = f.create_mul(n.name, x, power).result, number(0)
    elif not kind.is_signed:
        shifted, rest = f.create_div(n.name, x, power).result, number(0)
    else:
        # Division truncates; -1 - x has the bits of x turned over.
        negative = f.create_lt(n.name, x, number(0))
        rest = f.create_select(n.name, negative, number(-1), number(0)).result
        size = f.create_div(n.name, f.create_xor(n.name, x, rest), power)
        shifted = f.create_xor(n.name, size, rest).result
    return f.create_select(n.name, inside, shifted, rest).result
