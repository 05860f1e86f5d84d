"""What a network computes on integers as it is, such as one that another tool has quantized."""

from __future__ import annotations

import math

from glowpy.core.schema import Trait
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node, NodeValue
from glowpy.graph.nodes_gen import (
    DequantizeBlocksNode,
    DequantizeNode,
    QuantizeNode,
    RescaleNode,
    SaveNode,
)
from glowpy.opt.known import is_known
from glowpy.quantization.conversion import Conversion, bytes_of_constants, outcome_of
from glowpy.quantization.islands import computes_with_floats
from glowpy.quantization.optimized import optimized

__all__ = ["inspect"]

_CONVERSIONS = (DequantizeBlocksNode, DequantizeNode, QuantizeNode, RescaleNode, SaveNode)


def inspect(model: Module | Function) -> Conversion:
    """The optimized network, with which of its nodes compute on integers, and why others do not.

    Args:
        model: The function, or a module with one; not changed.

    Raises as `optimized` does.
    """
    f = optimized(model)
    nodes = tuple(outcome_of(node, _reason(node)) for node in f.topological() if _computes(node))
    return Conversion(
        f.module, nodes, sum(map(_size_in_floats, f.constants)), bytes_of_constants(f)
    )


def _computes(node: Node) -> bool:
    """Whether a node computes with floats, or with integers that stand for numbers."""
    if node.has(Trait.SHAPE_ONLY) or isinstance(node, _CONVERSIONS):
        return False
    values = (*node.inputs, *node.results)
    return computes_with_floats(node) or any(value.type.quant is not None for value in values)


def _reason(node: Node) -> str:
    """Why a node computes with floats; empty if it does not."""
    if not computes_with_floats(node):
        return ""
    if any(_are_floats(value) for value in node.inputs):
        return "what it reads is not quantized"
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
