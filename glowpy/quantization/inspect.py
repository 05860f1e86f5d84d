"""Inspects a network that computes on integers as it is, such as one that another tool has quantized."""

from __future__ import annotations

import math

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import (
    ConvertNode,
    DequantizeBlocksNode,
    DequantizeNode,
    DynamicQuantizeNode,
    GatherNode,
    MulNode,
    QuantizeNode,
    RescaleNode,
    SaveNode,
    StorageCastNode,
)
from glowpy.opt.known import is_known
from glowpy.opt.products import Product
from glowpy.quantization.conversion import Conversion, bytes_of_constants, outcome_of
from glowpy.quantization.islands import computes_with_floats, data_of
from glowpy.quantization.optimized import optimized

__all__ = ["inspect"]

_CONVERSIONS = (
    *(ConvertNode, DequantizeBlocksNode, DequantizeNode, DynamicQuantizeNode),
    *(QuantizeNode, StorageCastNode, RescaleNode, SaveNode),
)


def inspect(model: Module | Function) -> Conversion:
    """The optimized network, with which of its nodes compute on integers, and why others do not.

    Of one that computes in floats alone, but stores weights as integers, it says which nodes read such weights.

    Args:
        model: The function, or a module with one; not changed.

    Raises as `optimized` does.
    """
    f = optimized(model)
    places = {node: g for g, node in f.all_nodes}
    nodes = tuple(
        outcome_of(node, _reason(node), places[node]) for node in places if _computes(node)
    )
    stored = {node: is_stored for node in places if (is_stored := _stores(node)) is not None}
    weights_only = any(stored.values()) and all(node.reason for node in nodes)
    if weights_only:
        nodes = tuple(
            outcome_of(node, "" if is_stored else "its weights are floats", places[node])
            for node, is_stored in stored.items()
        )
    before = sum(map(_size_in_floats, f.all_constants))
    return Conversion(f.module, nodes, before, bytes_of_constants(f), weights_only=weights_only)


def _stores(node: Node) -> bool | None:
    """Whether the weights of a node are stored as integers; None if it has none in floats."""
    if not isinstance(node, Product | GatherNode):
        return None
    weights = node.inputs[0 if isinstance(node, GatherNode) else 1]
    if weights.type.kind is not ElemKind.F32 or weights.type.rank < 2:
        return None
    source = weights.node
    if isinstance(source, DequantizeBlocksNode | DequantizeNode) and is_known(source.input):
        return True
    return False if is_known(weights) else None


def _computes(node: Node) -> bool:
    """Whether a node computes with floats, or with integers that stand for numbers."""
    if node.has(Trait.SHAPE_ONLY) or isinstance(node, _CONVERSIONS) or _scales(node):
        return False
    values = (*node.inputs, *node.results)
    return computes_with_floats(node) or any(value.type.quant is not None for value in values)


def _scales(node: Node) -> bool:
    """Whether a node multiplies a scale that was found at run time by known ones, or integers by it."""
    if not isinstance(node, MulNode) or not any(map(_is_scale, node.inputs)):
        return False
    return all(is_known(v) or _is_scale(v) or isinstance(v.node, ConvertNode) for v in node.inputs)


def _is_scale(value: NodeValue) -> bool:
    """Whether a value is a scale that was found at run time, perhaps times known ones."""
    node = value.node
    while isinstance(node, MulNode) and any(map(is_known, node.inputs)):
        value = node.rhs if is_known(node.lhs) else node.lhs
        node = value.node
    return isinstance(node, DynamicQuantizeNode) and value is node.scale


def _reason(node: Node) -> str:
    """Why a node computes with floats; empty if it does not."""
    read = [value for _, value in data_of(node)]
    if not read and not any(result.type.kind.is_float for result in node.results):
        return ""
    if any(_are_floats(value) for value in read):
        return (
            "only its weights are quantized" if _stores(node) else "what it reads is not quantized"
        )
    users = [user for result in node.results for user in result.users]
    if not users or not all(isinstance(user, QuantizeNode) for user in users):
        return "its result is not quantized"
    return "there is no form of it on integers between these"


def _are_floats(value: NodeValue) -> bool:
    quantized = isinstance(value.node, DequantizeNode | DequantizeBlocksNode)
    return value.type.kind.is_float and not quantized and not is_known(value)


def _size_in_floats(constant: Constant) -> int:
    """The bytes of a constant if its integers were the f32 they stand for."""
    blocks = [user for user in constant.value.users if isinstance(user, DequantizeBlocksNode)]
    if any(user.input is constant.value for user in blocks) or constant.type.quant is not None:
        return 4 * math.prod(constant.type.extents)
    return 0 if blocks else constant.type.room
