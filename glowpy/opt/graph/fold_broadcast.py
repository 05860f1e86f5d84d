"""Broadcasts that element-wise nodes do themselves."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.core.shape import broadcast_shapes
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import BroadcastNode, SplatNode
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.passes import RewritePass

__all__ = ["FoldBroadcastPass"]


@dataclass(frozen=True)
class FoldBroadcastPass(RewritePass):
    """Takes the operands of element-wise nodes from before their broadcasts, if the result's shape stays.

    A splat is the broadcast of a scalar.

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
            narrow = _before_broadcast(value)
            if narrow is None:
                continue
            shapes = [other.type.shape for other in n.inputs]
            shapes[index] = narrow.shape
            if broadcast_shapes(*shapes) == n.type.shape:
                inputs = list(n.inputs)
                inputs[index] = _narrowed(f, value, narrow)
                return f.create(type(n), n.name, inputs, n.attrs, n.type)
            why.no(f"no other input has the shape of %{value.name}")
        return None


def _before_broadcast(value: NodeValue) -> Type | None:
    """The type of what is repeated in `value`; in a splat whose elements are stored alike, a scalar's."""
    node, type = value.node, value.type
    if isinstance(node, BroadcastNode):
        return node.input.type
    alike = type.quant is None or type.quant.axis is None
    return type.with_shape(()) if isinstance(node, SplatNode) and alike and type.rank else None


def _narrowed(f: Function, value: NodeValue, type: Type) -> NodeValue:
    node = value.node
    if isinstance(node, BroadcastNode):
        return node.input
    assert isinstance(node, SplatNode)
    return f.create_splat(node.name, type, node.value).result
