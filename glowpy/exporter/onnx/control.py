"""Control flow: functions that nodes call become subgraphs, which read what is around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from onnx import GraphProto, ValueInfoProto, helper

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.exporter.onnx.graph import OnnxGraph, elem_type_of, to_onnx
from glowpy.graph.calls import given
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import DefineNode, IfNode, LoopNode, SaveNode

__all__: list[str] = []

_COUNT = Type(ElemKind.I64, (1,))


def _info(name: str, type: Type) -> ValueInfoProto:
    dims = [dim if isinstance(dim, int) else str(dim) for dim in type.shape]
    return helper.make_tensor_value_info(name, elem_type_of(type.kind), dims)


def _subgraph(
    g: OnnxGraph,
    callee: Function,
    names: Mapping[NodeValue, str],
    inputs: Sequence[tuple[str, Type]] = (),
    counted: str = "",
) -> GraphProto:
    """A function as a graph that takes `inputs`; `names` are those of what it is given, or reads around it.

    If it has counted rounds, in an input, it gives one more than these at the end.
    """
    inner = g.inner(names)
    for node in callee.topological():
        rule = to_onnx.get(type(node))
        if rule is None or isinstance(node, DefineNode):
            g.refuse("ONNX has no operator for it in a subgraph", node)
        elif not isinstance(node, SaveNode):
            inner.write(node, rule)
    outputs: list[ValueInfoProto] = []
    for value, storage in zip(given(callee), callee.gives, strict=True):
        (name,) = inner.names(storage.name, 1)
        inner.add_all("Identity", inner.operand(value), outputs=[name])
        outputs.append(_info(name, storage.type))
    if counted:
        (name,) = inner.names("rounds", 1)
        inner.add_all("Add", counted, inner.ints("one", [1]), outputs=[name])
        outputs.insert(len(inputs) - 2, _info(name, _COUNT))
    infos = [_info(name, type) for name, type in inputs]
    return helper.make_graph(inner.nodes, callee.name, infos, outputs)


@to_onnx(IfNode)
def _if(g: OnnxGraph, n: IfNode) -> None:
    condition, *operands = map(g.operand, n.inputs)
    branches = {}
    for name, callee in (("then_branch", n.then), ("else_branch", n.otherwise)):
        f = g.function(callee)
        taken = zip((storage.value for storage in f.takes), operands, strict=True)
        branches[name] = _subgraph(g, f, dict(taken))
    g.results("If", condition, **branches)


@to_onnx(LoopNode)
def _loop(g: OnnxGraph, n: LoopNode) -> None:
    """Stacked results have as many rows as there were rounds. The number of these is carried as well if it is read."""
    limit, keep, *operands = map(g.operand, n.inputs)
    body = g.function(n.body)
    *results, count = n.results
    stacked = results[n.carried :]
    if stacked:
        room = g.add("Squeeze", g.ints("room", [n.room]))
        limit = g.add("Min", limit, room)
    round, holds = g.names("round", 2)
    carried = g.names("carried", n.carried)
    inputs = [(round, Type(ElemKind.I64, ())), (holds, Type(ElemKind.BOOL, ()))]
    inputs += [(name, s.type) for name, s in zip(carried, body.takes[1:], strict=False)]
    first, outputs = operands[: n.carried], [g.name_of(value) for value in results]
    counted = ""
    if count.num_users:
        (counted,) = g.names("rounds", 1)
        inputs.append((counted, _COUNT))
        first.append(g.constant("zero", np.zeros(1, np.int64)))
        outputs.insert(n.carried, g.name_of(count))
    names = [round, *carried, *operands[n.carried :]]
    taken = dict(zip((storage.value for storage in body.takes), names, strict=True))
    graph = _subgraph(g, body, taken, inputs, counted)
    g.add_all("Loop", limit, keep, *first, outputs=outputs, body=graph)
    g.leave_open(*stacked)
