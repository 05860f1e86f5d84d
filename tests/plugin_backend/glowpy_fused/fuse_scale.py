"""The pass that brings in the backend's own softmax."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import MulNode, SoftmaxNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import known
from glowpy.passes import RewritePass
from glowpy_fused.nodes_gen import create_fused_scaled_softmax

__all__ = ["FuseScalePass"]


@dataclass(frozen=True)
class FuseScalePass(RewritePass):
    """Softmax along the last dimension of something times a number is one node.

    Before:
        %x, %out : f32[2x3]
        %scale : f32[] = [0.5]
        %scaled = mul(%x, %scale) : f32[2x3]
        %y = softmax(%scaled) {axis=1} : f32[2x3]
        save(%y, %out)
    After:
        %x, %out : f32[2x3]
        %scale : f32[] = [0.5]
        %y = fused_scaled_softmax(%x) {scale=0.5} : f32[2x3]
        save(%y, %out)
    """

    name: ClassVar[str] = "fuse-scale"

    @rule
    def fuse(self, f: Function, n: SoftmaxNode, why: Why) -> Replacement:
        """The softmax with the scale inside."""
        scaled = n.input.node
        if not isinstance(scaled, MulNode):
            return None
        if n.type.kind is not ElemKind.F32 or n.axis != n.type.rank - 1:
            return why.no("only f32 along the last dimension is fused")
        scale = known(scaled.rhs)
        if scale is None or scale.size != 1 or scaled.lhs.type.shape != n.type.shape:
            return why.no("the factor is not one known number")
        return create_fused_scaled_softmax(f, n.name, scaled.lhs, scale=float(scale.reshape(-1)[0]))
