"""Import of operators on stored integers, which onnxruntime's quantizers write, and its optimizer.

Each is that of the numbers, between `dequantize` and `quantize`: the pass `fold-quantize` computes on the integers.
Products whose scales are found at run time are exact sums first.
"""

from __future__ import annotations

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import channels_first, channels_last, convert, vector
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.contrib.attention import attended
from glowpy.importer.onnx.contrib.heads import check_type
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.conv import window
from glowpy.importer.onnx.node import OnnxNode, Result, from_onnx
from glowpy.importer.onnx.pool import means_of_windows, whole_windows
from glowpy.importer.onnx.quant import (
    dequantize_linear,
    dequantized,
    integer_product,
    optional,
    product_of_scales,
    qlinear_conv,
    quantize_linear,
    quantized,
)
from glowpy.importer.onnx.standard import OPSET, results_as, standard
from glowpy.support.errors import UserError

__all__ = ["scaled"]

from_onnx("QuantizeLinear", domain=CONTRIB)(quantize_linear)
from_onnx("DequantizeLinear", domain=CONTRIB)(dequantize_linear)
from_onnx("QLinearConv", domain=CONTRIB)(qlinear_conv)


def _number(n: OnnxNode, index: int) -> NodeValue:
    """Input `index`; the next two are its scale and its zero point."""
    return dequantized(n, n.value(index), n.value(index + 1), optional(n, index + 2))


def _stored(n: OnnxNode, result: Value, kind: ElemKind, index: int) -> Value:
    """A result as integers, whose scale is input `index`; its zero point is the next one."""
    return quantized(n, result, kind, n.value(index), optional(n, index + 1))


@from_onnx("QLinearAdd", "QLinearMul", domain=CONTRIB)
def _qlinear_binary(n: OnnxNode) -> Value:
    op_type = n.proto.op_type.removeprefix("QLinear")
    return _stored(n, standard(n, op_type, [_number(n, 0), _number(n, 3)]), n.type(0).kind, 6)


@from_onnx("QLinearSigmoid", "QLinearLeakyRelu", domain=CONTRIB)
def _qlinear_unary(n: OnnxNode) -> Value:
    op_type = n.proto.op_type.removeprefix("QLinear")
    return _stored(n, standard(n, op_type, [_number(n, 0)]), n.type(0).kind, 3)


@from_onnx("QLinearSoftmax", domain=CONTRIB)
def _qlinear_softmax(n: OnnxNode) -> Value:
    """As ONNX's operator of the opset that the attribute says: below 13 all dimensions from `axis` on are one."""
    opset = n.integer("opset", OPSET)
    if opset < 1:
        raise UserError(f"expected an opset of at least 1, got {opset}")
    axis = {"axis": n.integer("axis", -1)}
    (result,) = results_as(n, "", "Softmax", min(opset, OPSET), [_number(n, 0)], axis)
    assert isinstance(result, Tensor | NodeValue)
    return _stored(n, result, n.type(0).kind, 3)


@from_onnx("QLinearAveragePool", domain=CONTRIB)
def _qlinear_average_pool(n: OnnxNode) -> Value:
    """The channels are the last dimension or the second. Where pads count, so does what is beyond them."""
    last = n.flag("channels_last")
    image = n.operand(_number(n, 0) if last else channels_last(n, _number(n, 0)))
    spatial, includes_pads = image.type.shape[1:-1], n.flag("count_include_pad")
    win = (
        whole_windows(n, spatial)
        if includes_pads
        else window(n, spatial, n.integers("kernel_shape") or ())
    )
    means = means_of_windows(
        n, image, win, ceil=n.flag("ceil_mode") and not includes_pads, count_pads=includes_pads
    )
    return _stored(n, means if last else channels_first(n, means), n.type(0).kind, 3)


@from_onnx("QLinearGlobalAveragePool", domain=CONTRIB)
def _qlinear_global_pool(n: OnnxNode) -> Value:
    """The channels are the last dimension or the second."""
    last = n.flag("channels_last")
    image = _number(n, 0)
    result = standard(n, "GlobalAveragePool", [channels_first(n, image) if last else image])
    return _stored(n, channels_last(n, result) if last else result, n.type(0).kind, 3)


@from_onnx("NhwcMaxPool", domain=CONTRIB)
def _nhwc_max_pool(n: OnnxNode) -> Value:
    return channels_last(n, standard(n, "MaxPool", [channels_first(n, n.value(0))]))


@from_onnx("QLinearReduceMean", domain=CONTRIB)
def _qlinear_reduce_mean(n: OnnxNode) -> Value:
    axes = vector(list(n.integers("axes") or ()))
    return _stored(n, standard(n, "ReduceMean", [_number(n, 0), axes]), n.type(0).kind, 3)


