"""Products: the nodes whose quantized form is an exact sum."""

from __future__ import annotations

import math

from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.type import Type
from glowpy.graph.nodes_gen import ConvolutionNode, FullyConnectedNode, MatMulNode
from glowpy.opt.dequantized import stored_integers
from glowpy.opt.known import is_known

__all__ = ["BYTES", "Product", "columns_of", "no_exact_sum", "no_sum_of_bytes"]

Product = ConvolutionNode | FullyConnectedNode | MatMulNode

BYTES = (ElemKind.I8, ElemKind.U8)
_LONGEST = (1 << 31) // (255 * 255)
"""Sums of so many products of 8 bits cannot overflow."""


def columns_of(n: Product) -> int:
    """The dimension of the weights that is the last one of the sums."""
    return 0 if isinstance(n, ConvolutionNode) else n.inputs[1].type.rank - 1


def no_exact_sum(n: Product, data: Type, weights: Type) -> str:
    """Why a product of stored integers of these types has no exact sum in i32; empty if it has."""
    if data.kind not in BYTES or weights.kind not in BYTES:
        return "only integers of 8 bits have exact sums in 32"
    if len(n.inputs) == 3 and not is_known(stored_integers(n.inputs[2]) or n.inputs[2]):
        return "the bias is computed"
    return no_sum_of_bytes(n, data, weights)


def no_sum_of_bytes(n: Product, data: Type, weights: Type) -> str:
    """Why bytes of stored integers of these types, of 8 or 16 bits, have no exact sums in i32; empty if they have."""
    if not {data.kind, weights.kind} <= {*BYTES, ElemKind.I16}:
        return "only integers of 8 and 16 bits have exact sums in 32"
    axis = columns_of(n)
    depth = math.prod(weights.shape[1:]) if axis == 0 else weights.shape[-2]
    if depth > _LONGEST:
        return f"{depth} products could overflow"
    if parameters(data).axis is not None or parameters(weights).axis not in (None, axis):
        return "parameters differ along a dimension that is summed"
    return ""
