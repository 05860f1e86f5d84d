"""Floats between stored integers: what can be computed on integers is."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from glowpy.core.channel_axis import permuted, reshaped
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import (
    BIAS_STEPS,
    has_steps_of,
    parameters,
    scales_of,
    steps_of,
    sum_type,
)
from glowpy.core.schema import Quantized, Trait
from glowpy.core.tensor import Tensor, stored
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    ClipNode,
    ConcatNode,
    DequantizeNode,
    LayerNormalizationNode,
    QuantizeNode,
    ReluNode,
    RescaleNode,
    ReshapeNode,
    TransposeNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule, rule_where
from glowpy.opt.dequantized import stored_integers, stored_type, taken
from glowpy.opt.graph.lower_quantized import (
    all_numbers,
    can_be_normalized,
    has_integer_form,
    is_table,
)
from glowpy.opt.known import known, known_tensor
from glowpy.opt.layer_norm import LayerNorm, layer_norm_of
from glowpy.opt.products import BYTES, Product, columns_of, no_exact_sum
from glowpy.opt.unary import Unary, unary_of
from glowpy.passes import RewritePass
from glowpy.support.errors import UserError
from glowpy.support.text import Attr

__all__ = ["FoldQuantizePass"]


@dataclass(frozen=True)
class FoldQuantizePass(RewritePass):
    """Turns floats between `dequantize` and `quantize` into integers: the form in which files say what is quantized.

    * A product of dequantized operands is the dequantized exact sum; a bias in floats is rounded to its steps, or
      added in floats where i32 does not hold it.
    * What moves or chooses elements does so before they are dequantized; operands of `concat` get one scale.
    * Element-wise arithmetic and means between `dequantize` and `quantize` are those of quantized types.
    * A layer norm is one of integers.
    * A function of one value that several nodes compute, such as a GELU of its parts, is one table.
    * `quantize` of what was dequantized is `rescale`, and limits become those of the stored integers.

    Before:
        %x : u8[1x2](s=0.5,o=128)
        %out : u8[1x1](s=0.5,o=0)
        %w : i8[2x1](s=0.25,o=0) = [3, -4]
        %a = dequantize(%x) : f32[1x2]
        %b = dequantize(%w) : f32[2x1]
        %c = mat_mul(%a, %b) : f32[1x1]
        %d = relu(%c) : f32[1x1]
        %e = quantize(%d) : u8[1x1](s=0.5,o=0)
        save(%e, %out)
    After:
        %x : u8[1x2](s=0.5,o=128)
        %out : u8[1x1](s=0.5,o=0)
        %w : i8[2x1](s=0.25,o=0) = [3, -4]
        %c_1 = mat_mul(%x, %w) : i32[1x1](s=0.125,o=0)
        %e = rescale(%c_1) : u8[1x1](s=0.5,o=0)
        save(%e, %out)
    """

    name: ClassVar[str] = "fold-quantize"
    rewrites_quantized: ClassVar[bool] = True
    concerns: ClassVar[tuple[type[Node], ...]] = (QuantizeNode, DequantizeNode, RescaleNode)

    @rule
    def product(self, f: Function, n: Product, why: Why) -> Replacement:
        """The exact sum of stored integers."""
        if n.type.kind is not ElemKind.F32:
            return None
        data, weights = stored_type(n.inputs[0]), stored_type(n.inputs[1])
        if data is None or weights is None:
            return None
        if reason := no_exact_sum(n, data, weights):
            return why.no(reason)
        sums = sum_type(data, weights, columns_of(n), n.type.shape)
        inputs = [taken(f, n.inputs[0], data), taken(f, n.inputs[1], weights)]
        bias = n.inputs[2] if len(n.inputs) == 3 else None
        if bias is None or _fits(bias, sums):
            inputs += [] if bias is None else [_bias(f, bias, sums)]
            exact = f.create(type(n), n.name, inputs, n.attrs, sums)
            return f.create_dequantize(n.name, n.type, exact)
        nothing = f.create_splat(f"{n.name}_nothing", bias.type, 0.0).result
        exact = f.create(type(n), n.name, [*inputs, _bias(f, nothing, sums)], n.attrs, sums)
        return f.create_add(n.name, f.create_dequantize(n.name, n.type, exact), bias)

    @rule
    def transposed(self, f: Function, n: TransposeNode, why: Why) -> Replacement:
        """Transposes stored weights, whose channels move along; what is computed is left to `sink-transpose`."""
        value = stored_integers(n.input)
        if value is None or value.constant is None:
            return why.no("no stored weights are transposed")
        tensor = Tensor.derived(
            permuted(value.type, n.shuffle), f"transpose {n.shuffle}", [value.constant.tensor],
            lambda array: array.transpose(n.shuffle),
        )  # fmt: skip
        weights = f.module.create_constant(value.name, tensor, loc=n.loc)
        return f.create_dequantize(n.name, n.type, weights)

    @rule_where(
        lambda schema: (
            schema.quant is Quantized.SAME
            and bool(schema.results)
            and schema is not TransposeNode.SCHEMA
        )
    )
    def moved(self, f: Function, n: Node, why: Why) -> Replacement:
        """Stored integers are moved or chosen, for they are smaller; sums of 32 bits, which are not, are only moved."""
        operands = _stored_data(n)
        if operands is None:
            return None
        data = [value.type for value in operands if value.type.quant is not None]
        if len({(type.kind, type.quant) for type in data}) > 1:
            return why.no("stored integers have several scales, offsets or kinds")
        if len(n.results) > 1:
            return why.no("it says where elements are, too")
        if data[0].kind is ElemKind.I32 and Trait.CODES not in n.SCHEMA.traits:
            return why.no("sums are no smaller than floats")
        if n.SCHEMA.results[0] in n.SCHEMA.plain:
            return f.create(n.__class__, n.name, operands, n.attrs, n.type).result
        type = _moved_type(n, data[0])
        if type is None:
            return why.no("the dimension of the channels does not stay one")
        moved = f.create(n.__class__, n.name, operands, n.attrs, type)
        return f.create_dequantize(n.name, n.type, moved)

    @rule
    def quantize(self, f: Function, n: QuantizeNode, why: Why) -> Replacement:
        """Folds into what computes the floats."""
        source = n.input.node
        if isinstance(source, DequantizeNode):
            same = source.input.type == n.type
            return source.input if same else f.create_rescale(n.name, n.type, source.input)
        if source is None or n.input.num_users > 1:
            return why.no("others read the floats")
        if isinstance(source, ReluNode | ClipNode):
            return _limited(f, n, source)
        if isinstance(source, ReshapeNode) and parameters(n.type).axis is None:
            inner = n.type.with_shape(source.input.type.shape)
            integers = f.create_quantize(n.name, inner, source.input)
            return f.create_reshape(source.name, n.type, integers)
        unary = unary_of(source)
        if (
            unary is not None
            and is_table(unary)
            and (stored := stored_integers(unary.operand)) is not None
        ):
            return _table(f, n, unary, stored)
        norm = layer_norm_of(source)
        data = None if norm is None else stored_integers(norm.operand)
        if norm is not None and data is not None and can_be_normalized(data.type, norm.axes):
            return _normalized(f, n, norm, data)
        if isinstance(source, ConcatNode) or source.SCHEMA.quant is Quantized.SAME:
            return _aligned(f, n, source)
        types = {value: stored_type(value) for value in _data(source)}
        operand_types = [type for type in types.values() if type is not None]
        if len(operand_types) < len(types) or not has_integer_form(source, operand_types):
            return None
        operands = [
            value if (type := types.get(value)) is None else taken(f, value, type)
            for value in source.inputs
        ]
        return f.create(source.__class__, n.name, operands, source.attrs, n.type)

    @rule
    def rescale(self, f: Function, n: RescaleNode, why: Why) -> Replacement:
        """Folds into the arithmetic that computes what is rescaled, which rounds once less."""
        if n.input.type == n.type:
            return n.input
        source = n.input.node
        if source is None or n.input.num_users > 1:
            return why.no("others read what is rescaled")
        if not _reaches(n.input.type, n.type):
            return why.no("limits of what is rescaled are limits of the result")
        if isinstance(source, QuantizeNode):
            return f.create_quantize(n.name, n.type, source.input)
        if isinstance(source, RescaleNode) and source.input.type.kind is ElemKind.I32:
            return f.create_rescale(n.name, n.type, source.input)
        if source.SCHEMA.quant is not Quantized.NUMBERS or isinstance(source, Product):
            return None
        return f.create(source.__class__, n.name, source.inputs, source.attrs, n.type)


def _stored_data(n: Node) -> list[NodeValue] | None:
    """The operands, stored integers in place of data; None if some are not."""
    names = n.SCHEMA.inputs * len(n.inputs) if n.SCHEMA.variadic else n.SCHEMA.inputs
    operands = [
        value if name in n.SCHEMA.plain else stored_integers(value)
        for name, value in zip(names, n.inputs, strict=False)
    ]
    integers = [value for value in operands if value is not None]
    is_data = any(value.type.quant is not None for value in integers)
    return integers if is_data and len(integers) == len(operands) else None


def _data(n: Node) -> list[NodeValue]:
    """The operands of a node that is not variadic, but for plain ones."""
    named = zip(n.SCHEMA.inputs, n.inputs, strict=True)
    return [value for name, value in named if name not in n.SCHEMA.plain]


def _moved_type(n: Node, stored: Type) -> Type | None:
    """The type of what `n` moves, if it moves stored integers; None where channels have no dimension of their own."""
    quant = stored.quant
    if quant is None or quant.axis is None:
        return Type(stored.kind, n.type.shape, quant)
    if not isinstance(n, ReshapeNode):
        return None
    try:
        return reshaped(stored, n.type.shape)
    except UserError:
        return None


def _counts_in(integers: NodeValue | None, sums: Type) -> bool:
    """Whether stored integers are a bias in steps of the sums."""
    if integers is None or integers.type.kind is not ElemKind.I32:
        return False
    return has_steps_of(integers.type, sums)


def _fits(bias: NodeValue, sums: Type) -> bool:
    """Whether i32 holds a known bias in steps of the sums, and what is added to it."""
    integers = stored_integers(bias)
    if _counts_in(integers, sums):
        return True
    numbers = known(bias if integers is None else integers)
    assert numbers is not None
    if integers is not None:
        numbers = steps_of(integers.type, numbers) * scales_of(integers.type)
    most = BIAS_STEPS * np.array(parameters(sums).scales)
    return bool((np.abs(numbers.astype(np.float64)) <= most).all())


def _bias(f: Function, bias: NodeValue, sums: Type) -> NodeValue:
    """A known bias in steps of the sums."""
    quant = parameters(sums)
    axis = None if quant.axis is None else 0
    type = Type(ElemKind.I32, bias.type.shape, replace(quant, axis=axis))
    integers = stored_integers(bias)
    if integers is not None and _counts_in(integers, sums):
        return integers
    return f.create_quantize("bias", type, bias).result


def _reaches(wide: Type, narrow: Type) -> bool:
    """Whether every number that `narrow` stands for lies within the limits of `wide`."""
    outer, inner = _limits(wide), _limits(narrow)
    return outer[0] <= inner[0] and inner[1] <= outer[1]


def _limits(type: Type) -> tuple[float, float]:
    """The lowest and the highest number; of channels, what all reach."""
    quant, (low, high) = parameters(type), type.kind.limits
    pairs = list(zip(quant.scales, quant.offsets, strict=True))
    lowest = max((s * (low - o) for s, o in pairs), default=-math.inf)
    return lowest, min((s * (high - o) for s, o in pairs), default=math.inf)


def _limited(f: Function, n: QuantizeNode, source: ReluNode | ClipNode) -> NodeValue:
    """Limits as those of stored integers; none where the kind has them anyway."""
    limits = (0.0, math.inf) if isinstance(source, ReluNode) else (source.min, source.max)
    result = f.create_quantize(n.name, n.type, source.input).result
    lowest, highest = n.type.kind.limits
    has_one_scale = parameters(n.type).axis is None
    bounds = replace(n.type, shape=()) if has_one_scale else n.type
    if np.any(stored(bounds, limits[0]) > lowest):
        bound = f.create_splat(f"{n.name}_low", bounds, limits[0])
        result = f.create_max(n.name, result, bound, result_type=n.type).result
    if np.any(stored(bounds, limits[1]) < highest):
        bound = f.create_splat(f"{n.name}_high", bounds, limits[1])
        result = f.create_min(n.name, result, bound, result_type=n.type).result
    return result


def _table(f: Function, n: QuantizeNode, unary: Unary, stored: NodeValue) -> Replacement:
    """Creates a table of a function's results for all integers of 8 bits."""
    if stored.type.kind not in BYTES or n.type.kind not in BYTES:
        return None
    if parameters(stored.type).axis is not None or parameters(n.type).axis is not None:
        return None
    numbers = f.module.create_constant(f"{n.name}_numbers", all_numbers(stored.type), loc=n.loc)
    twins = {unary.operand: numbers.value}
    for node in reversed(unary.nodes):
        inputs = [twins.get(value) or _scalar(f, value) for value in node.inputs]
        twins[node.result] = f.create(node.__class__, node.name, inputs, node.attrs).result
    type = n.type.with_shape(numbers.type.shape)
    table = f.create_quantize(f"{n.name}_table", type, twins[unary.nodes[0].result])
    return f.create_lookup_table(n.name, n.type, stored, table).result


