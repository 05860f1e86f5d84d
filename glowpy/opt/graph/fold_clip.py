"""Limits on limits."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import ClipNode, ReluNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["FoldClipPass"]


@dataclass(frozen=True)
class FoldClipPass(RewritePass):
    """Merges clips and relus that follow each other.

    Before:
        %x, %out : f32[4]
        %a = relu(%x) : f32[4]
        %b = clip(%a) {max=6.0, min=-1.0} : f32[4]
        %c = relu(%b) : f32[4]
        save(%c, %out)
    After:
        %x, %out : f32[4]
        %c = clip(%x) {max=6.0, min=0.0} : f32[4]
        save(%c, %out)
    """

    name: ClassVar[str] = "fold-clip"

    @rule
    def merge(self, f: Function, n: ClipNode | ReluNode, why: Why) -> Replacement:
        """The limits of both: the outer ones applied to the inner ones."""
        inner = n.input.node
        if not isinstance(inner, (ClipNode, ReluNode)):
            return None
        low, high = _limits(n)
        below, above = _limits(inner)
        if not (low <= high and below <= above):
            return why.no("limits are not in order")
        # Of 0.0 and -0.0 a clip gives its limit; `max` and `min` give their first argument.
        least, most = (min(high, max(low, limit)) for limit in (below, above))
        if (least, most) == (0.0, math.inf) and math.copysign(1.0, least) > 0:
            return f.create_relu(n.name, inner.input)
        return f.create_clip(n.name, inner.input, least, most)


def _limits(node: ClipNode | ReluNode) -> tuple[float, float]:
    return (node.min, node.max) if isinstance(node, ClipNode) else (0.0, math.inf)
