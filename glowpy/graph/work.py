"""How much a network computes: the multiply-adds of its products, from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import ExtentsNode, LoopNode
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, highest

__all__ = [
    "called_multiply_adds",
    "endless_loops",
    "largest_count",
    "macs",
    "most_rounds",
    "multiply_adds",
]

_UNKNOWN = 1 << 31
"""A limit of so many rounds says nothing: loops without one have the largest integer."""

macs: Rules[Callable[[Any], int]] = Rules("macs")
"""The multiply-adds of a node where its extents are largest. Nodes that are no products have no rule."""


def multiply_adds(f: Function) -> int:
    """The multiply-adds of all products of a function and of what it calls, where extents are largest.

    Of two branches the one that has more counts. A loop counts as often as it runs at most, or once where that is not
    known: see `endless_loops`.
    """
    return sum(_all_work(f))


def called_multiply_adds(f: Function) -> int:
    """The part of these that branches and loops call."""
    return sum(work for node, work in zip(f.nodes, _all_work(f), strict=True) if node.callees)


def _all_work(f: Function) -> list[int]:
    """Returns the work of each node of a function."""
    counts: dict[str, int] = {}
    for g in f.called:
        counts[g.name] = sum(_work(node, counts) for node in g.nodes)
    return [_work(node, counts) for node in f.nodes]


def _work(node: Node, counts: Mapping[str, int]) -> int:
    if node.callees:
        rounds = most_rounds(node) if isinstance(node, LoopNode) else 1
        return max(counts[name] for name in node.callees) * (1 if rounds is None else rounds)
    rule = macs.get(type(node))
    return 0 if rule is None else rule(node)


def endless_loops(f: Function) -> list[LoopNode]:
    """The loops with products, in a function or in what it calls, of which it is not known how often they run."""
    loops = [node for g in (*f.called, f) for node in g.nodes if isinstance(node, LoopNode)]
    return [
        loop
        for loop in loops
        if most_rounds(loop) is None and multiply_adds(f.module.function(loop.body))
    ]


def most_rounds(loop: LoopNode) -> int | None:
    """How often a loop runs at most; None if that is not known."""
    limit = loop.all_inputs[0]
    bounds: list[Dim] = [loop.room] if len(loop.results) > loop.carried + 1 else []
    if limit.constant is not None and limit.constant.has_elements:
        bounds.append(int(limit.constant.array.reshape(-1)[0]))
    elif isinstance(limit.node, ExtentsNode):
        bounds += limit.node.values
    most = min(map(highest, bounds), default=_UNKNOWN)
    return max(most, 0) if most < _UNKNOWN else None


def largest_count(shape: Iterable[Dim]) -> int:
    """How many elements a shape has at most."""
    return math.prod(map(highest, shape))
