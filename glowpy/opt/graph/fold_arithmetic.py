"""Arithmetic that changes nothing, and chains of constants."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import (
    AddNode,
    AndNode,
    DivNode,
    MulNode,
    NegNode,
    NotNode,
    OrNode,
    SubNode,
    XorNode,
)
from glowpy.graph.rewrite import Replacement, Why, rule_where
from glowpy.opt.known import is_all, known
from glowpy.passes import RewritePass

__all__ = ["FoldArithmeticPass"]

_FLOAT_NEUTRAL: dict[type[Node], float] = {AddNode: -0.0, SubNode: 0.0, MulNode: 1.0, DivNode: 1.0}
"""x op c is x, bit for bit: -0.0 + 0.0 is 0.0, so 0.0 is not neutral to the addition of floats."""

_INTEGER_NEUTRAL: dict[type[Node], int] = {
    AddNode: 0,
    SubNode: 0,
    MulNode: 1,
    DivNode: 1,
    AndNode: -1,
    OrNode: 0,
    XorNode: 0,
}
_BOOL_NEUTRAL: dict[type[Node], int] = {AndNode: 1, OrNode: 0, XorNode: 0}
_ABSORBING: dict[type[Node], int] = {MulNode: 0, AndNode: 0}
"""c op x is c, for integers; for floats it is not where x is NaN or infinite."""

_ASSOCIATIVE: dict[type[Node], Callable[[Array, Array], Array]] = {
    AddNode: np.add,
    MulNode: np.multiply,
    AndNode: np.bitwise_and,
    OrNode: np.bitwise_or,
    XorNode: np.bitwise_xor,
}
"""(x op c) op d is x op (c op d), for integers, whose arithmetic wraps."""

_INVOLUTIONS = (NegNode, NotNode)


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

    @rule_where(lambda schema: Trait.ELEMENTWISE in schema.traits)
    def fold(self, f: Function, node: Node, why: Why) -> Replacement:
        """Looks only at a node and what feeds it; constants stand on the right."""
        if isinstance(node, _INVOLUTIONS):
            inner = node.inputs[0].node
            return inner.inputs[0] if type(inner) is type(node) else None
        if len(node.inputs) != 2 or known(node.inputs[1]) is None:
            return None
        lhs, rhs = node.inputs
        kind = node.type.kind
        neutral = _neutral(type(node), kind)
        if neutral is not None and is_all(rhs, neutral):
            if lhs.type == node.type:
                return lhs
            return why.no("the operation also broadcasts")
        if kind.is_float:
            return None
        absorbing = _ABSORBING.get(type(node))
        if absorbing is not None and is_all(rhs, absorbing):
            return f.create_splat(node.name, node.type, float(absorbing))
        if isinstance(node, SubNode):
            return _negated(f, node)
        return _chained(f, node, why)


def _neutral(cls: type[Node], kind: ElemKind) -> float | int | None:
    if kind.is_float:
        return _FLOAT_NEUTRAL.get(cls)
    if kind is ElemKind.BOOL:
        return _BOOL_NEUTRAL.get(cls)
    if cls is AndNode and not kind.is_signed:
        return (1 << 8 * kind.size) - 1
    return _INTEGER_NEUTRAL.get(cls)


def _made(f: Function, name: str, like: NodeValue, array: Array) -> NodeValue:
    """A constant, in the memory of one element where that is enough."""
    tensor = Tensor.of(np.asarray(array, like.type.kind.dtype))
    if tensor.array.size and (tensor.array == tensor.array.reshape(-1)[0]).all():
        tensor = Tensor.splat(tensor.type, tensor.array.reshape(-1)[0])
    return f.module.create_constant(name, tensor).value


def _negated(f: Function, node: SubNode) -> Node | None:
    subtrahend = known(node.rhs)
    assert subtrahend is not None
    return f.create_add(node.name, node.lhs, _made(f, node.name, node.rhs, -subtrahend))


def _chained(f: Function, node: Node, why: Why) -> Replacement:
    """(x op c) op d as x op (c op d)."""
    inner, combine = node.inputs[0].node, _ASSOCIATIVE.get(type(node))
    if combine is None or type(inner) is not type(node):
        return None
    first, second = known(inner.inputs[1]), known(node.inputs[1])
    if first is None or second is None:
        return None
    if np.broadcast_shapes(first.shape, second.shape) not in (first.shape, second.shape):
        return why.no("the constants would grow")
    with np.errstate(over="ignore"):
        merged = _made(f, node.name, node.inputs[1], combine(first, second))
    return f.create(type(node), node.name, [inner.inputs[0], merged], {})
