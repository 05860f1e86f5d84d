"""Recognises layer norms among simpler nodes, and makes one node of each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.backends.cpu.nodes_gen import create_cpu_standardize
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import DivNode, MulNode, SqrtNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.layer_norm import standard_of
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Expr, product

__all__ = ["FuseNormPass"]

_LONGEST_ROW = 1 << 14
"""Longer rows do not stay in a cache, and would be too few for threads to share."""


@dataclass(frozen=True)
class FuseNormPass(RewritePass):
    """Turns (x - mean) / sqrt(variance + epsilon), or x / sqrt(mean of squares + epsilon), into `cpu_standardize`.

    That reads each row once. Scale and bias, and what else follows element by element, become its epilogue.

    Before:
        %x, %out : f32[2x64]
        %n : f32[] = splat 0.015625
        %e : f32[] = splat 0.0009765625
        %sum = reduce_add(%x) {axes=[1]} : f32[2x1]
        %mean = mul(%sum, %n) : f32[2x1]
        %apart = sub(%x, %mean) : f32[2x64]
        %square = mul(%apart, %apart) : f32[2x64]
        %total = reduce_add(%square) {axes=[1]} : f32[2x1]
        %variance = mul(%total, %n) : f32[2x1]
        %raised = add(%variance, %e) : f32[2x1]
        %root = sqrt(%raised) : f32[2x1]
        %y = div(%apart, %root) : f32[2x64]
        save(%y, %out)
    After:
        %x, %out : f32[2x64]
        %n : f32[] = splat 0.015625
        %e : f32[] = splat 0.0009765625
        %y = cpu_standardize(%x) {epsilon=0.0009765625, centred=true} : f32[2x64]
        save(%y, %out)
    """

    variant: Variant
    small: bool = False
    name: ClassVar[str] = "fuse-norm"
    concerns: ClassVar[tuple[type[Node], ...]] = (SqrtNode,)

    @rule
    def fuse(self, f: Function, n: MulNode | DivNode, why: Why) -> Replacement:
        """The last step, with all before it."""
        norm = None if self.small or n.type.kind is not ElemKind.F32 else standard_of(n)
        if norm is None:
            return None
        shape, first = n.type.shape, n.type.rank - len(norm.axes)
        if norm.axes != tuple(range(first, n.type.rank)):
            return why.no("what is normalized does not lie together")
        length = product(shape[first:])
        if isinstance(length, Expr) or length > _LONGEST_ROW:
            return why.no(f"only rows of at most {_LONGEST_ROW} elements are normalized at once")
        lanes = self.variant.machine_for(ElemKind.F32).lanes
        if lanes == 1 or length < lanes:
            return why.no("there are no vectors, or a row is less than one")
        rows = n.type.with_shape((*shape[:first], length))
        operand = f.create_reshape(n.name, rows, norm.operand) if rows != n.type else norm.operand
        result = create_cpu_standardize(
            f, n.name, rows, operand, epsilon=norm.epsilon, centred=norm.centred
        )
        return f.create_reshape(n.name, n.type, result) if rows != n.type else result
