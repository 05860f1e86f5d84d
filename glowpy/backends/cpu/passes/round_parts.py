"""Rounding to bf16 before values are put together or pooled, where what makes them rounds in registers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.backends.cpu.bf16_products import rounded
from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ConcatNode, ConvertNode, MaxPoolNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["RoundPartsPass"]


@dataclass(frozen=True)
class RoundPartsPass(RewritePass):
    """Rounds the parts of a concat to bf16, in place of all of it, if nothing else reads it.

    Each part is rounded at the end of what computes it, and half of the bytes are written and read. So is what the
    largest elements are taken of: rounding keeps their order, so they are the same.

    Before:
        %x : f32[2x4]
        %out : bf16[2x8]
        %r = relu(%x) : f32[2x4]
        %c = concat(%r, %x) {axis=1} : f32[2x8]
        %h = convert(%c) : bf16[2x8]
        save(%h, %out)
    After:
        %x : f32[2x4]
        %out : bf16[2x8]
        %r = relu(%x) : f32[2x4]
        %h = convert(%r) : bf16[2x4]
        %x_bf16 = convert(%x) : bf16[2x4]
        %h_1 = concat(%h, %x_bf16) {axis=1} : bf16[2x8]
        save(%h_1, %out)
    """

    name: ClassVar[str] = "round-parts"

    @rule
    def convert(self, f: Function, n: ConvertNode, why: Why) -> Replacement:
        """The concat, or the pool, of what is rounded."""
        source = n.input.node
        kinds = n.input.type.kind, n.type.kind
        if kinds != (ElemKind.F32, ElemKind.BF16) or not isinstance(
            source, ConcatNode | MaxPoolNode
        ):
            return None
        if n.input.num_users > 1:
            return why.no("other nodes read the whole in f32")
        if isinstance(source, ConcatNode):
            return f.create_concat(
                n.name, [rounded(f, value) for value in source.inputs], source.axis
            )
        if not all(_is_rounding(user) for user in source.input.users if user is not source):
            return why.no("other nodes read in f32 what is pooled")
        return f.create_max_pool(
            n.name, rounded(f, source.input), source.kernels, source.strides, source.pads, source.dilation,
            source.ceil,
        )  # fmt: skip


def _is_rounding(node: Node) -> bool:
    return isinstance(node, ConvertNode) and node.type.kind is ElemKind.BF16
