"""Choosers between several ways to compute a product.

A strategy lists the ways there are, first the one that its model takes. Whoever packs a product asks a `Chooser`
which it is to be: this one takes the first, another may have measured them. The others are listed when they are asked
for.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from glowpy.graph.node import Node

__all__ = ["BY_MODEL", "Chooser"]

W = TypeVar("W")


class Chooser:
    """Takes what the model of the processor thinks best."""

    def choose(self, n: Node, ways: Iterable[W]) -> W:
        """The way to compute a node, out of one or more. The same node is given the same way each time."""
        del n
        return next(iter(ways))


BY_MODEL = Chooser()
