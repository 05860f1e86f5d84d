"""Moved splats."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import NodeSchema, Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import SplatNode
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.passes import RewritePass

__all__ = ["FoldSplatPass"]


def _moves_one(schema: NodeSchema) -> bool:
    return Trait.SHAPE_ONLY in schema.traits and len(schema.inputs) == 1 and not schema.variadic


@dataclass(frozen=True)
class FoldSplatPass(RewritePass):
    """Makes splats in the shape that they are moved to: reshaped, transposed, sliced or broadcast.

    Before:
        %o1 : f32[3x4]
        %o2 : f32[2x2]
        %s = splat() {value=2.0} : f32[1x4]
        %a = broadcast(%s) : f32[3x4]
        %b = reshape(%s) : f32[2x2]
        %c = transpose(%b) {shuffle=[1,0]} : f32[2x2]
        save(%a, %o1)
        save(%c, %o2)
    After:
        %o1 : f32[3x4]
        %o2 : f32[2x2]
        %a = splat() {value=2.0} : f32[3x4]
        save(%a, %o1)
        %c = splat() {value=2.0} : f32[2x2]
        save(%c, %o2)
    """

    name: ClassVar[str] = "fold-splat"

    @rule_where(_moves_one)
    def fold(self, f: Function, n: Node, why: Why) -> Replacement:
        """Replaces a moved splat by a splat: its value is a number, which no type changes."""
        del why
        source = n.inputs[0].node
        if not isinstance(source, SplatNode):
            return None
        return f.create_splat(n.name, n.type, source.value)
