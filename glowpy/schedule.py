"""Scheduling: an order of the nodes that keeps little memory alive.

The order is a post-order walk from the saves in which the operand whose computation needs the most
memory beyond its own result is computed first (Glow's child-memory scheduler; the idea is Sethi and
Ullman's). Saves come last, so a placeholder is read before it is written.
"""

from __future__ import annotations

from glowpy.core.schema import Trait
from glowpy.graph.function import Function
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import SaveNode

__all__ = ["schedule"]


def schedule(f: Function) -> list[Node]:
    """All nodes of `f` in the order of execution. Deterministic; linear but for sorting the operands of each node."""
    need = _memory_needs(f)
    roots = [
        node
        for node in f.topological()
        if node.has(Trait.SIDE_EFFECT) and not isinstance(node, SaveNode)
    ]
    roots += [
        node
        for node in f.topological()
        if not any(r.num_users for r in node.results) and node not in roots
    ]
    roots.sort(key=lambda node: isinstance(node, SaveNode))
    done: set[Node] = set()
    order: list[Node] = []
    for root in roots:
        first = [v.node for _, v in root.operands()] if isinstance(root, SaveNode) else [root]
        for node in first:
            _walk(node, need, done, order)
    order += [node for node in roots if node not in done]
    return order


def _walk(root: Node | None, need: dict[Node, int], done: set[Node], order: list[Node]) -> None:
    """Post-order from `root`, the hungriest operand first."""
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
            v.node: None for _, v in node.operands() if v.node is not None and v.node not in done
        }
        by_need = sorted(operands, key=lambda operand: need[operand] - _result_size(operand))
        stack.extend((operand, False) for operand in by_need)


def _result_size(node: Node) -> int:
    return sum(result.type.size for result in node.results)


def _memory_needs(f: Function) -> dict[Node, int]:
    """Bytes alive at the worst moment while a node and all it needs is computed, hungriest first."""
    need: dict[Node, int] = {}
    for node in f.topological():
        operands = {v.node: None for _, v in node.operands() if v.node is not None}
        held = worst = 0
        for operand in sorted(operands, key=lambda o: _result_size(o) - need[o]):
            worst = max(worst, held + need[operand])
            held += _result_size(operand)
        need[node] = max(worst, held + _result_size(node))
    return need
