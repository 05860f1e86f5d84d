"""Rotary position embeddings as exporters write them, without what they swap in memory."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import AddNode, ConcatNode, MulNode, NegNode, ReshapeNode, SliceNode
from glowpy.graph.parts import part_along
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Dim

__all__ = ["FuseRotaryPass"]

_Place = tuple[NodeValue, tuple[Dim, ...], tuple[int, ...]]
"""Place of a slice: its operand, starts and steps."""


@dataclass(frozen=True)
class FuseRotaryPass(RewritePass):
    """Turns pairs of elements by angles (Su et al. 2021) in one loop: x * cosines + swapped(x) * sines.

    A pair is an element of the first half of the last dimension and one of the second, as in Llama and NeoX, or two
    neighbours, as in GPT-J. Exporters negate the second of each pair and swap both in memory. Here the firsts and the
    seconds of all pairs are computed from one another, and written into their places; both take one loop.

    Before:
        %x, %cosines, %sines, %out : f32[2x16]
        %b = slice(%x) {starts=[0,8], steps=[1,1]} : f32[2x8]
        %n = neg(%b) : f32[2x8]
        %a = slice(%x) {starts=[0,0], steps=[1,1]} : f32[2x8]
        %swapped = concat(%n, %a) {axis=1} : f32[2x16]
        %along = mul(%x, %cosines) : f32[2x16]
        %across = mul(%swapped, %sines) : f32[2x16]
        %y = add(%along, %across) : f32[2x16]
        save(%y, %out)
    After:
        %x, %cosines, %sines, %out : f32[2x16]
        %b = slice(%x) {starts=[0,8], steps=[1,1]} : f32[2x8]
        %a = slice(%x) {starts=[0,0], steps=[1,1]} : f32[2x8]
        %y_1 = slice(%cosines) {starts=[0,0], steps=[1,1]} : f32[2x8]
        %y_5 = mul(%a, %y_1) : f32[2x8]
        %y_2 = slice(%sines) {starts=[0,0], steps=[1,1]} : f32[2x8]
        %y_6 = mul(%b, %y_2) : f32[2x8]
        %y = sub(%y_5, %y_6) : f32[2x8]
        %y_3 = slice(%cosines) {starts=[0,8], steps=[1,1]} : f32[2x8]
        %y_8 = mul(%b, %y_3) : f32[2x8]
        %y_4 = slice(%sines) {starts=[0,8], steps=[1,1]} : f32[2x8]
        %y_9 = mul(%a, %y_4) : f32[2x8]
        %y_10 = add(%y_8, %y_9) : f32[2x8]
        %y_11 = concat(%y, %y_10) {axis=1} : f32[2x16]
        save(%y_11, %out)
    """

    small: bool = False
    name: ClassVar[str] = "fuse-rotary"
    concerns: ClassVar[tuple[type[Node], ...]] = (NegNode, ConcatNode)

    @rule
    def turn(self, f: Function, n: AddNode, why: Why) -> Replacement:
        """The sum of what stays and what is swapped."""
        if self.small or n.type.quant is not None:
            return None
        for stays, other in ((n.lhs, n.rhs), (n.rhs, n.lhs)):
            for swapped, sines in _factors(other, n.type):
                pairs = _pairs_of(swapped)
                if pairs is None or pairs.firsts.type.shape[:-1] != n.type.shape[:-1]:
                    continue
                for x, cosines in _factors(stays, n.type):
                    if _is_made_of(x, pairs):
                        return _turned(f, n, pairs, cosines, sines)
                return why.no("what is swapped is added to something else")
        return None


@dataclass(frozen=True)
class _Pairs:
    """The elements that are turned.

    Attributes:
        firsts, seconds: Those of each pair.
        adjoin: Whether a pair is two neighbours, rather than an element of each half.
    """

    firsts: SliceNode
    seconds: SliceNode
    adjoin: bool

    @property
    def steps(self) -> tuple[int, Dim]:
        """How far apart the firsts are, and the seconds from them."""
        return (2, 1) if self.adjoin else (1, self.firsts.type.shape[-1])


def _factors(value: NodeValue, type: Type) -> Iterator[tuple[NodeValue, NodeValue]]:
    """A factor of the type of the product `value`, and the other one, where nothing else reads that."""
    node = value.node
    if isinstance(node, MulNode) and _is_private(node):
        for factor, other in ((node.lhs, node.rhs), (node.rhs, node.lhs)):
            if factor.type == type:
                yield factor, other


def _pairs_of(swapped: NodeValue) -> _Pairs | None:
    """Finds the pairs that a value has swapped, with the second ones negated."""
    node, axis, adjoin = swapped.node, swapped.type.rank - 1, False
    if isinstance(node, ReshapeNode) and _is_private(node):
        node, axis, adjoin = node.input.node, axis + 1, True
    if not isinstance(node, ConcatNode) or not _is_private(node) or len(node.inputs) != 2:
        return None
    if node.axis != axis or node.type.rank != axis + 1:
        return None
    negated, firsts = (_unstacked(value) if adjoin else value.node for value in node.inputs)
    seconds = negated.input.node if isinstance(negated, NegNode) else None
    if not isinstance(firsts, SliceNode) or not isinstance(seconds, SliceNode):
        return None
    return _Pairs(firsts, seconds, adjoin) if firsts.type == seconds.type else None


def _unstacked(value: NodeValue) -> Node | None:
    """Returns the node whose result got a last dimension of 1; None for any other value."""
    node = value.node
    if isinstance(node, ReshapeNode) and node.type.shape == (*node.input.type.shape, 1):
        return node.input.node
    return None


def _is_private(node: Node) -> bool:
    return node.predicate is None and node.result.num_users == 1


def _is_made_of(x: NodeValue, pairs: _Pairs) -> bool:
    """Whether the elements of `x` are those of pairs; slices of a slice may have become such of its input."""
    places: list[_Place] = [(x, (0,) * x.type.rank, (1,) * x.type.rank)]
    if isinstance(x.node, SliceNode):
        places.append(_place(x.node))
    step, apart = pairs.steps
    return any(
        [_place(part) for part in (pairs.firsts, pairs.seconds)]
        == [
            (source, (*starts[:-1], starts[-1] + steps[-1] * way), (*steps[:-1], steps[-1] * step))
            for way in (0, apart)
        ]
        for source, starts, steps in places
    )


def _place(n: SliceNode) -> _Place:
    return n.input, n.starts, n.steps


def _turned(
    f: Function, n: AddNode, pairs: _Pairs, cosines: NodeValue, sines: NodeValue
) -> Replacement:
    """The firsts and the seconds, each into their places."""
    a, b, (step, apart) = pairs.firsts.result, pairs.seconds.result, pairs.steps
    (c, s), (d, t) = (
        [_part(f, n, table, start, step, a.type) for table in (cosines, sines)]
        for start in (0, apart)
    )
    turned = [
        f.create_sub(n.name, f.create_mul(n.name, a, c), f.create_mul(n.name, b, s)).result,
        f.create_add(n.name, f.create_mul(n.name, b, d), f.create_mul(n.name, a, t)).result,
    ]
    if not pairs.adjoin:
        return f.create_concat(n.name, turned, n.type.rank - 1, result_type=n.type)
    column = a.type.with_shape((*a.type.shape, 1))
    columns = [f.create_reshape(n.name, column, value) for value in turned]
    return f.create_reshape(n.name, n.type, f.create_concat(n.name, columns, n.type.rank))


def _part(
    f: Function, n: AddNode, table: NodeValue, start: Dim, step: int, part: Type
) -> NodeValue:
    """Cosines or sines for half the elements."""
    shape = table.type.shape
    if not shape or shape[-1] == 1:
        return table
    return part_along(f, n.name, table, -1, start, part.shape[-1], step)
