"""One order for the operands of commutative nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import SplatNode
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.passes import RewritePass

__all__ = ["CanonicalOrderPass"]


@dataclass(frozen=True)
class CanonicalOrderPass(RewritePass):
    """Puts constants on the right of commutative nodes, where the other passes look for them.

    Before:
        %x, %out : f32[4]
        %c : f32[4] = splat 2.0
        %y = mul(%c, %x) : f32[4]
        save(%y, %out)
    After:
        %x, %out : f32[4]
        %c : f32[4] = splat 2.0
        %y = mul(%x, %c) : f32[4]
        save(%y, %out)
    """

    name: ClassVar[str] = "canonical-order"

    @rule_where(lambda schema: Trait.COMMUTATIVE in schema.traits)
    def swap(self, f: Function, n: Node, why: Why) -> Replacement:
        """Swaps the operands in place."""
        del f, why
        lhs, rhs = n.inputs[:2]
        if not _is_stored(lhs) or _is_stored(rhs):
            return None
        n.set_input(0, rhs)
        n.set_input(1, lhs)
        return n


def _is_stored(value: NodeValue) -> bool:
    return value.constant is not None or isinstance(value.node, SplatNode)
