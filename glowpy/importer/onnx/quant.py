"""Import of quantized operators: conversions, and operators on stored integers with their scales as inputs.

Stored integers are plain ones in ONNX. What reads them labels them with the parameters that it is told, by a
`storage_cast`, and an operator on them is taken as that of the numbers they stand for, between `dequantize` and
`quantize`: the pass `fold-quantize` computes on the integers.
"""

from __future__ import annotations

import math

import numpy as np
from onnx import TensorProto

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import fits_4_bits, parameters, sum_type
from glowpy.core.shape import broadcast_shapes, is_same_shape, normalize_axis
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Type
from glowpy.graph.node import NodeValue
from glowpy.importer.declared import Narrow
from glowpy.importer.elements import NARROW, kind_of
from glowpy.importer.kit.moves import (
    broadcast,
    channels_first,
    channels_last,
    convert,
    filled,
    reshape,
    slice_axis,
)
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.codes import to_codes
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.importer.onnx.standard import standard
from glowpy.support.errors import UserError
from glowpy.support.symbolic import ceil_div

__all__ = [
    "dequantize_linear",
    "dequantized",
    "integer_product",
    "labelled",
    "optional",
    "product_of_scales",
    "qlinear_conv",
    "quantize_linear",
    "quantized",
    "spread",
]

_TYPED = (ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.I32)
"""Kinds of which there are quantized types; others are converted with scale and offset as operands."""


def labelled(n: OnnxNode, value: Value, type: Type) -> Value:
    """Stored integers, called elements of `type`."""
    if value.type == type:
        return value
    if isinstance(value, Tensor):
        return Tensor.derived(type, "storage_cast", [value], lambda array: array)
    return n.f.create_storage_cast(n.name, type, value).result


def _plain(n: OnnxNode, value: NodeValue) -> Value:
    return labelled(n, value, Type(value.type.kind, value.type.shape))


def _typed(
    kind: ElemKind, like: Type, scale: Value, zero: Value | None, axis: int | None
) -> Type | None:
    """The quantized type of `kind` that known parameters say, for each index along `axis` if one is a vector.

    None for parameters that are computed, and for scales that are no steps: they are arithmetic.
    """
    is_constant = isinstance(scale, Tensor) and (zero is None or isinstance(zero, Tensor))
    if not is_constant or kind not in _TYPED or scale.type.rank > 1:
        return None
    assert isinstance(scale, Tensor)
    scales = scale.array.reshape(-1).astype(np.float64)
    if not all(math.isfinite(step) and step > 0 for step in scales):
        return None
    offsets = np.zeros(1, np.int64)
    if isinstance(zero, Tensor):
        if zero.type.count != scales.size and 1 not in (zero.type.count, scales.size):
            raise UserError(
                f"expected as many zero points as scales, got {zero.type}, {scale.type}"
            )
        offsets = zero.array.reshape(-1).astype(np.int64)
    scales, offsets = np.broadcast_arrays(scales, offsets)
    along = axis if scales.size > 1 else None
    return Type(kind, like.shape, Quant(tuple(scales.tolist()), tuple(offsets.tolist()), along))


def spread(n: OnnxNode, value: Value, type: Type, axis: int, block: int) -> Value:
    """Parameters in a shape that broadcasts to `type`: of all elements, of indices along `axis`, or of blocks there."""
    if value.type.count == 1 and not block:
        return reshape(n, value, ())
    if not block:
        if not is_same_shape(value.type.shape, type.shape[axis : axis + 1]):
            raise UserError(
                f"expected a parameter for each index of dimension {axis}, got {value.type}"
            )
        return reshape(n, value, (value.type.shape[0], *(1,) * (type.rank - axis - 1)))
    count = ceil_div(type.shape[axis], block)
    expected = (*type.shape[:axis], count, *type.shape[axis + 1 :])
    if not is_same_shape(value.type.shape, expected):
        raise UserError(f"expected parameters of shape {list(expected)}, got {value.type}")
    apart = reshape(n, value, (*expected[: axis + 1], 1, *expected[axis + 1 :]))
    wide = broadcast(n, apart, (*expected[: axis + 1], block, *expected[axis + 1 :]))
    block_values = reshape(n, wide, (*type.shape[:axis], count * block, *type.shape[axis + 1 :]))
    return slice_axis(n, block_values, axis, 0, type.shape[axis], 1)


