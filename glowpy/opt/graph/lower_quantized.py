"""Quantized arithmetic, written out: this is what it means, on every backend.

See docs/adr/0020-quantized-arithmetic.md. Every rounding is one of IEEE 754 in f32: all targets give the same bits.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import in_f32, offsets_of, parameters, ratio_of, scales_of, sum_type
from glowpy.core.schema import Quantized, Trait
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.core.window import Windows
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    AbsNode,
    AddNode,
    AvgPoolNode,
    BatchNormalizationNode,
    ClipNode,
    DequantizeNode,
    DivNode,
    LayerNormalizationNode,
    MulNode,
    NegNode,
    QuantizeNode,
    ReduceAddNode,
    ReduceMeanNode,
    ReluNode,
    RescaleNode,
    SoftmaxNode,
    SubNode,
    UncontractedMulNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule, rule_where
from glowpy.opt.dequantized import bytes_of
from glowpy.opt.interpolated import interpolated, is_smooth, knots
from glowpy.opt.known import is_known, known
from glowpy.opt.products import Product, columns_of
from glowpy.opt.stored_weights import known_numbers
from glowpy.opt.unary import Unary
from glowpy.passes import RewritePass
from glowpy.support.errors import UserError
from glowpy.support.symbolic import (
    Dim,
    Expr,
    depends_on_symbols,
    highest,
    is_at_most,
    lowest,
    product,
    static,
)

__all__ = [
    "LowerQuantizedPass",
    "all_numbers",
    "can_be_normalized",
    "has_integer_form",
    "is_exact",
    "is_quantized_arithmetic",
    "is_table",
    "known_parameter",
]

_EXACT = (AbsNode, AddNode, ClipNode, DivNode, MulNode, NegNode, ReluNode, SubNode)
"""Operators that IEEE 754 defines to the last bit; others become a table, made when the network is compiled."""


_Sum = AvgPoolNode | ReduceAddNode | ReduceMeanNode

_LONGEST_SOFTMAX = 1 << 12
"""Sums of so many powers in i32 leave 18 bits to each, which is enough for results of 8. A bound may be four times as
high: 16 bits are enough for the rows that are shorter."""

_LARGEST_NORM = 1 << 15
"""The number of 8-bit integers whose squares have a sum in i32; sums of 16-bit ones have squares in i64."""

_NO_RECIPROCAL = 2.0**-128
"""The largest scale without a reciprocal in f32."""

_WIDE_BITS = 30
"""The number of bits that powers have for results of 16 bits."""


def has_integer_form(node: Node, operands: Sequence[Type]) -> bool:
    """Whether arithmetic other than products can be computed on operands of these types, which are quantized."""
    other = node.SCHEMA.quant is Quantized.NUMBERS and not isinstance(node, Product)
    if not other or not operands:
        return False
    if is_exact(node):
        return True
    have_one_scale = all(parameters(type).axis is None for type in operands)
    if isinstance(node, _Sum):
        cut = (
            isinstance(node, AvgPoolNode)
            and depends_on_symbols(node.input.type.shape[1:-1])
            and not _lies_inside(node)
        )
        return (
            have_one_scale and lowest(_count(node)) > 0 and _has_sum(node, operands[0]) and not cut
        )
    kind = operands[0].kind
    if not have_one_scale or len(operands) != 1 or kind.size > ElemKind.I16.size:
        return False
    if isinstance(node, BatchNormalizationNode | LayerNormalizationNode):
        by_batch = isinstance(node, BatchNormalizationNode)
        fits = by_batch or can_be_normalized(operands[0], node.attrs["axes"])
        return fits and all(is_known(value) for value in node.inputs[1:])
    if isinstance(node, SoftmaxNode):
        length = operands[0].shape[node.axis]
        longest = _LONGEST_SOFTMAX * (4 if isinstance(length, Expr) else 1)
        return kind is ElemKind.I16 or length <= longest
    return kind is not ElemKind.I16 or is_smooth(node)


def can_be_normalized(type: Type, axes: Sequence[int]) -> bool:
    """Whether there is a layer norm of integers of a type."""
    small = parameters(type).axis is None and type.kind.size <= ElemKind.I16.size
    return small and 0 < math.prod(type.shape[axis] for axis in axes) <= _LARGEST_NORM


def is_exact(node: Node) -> bool:
    """Whether IEEE 754 says to the last bit what an element-wise operator gives; of others a table can be made."""
    return isinstance(node, _EXACT)


def _count(node: _Sum) -> Dim:
    """How many elements are summed, at most."""
    if isinstance(node, AvgPoolNode):
        spatial = node.input.type.shape[1:-1]
        return math.prod(map(min, node.kernels, map(highest, spatial)))
    return product(node.input.type.shape[axis] for axis in node.axes)


def _has_sum(node: _Sum, type: Type) -> bool:
    """Whether i32 holds the sums, whatever is stored."""
    low, high = type.kind.limits
    return highest(_count(node)) * (high - low) < 1 << 31


def _no_form(n: Node, expected: str) -> UserError:
    """The error of a node whose operands have no form on integers."""
    types = ", ".join(str(value.type) for value in n.inputs)
    return UserError(
        f"{n.SCHEMA.mnemonic}: expected {expected}, got {types}",
        loc=n.loc,
        note="compute this one on floats",
    )


def is_quantized_arithmetic(node: Node) -> bool:
    """Whether `LowerQuantizedPass` writes a node out."""
    if isinstance(node, QuantizeNode | DequantizeNode | RescaleNode):
        return True
    if node.SCHEMA.quant is not Quantized.NUMBERS or node.result.type.quant is None:
        return False
    return not (isinstance(node, Product) and node.result.type.kind is ElemKind.I32)


@dataclass(frozen=True)
class LowerQuantizedPass(RewritePass):
    """Writes arithmetic on quantized types out, in plain nodes over stored integers and f32.

    * `quantize` divides by the scale and rounds, `dequantize` multiplies by it, `rescale` multiplies by the ratio.
    * Convolutions and matrix products are exact sums in i32, which are rescaled.
    * Sums and means are exact sums in i32, those of means rescaled by how many elements there are.
    * Batch normalization is one product and one sum for each channel.
    * Layer norms are those of exact sums of integers and of their squares.
    * Softmax takes powers from a table, whose exact sums it divides by.
    * Element-wise operators compute on dequantized operands what IEEE 754 defines exactly, and multiply by the
      reciprocal of the result's scale. Other functions of 8-bit integers become tables of all their results.

    Before:
        %x : i8[4](s=0.5,o=3)
        %out : i8[4](s=0.25,o=0)
        %y = rescale(%x) : i8[4](s=0.25,o=0)
        save(%y, %out)
    After:
        %x : i8[4](s=0.5,o=3)
        %out : i8[4](s=0.25,o=0)
        %y_offset = splat() {value=3.0} : i8[]
        %y_steps = subtract_offset(%x, %y_offset) : f32[4]
        %y_ratio = splat() {value=2.0} : f32[]
        %y_scaled = uncontracted_mul(%y_steps, %y_ratio) : f32[4]
        %y_offset_1 = splat() {value=0.0} : f32[]
        %y = saturate(%y_scaled, %y_offset_1) : i8[4](s=0.25,o=0)
        save(%y, %out)
    """

    name: ClassVar[str] = "lower-quantized"
    is_required: ClassVar[bool] = True
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def quantize(self, f: Function, n: QuantizeNode, why: Why) -> Replacement:
        """Divides, as ONNX does: a product with the reciprocal would be rounded twice."""
        del why
        scale = known_parameter(f, n, "scale", scales_of(n.type).astype(np.float32))
        return _saturated(f, n, f.create_div(f"{n.name}_steps", n.input, scale))

    @rule
    def dequantize(self, f: Function, n: DequantizeNode, why: Why) -> Replacement:
        """Steps above the offset times the scale; of known integers what `known_numbers` says."""
        del why
        return known_numbers(f, n) or _numbers(f, n, n.input)

    @rule
    def rescale(self, f: Function, n: RescaleNode, why: Why) -> Replacement:
        """Steps above the offset times the ratio of the scales, which may differ by channel."""
        del why
        steps = _steps(f, n, n.input)
        ratios = ratio_of(n.input.type, n.type)
        if np.all(ratios == 1):
            return _saturated(f, n, steps)
        ratio = known_parameter(f, n, "ratio", ratios)
        return _saturated(f, n, f.create_uncontracted_mul(f"{n.name}_scaled", steps, ratio))

    @rule
    def product(self, f: Function, n: Product, why: Why) -> Replacement:
        """Exact sums, rescaled."""
        if n.type.quant is None:
            return None
        if not is_quantized_arithmetic(n):
            return why.no("the sums themselves are wanted")
        data, weights = n.inputs[0].type, n.inputs[1].type
        exact = sum_type(data, weights, columns_of(n), n.type.shape)
        sums = f.create(type(n), n.name, n.inputs, n.attrs, exact)
        return f.create_rescale(n.name, n.type, sums)

    @rule
    def mean(
        self, f: Function, n: AvgPoolNode | ReduceAddNode | ReduceMeanNode, why: Why
    ) -> Replacement:
        """Exact sums, rescaled; those of a mean by the number of elements, too: fewer at the edges of an image."""
        del why
        if n.type.quant is None:
            return None
        if not _has_sum(n, n.input.type):
            raise _no_form(n, "so few integers that i32 holds their sum")
        sums, offset, ratio = _pooled(f, n) if isinstance(n, AvgPoolNode) else _summed(f, n)
        steps = f.create_subtract_offset(
            f"{n.name}_steps", Type(ElemKind.F32, n.type.shape), sums, offset
        )
        return _saturated(f, n, f.create_uncontracted_mul(f"{n.name}_scaled", steps, ratio))

    @rule
    def normalization(self, f: Function, n: BatchNormalizationNode, why: Why) -> Replacement:
        """Steps times a factor for each channel, plus a number of steps of the result, both computed in f64."""
        del why
        if n.type.quant is None:
            return None
        if not has_integer_form(n, [n.input.type]):
            what = "integers of 8 or 16 bits, quantized as a whole, and known statistics"
            raise _no_form(n, what)
        shape = (-1, *(1,) * (n.type.rank - n.axis - 1))
        scale, bias, mean, variance = (
            np.asarray(known(value), np.float64).reshape(shape) for value in n.inputs[1:]
        )
        factor = scale / np.sqrt(variance + n.epsilon)
        ratios = scales_of(n.input.type) * factor / scales_of(n.type)
        shifts = (bias - mean * factor) / scales_of(n.type)
        return _shifted(f, n, _steps(f, n, n.input), ratios, shifts)

    @rule
    def layer_norm(self, f: Function, n: LayerNormalizationNode, why: Why) -> Replacement:
        """Lowers to exact sums of integers and of their squares; root and inverse are rounded as IEEE 754 says."""
        del why
        if n.type.quant is None:
            return None
        if not has_integer_form(n, [n.input.type]):
            what = f"at most {_LARGEST_NORM} integers of 8 or 16 bits, quantized as a whole"
            raise _no_form(n, f"{what}, and a known scale and bias")
        numbers, variance, epsilon, gain = (_centred if n.centred else _uncentred)(f, n)
        floats = Type(ElemKind.F32, variance.type.shape)
        square = f.create_convert(f"{n.name}_variance", floats, variance)
        raised = f.create_add(
            f"{n.name}_raised", square, f.create_splat(n.name, Type(ElemKind.F32, ()), epsilon)
        )
        one = f.create_splat(f"{n.name}_one", Type(ElemKind.F32, ()), 1.0)
        inverse = f.create_div(f"{n.name}_inverse", one, f.create_sqrt(f"{n.name}_root", raised))
        standard = f.create_uncontracted_mul(f"{n.name}_standard", numbers, inverse)
        scale, bias = (np.asarray(known(value), np.float64) for value in (n.scale, n.bias))
        step = scales_of(n.type)
        return _shifted(f, n, standard.result, gain * scale / step, bias / step)

    @rule
    def softmax(self, f: Function, n: SoftmaxNode, why: Why) -> Replacement:
        """Powers of the distances below the largest element, as integers from a table, over their exact sum."""
        del why
        if n.type.quant is None:
            return None
        if not has_integer_form(n, [n.input.type]):
            what = f"integers of 16 bits, or at most {_LONGEST_SOFTMAX} of 8, quantized as a whole"
            raise _no_form(n, what)
        shape, kind = n.type.shape, n.input.type.kind
        integers = f.create_storage_cast(f"{n.name}_integers", Type(kind, shape), n.input)
        largest = f.create_reduce_max(f"{n.name}_largest", integers, (n.axis,))
        below = f.create_sub(f"{n.name}_below", largest, integers).result  # it wraps
        power, total = (_wide_powers if kind is ElemKind.I16 else _powers)(f, n, below)
        return _rounded(f, n, n.type, f.create_div(f"{n.name}_quotient", power, total))

    @rule
    def sum(self, f: Function, n: AddNode | SubNode, why: Why) -> Replacement:
        """Rounds a sum of scaled numbers by itself: a fused product and sum of the processor would give other bits."""
        del why
        is_float = n.type.kind is ElemKind.F32 and n.type.quant is None
        if not is_float or not any(_is_scaled(value) for value in n.inputs):
            return None
        rhs = n.rhs if isinstance(n, AddNode) else f.create_neg(f"{n.name}_less", n.rhs)
        return f.create_uncontracted_add(n.name, n.lhs, rhs)

    @rule_where(
        lambda schema: Trait.ELEMENTWISE in schema.traits and schema.quant is Quantized.NUMBERS
    )
    def elementwise(self, f: Function, n: Node, why: Why) -> Replacement:
        """Dequantized operands, the operator, the reciprocal of the result's scale; or a table."""
        del why
        if n.type.quant is None:
            return None
        if not isinstance(n, _EXACT):
            return _looked_up(f, n)
        numbers = [_numbers(f, n, value) for value in n.inputs]
        result = f.create(type(n), n.name, numbers, n.attrs)
        return _rounded(f, n, n.type, result)


