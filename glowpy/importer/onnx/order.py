"""The order in which nodes can be imported. ONNX asks for a sorted list; exporters do not always give one."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Container, Iterator

import onnx

from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc

__all__ = [
    "fixed_names",
    "in_order",
    "is_idle",
    "named_subgraphs",
    "names_read",
    "place_of",
    "subgraphs",
]


def in_order(
    graph: onnx.GraphProto, known: Container[str], file: str, within: str = ""
) -> tuple[list[tuple[int, onnx.NodeProto]], list[UserError]]:
    """The nodes with their positions, each after those it needs; a sorted list stays as it is. Linear time.

    Those that are idle are left out.

    The second result is what is wrong all the same: one error of the names that are computed twice, and of those that
    nothing computes. A graph of a node is `within` that one, such as `loop/body`.

    Raises UserError that names a node on a cycle.
    """
    makers, problems = _makers(graph, known, file, within)
    waiting: list[int] = []
    readers: dict[int, list[int]] = defaultdict(list)
    for index, node in enumerate(graph.node):
        needed = set()
        for name in names_read(node):
            if name in makers:
                needed.add(makers[name])
            elif name and name not in known:
                message = f"{node.op_type}: input '{name}' is computed by no node"
                problems.append(Diagnostic(message, place_of(node, index, file, within)))
        waiting.append(len(needed))
        for maker in needed:
            readers[maker].append(index)
    for output in graph.output:
        if output.name not in makers and output.name not in known:
            problems.append(Diagnostic(f"output '{output.name}' is computed by no node", Loc(file)))
    order = _sorted(waiting, readers)
    if len(order) < len(graph.node):
        stuck = next(index for index in range(len(graph.node)) if waiting[index])
        raise UserError(
            "the graph has a cycle through this node or one before it",
            loc=place_of(graph.node[stuck], stuck, file, within),
        )
    errors = [UserError.of(problems)] if problems else []
    pairs = [(index, graph.node[index]) for index in order]
    return [(index, node) for index, node in pairs if not is_idle(node)], errors


def is_idle(node: onnx.NodeProto) -> bool:
    """Whether a node is none, to onnxruntime: it neither reads nor computes anything, whatever its operator is."""
    return not node.input and not node.output and node.op_type != "Constant"


def named_subgraphs(node: onnx.NodeProto) -> Iterator[tuple[str, onnx.GraphProto]]:
    """The graphs in the attributes of a node, with the names of these."""
    for attribute in node.attribute:
        if attribute.type == onnx.AttributeProto.GRAPH:
            yield attribute.name, attribute.g
        yield from ((attribute.name, graph) for graph in attribute.graphs)


def subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    """The graphs alone."""
    return (graph for _, graph in named_subgraphs(node))


def names_read(node: onnx.NodeProto) -> list[str]:
    """The inputs of a node, and what its subgraphs read of what is around them."""
    names = dict.fromkeys(node.input)
    for graph in subgraphs(node):
        names_inside = {info.name for info in graph.input}
        names_inside |= {tensor.name for tensor in graph.initializer}
        names_inside |= {tensor.values.name for tensor in graph.sparse_initializer}
        names_inside |= {name for inner in graph.node for name in inner.output}
        read = [name for inner in graph.node for name in names_read(inner)]
        read += [info.name for info in graph.output]
        names |= dict.fromkeys(name for name in read if name not in names_inside)
    return list(names)


def _makers(
    graph: onnx.GraphProto, known: Container[str], file: str, within: str
) -> tuple[dict[str, int], list[Diagnostic]]:
    """Which node computes each name."""
    makers: dict[str, int] = {}
    problems = []
    for index, node in enumerate(graph.node):
        for name in node.output:
            if name and (name in makers or name in known):
                message = f"{node.op_type}: output '{name}' exists already"
                problems.append(Diagnostic(message, place_of(node, index, file, within)))
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


def place_of(node: onnx.NodeProto, index: int, file: str, within: str = "") -> Loc:
    """Where a node is: in the model's graph, or `within` a graph of a node, such as `loop/body`."""
    name = node.name or next((output for output in node.output if output), "") or node.op_type
    path = f"{within}/{name}" if within else name
    return Loc(file, node=path, index=index, operator=node.op_type)


def fixed_names(graph: onnx.GraphProto) -> frozenset[str]:
    """Collects the values that depend on constants alone, in the graph and in those of its nodes."""
    fixed: set[str] = set()
    work = [graph]
    while work:
        inner = work.pop(0)
        fixed |= {proto.name for proto in inner.initializer}
        for node in inner.node:
            graphs = list(subgraphs(node))
            work += graphs
            if not graphs and fixed.issuperset(name for name in node.input if name):
                fixed.update(node.output)
    return frozenset(fixed)
