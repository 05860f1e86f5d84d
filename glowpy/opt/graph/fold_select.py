"""Selections whose outcome is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import SelectNode
from glowpy.opt.known import is_all
from glowpy.passes import RewritePass, Why

__all__ = ["FoldSelectPass"]


@dataclass(frozen=True)
class FoldSelectPass(RewritePass):
    """Drops selections between equal values, and those with a known condition.

    Before:
        %x, %y, %out : f32[4]
        %p : bool[4]
        %t : bool[4] = splat 1
        %a = select(%p, %x, %x) : f32[4]
        %b = select(%t, %a, %y) : f32[4]
        save(%b, %out)
    After:
        %x, %y, %out : f32[4]
        %p : bool[4]
        %t : bool[4] = splat 1
        save(%x, %out)
    """

    name: ClassVar[str] = "fold-select"

    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """Looks only at a selection and what feeds it."""
        del f
        if not isinstance(node, SelectNode):
            return None
        chosen: NodeValue | None = None
        if node.lhs is node.rhs or is_all(node.condition, 1):
            chosen = node.lhs
        elif is_all(node.condition, 0):
            chosen = node.rhs
        if chosen is not None and chosen.type != node.type:
            return why.no("the chosen value would have to be broadcast")
        return chosen