def _is_scaled(value: NodeValue) -> bool:
    """Whether elements of a value are products that nothing but moves comes after."""
    node = value.node
    while node is not None and node.SCHEMA.quant is Quantized.SAME and len(node.inputs) == 1:
        node = node.inputs[0].node
    return isinstance(node, UncontractedMulNode)


def known_parameter(f: Function, n: Node, part: str, array: Array) -> Operand:
    """Known scales or offsets in a shape that broadcasts: one number, if all are the same."""
    if array.size and (array == array.flat[0]).all():
        scalar = Type(ElemKind.of(array.dtype), ())
        return f.create_splat(f"{n.name}_{part}", scalar, float(array.flat[0]))
    return f.module.create_constant(f"{n.name}_{part}", array, loc=n.loc)


def _steps(f: Function, n: Node, value: NodeValue) -> NodeValue:
    """How many steps stored integers lie above their offsets."""
    offset = known_parameter(f, n, "offset", offsets_of(value.type))
    type = Type(ElemKind.F32, value.type.shape)
    return f.create_subtract_offset(f"{n.name}_steps", type, value, offset).result


def _numbers(f: Function, n: Node, value: NodeValue) -> NodeValue:
    """Returns the numbers that stored integers stand for."""
    scale = known_parameter(f, n, "scale", scales_of(value.type).astype(np.float32))
    return f.create_uncontracted_mul(f"{n.name}_number", _steps(f, n, value), scale).result