def dequantized(
    n: OnnxNode,
    value: Value,
    scale: Value,
    zero: Value | None,
    axis: int | None = None,
    block: int = 0,
) -> NodeValue:
    """The floats, in f32, that stored integers or codes stand for."""
    scale = convert(n, scale, ElemKind.F32)
    typed = None if block else _typed(value.type.kind, value.type, scale, zero, axis)
    if typed is not None:
        floats = Type(ElemKind.F32, value.type.shape)
        stored = n.operand(labelled(n, value, typed))
        return n.f.create_dequantize(n.name, floats, stored).result
    place = axis or 0
    if block and value.type.kind in (ElemKind.I8, ElemKind.U8):
        return _in_blocks(n, value, scale, zero, place, block)
    plain = ElemKind.F32 if value.type.kind.is_code else value.type.kind
    offset: Value = Tensor.splat(Type(plain, ()), 0)
    if zero is not None:
        offset = spread(n, zero, value.type, place, block)
    steps = _above(n, value, offset)
    factor = spread(n, scale, value.type, place, block)
    return n.f.create_uncontracted_mul(n.name, steps, n.operand(factor, f"{n.name}_scale")).result


def _above(n: OnnxNode, value: Value, offset: Value) -> NodeValue:
    """The difference of stored integers, or of codes, in f32."""
    if value.type.kind.is_code:
        lhs, rhs = (n.operand(convert(n, side, ElemKind.F32)) for side in (value, offset))
        return n.f.create_sub(n.name, lhs, rhs).result
    lhs, rhs = n.operand(value), n.operand(offset, f"{n.name}_zero")
    return n.f.create_subtract_offset(n.name, Type(ElemKind.F32, value.type.shape), lhs, rhs).result


def _in_blocks(
    n: OnnxNode, value: Value, scale: Value, zero: Value | None, axis: int, block: int
) -> NodeValue:
    """Integers with a scale for each block of neighbours; known ones may turn out to be of 4 bits."""
    if zero is None:
        zero = Tensor.splat(Type(value.type.kind, scale.type.shape), 0)
    return n.f.create_dequantize_blocks(
        n.name,
        n.operand(value),
        n.operand(scale, f"{n.name}_scale"),
        n.operand(zero, f"{n.name}_zero"),
        axis=axis,
        block=block,
        bits=4 if all(isinstance(v, Tensor) and fits_4_bits(v) for v in (value, zero)) else 8,
    ).result


def quantized(
    n: OnnxNode,
    value: Value,
    kind: ElemKind,
    scale: Value,
    zero: Value | None,
    axis: int | None = None,
    block: int = 0,
    precision: ElemKind = ElemKind.F32,
) -> Value:
    """Floats as stored integers, plain ones, or as codes; the quotient with the scale is rounded to `precision`."""
    floats, scale = n.operand(convert(n, value, precision)), convert(n, scale, precision)
    typed = None
    if not block and precision is ElemKind.F32:
        typed = _typed(kind, value.type, scale, zero, axis)
    if typed is not None:
        return _plain(n, n.f.create_quantize(n.name, typed, floats).result)
    place = axis or 0
    divisor = spread(n, scale, value.type, place, block)
    quotient = n.f.create_div(n.name, floats, n.operand(divisor, f"{n.name}_scale"))
    steps = n.operand(convert(n, quotient.result, ElemKind.F32))
    offset: Value = Tensor.splat(Type(ElemKind.F32, ()), 0.0)
    if zero is not None:
        offset = convert(n, spread(n, zero, value.type, place, block), ElemKind.F32)
    zeros = n.operand(offset, f"{n.name}_zero")
    if kind.is_code:
        return to_codes(n, n.f.create_add(n.name, steps, zeros).result, kind)
    return n.f.create_saturate(n.name, Type(kind, value.type.shape), steps, zeros).result


def optional(n: OnnxNode, index: int) -> Value | None:
    """Input `index`, if it is given."""
    return n.value(index) if n.has(index) else None


def _axis(n: OnnxNode, rank: int) -> int | None:
    """The axis of parameters that are a vector; below opset 13 there is none."""
    vector = n.type(1).rank > 0 and (n.integer("block_size", 0) > 0 or n.type(1).count > 1)
    return normalize_axis(n.integer("axis", 1), rank) if vector else None


@from_onnx("QuantizeLinear", since=10)
def quantize_linear(n: OnnxNode) -> Value:
    """X / scale, rounded half to even, plus the zero point, limited to its kind; or the nearest code."""
    zero, stated = optional(n, 2), n.integer("output_dtype", 0)
    kind = zero.type.kind if zero is not None else kind_of(stated) if stated else ElemKind.U8
    if not (kind.is_integer or kind.is_code):
        raise n.unsupported(f"quantization to {kind.value}")
    axis, block = _axis(n, n.type(0).rank), n.integer("block_size", 0)
    precision = kind_of(n.integer("precision", 0) or TensorProto.FLOAT)
    result = quantized(n, n.value(0), kind, n.value(1), zero, axis, block, precision)
    narrow = n.narrow(2) or NARROW.get(stated)
    return result if narrow is None else _limited(n, result, narrow)


