"""Quantized arithmetic as ONNX files say it: floats between DequantizeLinear and QuantizeLinear.

Runtimes recognise the pattern and compute on the integers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters, range_of
from glowpy.core.schema import Quantized, Trait
from glowpy.core.tensor import Tensor, stored
from glowpy.core.type import Type
from glowpy.exporter.onnx.operator import OnnxOperatorNode
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    AddNode,
    ClipNode,
    ConcatNode,
    DequantizeNode,
    GatherNode,
    MatMulNode,
    MaxNode,
    MinNode,
    QuantizeNode,
    ReluNode,
    RescaleNode,
    ReshapeNode,
    SplatNode,
    StorageCastNode,
    TransposeNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule, rule_where
from glowpy.passes import RewritePass
from glowpy.quantization.schema import quant_of_range

__all__ = ["EncloseMovesPass", "QdqPass"]


def _moves(node: Node) -> bool:
    """Whether a node only moves elements: stored integers as they are."""
    return node.has(Trait.SHAPE_ONLY) or isinstance(node, GatherNode)


@dataclass(frozen=True)
class QdqPass(RewritePass):
    """Writes arithmetic on stored integers as arithmetic on floats between `dequantize` and `quantize`.

    Sums in i32 are floats too, unless the integers themselves are wanted: ONNX has no quantization to 32 bits.

    Before:
        %x : u8[1x2](s=0.5,o=128)
        %out : u8[1x1](s=0.5,o=0)
        %w : i8[2x1](s=0.25,o=0) = [3, -4]
        %c = mat_mul(%x, %w) : i32[1x1](s=0.125,o=0)
        %e = rescale(%c) : u8[1x1](s=0.5,o=0)
        save(%e, %out)
    After:
        %x : u8[1x2](s=0.5,o=128)
        %out : u8[1x1](s=0.5,o=0)
        %w : i8[2x1](s=0.25,o=0) = [3, -4]
        %c_number = dequantize(%x) : f32[1x2]
        %c_number_1 = dequantize(%w) : f32[2x1]
        %c_1 = mat_mul(%c_number, %c_number_1) : f32[1x1]
        %e = quantize(%c_1) : u8[1x1](s=0.5,o=0)
        save(%e, %out)
    """

    name: ClassVar[str] = "qdq"
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def integer_product(self, f: Function, n: MatMulNode, why: Why) -> Replacement:
        """`MatMulInteger`, where the sums themselves are wanted."""
        if n.type.kind is not ElemKind.I32 or n.type.quant is None:
            return None
        if not all(isinstance(user, StorageCastNode) for user in n.result.users):
            return why.no("what the sums stand for is wanted")
        zeros = [_zero(f, n, value) for value in n.inputs]
        inputs = [n.lhs, n.rhs, *zeros]
        return f.create(OnnxOperatorNode, n.name, inputs, {"op_type": "MatMulInteger"}, n.type)

    @rule
    def total(self, f: Function, n: AddNode, why: Why) -> Replacement:
        """Sums in i32 that something is added to are rounded before: else runtimes compute their product in floats."""
        sums = [value for value in n.inputs if _floats_of_sums(value) is not None]
        terms = [value for value in n.inputs if value.type.kind is n.type.kind]
        if n.type.kind.size > 1 or not (len(sums) == len(terms) == 1):
            return why.no("it does not add integers of 8 bits to sums in i32")
        rounded = _rounded(f, n, sums[0], terms[0].type)
        values = [rounded if value is sums[0] else value for value in n.inputs]
        return f.create_add(n.name, *values, result_type=n.type)

    @rule_where(lambda schema: schema.quant is Quantized.NUMBERS)
    def arithmetic(self, f: Function, n: Node, why: Why) -> Replacement:
        """The operator on the numbers."""
        del why
        return _on_numbers(f, n) if n.type.quant is not None else None

    @rule
    def limit(self, f: Function, n: MaxNode | MinNode, why: Why) -> Replacement:
        """Limits of stored integers are those of numbers.

        What a product or a sum gives is rounded before, as the integers were: runtimes would not find it otherwise.
        """
        if n.type.quant is None or n.type.quant.axis is not None:
            return None
        value, bound = n.lhs, _integer(n.rhs)
        if bound is None:
            value, bound = n.rhs, _integer(n.lhs)
        if bound is None or n.type != value.type:
            return why.no("its bound is computed, or stretches the result")
        steps = bound - n.type.quant.offsets[0]
        limit = float(np.float32(steps) * np.float32(n.type.quant.scales[0]))
        source = value.node
        numbers = _number(f, n, value)
        if isinstance(source, QuantizeNode) and isinstance(source.input.node, ClipNode | ReluNode):
            numbers = source.input
        if isinstance(n, MinNode):
            limited: Node = f.create_clip(n.name, numbers, -math.inf, limit)
        elif limit == 0:
            limited = f.create_relu(n.name, numbers)
        else:
            limited = f.create_clip(n.name, numbers, limit, math.inf)
        return f.create_quantize(n.name, n.type, limited)

    @rule_where(lambda schema: schema.quant is Quantized.SAME and len(schema.results) == 1)
    def chosen(self, f: Function, n: Node, why: Why) -> Replacement:
        """Elements are chosen among numbers, as runtimes expect it; what only moves them stays, but for sums."""
        data = [value for name, value in _named(n) if name not in n.SCHEMA.plain]
        if not data or data[0].type.quant is None:
            return None
        if _moves(n) and not all(_floats_of_sums(value) for value in data):
            return why.no("stored integers are moved as they are")
        return _on_numbers(f, n)

    @rule
    def concat(self, f: Function, n: ConcatNode, why: Why) -> Replacement:
        """Numbers side by side, which are rounded once: parts with scales of their own need no conversion before."""
        quant = n.type.quant
        if quant is None:
            return None
        if quant.axis is not None:
            return why.no("its parts keep their parameters, as channels")
        inputs = [_number(f, n, _unrounded(value, n.type)) for value in n.inputs]
        type = Type(ElemKind.F32, n.type.shape)
        result = f.create_concat(n.name, inputs, n.axis, result_type=type)
        return f.create_quantize(n.name, n.type, result)

    @rule
    def dequantize(self, f: Function, n: DequantizeNode, why: Why) -> Replacement:
        """The numbers that sums were made of."""
        del f, why
        return _floats_of_sums(n.input)

    @rule
    def rescale(self, f: Function, n: RescaleNode, why: Why) -> Replacement:
        """Numbers, quantized anew."""
        del why
        return f.create_quantize(n.name, n.type, _number(f, n, n.input))


@dataclass(frozen=True)
class EncloseMovesPass(RewritePass):
    """Puts what reshapes or transposes stored integers between conversions too.

    Nothing else may be between the conversions around a product: runtimes would not find them. And what gives them
    another kind, as onnxruntime does with i8, would end at integers that are moved.

    Before:
        %x : f32[2x3]
        %out : u8[3x2](s=0.5,o=0)
        %a = transpose(%x) {shuffle=[1,0]} : f32[3x2]
        %b = quantize(%a) : u8[3x2](s=0.5,o=0)
        save(%b, %out)
    After:
        %x : f32[2x3]
        %out : u8[3x2](s=0.5,o=0)
        %b_1 = quantize(%x) : u8[2x3](s=0.5,o=0)
        %b_2 = dequantize(%b_1) : f32[2x3]
        %b_3 = transpose(%b_2) {shuffle=[1,0]} : f32[3x2]
        %b = quantize(%b_3) : u8[3x2](s=0.5,o=0)
        save(%b, %out)
    """

    name: ClassVar[str] = "enclose-moves"
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def move(self, f: Function, n: ReshapeNode | TransposeNode, why: Why) -> Replacement:
        """Stored integers that were computed; or numbers that are not quantized next."""
        if _is_whole(n.type):
            return _enclosed(f, n, n.input) if n.input.node is not None else None
        source = n.input.node
        if not isinstance(source, DequantizeNode) or not _is_whole(source.input.type):
            return why.no("no stored integers, of one scale, are moved")
        type = source.input.type.with_shape(n.type.shape)
        if all(isinstance(user, QuantizeNode) and user.type == type for user in n.result.users):
            return why.no("they are enclosed")
        return f.create_dequantize(n.name, n.type, _enclosed(f, n, source.input))

    @rule
    def quantize(self, f: Function, n: QuantizeNode, why: Why) -> Replacement:
        """Stored integers again, or numbers before they are moved."""
        source = n.input.node
        if isinstance(source, DequantizeNode) and source.input.type == n.type:
            return source.input
        if not isinstance(source, ReshapeNode | TransposeNode) or not _is_whole(n.type):
            return None
        if isinstance(source.input.node, DequantizeNode) or n.input.num_users > 1:
            return why.no("the move is enclosed, or others read what it gives")
        type = n.type.with_shape(source.input.type.shape)
        return _enclosed(f, source, f.create_quantize(n.name, type, source.input).result, n.name)


def _is_whole(type: Type) -> bool:
    """Whether it is quantized as a whole, to what ONNX can quantize to."""
    quant = type.quant
    return quant is not None and quant.axis is None and type.kind is not ElemKind.I32


def _enclosed(f: Function, move: Node, integers: NodeValue, name: str = "") -> Node:
    """`move`, of the numbers that integers stand for, as integers."""
    name = name or move.name
    before = Type(ElemKind.F32, integers.type.shape)
    numbers = f.create_dequantize(name, before, integers)
    after = Type(ElemKind.F32, move.type.shape)
    moved = f.create(move.__class__, name, [numbers], move.attrs, after)
    return f.create_quantize(name, integers.type.with_shape(after.shape), moved)


def _integer(value: NodeValue) -> int | None:
    """The stored integer that all elements are, if that is known."""
    if isinstance(value.node, SplatNode):
        return int(stored(value.type, value.node.value))
    constant = value.constant
    splat = constant.tensor.splat_value if constant is not None else None
    return None if splat is None else int(splat)


def _named(n: Node) -> list[tuple[str, NodeValue]]:
    names = n.SCHEMA.inputs * len(n.inputs) if n.SCHEMA.variadic else n.SCHEMA.inputs
    return list(zip(names, n.inputs, strict=True))


def _floats_of_sums(value: NodeValue) -> NodeValue | None:
    """The floats that were quantized to 32 bits; None for any other value."""
    source = value.node
    wide = isinstance(source, QuantizeNode) and value.type.kind is ElemKind.I32
    return source.inputs[0] if source is not None and wide else None


def _rounded(f: Function, n: AddNode, sums: NodeValue, other: Type) -> NodeValue:
    """Sums in i32 as integers of the kind that the total has.

    They cover all sums that count: beyond these the total is at one of its limits, whatever is added.
    """
    floats = _floats_of_sums(sums)
    assert floats is not None
    (low, high, _), (lowest, highest, _) = range_of(n.type), range_of(other)
    quant = quant_of_range(low - highest, high - lowest, n.type.kind)
    type = Type(n.type.kind, sums.type.shape, quant)
    return f.create_quantize(f"{n.name}_rounded", type, floats).result


def _unrounded(value: NodeValue, type: Type) -> NodeValue:
    """The stored integers that were rescaled to the parameters of `type`, if they were."""
    source = value.node
    if not isinstance(source, QuantizeNode) or (value.type.kind, value.type.quant) != (
        type.kind,
        type.quant,
    ):
        return value
    numbers = source.input.node
    return numbers.input if isinstance(numbers, DequantizeNode) else value


def _number(f: Function, n: Node, value: NodeValue) -> NodeValue:
    """The floats that stored integers stand for, computed for `n` alone: so runtimes find the pattern."""
    floats = _floats_of_sums(value)
    if floats is not None:
        return floats
    type = Type(ElemKind.F32, value.type.shape)
    if isinstance(n, MatMulNode) and value is n.rhs and _is_stack(value):
        return _number_of_stack(f, n, value)
    return f.create_dequantize(f"{n.name}_number", type, value).result


def _is_stack(value: NodeValue) -> bool:
    """Whether it is constant matrices with a scale for each column."""
    quant, rank = value.type.quant, value.type.rank
    is_constant = value.constant is not None
    return is_constant and rank > 2 and quant is not None and quant.axis == rank - 1


def _number_of_stack(f: Function, n: Node, value: NodeValue) -> NodeValue:
    """The numbers of several matrices, as those of one: onnxruntime takes scales of columns for matrices alone."""
    constant, type = value.constant, value.type
    assert constant is not None
    assert type.quant is not None
    flat = (math.prod(type.extents[:-1]), type.extents[-1])
    quant = replace(type.quant, axis=1)
    tensor = Tensor.derived(
        Type(type.kind, flat, quant),
        "reshape",
        [constant.tensor],
        lambda array: array.reshape(flat),
    )
    columns = f.module.create_constant(constant.original, tensor, loc=n.loc).value
    name = f"{n.name}_number"
    number = f.create_dequantize(name, Type(ElemKind.F32, flat), columns)
    return f.create_reshape(name, Type(ElemKind.F32, type.shape), number).result


def _on_numbers(f: Function, n: Node) -> NodeValue | Node:
    """The node on numbers; its result is quantized unless it is plain."""
    inputs: list[Operand] = [
        value if name in n.SCHEMA.plain else _number(f, n, value) for name, value in _named(n)
    ]
    plain = n.SCHEMA.results[0] in n.SCHEMA.plain
    type = n.type if plain else Type(ElemKind.F32, n.type.shape)
    result = f.create(n.__class__, n.name, inputs, n.attrs, type)
    return result if plain else f.create_quantize(n.name, n.type, result)


def _zero(f: Function, n: Node, value: NodeValue) -> Operand:
    """The offsets of a matrix: one, or one for each column."""
    quant = parameters(value.type)
    array = np.array(quant.offsets, value.type.kind.dtype)
    if len(set(quant.offsets)) == 1:
        array = array[0].reshape(())
    return f.module.create_constant(f"{n.name}_zero", array, loc=n.loc)