def _saturated(f: Function, n: Node, steps: Operand, type: Type | None = None) -> NodeValue:
    """Stored integers of `type`, or of the type of `n`, from steps above their offsets."""
    stored = type or n.type
    offset = known_parameter(f, n, "offset", offsets_of(stored).astype(np.float32))
    return f.create_saturate(n.name, stored, steps, offset).result


def _rounded(f: Function, n: Node, type: Type, numbers: Operand) -> NodeValue:
    """Numbers that were computed, in `type`."""
    scales = scales_of(type)
    if scales.min(initial=1.0) <= _NO_RECIPROCAL:
        scale = known_parameter(f, n, "scale", scales.astype(np.float32))
        return _saturated(f, n, f.create_div(f"{n.name}_scaled", numbers, scale), type)
    reciprocal = known_parameter(f, n, "reciprocal", (1 / scales).astype(np.float32))
    return _saturated(
        f, n, f.create_uncontracted_mul(f"{n.name}_scaled", numbers, reciprocal), type
    )


def _shifted(f: Function, n: Node, numbers: NodeValue, ratios: Array, shifts: Array) -> NodeValue:
    """Numbers times ratios, plus shifts, both of them rounded once: stored integers of the type of `n`."""
    ratio, shift = (
        known_parameter(f, n, part, in_f32(array))
        for part, array in (("ratio", ratios), ("shift", shifts))
    )
    scaled = f.create_uncontracted_mul(f"{n.name}_scaled", numbers, ratio)
    return _saturated(f, n, f.create_add(f"{n.name}_shifted", scaled, shift))


