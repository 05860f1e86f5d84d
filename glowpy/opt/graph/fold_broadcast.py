"""Broadcasts that element-wise nodes do themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.core.shape import broadcast_shapes
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import BroadcastNode
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.passes import RewritePass

__all__ = ["FoldBroadcastPass"]


@dataclass(frozen=True)
class FoldBroadcastPass(RewritePass):
    """Takes the operands of element-wise nodes from before their broadcasts, if the result's shape stays.

    Before:
        %x, %out : f32[4x4]
        %y : f32[1x4]
        %a = broadcast(%y) : f32[4x4]
        %b = add(%x, %a) : f32[4x4]
        %c = broadcast(%b) : f32[4x4]
        %d = mul(%c, %a) : f32[4x4]
        save(%d, %out)
    After:
        %x, %out : f32[4x4]
        %y : f32[1x4]
        %b = add(%x, %y) : f32[4x4]
        %d = mul(%b, %y) : f32[4x4]
        save(%d, %out)
    """

    name: ClassVar[str] = "fold-broadcast"

    @rule_where(lambda schema: Trait.ELEMENTWISE in schema.traits)
    def fold(self, f: Function, n: Node, why: Why) -> Replacement:
        """Replaces the first input that can be."""
        for index, value in enumerate(n.inputs):
            if isinstance(value.node, BroadcastNode):
                inputs = list(n.inputs)
                inputs[index] = value.node.input
                if broadcast_shapes(*(other.type.shape for other in inputs)) == n.type.shape:
                    return f.create(type(n), n.name, inputs, n.attrs, n.type)
                why.no(f"no other input has the shape of %{value.name}")
        return None
