"""Concats of concats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import ConcatNode
from glowpy.passes import RewritePass, Why

__all__ = ["FoldConcatPass"]


@dataclass(frozen=True)
class FoldConcatPass(RewritePass):
    """Merges concats along one axis, drops empty inputs, and concats of one input.

    Before:
        %x, %y : f32[2x4]
        %none : f32[0x4]
        %out : f32[8x4]
        %a = concat(%x, %y, %none) {axis=0} : f32[4x4]
        %b = concat(%a) {axis=1} : f32[4x4]
        %c = concat(%b, %x, %y) {axis=0} : f32[8x4]
        save(%c, %out)
    After:
        %x, %y : f32[2x4]
        %none : f32[0x4]
        %out : f32[8x4]
        %c = concat(%x, %y, %x, %y) {axis=0} : f32[8x4]
        save(%c, %out)
    """

    name: ClassVar[str] = "fold-concat"

    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """Looks only at a concat and what feeds it."""
        if not isinstance(node, ConcatNode):
            return None
        inputs: list[NodeValue] = []
        for value in node.inputs:
            inputs += self._parts(node, value, why)
        inputs = [value for value in inputs if value.type.count] or inputs
        if len(inputs) == 1 and inputs[0].type == node.type:
            return inputs[0]
        if tuple(inputs) == node.inputs:
            return None
        return f.create_concat(node.name, inputs, node.axis, result_type=node.type)

    def _parts(self, node: ConcatNode, value: NodeValue, why: Why) -> tuple[NodeValue, ...]:
        inner = value.node
        rank = node.type.rank
        if not isinstance(inner, ConcatNode) or inner.axis % rank != node.axis % rank:
            return (value,)
        if value.num_users > 1:
            why.no(f"%{inner.name} has other users, and its elements would be copied twice")
            return (value,)
        return inner.inputs
