"""Changes of calls: a function's nodes in place of a call of it, and other operands and results of a call.

`inline` is the inverse of `extract.outline`. A function that nothing else calls hands over its nodes, as they are and
where the call stood; of another one there are copies.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from glowpy.core.extents import symbols_of_types
from glowpy.core.tensor import Tensor
from glowpy.graph.clone import clone_nodes
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue, Placeholder
from glowpy.graph.nodes_gen import CallNode, IfNode, LoopNode, SaveNode
from glowpy.support.text import Attr

__all__ = [
    "MOST_COPIED",
    "MOST_WRITTEN_OUT",
    "given",
    "in_place_of_call",
    "in_place_of_loop",
    "inline",
    "is_called_once",
    "known_number",
    "operands_of",
    "with_other_operands",
]

MOST_WRITTEN_OUT = 16
"""A loop is written out if its rounds together have at most so many nodes: see docs/adr/0027."""

MOST_COPIED = 10_000
"""A function that several nodes call stays one if copies of it would together have more nodes: see docs/adr/0035."""

_CONDITION = 1
"""Operands of an `if` before those of its functions."""
_BOUNDS = 2
"""Operands of a `loop` before those of its body, which takes the number of the round first."""


def given(callee: Function) -> list[NodeValue]:
    """Returns the values that a function gives: those it saves, and variables that it leaves unchanged."""
    saved = {save.output: save.input for save in callee.saves}
    return [saved.get(storage.value, storage.value) for storage in callee.gives]


def in_place_of_call(
    f: Function, callee: Function, operands: Sequence[NodeValue]
) -> list[NodeValue]:
    """Adds what a function computes of `operands` to the nodes of `f`; what it gives."""
    values = {s.value: value for s, value in zip(callee.takes, operands, strict=True)}
    results = given(callee)
    body = (node for node in callee.topological() if not isinstance(node, SaveNode))
    clone_nodes(body, f, values)
    return [values.get(value, value) for value in results]


def inline(
    function: Function,
    calls: Collection[CallNode] | None = None,
    *,
    most_nodes: int | None = None,
) -> bool:
    """Puts functions in the place of `call` nodes, which is the inverse of `outline`; True iff any was.

    What nothing calls any more is erased. The nodes of a function that was called once stay the nodes they were. A call
    keeps its function that finds an extent which is known there already. The predicate of a call is dropped: every
    element is computed.

    Args:
        function: The function with the calls.
        calls: Those to look at; all of them, and those in functions that come in their place, if left out.
        most_nodes: A function that is called several times stays one if its copies would together have more nodes.
    """
    if not any(isinstance(node, CallNode) for node in function.nodes):
        return False
    sizes = _sizes(function) if most_nodes is not None else {}
    order: list[Node] = []
    changed = False
    pending = [iter(function.topological())]
    while pending:
        node = next(pending[-1], None)
        if node is None:
            pending.pop()
        elif (
            isinstance(node, CallNode)
            and (calls is None or node in calls)
            and _may_inline(function, node, sizes, most_nodes)
        ):
            pending.append(_in_place(function, node))
            changed = True
        else:
            order.append(node)
    function.arrange(order)
    return changed


def _sizes(f: Function) -> dict[str, int]:
    """How many nodes each function that `f` calls has once all that it calls is in its place."""
    sizes: dict[str, int] = {}
    for g in f.called:
        calls = (node for node in g.nodes if isinstance(node, CallNode))
        sizes[g.name] = g.num_nodes + sum(sizes[call.function] for call in calls)
    return sizes


def _may_inline(
    f: Function, call: CallNode, sizes: Mapping[str, int], most_nodes: int | None
) -> bool:
    callee = f.module.function(call.function)
    copies = f.module.calls[callee.name]
    if most_nodes is not None and copies > 1 and copies * sizes[callee.name] > most_nodes:
        return False
    definitions = callee.definitions
    return not definitions or definitions.keys().isdisjoint(_known_symbols(f))


def _known_symbols(f: Function) -> Collection[str]:
    """The symbols that a function finds, or that what it is given says."""
    ports = f.takes if f.is_called else [*f.parameters, *f.variables]
    return {*f.definitions, *symbols_of_types(port.type for port in ports)}


def _in_place(f: Function, call: CallNode) -> Iterator[Node]:
    """Puts a function in the place of one call, and gives its nodes, each after what it needs."""
    callee = f.module.function(call.function)
    if f.module.calls[callee.name] > 1:
        before = f.num_nodes
        results = in_place_of_call(f, callee, call.inputs)
        body = f.newest(f.num_nodes - before)
    else:
        results, body = _handed_over(f, callee, call.inputs)
    for result, value in zip(call.results, results, strict=True):
        result.replace_all_uses_with(value)
    f.erase(call)
    if not f.module.calls[callee.name]:
        f.module.erase_function(callee)
    return iter(body)


def _handed_over(
    f: Function, callee: Function, operands: Sequence[NodeValue]
) -> tuple[list[NodeValue], list[Node]]:
    """Makes the nodes of a function nodes of `f`, of operands; what the function gave, and the nodes."""
    values = {s.value: value for s, value in zip(callee.takes, operands, strict=True)}
    results = [values.get(value, value) for value in given(callee)]
    body = [node for node in callee.topological() if not isinstance(node, SaveNode)]
    for save in callee.saves:
        callee.erase(save)
    for taken, value in values.items():
        taken.replace_all_uses_with(value)
    callee.hand_over(body, f)
    return results, body


def in_place_of_loop(
    f: Function, loop: LoopNode, most_nodes: int = MOST_WRITTEN_OUT
) -> list[NodeValue] | None:
    """Adds every round of a loop to the nodes of `f`, one after the other; its results.

    None if it stays a loop: how often it runs is not known, its rounds together have more than `most_nodes`, or its
    body finds extents. A body with a loop in it runs once, or stays as well: what is in it runs often enough.
    """
    (body,) = f.callees(loop).values()
    rounds = _rounds(loop, body)
    if rounds is None or not _is_small(body, rounds, most_nodes):
        return None
    stacks = len(loop.results) - loop.carried - 1
    if stacks and not rounds == loop.room > 0:
        return None
    carried = list(loop.inputs[2 : 2 + loop.carried])
    fixed = loop.inputs[2 + loop.carried :]
    stacked: list[list[NodeValue]] = [[] for _ in range(stacks)]
    with f.replacing(loop):
        for index in range(rounds):
            number = _number(f, index) if body.takes[0].value.num_users else loop.inputs[0]
            _, *results = in_place_of_call(f, body, [number, *carried, *fixed])
            carried = results[: loop.carried]
            for column, value in zip(stacked, results[loop.carried :], strict=True):
                row = value.type.with_shape((1, *value.type.shape))
                column.append(f.create_reshape(loop.name, row, value).result)
        columns = [f.create_concat(loop.name, column, 0).result for column in stacked]
    return [*carried, *columns, _number(f, [rounds])]


def _is_small(body: Function, rounds: int, most_nodes: int) -> bool:
    """Whether rounds of a body, with the branches in it, have few nodes, or there is at most one."""
    functions = [body, *body.called]
    if any(g.definitions for g in functions):
        return False
    if rounds < 2:
        return True
    nodes = sum(g.num_nodes - len(g.gives) for g in functions)
    loops = any(isinstance(node, LoopNode) for g in functions for node in g.nodes)
    return not loops and rounds * max(nodes, 1) <= most_nodes


def _number(f: Function, value: int | list[int]) -> NodeValue:
    return f.module.create_constant("round", Tensor.of(np.array(value))).value


def _rounds(loop: LoopNode, body: Function) -> int | None:
    """How often a loop runs; None if that is not known."""
    limit, keep = (known_number(value) for value in loop.inputs[:2])
    if keep == 0 or (limit is not None and limit < 1):
        return 0
    return limit if keep and known_number(given(body)[0]) else None


def known_number(value: NodeValue) -> int | None:
    """The only element of a constant; None for all else."""
    constant = value.constant
    if constant is None or not constant.has_elements or constant.type.count != 1:
        return None
    return int(constant.array.reshape(-1)[0])


def is_called_once(f: Function, node: Node) -> bool:
    """Whether what a node calls is called by nothing else, and no other part of it."""
    return all(f.module.calls[name] == 1 for name in node.callees)


def operands_of(f: Function, node: IfNode | LoopNode) -> dict[int, list[Placeholder]]:
    """The operands that are the same in every round, by index, and what they are in each function that is called."""
    first, skipped = _CONDITION, 0
    if isinstance(node, LoopNode):
        first, skipped = _BOUNDS + node.carried, 1 + node.carried
    lists = [callee.takes[skipped:] for callee in f.callees(node).values()]
    return {
        index: [storage for storage in storages if isinstance(storage, Placeholder)]
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
