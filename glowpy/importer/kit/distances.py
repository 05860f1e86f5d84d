"""How far apart two numbers are that a network computes of the same ones: `i` and `i + 1` are 1 apart, whatever `i` is.

A number is a sum of what nothing more is known of, which are its atoms, and of extents. Of the number of a round it is
known that it is less than that of all rounds. Sums wrap as integers do: what is said holds unless they have wrapped.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Tensor
from glowpy.graph.node import NodeValue, Placeholder
from glowpy.graph.nodes_gen import (
    AddNode,
    BroadcastNode,
    ConcatNode,
    ConvertNode,
    ExtentsNode,
    MulNode,
    NegNode,
    ReshapeNode,
    SliceNode,
    SubNode,
)
from glowpy.importer.kit.bounds import bounds_of
from glowpy.importer.kit.importing import Scope
from glowpy.importer.kit.values import Value
from glowpy.support.symbolic import Dim, is_at_most

__all__ = ["distance_between", "is_known_within"]

_Atom: TypeAlias = tuple[NodeValue, int]
"""An element of a value, by its place among all."""
_KINDS = ElemKind.I32, ElemKind.I64
_MOST_STEPS = 64
"""A sum of more parts is not looked through."""


@dataclass
class _Sum:
    """A number as a sum: how often each atom is in it, and extents."""

    rest: Dim = 0
    factors: dict[_Atom, int] = field(default_factory=dict)

    def add(self, atom: _Atom, factor: int) -> None:
        """Adds an atom so many times."""
        count = self.factors.pop(atom, 0) + factor
        if count:
            self.factors[atom] = count


def distance_between(scope: Scope, begin: Value, end: Value) -> Dim | None:
    """The number by which `end` is more than `begin`, both of one element, if it does not wrap; None if not known."""
    begin, end = _in_one_kind(begin, end)
    first, last = _sum_of(scope, begin), _sum_of(scope, end)
    return last.rest - first.rest if first.factors == last.factors else None


def is_known_within(scope: Scope, value: Value, low: Dim, high: Dim) -> bool:
    """Whether it is known that the only element of a value is never less than one number, nor more than another."""
    total = _sum_of(scope, _before_widening(value))
    least = most = total.rest
    for atom, factor in total.factors.items():
        ends = _bounds(scope, atom)
        if ends is None:
            return False
        least, most = (
            bound + factor * end
            for bound, end in zip((least, most), ends if factor > 0 else ends[::-1], strict=True)
        )
    return is_at_most(low, least) and is_at_most(most, high)


def _bounds(scope: Scope, atom: _Atom) -> tuple[Dim, Dim] | None:
    """The least and the greatest that an atom can be."""
    value, _ = atom
    if value in scope.rounds:
        return 0, scope.rounds[value] - 1
    low, high = bounds_of(value)
    return None if low is None or high is None else (low, high)


def _in_one_kind(begin: Value, end: Value) -> tuple[Value, Value]:
    """Both before they were made wider, if both were: integers wrap alike in one kind only."""
    narrow = [_before_widening(value) for value in (begin, end)]
    if narrow[0].type.kind is narrow[1].type.kind:
        return narrow[0], narrow[1]
    return begin, end


def _before_widening(value: Value) -> Value:
    found = value
    while isinstance(found, NodeValue) and isinstance(found.node, ReshapeNode):
        found = found.node.inputs[0]
    if isinstance(found, NodeValue) and isinstance(found.node, ConvertNode):
        kinds = found.node.inputs[0].type.kind, found.type.kind
        return found.node.inputs[0] if kinds == _KINDS else value
    return value


def _sum_of(scope: Scope, value: Value) -> _Sum:
    total = _Sum()
    if isinstance(value, Tensor):
        total.rest = int(value.array.reshape(-1)[0])
        return total
    work: list[tuple[_Atom, int]] = [((value, 0), 1)]
    for _ in range(_MOST_STEPS):
        if not work:
            break
        atom, factor = work.pop()
        number = _known(atom)
        parts = _parts(scope, atom) if number is None else {}
        if number is not None:
            total.rest += factor * number
        elif parts:
            work += [(part, factor * count) for part, count in parts.items()]
        else:
            total.add(atom, factor)
    for atom, factor in work:
        total.add(atom, factor)
    return total


def _known(atom: _Atom) -> Dim | None:
    """An atom that is a constant or a known extent."""
    value, place = atom
    if value.constant is not None:
        return int(value.constant.array.reshape(-1)[place])
    return value.node.values[place] if isinstance(value.node, ExtentsNode) else None


def _parts(scope: Scope, atom: _Atom) -> Mapping[_Atom, int]:
    """The atoms of which one is the sum, and how often each is in it; none for one that is not."""
    value, place = atom
    producer = value.producer
    match producer:
        case Placeholder():
            origin = scope.origins.get(producer)
            return {} if origin is None else {(origin, place): 1}
        case AddNode() | SubNode():
            sign = 1 if isinstance(producer, AddNode) else -1
            part, other = ((operand, place) for operand in producer.inputs)
            return {part: 1 + sign} if part == other else {part: 1, other: sign}
        case NegNode():
            return {(producer.inputs[0], place): -1}
        case MulNode():
            return _multiple(*((operand, place) for operand in producer.inputs))
        case _:
            source = _source(value, place)
            return {} if source is None else {source: 1}


def _multiple(one: _Atom, other: _Atom) -> Mapping[_Atom, int]:
    for atom, number in ((one, _known(other)), (other, _known(one))):
        if isinstance(number, int):
            return {atom: number}
    return {}


def _source(value: NodeValue, place: int) -> _Atom | None:
    """The place that an element comes from that is only moved."""
    match value.node:
        case ReshapeNode() as node:
            return node.inputs[0], place
        case ConvertNode() as node if (value.type.kind, node.inputs[0].type.kind) == _KINDS:
            return node.inputs[0], place  # sums are the same in fewer bits
        case BroadcastNode() as node if node.inputs[0].type.count == 1:
            return node.inputs[0], 0
        case SliceNode() as node if value.type.rank == 1:
            at = node.starts[0] + node.steps[0] * place
            return (node.inputs[0], at) if isinstance(at, int) else None
        case ConcatNode() as node if value.type.rank == 1:
            for piece in node.inputs:
                count = piece.type.count
                if not isinstance(count, int):
                    return None
                if place < count:
                    return piece, place
                place -= count
    return None
