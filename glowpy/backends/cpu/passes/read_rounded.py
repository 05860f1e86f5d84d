"""Sums that read what is stored in bf16 for a product anyway, and not a second copy in f32."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ConvertNode
from glowpy.passes import GraphPass, PassContext

__all__ = ["ReadRoundedPass"]


@dataclass(frozen=True)
class ReadRoundedPass(GraphPass):
    """Lets element-wise nodes read a value in bf16 where products read it so.

    The value in f32 is then in registers only. It is written and read in half the bytes, which is what sums over images
    of more than `larger` bytes wait for; smaller ones are found in a cache, and are read exactly. Where anything else
    reads a value in f32, it is stored anyway. Here nothing is too small.

    Before:
        %x : f32[2x4]
        %out : f32[2x4]
        %p : bf16[2x4]
        %r = relu(%x) : f32[2x4]
        %h = convert(%r) : bf16[2x4]
        %s = add(%r, %x) : f32[2x4]
        save(%s, %out)
        save(%h, %p)
    After:
        %x : f32[2x4]
        %out : f32[2x4]
        %p : bf16[2x4]
        %r = relu(%x) : f32[2x4]
        %h = convert(%r) : bf16[2x4]
        %h_1 = convert(%h) : f32[2x4]
        %s = add(%h_1, %x) : f32[2x4]
        save(%s, %out)
        save(%h, %p)
    """

    larger: int = 0
    name: ClassVar[str] = "read-rounded"

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Lets all such nodes read what is rounded; True iff there was any."""
        del ctx
        changed = False
        for node in f.topological():
            if not isinstance(node, ConvertNode) or node.type.kind is not ElemKind.BF16:
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


def _is_simple(node: Node) -> bool:
    return node.has(Trait.ELEMENTWISE) and not isinstance(node, ConvertNode)
