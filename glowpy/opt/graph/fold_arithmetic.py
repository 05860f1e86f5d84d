"""Arithmetic that changes nothing, and chains of constants."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.opt.known import is_all, is_known, known
from glowpy.passes import RewritePass

__all__ = ["FoldArithmeticPass"]


@dataclass(frozen=True)
class FoldArithmeticPass(RewritePass):
    """Drops operations with a neutral constant and merges chains of integer constants.

    Only what is exact for every input, NaN, infinities and the sign of zero included, is done to
    floats. Integer subtraction of a constant becomes addition.

    Before:
        %x, %out : i32[4]
        %two : i32[] = splat 2
        %five : i32[] = splat 5
        %hundred : i32[] = splat 100
        %a = sub(%x, %two) : i32[4]
        %b = add(%a, %five) : i32[4]
        %c = add(%b, %hundred) : i32[4]
        save(%c, %out)
    After:
        %x, %out : i32[4]
        %two : i32[] = splat 2
        %five : i32[] = splat 5
        %hundred : i32[] = splat 100
        %a_1 : i32[] = splat -2
        %b_1 : i32[] = splat 3
        %c_1 : i32[] = splat 103
        %c = add(%x, %c_1) : i32[4]
        save(%c, %out)
    """

    name: ClassVar[str] = "fold-arithmetic"

    @rule_where(lambda schema: schema.algebra.involution)
    def undo(self, f: Function, n: Node, why: Why) -> Replacement:
        """`op(op(x))` is x."""
        del f, why
        inner = n.inputs[0].node
        return inner.inputs[0] if type(inner) is type(n) else None

    @rule_where(lambda schema: schema.algebra.idempotent)
    def repeat(self, f: Function, n: Node, why: Why) -> Replacement:
        """`x op x` is x, and `op(op(x))` is `op(x)`."""
        del f, why
        first, *others = n.inputs
        same = first is others[0] if others else type(first.node) is type(n)
        return first if same else None

    @rule_where(lambda schema: bool(schema.algebra.neutral))
    def drop_neutral(self, f: Function, n: Node, why: Why) -> Replacement:
        """`x op neutral` is x; constants stand on the right."""
        del f
        lhs, rhs = n.inputs
        if not is_known(rhs) or n.type.quant is not None:
            return None
        neutral = n.SCHEMA.algebra.neutral_of(n.type.kind)
        if neutral is None or not is_all(rhs, neutral):
            return None
        return lhs if lhs.type == n.type else why.no("the operation also broadcasts")

    @rule_where(lambda schema: bool(schema.algebra.absorbing))
    def absorb(self, f: Function, n: Node, why: Why) -> Replacement:
        """`x op absorbing` is absorbing."""
        del why
        if not is_known(n.inputs[1]) or n.type.quant is not None:
            return None
        absorbing = n.SCHEMA.algebra.absorbing_of(n.type.kind)
        if absorbing is None or not is_all(n.inputs[1], absorbing):
            return None
        exact = int(float(absorbing)) == int(absorbing)
        return f.create_splat(n.name, n.type, float(absorbing)) if exact else None

    @rule_where(lambda schema: schema.algebra.affine == (0, -1))
    def add_negative(self, f: Function, n: Node, why: Why) -> Replacement:
        """`x - c` is `x + -c`; of integers, which wrap, for `chain`."""
        del why
        lhs, rhs = n.inputs
        subtrahend = known(rhs)
        if subtrahend is None or n.type.kind.is_float:
            return None
        return f.create_add(n.name, lhs, _constant(f, n.name, rhs, -subtrahend))

    @rule_where(lambda schema: bool(schema.algebra.associative))
    def chain(self, f: Function, n: Node, why: Why) -> Replacement:
        """`(x op c) op d` is `x op (c op d)`."""
        inner, algebra = n.inputs[0].node, n.SCHEMA.algebra
        if type(inner) is not type(n) or n.type.quant is not None:
            return None
        first, second = known(inner.inputs[1]), known(n.inputs[1])
        if first is None or second is None or algebra.combine is None:
            return None
        if n.type.kind.family not in algebra.associative:
            return None
        if np.broadcast_shapes(first.shape, second.shape) not in (first.shape, second.shape):
            return why.no("the constants would grow")
        with np.errstate(over="ignore"):
            merged = _constant(f, n.name, n.inputs[1], algebra.combine(first, second))
        return f.create(type(n), n.name, [inner.inputs[0], merged], {})


def _constant(f: Function, name: str, like: NodeValue, array: Array) -> NodeValue:
    tensor = Tensor.of(np.asarray(array, like.type.kind.dtype)).compact()
    return f.module.create_constant(name, tensor).value
