"""How much a network computes: the multiply-adds of its products, from shapes alone."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any

from glowpy.graph.function import Function
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, highest

__all__ = ["largest_count", "macs", "multiply_adds"]

macs: Rules[Callable[[Any], int]] = Rules("macs")
"""The multiply-adds of a node where its extents are largest. Nodes that are no products have no rule."""


def multiply_adds(f: Function) -> int:
    """The multiply-adds of all products in a graph, where its extents are largest."""
    rules = ((macs.get(type(node)), node) for node in f.nodes)
    return sum(rule(node) for rule, node in rules if rule is not None)


def largest_count(shape: Iterable[Dim]) -> int:
    """How many elements a shape has at most."""
    return math.prod(map(highest, shape))