_Mean = tuple[NodeValue, Operand, Operand]
"""Sums in i32, what offsets add to them, and the ratio of a step of a sum to one of the result."""


def _mean_of(f: Function, n: _Sum, sums: NodeValue, taps: Array, divisor: Array) -> _Mean:
    """Sums of so many elements, divided by that."""
    offset = known_parameter(f, n, "offset", offsets_of(n.input.type).astype(np.int32) * taps)
    with np.errstate(divide="ignore"):  # the mean of nothing is no number
        ratios = scales_of(n.input.type) / (scales_of(n.type) * divisor)
    return sums, offset, known_parameter(f, n, "ratio", in_f32(ratios))


def _has_known_counts(n: AvgPoolNode) -> bool:
    """Whether it is known how many elements each window has."""
    return not depends_on_symbols((*n.input.type.shape[1:-1], *n.pads)) or _lies_inside(n)


def _lies_inside(n: AvgPoolNode) -> bool:
    """Whether all windows are known to lie in the image, where none of them has fewer elements."""
    return not any(pad != 0 for pad in n.pads) and all(
        is_at_most((count - 1) * stride + step * (kernel - 1) + 1, size)
        for count, stride, step, kernel, size in zip(
            n.type.shape[1:-1], n.strides, n.dilation, n.kernels, n.input.type.shape[1:-1],
            strict=True,
        )
    )  # fmt: skip


