"""Transposes that are not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.permutation import compose, is_identity, keeps_order
from glowpy.passes import RewritePass

__all__ = ["FoldTransposePass", "merge"]


@dataclass(frozen=True)
class FoldTransposePass(RewritePass):
    """Merges consecutive transposes, drops those that move nothing, and makes others reshapes.

    A transpose is a reshape if only dimensions of length 1 move.

    Before:
        %x, %out : f32[1x3x8x8]
        %flat : f32[1x8x8x3]
        %a = transpose(%x) {shuffle=[0,2,3,1]} : f32[1x8x8x3]
        %b = transpose(%a) {shuffle=[0,3,1,2]} : f32[1x3x8x8]
        %c = transpose(%b) {shuffle=[2,0,3,1]} : f32[8x1x8x3]
        %d = transpose(%c) {shuffle=[1,0,2,3]} : f32[1x8x8x3]
        save(%b, %out)
        save(%d, %flat)
    After:
        %x, %out : f32[1x3x8x8]
        %flat : f32[1x8x8x3]
        save(%x, %out)
        %d = transpose(%x) {shuffle=[0,2,3,1]} : f32[1x8x8x3]
        save(%d, %flat)
    """

    name: ClassVar[str] = "fold-transpose"

    @rule
    def fold(self, f: Function, n: TransposeNode, why: Why) -> Replacement:
        """Transposes what the input is made of in place of the input, or reshapes it."""
        del why
        inner = n.input.node
        if is_identity(n.shuffle):
            return n.input
        if isinstance(inner, TransposeNode):
            return merge(f, inner, n)
        if keeps_order(n.input.type.shape, n.shuffle):
            return f.create_reshape(n.name, n.type, n.input)
        return None


def merge(f: Function, above: TransposeNode, n: TransposeNode) -> NodeValue | Node:
    """Merges two transposes, of which `n` reads `above`, into one or none."""
    shuffle = compose(above.shuffle, n.shuffle)
    if is_identity(shuffle):
        return above.input
    return f.create_transpose(n.name, above.input, shuffle, result_type=n.type)