def _normalized(f: Function, n: QuantizeNode, norm: LayerNorm, integers: NodeValue) -> Node:
    """A layer norm of stored integers."""
    scalar = Type(ElemKind.F32, ())
    scale = norm.scale or f.create_splat(f"{n.name}_one", scalar, 1.0).result
    bias = norm.bias or f.create_splat(f"{n.name}_none", scalar, 0.0).result
    attrs: dict[str, Attr] = {
        "axes": norm.axes, "epsilon": norm.epsilon, "centred": norm.centred
    }  # fmt: skip
    inputs = [integers, scale, bias]
    return f.create(LayerNormalizationNode, n.name, inputs, attrs, n.type)


def _scalar(f: Function, value: NodeValue) -> NodeValue:
    """One known number, which broadcasts to anything."""
    tensor = known_tensor(value)
    assert tensor is not None
    scalar = Type(value.type.kind, ())
    return f.create_splat(value.name, scalar, float(tensor.array.flat[0])).result


def _aligned(f: Function, n: QuantizeNode, source: Node) -> Replacement:
    """Moves or chooses elements of several operands, all in the result's scale."""
    stored, plain = _stored_data(source), source.SCHEMA.plain
    has_one_scale = parameters(n.type).axis is None and len(source.results) == 1
    if stored is None or not has_one_scale or len(source.inputs) - len(plain) == 1:
        return None
    operands: list[Operand] = []
    for value in stored:
        type = n.type.with_shape(value.type.shape)
        same = value.type == type or value.type.quant is None
        operands.append(value if same else f.create_rescale(n.name, type, value))
    return f.create(source.__class__, n.name, operands, source.attrs, n.type)