def _pooled(f: Function, n: AvgPoolNode) -> _Mean:
    """The sums of windows, which have fewer elements at the edges of an image."""
    sums = f.create_sum_pool(
        f"{n.name}_sums", n.input, n.kernels, n.strides, n.pads, n.dilation, n.ceil
    ).result
    windows = Windows(n.kernels, n.strides, n.pads, n.dilation)
    shape = n.input.type.shape[1:-1]
    if depends_on_symbols(shape) and _lies_inside(n):
        count = np.array(_count(n), np.int32)
        return _mean_of(f, n, sums, count, count)
    image, counts = static(shape), static(n.type.shape[1:-1])
    taps = windows.counted(image, counts, pads=False)[..., None]
    divisor = windows.counted(image, counts, pads=n.count_include_pads)[..., None]
    return _mean_of(f, n, sums, taps.astype(np.int32), np.maximum(divisor, 1))


def _summed(f: Function, n: ReduceAddNode | ReduceMeanNode) -> _Mean:
    """The sums over dimensions."""
    sums, count = f.create_reduce_add(f"{n.name}_sums", _in_i32(f, n), n.axes).result, _count(n)
    is_mean = isinstance(n, ReduceMeanNode)
    if is_mean and isinstance(count, int):
        number = np.array(count, np.int32)
        return _mean_of(f, n, sums, number, number)
    offsets = offsets_of(n.input.type).astype(np.int32)
    if isinstance(count, int):
        total = known_parameter(f, n, "offset", offsets * np.int32(count))
        return sums, total, known_parameter(f, n, "ratio", ratio_of(n.input.type, n.type))
    extents = f.create_extents(f"{n.name}_count", (count,))
    counts = [
        f.create_convert(f"{n.name}_count", Type(kind, (1,)), extents)
        for kind in (ElemKind.I32, ElemKind.F64)
    ]
    total = f.create_mul(f"{n.name}_offset", counts[0], known_parameter(f, n, "offset", offsets))
    if not is_mean:
        return sums, total, known_parameter(f, n, "ratio", ratio_of(n.input.type, n.type))
    scales = [known_parameter(f, n, "scale", scales_of(type)) for type in (n.input.type, n.type)]
    ratio = f.create_div(n.name, scales[0], f.create_mul(n.name, scales[1], counts[1])).result
    wide = f.create_convert(f"{n.name}_ratio", ratio.type.with_kind(ElemKind.F32), ratio)
    return sums, total, wide


