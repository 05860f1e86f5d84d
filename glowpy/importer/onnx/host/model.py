"""`OnnxHostedModel`: a checked model of which a session computes a part itself."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, defs

from glowpy.importer.elements import kind_of
from glowpy.importer.host_plan import HostPlan
from glowpy.importer.model import Content, HostedModel
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.importer.onnx.check import refusal_verdict, structural_problems
from glowpy.importer.onnx.content import content_of
from glowpy.importer.onnx.contrib.nchwc import channel_block
from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.host.generation import generates_text
from glowpy.importer.onnx.host.graph import graphs_of, initializers
from glowpy.importer.onnx.host.operators import refusal
from glowpy.importer.onnx.host.plan import Opening, location, planned
from glowpy.importer.onnx.host.split import split
from glowpy.importer.onnx.host.steps import HostNode, Part, SplitGraph
from glowpy.importer.onnx.host.types import check_operands, element_types, is_numeric, value_type
from glowpy.importer.onnx.order import place_of
from glowpy.importer.onnx.source import Source, domain_of
from glowpy.importer.reports import located, raise_all
from glowpy.importer.value_types import UNDEFINED, HostInfo, TensorType
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc

if TYPE_CHECKING:
    from glowpy.importer.onnx.model import OnnxModel

__all__ = ["OnnxHostedModel", "in_parts", "malformed", "may_need_host"]


def in_parts(
    model: OnnxModel, error: RoundsError | ValueNeededError, opening: Opening
) -> OnnxHostedModel | None:
    """The same model, whose session computes the nodes with graphs that an error is about itself.

    Of graphs in graphs these are the outermost: what the session compiles of one it splits again if it must. It
    compiles for each value of inputs that another node needs. None for a model with other sizes than its file declares:
    parts do not know what they were written for.
    """
    if model.written:
        return None
    graph, places = model.source.proto.graph, model.source.places
    nodes = {
        places[index] if places else index: model.loc(index, node)
        for index, node in enumerate(graph.node)
        if graphs_of(node)
    }
    locations = {diagnostic.loc for diagnostic in error.diagnostics}
    named = {
        place
        for place, node_loc in nodes.items()
        if any(loc == node_loc or loc.node.startswith(f"{node_loc.node}/") for loc in locations)
    }
    exact = named or isinstance(error, ValueNeededError)
    return OnnxHostedModel(model.source, opening, frozenset(named if exact else nodes))


def may_need_host(graph: onnx.GraphProto) -> bool:
    """Whether a value of the graph may be no tensor of numbers, or a node generates text: a quick look."""
    if not all(is_numeric(info.type) for info in (*graph.input, *graph.output)):
        return True
    if any(tensor.data_type == TensorProto.STRING for tensor in graph.initializer):
        return True
    for node in graph.node:
        texts = any(
            a.type == onnx.AttributeProto.STRINGS and a.name != "nodes_modes"
            for a in node.attribute
        )
        constant = any(a.t.data_type == TensorProto.STRING for a in node.attribute)
        to_text = any(a.name == "to" and a.i == TensorProto.STRING for a in node.attribute)
        container = node.op_type.startswith(("Sequence", "Optional", "SplitToSequence"))
        if texts or constant or to_text or container or generates_text(node):
            return True
        if any(may_need_host(inner) for inner in graphs_of(node).values()):
            return True
    return False


def _verdict(node: onnx.NodeProto, opset: int, graph: SplitGraph) -> str:
    """Returns what onnxruntime says of an operator without a rule: most do not take the types that they meet."""
    try:
        check_operands(node, opset, graph.types)
    except UserError as error:
        return error.diagnostics[0].verdict
    return refusal_verdict(node, opset)


def malformed(source: Source, graph: onnx.GraphProto) -> Iterator[UserError]:
    """Yields errors of single nodes, in nested graphs too: ONNX's inference of types does not look for them."""
    for place, node in enumerate(graph.node):
        opset = source.opsets.get(domain_of(node.domain), 0)
        schema = schema_of(node, opset)
        problems = structural_problems(node, opset)
        formals = [] if schema is None or problems else list(schema.inputs)
        for position, name in enumerate(node.input if formals else ()):
            formal = formals[min(position, len(formals) - 1)]
            if not name and formal.option is defs.OpSchema.FormalParameterOption.Single:
                message = f"{node.op_type}: expected a value as input {position}, got none"
                problems.append(UserError(message))
        for problem in problems:
            yield located(problem, place_of(node, place, source.file, source.within))
        for inner in graphs_of(node).values():
            yield from malformed(source, inner)


