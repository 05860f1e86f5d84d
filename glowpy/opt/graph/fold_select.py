"""Selections whose outcome is known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import SelectNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import is_all
from glowpy.passes import RewritePass

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

    @rule
    def choose(self, f: Function, n: SelectNode, why: Why) -> Replacement:
        """Takes the value that is chosen everywhere."""
        del f
        chosen: NodeValue | None = None
        if n.lhs is n.rhs or is_all(n.condition, 1):
            chosen = n.lhs
        elif is_all(n.condition, 0):
            chosen = n.rhs
        if chosen is not None and chosen.type != n.type:
            return why.no("the chosen value would have to be broadcast")
        return chosen
