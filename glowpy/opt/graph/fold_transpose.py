"""Transposes that are not needed."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import SplatNode, TransposeNode
from glowpy.opt.permutation import compose, is_identity, keeps_order
from glowpy.passes import RewritePass, Why

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

    def rewrite(self, f: Function, node: Node, why: Why) -> NodeValue | Node | None:
        """Looks only at a transpose and what feeds it."""
        del why
        if not isinstance(node, TransposeNode):
            return None
        inner = node.input.node
        if is_identity(node.shuffle):
            return node.input
        if isinstance(inner, TransposeNode):
            return merge(f, inner, node)
        if isinstance(inner, SplatNode):
            return f.create_splat(node.name, node.type, inner.value)
        if keeps_order(node.input.type.shape, node.shuffle):
            return f.create_reshape(node.name, node.type, node.input)
        return None


def merge(f: Function, above: TransposeNode, node: TransposeNode) -> NodeValue | Node:
    """What does the work of `above` and of `node`, which stands behind it."""
    shuffle = compose(above.shuffle, node.shuffle)
    if is_identity(shuffle):
        return above.input
    return f.create_transpose(node.name, above.input, shuffle, result_type=node.type)
