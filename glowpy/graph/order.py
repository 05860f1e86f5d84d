"""An order of nodes in which each comes after what it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from glowpy.graph.node import Node, NodeValue
from glowpy.support.errors import InternalError

__all__ = ["computing", "in_order"]

Needs = Callable[[Node], list[Node]]
"""The nodes that come before one."""


def in_order(nodes: Iterable[Node], needs: Needs) -> list[Node]:
    """The nodes, each after what it needs; those that are in such an order already stay as they are. Linear time.

    Raises InternalError if a node needs itself.
    """
    done: set[Node] = set()
    order: list[Node] = []
    for root in nodes:
        if root in done:
            continue
        if any(node not in done for node in needs(root)):
            _walk(root, needs, done, order)
        else:
            done.add(root)
            order.append(root)
    return order


def computing(values: Iterable[NodeValue]) -> list[Node]:
    """The nodes that compute values, each after those of its inputs."""
    return in_order(_nodes(values), lambda node: _nodes(node.inputs))


def _nodes(values: Iterable[NodeValue]) -> list[Node]:
    return [value.node for value in values if value.node is not None]


def _walk(root: Node, needs: Needs, done: set[Node], order: list[Node]) -> None:
    """Adds `root` to `order`, after what it needs and is not there yet."""
    stack = [(root, iter(needs(root)))]
    open_nodes = {root}
    while stack:
        node, needed = stack[-1]
        inner = next((other for other in needed if other not in done), None)
        if inner is None:
            stack.pop()
            open_nodes.discard(node)
            done.add(node)
            order.append(node)
        elif inner in open_nodes:
            raise InternalError(f"cycle through %{inner.name}")
        else:
            open_nodes.add(inner)
            stack.append((inner, iter(needs(inner))))
