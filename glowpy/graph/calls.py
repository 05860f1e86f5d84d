"""Changes of calls: a function's nodes in place of a call of it, and other operands and results of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Placeholder
from glowpy.graph.nodes_gen import IfNode, LoopNode, SaveNode
from glowpy.support.text import Attr

__all__ = ["given", "in_place_of_call", "is_called_once", "operands_of", "with_other_operands"]

_CONDITION = 1
"""Operands of an `if` before those of its functions."""
_BOUNDS = 2
"""Those of a `loop`. Its body takes the number of the round first."""


def given(callee: Function) -> list[NodeValue]:
    """What a function gives: what it saves, or a variable that it leaves as it is."""
    saved = {save.output: save.input for save in callee.saves}
    return [saved.get(storage.value, storage.value) for storage in callee.gives]


def in_place_of_call(
    f: Function, callee: Function, operands: Sequence[NodeValue]
) -> list[NodeValue]:
    """Adds what a function computes of `operands` to the nodes of `f`; what it gives."""
    values = {s.value: value for s, value in zip(callee.takes, operands, strict=True)}
    results = given(callee)
    for node in callee.topological():
        if isinstance(node, SaveNode):
            continue
        inputs = [values.get(value, value) for value in node.inputs]
        predicate = node.predicate
        predicate = None if predicate is None else values.get(predicate, predicate)
        twin = f.add(node.clone(f.module.names.take(node.name), inputs, predicate))
        values.update(zip(node.results, twin.results, strict=True))
    return [values.get(value, value) for value in results]


def is_called_once(f: Function, node: Node) -> bool:
    """Whether what a node calls is called by nothing else, and no other part of it."""
    names = node.callees
    calls = [name for g in f.module.functions for other in g.nodes for name in other.callees]
    return all(calls.count(name) == 1 for name in names)


def operands_of(f: Function, node: IfNode | LoopNode) -> dict[int, list[Placeholder]]:
    """The operands that are the same in every round, by index, and what they are in each function that is called."""
    first, skipped = _CONDITION, 0
    if isinstance(node, LoopNode):
        first, skipped = _BOUNDS + node.carried, 1 + node.carried
    lists = [callee.takes[skipped:] for callee in f.callees(node).values()]
    return {
        index: [one for one in storages if isinstance(one, Placeholder)]
        for index, storages in enumerate(zip(*lists, strict=True), first)
    }


def with_other_operands(
    f: Function, node: Node, inputs: Sequence[NodeValue], results: Mapping[int, int] | None = None
) -> Node:
    """Puts a call with other operands, as its functions take them by now, in the place of a node.

    `results` are the indices that results of the node have by now; those without one have no users.
    """
    attrs: Mapping[str, Attr] = node.attrs
    with f.replacing(node):
        twin = f.create(type(node), node.name, inputs, attrs, None, node.loc)
    for old, new in (results or {i: i for i in range(len(node.results))}).items():
        node.results[old].replace_all_uses_with(twin.results[new])
    name = node.name
    f.erase(node)
    f.module.names.release(twin.name)
    twin.name = f.module.names.take(name)
    return twin