def _limited(n: OnnxNode, value: Value, narrow: Narrow) -> NodeValue:
    """Stored integers within the limits of narrow ones."""
    low, high = (
        n.f.create_splat(f"{n.name}_limit", Type(narrow.kind, ()), float(limit))
        for limit in narrow.limits
    )
    return n.f.create_min(n.name, n.f.create_max(n.name, n.operand(value), low), high).result


@from_onnx("DequantizeLinear", since=10)
def dequantize_linear(n: OnnxNode) -> Value:
    """(x - zero point) * scale, in the scale's kind unless another is stated; powers of two as scales need that."""
    axis, stated = _axis(n, n.type(0).rank), n.integer("output_dtype", 0)
    if not stated and n.type(1).kind.is_code:
        raise UserError(f"expected the attribute 'output_dtype' with a scale of {n.type(1)}")
    numbers = dequantized(
        n, n.value(0), n.value(1), optional(n, 2), axis, n.integer("block_size", 0)
    )
    return convert(n, numbers, kind_of(stated) if stated else n.type(1).kind)


@from_onnx("DynamicQuantizeLinear", since=11)
def _dynamic_quantize_linear(n: OnnxNode) -> tuple[Value, ...]:
    """Integers, scale and zero point."""
    return n.f.create_dynamic_quantize(n.name, n.input(0)).results


@from_onnx("QLinearConv", since=10)
def qlinear_conv(n: OnnxNode) -> Value:
    """The convolution of the numbers; the bias counts in steps of input times filter.

    onnxruntime's own form may have the channels of input and result in the last dimension.
    """
    last = n.flag("channels_last")
    image = channels_first(n, n.value(0)) if last else n.value(0)
    data = dequantized(n, image, n.value(1), n.value(2))
    filter = dequantized(n, n.value(3), n.value(4), n.value(5), 0)
    bias: Value | None = None
    if n.has(8):
        bias = dequantized(n, n.value(8), product_of_scales(n, n.value(1), n.value(4)), None, 0)
    result = standard(n, "Conv", [data, filter, bias])
    if last:
        result = channels_last(n, result)
    return quantized(n, result, n.type(7).kind, n.value(6), n.value(7))


