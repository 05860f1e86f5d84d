"""Products of integers of 16 bits, written out as products of their bytes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters, scales_of, sum_type
from glowpy.core.type import Quant, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, value_of
from glowpy.graph.nodes_gen import ConvolutionNode, DequantizeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.dequantized import bytes_of, stored_type, taken
from glowpy.opt.graph.lower_quantized import known_parameter
from glowpy.opt.products import BYTES, Product, columns_of, no_sum_of_bytes
from glowpy.passes import RewritePass

__all__ = ["SplitProductsPass"]

_BASE = 256


@dataclass(frozen=True)
class SplitProductsPass(RewritePass):
    """Computes products of dequantized integers of 16 bits from products of their bytes.

    Such an integer is 256 times its upper byte, an i8, plus its lower one, a u8, and so is its offset: each byte is a
    quantized number by itself. Their products are exact sums in i32, which are added in f32, the largest first, and
    scaled; then the bias is added. This is what the product means on every backend: all rounding is that of IEEE 754.

    Before:
        %x : i16[2x3](s=0.5,o=256)
        %w : i8[3x4](s=0.25,o=0)
        %out : f32[2x4]
        %a = dequantize(%x) : f32[2x3]
        %b = dequantize(%w) : f32[3x4]
        %y = mat_mul(%a, %b) : f32[2x4]
        save(%y, %out)
    After:
        %x : i16[2x3](s=0.5,o=256)
        %w : i8[3x4](s=0.25,o=0)
        %out : f32[2x4]
        %y_integers = storage_cast(%x) : i16[2x3]
        %y_high = high_byte(%y_integers) : i8[2x3]
        %y_high_1 = storage_cast(%y_high) : i8[2x3](s=128.0,o=1)
        %y_1 = mat_mul(%y_high_1, %w) : i32[2x4](s=32.0,o=0)
        %y_zero = splat() {value=0.0} : i32[]
        %y_steps = subtract_offset(%y_1, %y_zero) : f32[2x4]
        %y_base = splat() {value=256.0} : f32[]
        %y_raised = uncontracted_mul(%y_steps, %y_base) : f32[2x4]
        %y_low = convert(%y_integers) : u8[2x3]
        %y_low_1 = storage_cast(%y_low) : u8[2x3](s=0.5,o=0)
        %y_2 = mat_mul(%y_low_1, %w) : i32[2x4](s=0.125,o=0)
        %y_zero_1 = splat() {value=0.0} : i32[]
        %y_steps_1 = subtract_offset(%y_2, %y_zero_1) : f32[2x4]
        %y_3 = add(%y_raised, %y_steps_1) : f32[2x4]
        %y_scale = splat() {value=0.125} : f32[]
        %y = uncontracted_mul(%y_3, %y_scale) : f32[2x4]
        save(%y, %out)
    """

    name: ClassVar[str] = "split-products"
    is_required: ClassVar[bool] = True
    concerns: ClassVar[tuple[type[Node], ...]] = (DequantizeNode,)

    @rule
    def product(self, f: Function, n: Product, why: Why) -> Replacement:
        """Multiplies each part of one operand with each of the other."""
        data, weights = stored_type(n.inputs[0]), stored_type(n.inputs[1])
        if n.type.kind is not ElemKind.F32 or data is None or weights is None:
            return None
        if reason := no_sum_of_bytes(n, data, weights):
            return why.no(reason)
        lefts = _parts(f, n, value_of(taken(f, n.inputs[0], data)))
        rights = _parts(f, n, value_of(taken(f, n.inputs[1], weights)))
        pairs = [(left, right) for left in lefts for right in rights]
        sums = [_sums(f, n, *pair) for pair in pairs]
        total = _raised(f, n, sums[0], len(lefts) + len(rights) - 2)
        for index, sum in enumerate(sums[1:], 1):
            power = len(lefts) - 1 - index // len(rights) + len(rights) - 1 - index % len(rights)
            total = f.create_add(n.name, total, _raised(f, n, sum, power)).result
        scale = known_parameter(f, n, "scale", scales_of(sums[-1].type).astype(np.float32))
        result = f.create_uncontracted_mul(n.name, total, scale)
        return f.create_add(n.name, result, n.inputs[2]) if len(n.inputs) == 3 else result


def _parts(f: Function, n: Product, value: NodeValue) -> list[NodeValue]:
    """Quantized bytes that `value` is the sum of, the larger one first."""
    type = value.type
    if type.kind in BYTES:
        return [value]
    integers = f.create_storage_cast(f"{n.name}_integers", Type(type.kind, type.shape), value)
    quant = parameters(type)
    scales = tuple(scale * _BASE for scale in quant.scales), quant.scales
    offsets = zip(*(divmod(offset, _BASE) for offset in quant.offsets), strict=True)
    return [
        f.create_storage_cast(
            part.producer.name, Type(part.type.kind, type.shape, own), part
        ).result
        for part, own in zip(
            bytes_of(f, n.name, integers.result),
            (Quant(*pair, quant.axis) for pair in zip(scales, offsets, strict=True)),
            strict=True,
        )
    ]


def _sums(f: Function, n: Product, left: NodeValue, right: NodeValue) -> NodeValue:
    """The exact sums of a product of bytes, without a bias."""
    type = sum_type(left.type, right.type, columns_of(n), n.type.shape)
    if not isinstance(n, ConvolutionNode):
        return f.create_mat_mul(n.name, left, right, result_type=type).result
    quant = parameters(type)
    shared = Quant(quant.scales, quant.offsets, None if quant.axis is None else 0)
    nothing = f.create_splat(f"{n.name}_none", Type(ElemKind.I32, n.bias.type.shape, shared), 0.0)
    return f.create(ConvolutionNode, n.name, [left, right, nothing.result], n.attrs, type).result


def _raised(f: Function, n: Product, sums: NodeValue, power: int) -> NodeValue:
    """Sums in f32, times a power of 256, which is exact."""
    zero = f.create_splat(f"{n.name}_zero", Type(ElemKind.I32, ()), 0.0)
    floats = f.create_subtract_offset(
        f"{n.name}_steps", Type(ElemKind.F32, n.type.shape), sums, zero
    )
    if not power:
        return floats.result
    factor = f.create_splat(f"{n.name}_base", Type(ElemKind.F32, ()), float(_BASE**power))
    return f.create_uncontracted_mul(f"{n.name}_raised", floats, factor).result