@dataclass
class OnnxHostedModel(HostedModel):
    """A checked model, as steps.

    Attributes:
        source: The parsed model.
        opening: What opens the parts that are compiled.
        forced: The positions of nodes with graphs that the session is to compute, in a model of numbers alone.
    """

    source: Source
    opening: Opening
    forced: frozenset[int] | None = None

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return self.source.file

    @cached_property
    def inputs(self) -> list[HostInfo]:
        """The inputs without initializers, in the order of the model."""
        return [_host_info(name, type) for name, type in self._inputs]

    @cached_property
    def outputs(self) -> list[HostInfo]:
        """The outputs, in the order of the model."""
        return [_host_info(name, type) for name, type in self._outputs]

    @property
    def _inputs(self) -> list[tuple[str, onnx.TypeProto]]:
        graph = self.source.proto.graph
        stored = initializers(graph)
        return [(info.name, info.type) for info in graph.input if info.name not in stored]

    @cached_property
    def _outputs(self) -> list[tuple[str, onnx.TypeProto]]:
        ports = []
        for info in self.source.proto.graph.output:
            is_declared = info.type.WhichOneof("value") is not None
            inferred = info.type if is_declared else self.graph.types.get(info.name, info.type)
            ports.append((info.name, inferred))
        return ports

    @cached_property
    def graph(self) -> SplitGraph:
        """The steps of the model, in order."""
        return split(
            self.source, self.source.proto.graph, dict(self._inputs), {}, forced=self.forced or ()
        )

    @cached_property
    def plan(self) -> HostPlan:
        """The same in the words of sessions. Raises UserError that lists the nodes that are wrong in themselves."""
        return planned(self.source, self.graph, self.opening)

    @property
    def has_host_steps(self) -> bool:
        """Whether there is a step that the session computes."""
        return bool(self.graph.host_nodes if self.forced is None else self.forced)

    @property
    def content(self) -> Content | None:
        """Names the bytes that the model is made of; None where packages define operators."""
        return content_of(self.source, channel_block(self.source.proto.graph))

    @property
    def has_host_ports(self) -> bool:
        """Whether an input or output is no tensor of numbers."""
        return not all(is_numeric(type) for _, type in (*self._inputs, *self._outputs))

    def check(self) -> None:
        """Raises an error that lists everything that is wrong whatever the shapes are."""
        raise_all([*self._port_errors(), *self._errors(self.graph)])

    def _port_errors(self) -> Iterator[UserError]:
        for name, type in (*self._inputs, *self._outputs):
            try:
                for elem_type in element_types(type):
                    if elem_type != TensorProto.STRING:
                        kind_of(elem_type)
            except UserError as error:
                yield located(error, Loc(self.file), f"'{name}': ")

    def _errors(self, graph: SplitGraph) -> Iterator[UserError]:
        for step in graph.steps:
            if isinstance(step, Part):
                try:
                    self.opening(step.source)
                except UserError as error:
                    yield error
                continue
            yield from self._problems(step, graph)
            wrong = [[*self._errors(inner)] for inner in step.bodies.values()]
            if step.node.op_type == "If" and not all(wrong):
                continue  # the other branch can be taken
            for errors in wrong:
                yield from errors

    def _problems(self, step: HostNode, graph: SplitGraph) -> Iterator[UserError]:
        node, loc = step.node, location(self.source, step)
        if error := refusal(domain_of(node.domain), node.op_type, step.opset):
            error.diagnostics = [
                replace(diagnostic, loc=loc, verdict=_verdict(node, step.opset, graph))
                for diagnostic in error.diagnostics
            ]
            yield error
            return
        schema = schema_of(node, step.opset)
        attribute_names = (
            {a.name for a in node.attribute} if schema is None else set(schema.attributes)
        )
        for attribute in node.attribute:
            if attribute.name not in attribute_names:
                message = f"{node.op_type}: attribute '{attribute.name}' is not supported"
                yield UnsupportedError(message, loc=loc, verdict=_verdict(node, step.opset, graph))
        try:
            check_operands(node, step.opset, graph.types)
        except UserError as problem:
            yield located(problem, loc, f"{node.op_type}: ")


def _host_info(name: str, type: onnx.TypeProto) -> HostInfo:
    return HostInfo(name, value_type(type) or TensorType(UNDEFINED))
