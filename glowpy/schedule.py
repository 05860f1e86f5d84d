"""Scheduling: an order of the nodes that keeps little memory alive.

The order is a post-order walk from the saves in which the operand whose computation needs the most
memory beyond its own result is computed first (Glow's child-memory scheduler; the idea is Sethi and
Ullman's). An operand that other nodes read as well comes before those: it lives on for them in any
case, and what is computed after it, such as a product whose scores a mask is added to, is used at once.
Saves come last, so a placeholder is read before it is written.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import SaveNode

__all__ = ["schedule"]


def schedule(f: Function) -> list[Node]:
    """All nodes of `f` in the order of execution. Deterministic; linear but for sorting the operands of each node."""
    nodes = f.topological()
    beyond = _beyond_results(nodes)
    saves = [node for node in nodes if isinstance(node, SaveNode)]
    effects = {node: None for node in nodes if node.has(Trait.SIDE_EFFECT)}
    unused = {node: None for node in nodes if not any(r.num_users for r in node.results)}
    roots = [node for node in {**effects, **unused} if not isinstance(node, SaveNode)] + saves
    done: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        first = [v.node for _, v in root.operands()] if isinstance(root, SaveNode) else [root]
        for node in first:
            _walk(node, beyond, done, order)
    order += [node for node in roots if node not in done]
    return order


def _walk(root: Node | None, beyond: dict[Node, int], done: set[Node], order: list[Node]) -> None:
    """Post-order from `root`."""
    stack: list[tuple[Node, bool]] = [(root, False)] if root is not None else []
    while stack:
        node, expanded = stack.pop()
        if node in done:
            continue
        if expanded:
            done.add(node)
            order.append(node)
            continue
        stack.append((node, True))
        operands = {
            v.node: None for v in node.operand_values if v.node is not None and v.node not in done
        }
        stack.extend((operand, False) for operand in reversed(_first_to_last(operands, beyond)))


def _first_to_last(operands: Iterable[Node], beyond: Mapping[Node, int]) -> list[Node]:
    """Those that other nodes read as well, then the hungriest."""

    def rank(node: Node) -> tuple[bool, int]:
        return sum(result.num_users for result in node.results) < 2, -beyond[node]

    return sorted(operands, key=rank)


def _beyond_results(nodes: Sequence[Node]) -> dict[Node, int]:
    """Bytes alive beyond its results at the worst moment while a node and all it needs is computed."""
    size = {node: sum(result.type.size for result in node.results) for node in nodes}
    beyond: dict[Node, int] = {}
    for node in nodes:
        operands = {v.node: None for v in node.operand_values if v.node is not None}
        held = worst = 0
        for operand in _first_to_last(operands, beyond):
            worst = max(worst, held + beyond[operand] + size[operand])
            held += size[operand]
        beyond[node] = max(worst - size[node], held)
    return beyond
