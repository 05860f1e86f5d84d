"""Corrects models that break ONNX's rules but run in onnxruntime, before anything else reads them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TypeAlias

import onnx
from onnx import AttributeProto, TensorProto

from glowpy.importer.onnx.order import subgraphs

__all__ = ["regularize"]

_Type: TypeAlias = tuple[int, tuple[int, ...]]
_NUMBERS = {
    "value_float": TensorProto.FLOAT,
    "value_int": TensorProto.INT64,
    "value_string": TensorProto.STRING,
}
_VECTORS = {
    "value_floats": (TensorProto.FLOAT, "floats"),
    "value_ints": (TensorProto.INT64, "ints"),
    "value_strings": (TensorProto.STRING, "strings"),
}


def regularize(model: onnx.ModelProto) -> None:
    """Writes the constants of a model, of its functions and of the graphs of nodes as ONNX has them."""
    _rename_sparse(node for function in model.functions for node in function.node)
    work = [model.graph]
    work += [graph for f in model.functions for node in f.node for graph in subgraphs(node)]
    while work:
        graph = work.pop()
        _rename_sparse(graph.node)
        _settle_names(graph)
        work += [inner for node in graph.node for inner in subgraphs(node)]


def _rename_sparse(nodes: Iterable[onnx.NodeProto]) -> None:
    """Takes the `value` of a constant that is sparse for a `sparse_value`."""
    for node in nodes:
        for attribute in node.attribute if node.op_type == "Constant" else ():
            if attribute.name == "value" and attribute.type == AttributeProto.SPARSE_TENSOR:
                attribute.name = "sparse_value"


def _settle_names(graph: onnx.GraphProto) -> None:
    """Keeps one of several constants that have a name and a type: the last node, and no initializer beside one.

    Other nodes stay as such that do nothing, so that positions are what they were.
    """
    makers: dict[str, list[onnx.NodeProto]] = defaultdict(list)
    for node in graph.node:
        if node.op_type == "Constant" and len(node.output) == 1:
            makers[node.output[0]].append(node)
    for nodes in makers.values():
        if len(nodes) > 1 and len({_type_of(node) or id(node) for node in nodes}) == 1:
            first, *later_nodes = nodes
            first.attribute[0].CopyFrom(later_nodes[-1].attribute[0])
            for node in later_nodes:
                node.Clear()
    for index in reversed(range(len(graph.initializer) if makers else 0)):
        tensor = graph.initializer[index]
        nodes = makers.get(tensor.name, [])
        if nodes and _type_of(nodes[0]) == (tensor.data_type, tuple(tensor.dims)):
            del graph.initializer[index]


def _type_of(node: onnx.NodeProto) -> _Type | None:
    """The element type and the shape of a constant; None of one that says several or none."""
    if len(node.attribute) != 1:
        return None
    (attribute,) = node.attribute
    name = attribute.name
    if name == "value":
        return attribute.t.data_type, tuple(attribute.t.dims)
    if name == "sparse_value":
        sparse = attribute.sparse_tensor
        return sparse.values.data_type, tuple(sparse.dims)
    if name in _VECTORS:
        kind, items = _VECTORS[name]
        return kind, (len(getattr(attribute, items)),)
    return (_NUMBERS[name], ()) if name in _NUMBERS else None