def product_of_scales(n: OnnxNode, a: Value, b: Value) -> Value:
    """The product of two scales, the first of which is one number."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        return Tensor.of((a.array * b.array).astype(np.float32).reshape(b.type.extents))
    scalar = reshape(n, a, ())
    return n.f.create_mul(n.name, n.operand(scalar), n.operand(b)).result


@from_onnx("QLinearMatMul", since=10)
def _qlinear_matmul(n: OnnxNode) -> Value:
    """The matrix product of the numbers; parameters of rows and of columns may be vectors."""
    a, b = n.type(0), n.type(3)
    left = dequantized(n, n.value(0), n.value(1), n.value(2), max(a.rank - 2, 0))
    right = dequantized(n, n.value(3), n.value(4), n.value(5), max(b.rank - 1, 0))
    result = standard(n, "MatMul", [left, right])
    return quantized(n, result, n.type(7).kind, n.value(6), n.value(7))


@from_onnx("MatMulInteger", since=10)
def _matmul_integer(n: OnnxNode) -> Value:
    """A vector is a row on the left and a column on the right, and the result has no such dimension."""
    a, b = n.value(0), n.value(1)
    left = reshape(n, a, (1, *a.type.shape)) if a.type.rank == 1 else a
    right = reshape(n, b, (*b.type.shape, 1)) if b.type.rank == 1 else b
    product = integer_product(n, left, right, optional(n, 2), optional(n, 3))
    *batch, rows, columns = product.type.shape
    shape = (*batch, *(rows,) * (a.type.rank > 1), *(columns,) * (b.type.rank > 1))
    return reshape(n, product, shape) if shape != product.type.shape else product


def integer_product(
    n: OnnxNode, a: Value, b: Value, a_zero: Value | None, b_zero: Value | None
) -> Value:
    """The product in i32 of integers above their zero points, which may be computed, or differ by row and by column."""
    if a.type.rank < 2 or b.type.rank < 2:
        raise UserError(f"expected matrices, got {a.type} and {b.type}")
    left, row = _centred(n, a, a_zero, None)
    right, column = _centred(n, b, b_zero, b.type.rank - 1)
    shape = broadcast_shapes(a.type.shape[:-2], b.type.shape[:-2])
    type = sum_type(
        left.type, right.type, b.type.rank - 1, (*shape, a.type.shape[-2], b.type.shape[-1])
    )
    product: Value = _plain(n, n.f.create_mat_mul(n.name, left, right, result_type=type).result)
    # (a - row) * b is a * b - row * b, and so for columns of what is left.
    if row is not None:
        sums = _sum(n, right, right.type.rank - 2)
        product = _less(n, product, _as_rows(n, row, a.type), sums)
    if column is not None:
        exact = _numbers(n, left)
        if row is not None:
            exact = n.f.create_sub(n.name, exact, _as_rows(n, row, a.type)).result
        sums = n.f.create_reduce_add(n.name, exact, (a.type.rank - 1,)).result
        product = _less(n, product, sums, _wide(n, column))
    return product


def _centred(
    n: OnnxNode, value: Value, zero: Value | None, axis: int | None
) -> tuple[NodeValue, Value | None]:
    """Integers with a scale of 1 and a known zero point; and a zero point that cannot be part of a type."""
    scale = Tensor.splat(Type(ElemKind.F32, ()), 1.0)
    is_constant = zero is None or isinstance(zero, Tensor)
    is_scalar = zero is None or zero.type.count == 1
    inside = is_constant and (
        is_scalar or (axis is not None and zero is not None and zero.type.rank == 1)
    )
    offset = zero if inside else None
    type = _typed(value.type.kind, value.type, scale, offset, axis)
    assert type is not None
    return n.operand(labelled(n, value, type)), None if inside else zero


def _numbers(n: OnnxNode, value: NodeValue) -> NodeValue:
    """Integers above their zero points, in i32."""
    plain = n.operand(labelled(n, value, Type(value.type.kind, value.type.shape)))
    wide = n.f.create_convert(n.name, Type(ElemKind.I32, value.type.shape), plain).result
    quant = parameters(value.type)
    offsets: Array = np.array(quant.offsets, np.int32)
    if quant.axis is None:
        offsets = offsets.reshape(())
    if not offsets.any():
        return wide
    return n.f.create_sub(n.name, wide, n.operand(Tensor.of(offsets), f"{n.name}_zero")).result


def _sum(n: OnnxNode, value: NodeValue, axis: int) -> NodeValue:
    """The sum along a dimension, which stays as one of 1, of integers above their zero points."""
    return n.f.create_reduce_add(n.name, _numbers(n, value), (axis,)).result


def _wide(n: OnnxNode, value: Value) -> NodeValue:
    return n.operand(convert(n, value, ElemKind.I32))


def _as_rows(n: OnnxNode, zero: Value, type: Type) -> NodeValue:
    """Zero points of rows as a column; those that differ by matrix are columns already."""
    wide = convert(n, zero, ElemKind.I32)
    is_vector = wide.type.count > 1 and wide.type.rank == 1
    return n.operand(reshape(n, wide, (type.shape[-2], 1)) if is_vector else wide)


def _less(n: OnnxNode, product: Value, factor: NodeValue, sums: NodeValue) -> Value:
    """The product less a factor times sums."""
    correction = n.f.create_mul(n.name, factor, sums)
    return n.f.create_sub(n.name, n.operand(product), correction).result


@from_onnx("ConvInteger", since=10)
def _conv_integer(n: OnnxNode) -> Value:
    """The convolution in i32 of integers above their zero points; pads count as the zero point.

    One that is computed is taken off afterwards: it is a factor of the sums of the filter, without what meets pads.
    """
    data, computed = _centred(n, n.value(0), optional(n, 2), None)
    filter, _ = _centred(n, n.value(1), n.known(3) if n.has(3) else None, 0)
    sums = _integer_sums(n, data, filter)
    if computed is None:
        return sums
    image = Type(ElemKind.U8, (1, *data.type.shape[1:]), Quant((1.0,), (0,)))
    ones = n.operand(filled(n, image, 1), f"{n.name}_ones")
    factor = n.operand(reshape(n, convert(n, computed, ElemKind.I32), ()))
    return _less(n, sums, factor, n.operand(_integer_sums(n, ones, filter)))


def _integer_sums(n: OnnxNode, data: NodeValue, filter: NodeValue) -> Value:
    """The convolution of integers above their zero points, in i32, where it may wrap."""
    return _plain(n, n.operand(standard(n, "Conv", [data, filter])))
