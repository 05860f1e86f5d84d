"""The body of a function of the file: what a node computes, in ONNX's own operators."""

from __future__ import annotations

from collections.abc import Mapping

import onnx
from onnx import FunctionProto, helper

from glowpy.backend import CompileOptions
from glowpy.engine import context
from glowpy.exporter.onnx.calling import calling_function
from glowpy.exporter.onnx.graph import OnnxGraph, opset_imports
from glowpy.exporter.onnx.model import check_kinds, model_proto, prepare, written
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Constant, Node
from glowpy.graph.nodes_gen import CallNode, IfNode, LoopNode, SaveNode
from glowpy.support.dumped import DOMAIN, NUMBERED
from glowpy.support.errors import UnsupportedError
from glowpy.support.text import print_attrs

__all__ = ["Bodies"]

_FEW = 1024
"""Bytes of a constant that may be written into a function."""


class Bodies:
    """The functions for nodes, also of functions that are called; nodes that differ in nothing but names share one.

    Attributes:
        protos: The functions that were needed so far, each after those that it calls itself.
    """

    def __init__(self) -> None:
        self.protos: list[FunctionProto] = []
        self._names: dict[object, str] = {}
        self._counts: dict[str, int] = {}

    def operator(self, f: Function, node: Node) -> str:
        """The function that says what a node of `f` computes; its mnemonic, which none has, if ONNX cannot say it.

        Small constants are part of the function where ONNX has to know them, as those of a cell's activations.
        """
        small = {
            index: value.constant
            for index, value in enumerate(node.inputs)
            if value.constant is not None
            and value.constant.has_elements
            and value.type.size <= _FEW
        }
        name = self._function(f, node, {})
        if not name and small:
            name = self._function(f, node, small)
        return name or node.SCHEMA.mnemonic

    def _function(self, f: Function, node: Node, known: Mapping[int, Constant]) -> str:
        types = tuple(value.type for value in (*node.operand_values, *node.results))
        digests = tuple((index, constant.digest) for index, constant in known.items())
        key = type(node), print_attrs(node.attrs), types, node.predicate is None, digests
        if key not in self._names:
            mnemonic = node.SCHEMA.mnemonic
            count = self._counts.get(mnemonic, 0) + 1
            name = f"{mnemonic}{NUMBERED}{count}"
            if isinstance(node, CallNode | IfNode | LoopNode):
                proto: FunctionProto | None = calling_function(f, node, name)
            else:
                proto = _function(node, known, name)
            self._names[key] = name if proto is not None else ""
            if proto is not None:
                self._counts[mnemonic] = count
                self.protos.append(proto)
        return self._names[key]


def _function(node: Node, known: Mapping[int, Constant], name: str) -> FunctionProto | None:
    inputs = [f"input{index}" for index in range(len(node.operand_values))]
    if isinstance(node, SaveNode):
        body: list[onnx.NodeProto] = [helper.make_node("Identity", ["input0"], ["result0"])]
        inputs, outputs = ["input0"], ["result0"]
    else:
        outputs = [f"result{index}" for index in range(len(node.results))]
        graph = _graph(node, known)
        if graph is None:
            return None
        body = [*(_constant(name, graph) for name in graph.tensors), *graph.nodes]
    return helper.make_function(
        DOMAIN, name, inputs, outputs, body, opset_imports(body), attributes=sorted(node.attrs)
    )


def _constant(name: str, graph: OnnxGraph) -> onnx.NodeProto:
    return helper.make_node("Constant", [], [name], value=graph.tensors[name].proto(name))


def _graph(node: Node, known: Mapping[int, Constant]) -> OnnxGraph | None:
    """The node alone, with an input for each operand, in operators of ONNX; None if there are none for it.

    Operands that are `known`, by index, are constants.
    """
    if not node.results:
        return None
    module = Module()
    f = module.create_function("body")
    operands = [
        module.create_constant(f"known{index}", known[index].tensor).value
        if index in known
        else module.create_placeholder(f"input{index}", value.type).value
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
