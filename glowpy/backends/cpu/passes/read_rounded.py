"""Sums that read what is stored in bf16 for a product anyway, and not a second copy in f32."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from glowpy.backends.cpu.nodes_gen import CpuConvNode, CpuMatmulNode, CpuPackMatrixNode
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    ConcatNode,
    ConvertNode,
    MaxPoolNode,
    PadNode,
    ReshapeNode,
    TransposeNode,
)
from glowpy.passes import GraphPass, PassContext

__all__ = ["ReadRoundedPass"]

_ARRANGED = ConcatNode, CpuPackMatrixNode, MaxPoolNode, PadNode, ReshapeNode, TransposeNode
"""Nodes that may lie between a rounding and a product: `bf16_products` and `RoundPartsPass` put them there."""


@dataclass(frozen=True)
class ReadRoundedPass(GraphPass):
    """Lets element-wise nodes read a value in bf16 where products read it so.

    The value in f32 is then in registers only. It is written and read in half the bytes, which is what sums over images
    of more than `larger` bytes wait for; smaller ones are found in a cache, and are read exactly. Where anything else
    reads a value in f32, it is stored anyway. Here nothing is too small. What a model itself casts to bf16, for
    anything but products, says nothing of how its sums may be computed.

    Before:
        %x : f32[2x2]
        %out, %p : f32[2x2]
        %w : bf16[1x1x4]
        %r = relu(%x) : f32[2x2]
        %h = convert(%r) : bf16[2x2]
        %s = add(%r, %x) : f32[2x2]
        %m = cpu_matmul(%h, %w) {tile_pixels=2, tile_vectors=1, slab=1, fetch=0} : f32[2x2]
        save(%s, %out)
        save(%m, %p)
    After:
        %x : f32[2x2]
        %out, %p : f32[2x2]
        %w : bf16[1x1x4]
        %r = relu(%x) : f32[2x2]
        %h = convert(%r) : bf16[2x2]
        %h_1 = convert(%h) : f32[2x2]
        %s = add(%h_1, %x) : f32[2x2]
        %m = cpu_matmul(%h, %w) {tile_pixels=2, tile_vectors=1, slab=1, fetch=0} : f32[2x2]
        save(%s, %out)
        save(%m, %p)
    """

    larger: int = 0
    name: ClassVar[str] = "read-rounded"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Lets all such nodes read what is rounded; True iff there was any."""
        del ctx
        changed = False
        for node in f.topological():
            if not isinstance(node, ConvertNode) or not _is_for_products(node):
                continue
            others = [user for user in node.input.users if user is not node]
            size = prod(node.input.type.likely) * node.input.type.kind.size
            if node.input.node is None or not others or size <= self.larger:
                continue
            if not all(map(_is_simple, others)):
                continue
            wide = f.create_convert(node.name, node.input.type, node.result).result
            for user in others:
                for index, value in enumerate(user.inputs):
                    if value is node.input:
                        user.set_input(index, wide)
            changed = True
        return changed


def _is_for_products(node: ConvertNode) -> bool:
    """Whether a value in f32 is rounded for products in bf16, and nothing else."""
    kinds = node.input.type.kind, node.type.kind
    return kinds == (ElemKind.F32, ElemKind.BF16) and _goes_to_products(node.result)


def _goes_to_products(value: NodeValue) -> bool:
    """Whether all that reads a value in bf16 is products, or arranges it for them."""
    return bool(value.users) and all(
        isinstance(user, CpuConvNode | CpuMatmulNode)
        or (isinstance(user, _ARRANGED) and _goes_to_products(user.result))
        for user in value.users
    )


def _is_simple(node: Node) -> bool:
    return node.has(Trait.ELEMENTWISE) and not isinstance(node, ConvertNode)
