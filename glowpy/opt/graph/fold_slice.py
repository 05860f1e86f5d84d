"""Slices of slices, of concats, and of everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ConcatNode, SliceNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Dim, greatest, least

__all__ = ["FoldSlicePass"]


@dataclass(frozen=True)
class FoldSlicePass(RewritePass):
    """Merges slices, drops those of everything, and slices only the part of a concat that matters.

    Before:
        %x, %y : f32[4]
        %out : f32[2]
        %a = concat(%x, %y) {axis=0} : f32[8]
        %b = slice(%a) {starts=[4], steps=[1]} : f32[4]
        %c = slice(%b) {starts=[3], steps=[-1]} : f32[4]
        %d = slice(%c) {starts=[1], steps=[2]} : f32[2]
        save(%d, %out)
    After:
        %x, %y : f32[4]
        %out : f32[2]
        %d = slice(%y) {starts=[2], steps=[-2]} : f32[2]
        save(%d, %out)
    """

    name: ClassVar[str] = "fold-slice"

    @rule
    def fold(self, f: Function, n: SliceNode, why: Why) -> Replacement:
        """Slices what the input is made of in place of the input."""
        del why
        inner = n.input.node
        if n.input.type == n.type and all(
            step == 1 or size == 1 for step, size in zip(n.steps, n.type.shape, strict=True)
        ):
            return n.input
        if isinstance(inner, SliceNode):
            starts = tuple(
                first + second * step
                for first, second, step in zip(inner.starts, n.starts, inner.steps, strict=True)
            )
            steps = tuple(a * b for a, b in zip(inner.steps, n.steps, strict=True))
            return f.create_slice(n.name, n.type, inner.input, starts, steps)
        if isinstance(inner, ConcatNode) and not n.type.is_empty:
            return _of_part(f, n, inner)
        return None


def _of_part(f: Function, n: SliceNode, concat: ConcatNode) -> Node | None:
    """Slices the one input of `concat` that holds all elements of the slice."""
    axis = concat.axis % n.type.rank
    first = n.starts[axis]
    last = first + (n.type.shape[axis] - 1) * n.steps[axis]
    begin: Dim = 0
    for value in concat.inputs:
        end = begin + value.type.shape[axis]
        if begin <= least(first, last) and greatest(first, last) < end:
            starts = list(n.starts)
            starts[axis] -= begin
            return f.create_slice(n.name, n.type, value, tuple(starts), n.steps)
        begin = end
    return None
