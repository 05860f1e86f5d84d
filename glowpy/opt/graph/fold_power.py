"""Powers that are something simpler."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import PowNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.opt.known import is_all
from glowpy.passes import RewritePass

__all__ = ["FoldPowerPass"]


@dataclass(frozen=True)
class FoldPowerPass(RewritePass):
    """Makes squares of powers with the exponent 2, reciprocals of -1, roots of 0.5, and ones of 0.

    Each is rounded once, so it is at least as close as the power, whose error is up to 0.51 units in
    the last place in f32 and 0.76 in f64. Other exponents need several operations, which would not
    be: x * x * x rounds twice. The exponent 1 is neutral, which `fold-arithmetic` knows.

    The special values are those of IEEE 754's pow: any x to the power of 0 is 1, even NaN. The power
    0.5 of -0.0 is 0.0 and that of -infinity is infinity, where the root is -0.0 and NaN.

    Before:
        %x, %a, %b, %c : f32[4]
        %two : f32[] = splat 2.0
        %half : f32[] = splat 0.5
        %y = pow(%x, %two) : f32[4]
        %minus = splat() {value=-1.0} : f32[4]
        %z = pow(%x, %minus) : f32[4]
        %r = pow(%x, %half) : f32[4]
        save(%y, %a)
        save(%z, %b)
        save(%r, %c)
    After:
        %x, %a, %b, %c : f32[4]
        %two : f32[] = splat 2.0
        %half : f32[] = splat 0.5
        %y = mul(%x, %x) : f32[4]
        save(%y, %a)
        %z = reciprocal(%x) : f32[4]
        save(%z, %b)
        %r_negative = splat() {value=-inf} : f32[]
        %r_1 = eq(%x, %r_negative) : bool[4]
        %r_infinity = splat() {value=inf} : f32[]
        %r_zero = splat() {value=0.0} : f32[]
        %r_2 = add(%x, %r_zero) : f32[4]
        %r_3 = sqrt(%r_2) : f32[4]
        %r = select(%r_1, %r_infinity, %r_3) : f32[4]
        save(%r, %c)
    """

    name: ClassVar[str] = "fold-power"

    @rule
    def fold(self, f: Function, n: PowNode, why: Why) -> Replacement:
        """Folds by the exponent, if all its elements are the same."""
        if is_all(n.rhs, 0.0) or is_all(n.rhs, -0.0):
            return f.create_splat(n.name, n.type, 1.0)
        for exponent, create in ((2.0, _square), (-1.0, _reciprocal), (0.5, _root)):
            if is_all(n.rhs, exponent):
                if n.lhs.type != n.type:
                    return why.no("the operation also broadcasts")
                return create(f, n.name, n.lhs)
        return None


def _square(f: Function, name: str, x: NodeValue) -> Node:
    return f.create_mul(name, x, x)


def _reciprocal(f: Function, name: str, x: NodeValue) -> Node:
    return f.create_reciprocal(name, x)


def _root(f: Function, name: str, x: NodeValue) -> Node:
    """The square root; adding 0.0 changes -0.0 only, and infinity comes from either infinity."""
    like = Type(x.type.kind, ())
    negative = f.create_eq(name, x, f.create_splat(f"{name}_negative", like, -math.inf))
    infinity = f.create_splat(f"{name}_infinity", like, math.inf)
    positive = f.create_add(name, x, f.create_splat(f"{name}_zero", like, 0.0))
    return f.create_select(name, negative, infinity, f.create_sqrt(name, positive))
