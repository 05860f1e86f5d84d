"""Slices of slices, of concats, and of everything."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import ConcatNode, SliceNode, SplatNode
from glowpy.passes import RewritePass, Why

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

    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """Looks only at a slice and what feeds it."""
        del why
        if not isinstance(node, SliceNode):
            return None
        inner = node.input.node
        if node.input.type == node.type and all(
            step == 1 or size == 1 for step, size in zip(node.steps, node.type.shape, strict=True)
        ):
            return node.input
        if isinstance(inner, SliceNode):
            starts = tuple(
                first + second * step
                for first, second, step in zip(inner.starts, node.starts, inner.steps, strict=True)
            )
            steps = tuple(a * b for a, b in zip(inner.steps, node.steps, strict=True))
            return f.create_slice(node.name, node.type, inner.input, starts, steps)
        if isinstance(inner, SplatNode):
            return f.create_splat(node.name, node.type, inner.value)
        if isinstance(inner, ConcatNode) and node.type.count:
            return _of_part(f, node, inner)
        return None


def _of_part(f: Function, node: SliceNode, concat: ConcatNode) -> Node | None:
    """The same slice of the one input of `concat` that holds all its elements."""
    axis = concat.axis % node.type.rank
    first = node.starts[axis]
    last = first + (node.type.shape[axis] - 1) * node.steps[axis]
    begin = 0
    for value in concat.inputs:
        end = begin + value.type.shape[axis]
        if begin <= min(first, last) and max(first, last) < end:
            starts = list(node.starts)
            starts[axis] -= begin
            return f.create_slice(node.name, node.type, value, tuple(starts), node.steps)
        begin = end
    return None