_Standard = tuple[NodeValue, NodeValue, float, float]
"""Numbers in f32, in i64 what their variance is with, what is added to it, and a factor of the quotient."""


def _norm_count(n: LayerNormalizationNode) -> int:
    return math.prod(static(n.input.type.shape[axis] for axis in n.axes))


def _centred(f: Function, n: LayerNormalizationNode) -> _Standard:
    """All times the number of elements, so that the mean is an integer; offsets cancel."""
    count, scale = _norm_count(n), parameters(n.input.type).scales[0]
    integers = _in_i32(f, n)
    sums = f.create_reduce_add(f"{n.name}_sums", integers, n.axes).result
    i32, i64 = (f.create_splat(n.name, Type(k, ()), count) for k in (ElemKind.I32, ElemKind.I64))
    numbers = f.create_subtract_offset(
        f"{n.name}_apart",
        Type(ElemKind.F32, n.type.shape),
        f.create_mul(f"{n.name}_times", integers, i32),
        sums,
    )
    total = f.create_convert(f"{n.name}_total", Type(ElemKind.I64, sums.type.shape), sums)
    squares = f.create_mul(n.name, _squares(f, n, integers), i64)
    variance = f.create_sub(n.name, squares, f.create_mul(f"{n.name}_mean", total, total))
    return numbers.result, variance.result, n.epsilon * (count / scale) ** 2, 1.0


def _uncentred(f: Function, n: LayerNormalizationNode) -> _Standard:
    count, scale = _norm_count(n), parameters(n.input.type).scales[0]
    offset = f.create_splat(
        f"{n.name}_offset", Type(ElemKind.I32, ()), parameters(n.input.type).offsets[0]
    )
    integers = f.create_sub(f"{n.name}_apart", _in_i32(f, n), offset).result
    zero = f.create_splat(f"{n.name}_zero", Type(ElemKind.I32, ()), 0.0)
    numbers = f.create_subtract_offset(n.name, Type(ElemKind.F32, n.type.shape), integers, zero)
    return numbers.result, _squares(f, n, integers), n.epsilon * count / scale**2, count**0.5


def _in_i32(f: Function, n: ReduceAddNode | ReduceMeanNode | LayerNormalizationNode) -> NodeValue:
    """Stored integers as plain ones."""
    type = n.input.type
    integers = f.create_storage_cast(f"{n.name}_integers", Type(type.kind, type.shape), n.input)
    return f.create_convert(f"{n.name}_wide", Type(ElemKind.I32, type.shape), integers).result


def _squares(f: Function, n: LayerNormalizationNode, integers: NodeValue) -> NodeValue:
    """Exact sums of squares, in i64; those of 8 bits have sums in i32, which are faster."""
    wide = Type(ElemKind.I64, n.type.shape)
    if n.input.type.kind is ElemKind.I16:
        integers = f.create_convert(f"{n.name}_wide", wide, integers).result
    square = f.create_mul(f"{n.name}_square", integers, integers)
    sums = f.create_reduce_add(f"{n.name}_squares", square, n.axes).result
    return f.create_convert(f"{n.name}_squares", wide.with_shape(sums.type.shape), sums).result


def all_numbers(type: Type) -> Array:
    """Returns the numbers that the 8-bit integers of a type stand for, from the lowest to the highest, in f32."""
    low, high = type.kind.limits
    steps = np.arange(low, high + 1, dtype=np.float32) - np.float32(parameters(type).offsets[0])
    return np.asarray(steps * np.float32(parameters(type).scales[0]))


def is_table(unary: Unary) -> bool:
    """Whether a function of several nodes, more than exact arithmetic, has a table as its form on integers."""
    if len(unary.nodes) == 1 and unary.nodes[0].SCHEMA.quant is not Quantized.REFUSED:
        return False
    return not all(is_exact(n) or n.SCHEMA.quant is Quantized.SAME for n in unary.nodes)