@from_onnx("QLinearConcat", domain=CONTRIB)
def _qlinear_concat(n: OnnxNode) -> Value:
    """After scale and zero point of the result, three inputs are a part."""
    if n.num_inputs % 3 != 2:
        raise UserError(f"expected three inputs for each part, got {n.num_inputs - 2}")
    parts = [_number(n, index) for index in range(2, n.num_inputs, 3)]
    return _stored(n, standard(n, "Concat", parts), n.type(1).kind, 0)


@from_onnx("QLinearWhere", domain=CONTRIB)
def _qlinear_where(n: OnnxNode) -> Value:
    result = standard(n, "Where", [n.value(0), _number(n, 1), _number(n, 4)])
    return _stored(n, result, n.type(1).kind, 7)


@from_onnx("QGemm", domain=CONTRIB)
def _qgemm(n: OnnxNode) -> Value:
    """C counts in steps of the product; without a scale of its own the result is in floats."""
    columns = 0 if n.flag("transB") else 1
    left, right = (
        _number(n, 0),
        dequantized(n, n.value(3), n.value(4), optional(n, 5), columns),
    )
    addend: Value | None = None
    if n.has(6):
        alpha = Tensor.of(np.array(n.real("alpha", 1.0), np.float32))
        steps = product_of_scales(n, alpha, product_of_scales(n, n.value(1), n.value(4)))
        addend = dequantized(n, n.value(6), steps, None, max(n.type(6).rank - 1, 0))
    result = standard(n, "Gemm", [left, right, addend])
    if n.has(7) != n.has(8):
        raise UserError("expected both scale and zero point of the result, or neither")
    return _stored(n, result, n.type(8).kind, 7) if n.has(7) else result


@from_onnx("MatMulIntegerToFloat", domain=CONTRIB)
def _matmul_integer_to_float(n: OnnxNode) -> Value:
    sums = integer_product(n, n.value(0), n.value(1), optional(n, 4), optional(n, 5))
    return _biased(n, scaled(n, sums, n.value(2), n.value(3)), 6)


@from_onnx("DynamicQuantizeMatMul", domain=CONTRIB)
def _dynamic_quantize_matmul(n: OnnxNode) -> Value:
    """The left side is quantized by the range that it has at run time."""
    stored, scale, zero = n.f.create_dynamic_quantize(n.name, n.input(0)).results
    sums = integer_product(n, stored, n.value(1), zero, optional(n, 3))
    return _biased(n, scaled(n, sums, scale, n.value(2)), 4)


def scaled(n: OnnxNode, sums: Value, left: Value, right: Value) -> NodeValue:
    """Sums times the product of two scales."""
    steps = product_of_scales(n, left, right)
    wide = convert(n, steps, ElemKind.F32)
    floats = n.operand(convert(n, sums, ElemKind.F32))
    product = n.f.create_mul(n.name, floats, n.operand(wide)).result
    return n.operand(convert(n, product, steps.type.kind))


def _biased(n: OnnxNode, product: NodeValue, index: int) -> NodeValue:
    """The product plus input `index`, if there is one."""
    if not n.has(index):
        return product
    check_type(n, index, product.type.shape[-1:])
    return n.f.create_add(n.name, product, n.input(index)).result


@from_onnx("QAttention", domain=CONTRIB)
def _qattention(n: OnnxNode) -> tuple[Result, ...]:
    """Attention whose first product is of integers."""
    if n.type(0).rank != 3 or n.type(1).rank != 2:
        raise UserError(
            f"expected [batch, length, width] and weights, got {n.type(0)}, {n.type(1)}"
        )
    sums = integer_product(n, n.value(0), n.value(1), optional(n, 6), optional(n, 7))
    return attended(n, _biased(n, scaled(n, sums, n.value(3), n.value(4)), 2), None, 5, 8, None)


@from_onnx("QEmbedLayerNormalization", domain=CONTRIB)
def _qembed_layer_normalization(n: OnnxNode) -> tuple[Result, ...]:
    """Tables, gamma and beta are stored integers."""

    def numbers(index: int) -> NodeValue | None:
        if not n.has(index):
            return None
        return dequantized(n, n.value(index), n.value(index + 6), optional(n, index + 11))

    values = [
        n.value(0),
        optional(n, 1),
        *(numbers(index) for index in range(2, 7)),
        optional(n, 7),
    ]
    return results_as(n, CONTRIB, "EmbedLayerNormalization", 1, values, {})[:2]
