"""Lowering: replaces nodes by simpler ones until only what the backend keeps, and what IRGen can translate, is left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node, Operand
from glowpy.passes import GraphPass, PassContext
from glowpy.support.rules import Rules

__all__ = ["LowerPass", "lower", "lowering"]

lower: Rules[Callable[..., Operand | tuple[Operand, ...]]] = Rules("lower")
"""`@lower(XNode)` functions take function and node, and return what replaces the node's results."""


def lowering(f: Function, keeps: Callable[[Node], bool]) -> Iterator[tuple[Node, Sequence[Node]]]:
    """Lowers a function to the end. Yields every node that was lowered, and the nodes that were created for it.

    Of these the one that computes the result has the name of the node, which is in no function any more.
    """
    work = f.topological()
    while work:
        node = work.pop()
        rule = lower.get(type(node))
        if rule is None or node not in f or keeps(node):
            continue
        before = f.num_nodes
        with f.replacing(node):
            replaced = rule(f, node)
        created = f.newest(f.num_nodes - before)
        work.extend(created)
        f.replace(node, replaced if isinstance(replaced, tuple) else (replaced,), created)
        yield node, created


@dataclass(frozen=True)
class LowerPass(GraphPass):
    """Replaces every node that has a rule and is not kept by the backend; what a rule creates is lowered in turn.

    Before:
        %x, %out : f32[4]
        %y = leaky_relu(%x) {alpha=0.5} : f32[4]
        save(%y, %out)
    After:
        %x, %out : f32[4]
        %y_scalar_1 = splat() {value=0.0} : f32[]
        %y_2 = lt(%x, %y_scalar_1) : bool[4]
        %y_scalar = splat() {value=0.5} : f32[]
        %y_1 = mul(%x, %y_scalar) : f32[4]
        %y = select(%y_2, %y_1, %x) : f32[4]
        save(%y, %out)
    """

    keeps: Callable[[Node], bool]
    name: ClassVar[str] = "lower"
    is_required: ClassVar[bool] = True

    def run(self, f: Function, ctx: PassContext) -> bool:
        """Lowers to the end; True iff anything was."""
        del ctx
        return sum(1 for _ in lowering(f, self.keeps)) > 0
