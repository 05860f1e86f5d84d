"""Floats that stored integers stand for, the integers, and the bytes of those of 16 bits."""

from __future__ import annotations

from glowpy.core.channel_axis import permuted
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import DequantizeNode, TransposeNode

__all__ = ["bytes_of", "stored_integers", "stored_type", "taken"]


def stored_integers(value: NodeValue) -> NodeValue | None:
    """The stored integers that `value` stands for."""
    return value.node.input if isinstance(value.node, DequantizeNode) else None


def stored_type(value: NodeValue) -> Type | None:
    """The type of the stored integers that `value` stands for, perhaps transposed."""
    node = value.node
    if isinstance(node, TransposeNode):
        inner = stored_integers(node.input)
        return None if inner is None else permuted(inner.type, node.shuffle)
    integers = stored_integers(value)
    return None if integers is None else integers.type


def taken(f: Function, value: NodeValue, type: Type) -> Operand:
    """The stored integers that `value` stands for, perhaps transposed; of the type that `stored_type` says."""
    integers = stored_integers(value)
    if integers is not None:
        return integers
    assert isinstance(value.node, TransposeNode)
    inner = stored_integers(value.node.input)
    assert inner is not None
    return f.create_transpose(value.name, inner, value.node.shuffle, result_type=type)


def bytes_of(f: Function, name: str, integers: NodeValue) -> tuple[NodeValue, NodeValue]:
    """The upper byte of plain integers of 16 bits, in i8, and the lower one, in u8."""
    shape = integers.type.shape
    high = f.create_high_byte(f"{name}_high", Type(ElemKind.I8, shape), integers)
    low = f.create_convert(f"{name}_low", Type(ElemKind.U8, shape), integers)
    return high.result, low.result