def _distances(kind: ElemKind) -> Array:
    """0 to 255, in the order of the integers of 8 bits that differences wrap to."""
    low, high = kind.limits
    return np.arange(low, high + 1) & 255


def _powers(f: Function, n: SoftmaxNode, below: NodeValue) -> tuple[NodeValue, NodeValue]:
    """Powers of distances of 8 bits, and their sums: integers in fixed point, of as many bits as sums leave, in f32."""
    type, floats = n.input.type, Type(ElemKind.F32, n.type.shape)
    bits = min(23, 30 - (highest(type.shape[n.axis]) - 1).bit_length())
    exact = np.exp(-parameters(type).scales[0] * _distances(type.kind).astype(np.float64))
    array = np.rint(exact * (1 << bits)).astype(np.int32)
    table = f.module.create_constant(f"{n.name}_table", array, loc=n.loc)
    wide = Type(ElemKind.I32, n.type.shape)
    powers = f.create_lookup_table(f"{n.name}_powers", wide, below, table)
    sums = f.create_reduce_add(f"{n.name}_sums", powers, (n.axis,)).result
    zero = f.create_splat(f"{n.name}_zero", Type(ElemKind.I32, ()), 0.0)
    power = f.create_subtract_offset(f"{n.name}_power", floats, powers, zero)
    total = f.create_subtract_offset(
        f"{n.name}_total", floats.with_shape(sums.type.shape), sums, zero
    )
    return power.result, total.result


def _wide_powers(f: Function, n: SoftmaxNode, below: NodeValue) -> tuple[NodeValue, NodeValue]:
    """Powers of distances of 16 bits: one for each byte, their product in fixed point, and exact sums in i64."""
    scale, floats = parameters(n.input.type).scales[0], Type(ElemKind.F32, n.type.shape)
    high, low = bytes_of(f, n.name, below)
    factors = []
    for byte, weight, unit in ((high, 256, 1 << _WIDE_BITS), (low, 1, 1)):
        distances = _distances(byte.type.kind).astype(np.float64)
        array = (unit * np.exp(-scale * weight * distances)).astype(np.float32)
        table = f.module.create_constant(f"{n.name}_table", array, loc=n.loc)
        factors.append(f.create_lookup_table(f"{n.name}_factor", floats, byte, table))
    product = f.create_uncontracted_mul(f"{n.name}_product", *factors)
    zero = f.create_splat(f"{n.name}_zero", Type(ElemKind.F32, ()), 0.0)
    powers = f.create_saturate(f"{n.name}_powers", Type(ElemKind.I32, n.type.shape), product, zero)
    wide = f.create_convert(f"{n.name}_wide", Type(ElemKind.I64, n.type.shape), powers)
    sums = f.create_reduce_add(f"{n.name}_sums", wide, (n.axis,)).result
    total = f.create_convert(f"{n.name}_total", floats.with_shape(sums.type.shape), sums)
    return product.result, total.result


def _looked_up(f: Function, n: Node) -> NodeValue:
    """A function of stored integers of 8 bits, as a table of what it is for all of them; of 16 bits, interpolated."""
    value = n.inputs[0]
    if len(n.inputs) != 1 or not has_integer_form(n, [value.type]):
        what = "one operand of 8 bits, or of 16 if it never jumps, quantized as a whole"
        raise _no_form(n, what)
    if value.type.kind is ElemKind.I16:
        numbers = f.module.create_constant(f"{n.name}_knots", knots(value.type), loc=n.loc)
        results = f.create(type(n), n.name, [numbers], n.attrs)
        return _rounded(f, n, n.type, interpolated(f, n.name, value, results))
    numbers = f.module.create_constant(f"{n.name}_numbers", all_numbers(value.type), loc=n.loc)
    results = f.create(type(n), n.name, [numbers], n.attrs)
    if n.type.kind is ElemKind.I16 or parameters(n.type).axis is not None:
        # No table holds integers of 16 bits, or those of several scales.
        floats = Type(ElemKind.F32, n.type.shape)
        looked_up = f.create_lookup_table(f"{n.name}_number", floats, value, results)
        return _rounded(f, n, n.type, looked_up)
    table = _rounded(f, n, n.type.with_shape(numbers.type.shape), results)
    return f.create_lookup_table(n.name, n.type, value, table).result
