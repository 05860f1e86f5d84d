"""Nodes of ONNX files that generate text, and the types of the inputs of their graphs."""

from __future__ import annotations

import onnx
from onnx import helper

from glowpy.importer.generation import GPT, WHISPER, named_dims
from glowpy.importer.onnx.contrib.schemas import CONTRIB
from glowpy.importer.onnx.host.graph import initializers
from glowpy.importer.onnx.signature import declared_shape
from glowpy.importer.onnx.source import domain_of

__all__ = ["generates_text", "graph_inputs"]

_OPERATORS = {"BeamSearch", "GreedySearch", "Sampling", "WhisperBeamSearch"}


def generates_text(node: onnx.NodeProto) -> bool:
    """Whether a node generates text with graphs of its own."""
    return domain_of(node.domain) == CONTRIB and node.op_type in _OPERATORS


def graph_inputs(node: onnx.NodeProto, name: str) -> dict[str, onnx.TypeProto]:
    """The types of the inputs of a graph of such a node, whose dimensions have the names of what they count."""
    attributes = {attribute.name: attribute for attribute in node.attribute}
    graph = attributes[name].g
    model_type = attributes["model_type"].i if "model_type" in attributes else GPT
    if node.op_type == "WhisperBeamSearch":
        model_type = WHISPER
    stored = initializers(graph)
    inputs = [info for info in graph.input if info.name not in stored]
    shapes = named_dims(
        [info.name for info in inputs],
        [declared_shape(info.type.tensor_type) for info in inputs],
        len(graph.output),
        model_type,
        is_encoder=name == "encoder",
    )
    types = {}
    for info, dims in zip(inputs, shapes, strict=True):
        types[info.name] = info.type
        if dims is not None:
            elem_type = info.type.tensor_type.elem_type
            types[info.name] = helper.make_tensor_type_proto(elem_type, dims)
    return types
