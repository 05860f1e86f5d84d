"""The order in which nodes can be imported. ONNX asks for a sorted list; exporters do not always give one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterator

import onnx

from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc

__all__ = ["in_order", "names_read", "subgraphs"]


def in_order(
    graph: onnx.GraphProto, known: Container[str], file: str
) -> list[tuple[int, onnx.NodeProto]]:
    """The nodes with their positions, each after those it needs; a sorted list stays as it is. Linear time.

    Raises UserError that lists names computed twice and names nothing computes, or names a node on a cycle.
    """
    makers, problems = _makers(graph, known, file)
    waiting: list[int] = []
    readers: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.node):
        needed = set()
        for name in names_read(node):
            if name in makers:
                needed.add(makers[name])
            elif name and name not in known:
                message = f"{node.op_type}: input '{name}' is computed by no node"
                problems.append(Diagnostic(message, _loc(file, index, node)))
        waiting.append(len(needed))
        for maker in needed:
            readers[maker].append(index)
    for output in graph.output:
        if output.name not in makers and output.name not in known:
            problems.append(Diagnostic(f"output '{output.name}' is computed by no node", Loc(file)))
    if problems:
        raise UserError.of(problems)
    order = _sorted(waiting, readers)
    if len(order) < len(graph.node):
        stuck = next(index for index in range(len(graph.node)) if waiting[index])
        raise UserError(
            "the graph has a cycle through this node or one before it",
            loc=_loc(file, stuck, graph.node[stuck]),
        )
    return [(index, graph.node[index]) for index in order]


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs in the attributes of a node."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.g
        yield from attribute.graphs


def names_read(node: onnx.NodeProto) -> list[str]:
    """The inputs of a node, and what its subgraphs read of what is around them."""
    names = dict.fromkeys(node.input)
    for graph in subgraphs(node):
        own = {info.name for info in graph.input}
        own |= {tensor.name for tensor in graph.initializer}
        own |= {tensor.values.name for tensor in graph.sparse_initializer}
        own |= {name for inner in graph.node for name in inner.output}
        read = [name for inner in graph.node for name in names_read(inner)]
        read += [info.name for info in graph.output]
        names |= dict.fromkeys(name for name in read if name not in own)
    return list(names)


def _makers(
    graph: onnx.GraphProto, known: Container[str], file: str
) -> tuple[dict[str, int], list[Diagnostic]]:
    """Which node computes each name."""
    makers: dict[str, int] = {}
    problems = []
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name and (name in makers or name in known):
                message = f"{node.op_type}: output '{name}' exists already"
                problems.append(Diagnostic(message, _loc(file, index, node)))
            elif name:
                makers[name] = index
    return makers, problems


def _sorted(waiting: list[int], readers: dict[int, list[int]]) -> list[int]:
    """Positions in an order that fits, the given one if it does; `waiting` counts down to 0 for those reached."""
    if all(reader > maker for maker, read_by in readers.items() for reader in read_by):
        return list(range(len(waiting)))
    ready = deque(index for index, count in enumerate(waiting) if not count)
    order = []
    while ready:
        index = ready.popleft()
        order.append(index)
        for reader in readers[index]:
            waiting[reader] -= 1
            if not waiting[reader]:
                ready.append(reader)
    return order


def _loc(file: str, index: int, node: onnx.NodeProto) -> Loc:
    name = node.name or next((output for output in node.output if output), "") or node.op_type
    return Loc(file, node=name, index=index)
