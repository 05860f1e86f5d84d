"""One order for the operands of commutative nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import SplatNode
from glowpy.passes import GraphPass, PassContext

__all__ = ["CanonicalOrderPass"]


@dataclass(frozen=True)
class CanonicalOrderPass(GraphPass):
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

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Swaps operands in place. Linear time."""
        del ctx
        changed = False
        for node in f.nodes:
            if node.has(Trait.COMMUTATIVE):
                lhs, rhs = node.inputs[:2]
                if _is_known(lhs) and not _is_known(rhs):
                    _swap(node, lhs, rhs)
                    changed = True
        return changed


def _is_known(value: NodeValue) -> bool:
    return value.constant is not None or isinstance(value.node, SplatNode)


def _swap(node: Node, lhs: NodeValue, rhs: NodeValue) -> None:
    node.set_input(0, rhs)
    node.set_input(1, lhs)
