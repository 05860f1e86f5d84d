"""Scheduling: an order of the nodes that keeps little memory alive.

The order is a post-order walk from the saves in which the operand whose computation needs the most
memory beyond its own result is computed first (Glow's child-memory scheduler; the idea is Sethi and
Ullman's). An operand that other nodes read as well comes before those: it lives on for them in any
case, and what is computed after it, such as a product whose scores a mask is added to, is used at once. A
product comes after operands that take no more memory than it gives, such as scales of its columns: what it is
multiplied by them for becomes its epilogue only if nothing comes between.
What a concat joins is computed in order where parts need the same: bands of an image follow each other.
What gives more than it takes, element by element and for one reader, such as the floats that 8-bit integers
stand for, is computed just before its reader: until then it is smaller to keep what it is computed from.
Saves come last, so a placeholder is read before it is written.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ConcatNode, DefineNode, SaveNode
from glowpy.support.symbolic import highest

__all__ = ["schedule"]

_MOST_LATE = 16
"""More nodes do not wait for one reader: they are no conversion, but work of their own."""


def schedule(f: Function) -> list[Node]:
    """All nodes of `f` in the order of execution. Deterministic; linear but for sorting the operands of each node."""
    nodes = f.topological()
    ranks = _Ranks(_products(nodes), _joins_in_order(nodes))
    needs = _needs(f, nodes)
    beyond = _beyond_results(nodes, needs, ranks)
    saves = [node for node in nodes if isinstance(node, SaveNode)]
    effects = {node: None for node in nodes if node.has(Trait.SIDE_EFFECT)}
    unused = {node: None for node in nodes if not any(r.num_users for r in node.results)}
    others = [node for node in {**effects, **unused} if not isinstance(node, SaveNode)]
    # What an extent is, is found out where the first node that depends on it needs it.
    definitions = [node for node in others if isinstance(node, DefineNode)]
    roots = [node for node in others if not isinstance(node, DefineNode)] + saves + definitions
    done: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        first = [v.node for _, v in root.operands()] if isinstance(root, SaveNode) else [root]
        for node in first:
            _walk(node, needs, beyond, ranks, done, order)
    order += [node for node in roots if node not in done]
    return order


def _walk(
    root: Node | None,
    needs: Mapping[Node, _Needs],
    beyond: Mapping[Node, int],
    ranks: _Ranks,
    done: set[Node],
    order: list[Node],
) -> None:
    """Post-order from `root`."""
    stack: list[tuple[Node, bool]] = [(root, False)] if root is not None else []
    while stack:
        node, expanded = stack.pop()
        if node in done:
            continue
        if expanded:
            group = [*needs[node].late, node]
            done.update(group)
            order += group
            continue
        stack.append((node, True))
        operands = [operand for operand in needs[node].first if operand not in done]
        stack.extend(
            (operand, False) for operand in reversed(_first_to_last(node, operands, beyond, ranks))
        )


@dataclass(frozen=True)
class _Ranks:
    """Groups of nodes that count for the order of operands besides memory.

    Attributes:
        products: See `_products`.
        joins: See `_joins_in_order`.
    """

    products: Collection[Node]
    joins: Collection[Node]


def _first_to_last(
    reader: Node, operands: Collection[Node], beyond: Mapping[Node, int], ranks: _Ranks
) -> list[Node]:
    """Orders operands: those that other nodes read as well, small ones beside a product, the hungriest, or in order."""
    products, in_order = ranks.products, reader in ranks.joins
    most = max((_size(node) for node in operands if node in products), default=0)

    def rank(node: Node) -> tuple[bool, bool, int]:
        alone = sum(result.num_users for result in node.results) < 2
        large = node in products or beyond[node] + _size(node) > most
        return alone, large, 0 if in_order else -beyond[node]

    return sorted(operands, key=rank)


def _count(node: Node) -> int:
    """Elements of the results."""
    return sum(highest(result.type.count) for result in node.results)


def _size(node: Node) -> int:
    return sum(result.type.room for result in node.results)


def _products(nodes: Sequence[Node]) -> set[Node]:
    """Nodes with an epilogue, and element-wise ones that may be part of it."""
    products: set[Node] = set()
    for node in nodes:
        follows = node.has(Trait.ELEMENTWISE) and any(
            value.node in products
            and value.num_users == 1
            and value.type.shape == node.result.type.shape
            for value in node.inputs
        )
        if follows or node.has(Trait.EPILOGUE):
            products.add(node)
    return products


def _joins_in_order(nodes: Sequence[Node]) -> set[Node]:
    """Concats of what is computed from something that several nodes read.

    That is mostly computed where it belongs: all of that memory is alive from the first part on, whichever that is.
    """
    joins: set[Node] = set()
    shared: set[Node] = set()
    for node in nodes:
        if any(value.num_users > 1 or value.node in shared for value in node.inputs):
            shared.add(node)
            if isinstance(node, ConcatNode):
                joins.add(node)
    return joins


@dataclass(frozen=True)
class _Needs:
    """Predecessors of a node: the nodes `first`, in any order, then those in `late`, in theirs."""

    first: tuple[Node, ...]
    late: tuple[Node, ...] = ()


def _needs(f: Function, nodes: Sequence[Node]) -> dict[Node, _Needs]:
    """Returns the needs of each node. Linear: a node comes late for one other only, after at most `_MOST_LATE`."""
    needs: dict[Node, _Needs] = {}
    needed = f.needs
    for node in nodes:
        first: dict[Node, None] = {}
        late: list[Node] = []
        for operand in dict.fromkeys(needed(node)):
            if _comes_late(operand, needs[operand]):
                first.update(dict.fromkeys(needs[operand].first))
                late += [*needs[operand].late, operand]
            else:
                first[operand] = None
        needs[node] = _Needs(tuple(first), tuple(late))
    return needs


def _comes_late(node: Node, needs: _Needs) -> bool:
    """Whether an element-wise node with one reader takes more memory than all it is computed from.

    Not what its reader broadcasts, such as a number for each channel: it would end the run that the reader is in.
    """
    readers = [user for result in node.results for user in result.users]
    return (
        node.has(Trait.ELEMENTWISE)
        and 0 < len(needs.first) <= _MOST_LATE
        and len(needs.late) < _MOST_LATE
        and len(readers) == 1
        and not (readers[0].has(Trait.ELEMENTWISE) and _count(node) < _count(readers[0]))
        and sum(map(_size, needs.first)) < _size(node)
    )


def _beyond_results(
    nodes: Sequence[Node], needs: Mapping[Node, _Needs], ranks: _Ranks
) -> dict[Node, int]:
    """Bytes alive beyond its results at the worst moment while a node and all it needs is computed."""
    beyond: dict[Node, int] = {}
    for node in nodes:
        held = worst = 0
        for operand in _first_to_last(node, needs[node].first, beyond, ranks):
            worst = max(worst, held + beyond[operand] + _size(operand))
            held += _size(operand)
        for operand in needs[node].late:
            held += _size(operand)
        beyond[node] = max(worst - _size(node), held)
    return beyond
