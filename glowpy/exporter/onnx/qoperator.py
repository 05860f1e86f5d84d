"""Products of stored integers as ONNX's own operators on integers, as onnxruntime writes them into optimized files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters, range_of
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.exporter.onnx.operator import OnnxOperatorNode
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Operand
from glowpy.graph.nodes_gen import (
    DequantizeNode,
    MatMulNode,
    QuantizeNode,
    ReluNode,
    ReshapeNode,
    TransposeNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["QOperatorPass"]


@dataclass(frozen=True)
class QOperatorPass(RewritePass):
    """Writes a product of numbers between conversions as `QLinearConv` or `QLinearMatMul`.

    `biases` are the keys of tensors that a bias of `QLinearConv` may be: those that a model stores in steps of the sums
    itself, for onnxruntime too leaves other biases to floats.

    Before:
        %x : u8[1x2](s=0.5,o=128)
        %out : u8[1x1](s=0.5,o=0)
        %w : i8[2x1](s=0.25,o=0) = [3, -4]
        %a = dequantize(%x) : f32[1x2]
        %b = dequantize(%w) : f32[2x1]
        %c = mat_mul(%a, %b) : f32[1x1]
        %d = quantize(%c) : u8[1x1](s=0.5,o=0)
        save(%d, %out)
    After:
        %x : u8[1x2](s=0.5,o=128)
        %out : u8[1x1](s=0.5,o=0)
        %w : i8[2x1](s=0.25,o=0) = [3, -4]
        %s : f32[] = 0.5
        %z : u8[] = 128
        %s_1 : f32[] = 0.25
        %z_1 : i8[] = 0
        %s_2 : f32[] = 0.5
        %z_2 : u8[] = 0
        %d = onnx_operator(%x, %s, %z, %w, %s_1, %z_1, %s_2, %z_2) {op_type="QLinearMatMul"} : u8[1x1](s=0.5,o=0)
        save(%d, %out)
    """

    biases: frozenset[str] = frozenset()

    name: ClassVar[str] = "qoperator"
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def product(self, f: Function, n: QuantizeNode, why: Why) -> Replacement:
        """The operator that multiplies the integers and rescales their sums."""
        source = n.input.node
        if isinstance(source, ReluNode) and _ends_at_zero(n.type) and source.result.num_users == 1:
            source = source.input.node
        name = _QLINEAR.get(_operator_of(source))
        if source is None or name is None:
            return None
        integers = [_integers(value) for value in source.inputs]
        operands = [value for value in integers if value is not None]
        if len(operands) == 3 and _is_zero(operands[2]):
            del operands[2], integers[2]
        if len(operands) < len(integers) or source.results[0].num_users > 1:
            return why.no("numbers go in, or go elsewhere")
        if not _are_taken([value.type for value in operands], n.type):
            return why.no("ONNX's operator takes no integers of these kinds and parameters")
        if any(not self._is_stored(value) for value in operands[2:]):
            return why.no("its bias was rounded to steps of the sums")
        inputs: list[Operand] = []
        for value in operands[:2]:
            inputs += [_unmoved(f, value), *_parameters(f, n, value.type)]
        inputs += [*_parameters(f, n, n.type), *operands[2:]]
        window = source.attrs if isinstance(source, OnnxOperatorNode) else {}
        return f.create(OnnxOperatorNode, n.name, inputs, {**window, "op_type": name}, n.type)

    def _is_stored(self, value: NodeValue) -> bool:
        constant = value.constant
        return constant is not None and constant.tensor.key in self.biases


_QLINEAR = {"Conv": "QLinearConv", "MatMul": "QLinearMatMul"}


def _operator_of(node: Node | None) -> str:
    """The name of a product in ONNX; empty for all else."""
    if isinstance(node, OnnxOperatorNode):
        return str(node.attrs["op_type"])
    return "MatMul" if isinstance(node, MatMulNode) else ""


def _ends_at_zero(type: Type) -> bool:
    """Whether no stored integer stands for a negative number."""
    if type.quant is None or type.quant.axis is not None:
        return False
    lowest, _, _ = range_of(type)
    return lowest >= 0


def _integers(value: NodeValue) -> NodeValue | None:
    """The integers that floats stand for."""
    source = value.node
    return source.input if isinstance(source, DequantizeNode) else None


def _is_zero(value: NodeValue) -> bool:
    """Whether it is a bias of zeros, whatever their steps are."""
    constant = value.constant
    return (
        constant is not None
        and constant.tensor.splat_value == 0
        and not any(parameters(value.type).offsets)
    )


def _are_taken(types: list[Type], result: Type) -> bool:
    """Whether the operator takes operands of these types, in onnxruntime too: biases are in steps of the sums."""
    data, weights = types[:2]
    scales = np.float32(parameters(data).scales[0]) * _scales(weights)
    if parameters(data).axis is not None or parameters(result).axis is not None:
        return False
    if len(set(parameters(weights).offsets)) > 1 or not np.isfinite(scales).all():
        return False
    if (data.kind, weights.kind, result.kind) not in _KINDS:
        return False
    return all(
        bias.kind is ElemKind.I32
        and not any(parameters(bias).offsets)
        and bool((_scales(bias) == scales).all())
        for bias in types[2:]
    )


_KINDS = {
    (ElemKind.U8, ElemKind.U8, ElemKind.U8),
    (ElemKind.U8, ElemKind.I8, ElemKind.U8),
    (ElemKind.I8, ElemKind.I8, ElemKind.I8),
}
"""Kinds of operands and results for which onnxruntime has kernels."""


def _scales(type: Type) -> Array:
    return np.array(parameters(type).scales, np.float32)


def _unmoved(f: Function, value: NodeValue) -> NodeValue:
    """Integers that were moved as numbers between conversions, moved as they are."""
    move = value.node.inputs[0].node if isinstance(value.node, QuantizeNode) else None
    if not isinstance(move, ReshapeNode | TransposeNode):
        return value
    source = move.input.node
    if not isinstance(source, DequantizeNode) or source.input.type.quant != value.type.quant:
        return value
    if source.input.type.kind is not value.type.kind:
        return value
    moved = f.create(move.__class__, move.name, [source.input], move.attrs, value.type)
    return moved.results[0]


def _parameters(f: Function, n: Node, type: Type) -> list[Operand]:
    """The scale and the offset of stored integers: one of each, or one for each channel of weights."""
    quant = parameters(type)
    scales = np.array(quant.scales, np.float32)
    offsets = np.array(quant.offsets, type.kind.dtype)
    if quant.axis is None:
        scales, offsets = scales[0].reshape(()), offsets[0].reshape(())
    return [
        f.module.create_constant("s", scales, loc=n.loc),
        f.module.create_constant("z", offsets, loc=n.loc),
    ]
