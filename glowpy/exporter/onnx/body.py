"""What a node computes in ONNX's own operators, as the body of a function of the file."""

from __future__ import annotations

import onnx
from onnx import FunctionProto, helper

from glowpy.backend import CompileOptions
from glowpy.engine import context
from glowpy.exporter.onnx.graph import OnnxGraph, opset_imports
from glowpy.exporter.onnx.model import check_kinds, model_proto, prepare, written
from glowpy.graph.function import Module
from glowpy.graph.node import Node
from glowpy.graph.nodes_gen import SaveNode
from glowpy.support.dumped import DOMAIN
from glowpy.support.errors import UnsupportedError
from glowpy.support.text import print_attrs

__all__ = ["Bodies"]


class Bodies:
    """The functions for the nodes of a graph; nodes that differ in nothing but names share one.

    Attributes:
        protos: Those that were needed so far.
    """

    def __init__(self) -> None:
        self.protos: list[FunctionProto] = []
        self._overloads: dict[object, str] = {}
        self._counts: dict[str, int] = {}

    def overload(self, node: Node) -> str:
        """Which of the functions of its mnemonic says what a node computes; empty if ONNX cannot say it."""
        types = tuple(value.type for value in (*node.operand_values, *node.results))
        key = type(node), print_attrs(node.attrs), types, node.predicate is None
        if key not in self._overloads:
            mnemonic = node.SCHEMA.mnemonic
            count = self._counts.get(mnemonic, 0) + 1
            proto = _function(node, str(count))
            self._overloads[key] = proto.overload if proto is not None else ""
            if proto is not None:
                self._counts[mnemonic] = count
                self.protos.append(proto)
        return self._overloads[key]


def _function(node: Node, overload: str) -> FunctionProto | None:
    inputs = [f"input{index}" for index in range(len(node.operand_values))]
    if isinstance(node, SaveNode):
        body: list[onnx.NodeProto] = [helper.make_node("Identity", ["input0"], ["result0"])]
        inputs, outputs = ["input0"], ["result0"]
    else:
        outputs = [f"result{index}" for index in range(len(node.results))]
        graph = _graph(node)
        if graph is None:
            return None
        body = [*(_constant(name, graph) for name in graph.tensors), *graph.nodes]
    proto = helper.make_function(
        DOMAIN, node.SCHEMA.mnemonic, inputs, outputs, body,
        opset_imports(body), attributes=sorted(node.attrs),
    )  # fmt: skip
    proto.overload = overload
    return proto


def _constant(name: str, graph: OnnxGraph) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=graph.tensors[name].proto(name))


def _graph(node: Node) -> OnnxGraph | None:
    """The node alone, with an input for each operand, in operators of ONNX; None if there are none for it."""
    if not node.results:
        return None
    module = Module()
    f = module.create_function("body")
    operands = [
        module.create_placeholder(f"input{index}", value.type).value
        for index, value in enumerate(node.inputs)
    ]
    twin = f.add(node.clone(module.names.take(node.SCHEMA.mnemonic), operands, None))
    for index, result in enumerate(twin.results):
        output = module.create_placeholder(f"result{index}", result.type)
        f.create_save("save", result, output)
    try:
        prepare(f, context(CompileOptions()))
        graph = written(f)
        if any(graph.is_stored_apart(name) for name in graph.tensors):
            return None
        check_kinds(graph, model_proto(f, graph, {}), {})
    except UnsupportedError:
        return None
    return graph
