"""`HostModel`: a checked model of which a session computes a part itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import onnx
from onnx import TensorProto, defs

from glowpy.importer.model import HostedModel, Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.importer.onnx.check import refusal_verdict, structural_problems
from glowpy.importer.onnx.definition import schema_of
from glowpy.importer.onnx.given_elements import Given, replaced
from glowpy.importer.onnx.host.graph import graphs_of, initializers
from glowpy.importer.onnx.host.operators import is_computed
from glowpy.importer.onnx.host.split import HostPlan, HostStep, Segment, split
from glowpy.importer.onnx.host.types import (
    HostInfo,
    check_operands,
    dtype_of,
    element_types,
    is_numeric,
)
from glowpy.importer.onnx.model import OnnxModel
from glowpy.importer.onnx.order import place_of
from glowpy.importer.onnx.reports import located, raise_all
from glowpy.importer.onnx.source import Source, domain_of, read_source
from glowpy.importer.storage import InFile
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc

__all__ = ["HostModel", "asks_for_rounds", "by_rounds", "open_model"]


@within_limits
def open_model(
    model: str | Path | bytes | onnx.ModelProto,
    given: Given | None = None,
    files: Mapping[Path, InFile] | None = None,
) -> OnnxModel | HostModel:
    """Reads and checks a model for a session: of the second kind only if the session has to compute something itself.

    Elements that are `given` take the places of those of the model. `files` are open already.

    Raises what `read_model` raises.
    """
    source = read_source(model, files=files)
    source = source if given is None else replaced(source, given)
    loaded: OnnxModel | HostModel = OnnxModel(source)
    if _may_need_host(source.proto.graph):
        raise_all([*_malformed(source, source.proto.graph)])
        hosted = HostModel(source)
        loaded = hosted if hosted.plan.host_steps or hosted.has_host_ports else loaded
    loaded.check()
    return loaded


def by_rounds(model: Model, error: RoundsError | ValueNeededError) -> HostModel | None:
    """The same model, whose session computes the nodes with graphs that an error is about itself.

    Of graphs in graphs these are the outermost: what the session compiles of one it splits again if it must. It
    compiles for each value of inputs that another node needs. None for models that are not ONNX's, and for those with
    other sizes than their file declares: parts do not know what they were written for.
    """
    if not isinstance(model, OnnxModel) or model.written:
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
    return HostModel(model.source, frozenset(named if exact else nodes))


def asks_for_rounds(model: Model, error: ValueNeededError) -> bool:
    """Whether an error asks how often a loop of the model runs, rather than for what its body needs."""
    if not isinstance(model, OnnxModel):
        return False
    known = {diagnostic.loc for diagnostic in error.diagnostics}
    return any(
        node.op_type == "Loop" and model.loc(index, node) in known
        for index, node in enumerate(model.source.proto.graph.node)
    )


def _may_need_host(graph: onnx.GraphProto) -> bool:
    """Whether a value of the graph may be no tensor of numbers: a quick look."""
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
        if texts or constant or to_text or container:
            return True
        if any(_may_need_host(inner) for inner in graphs_of(node).values()):
            return True
    return False


def _verdict(node: onnx.NodeProto, opset: int, plan: HostPlan) -> str:
    """Returns what onnxruntime says of an operator without a rule: most do not take the types that they meet."""
    try:
        check_operands(node, opset, plan.types)
    except UserError as error:
        return error.diagnostics[0].verdict
    return refusal_verdict(node, opset)


def _malformed(source: Source, graph: onnx.GraphProto) -> Iterator[UserError]:
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
            yield from _malformed(source, inner)


@dataclass
class HostModel(HostedModel):
    """A checked model, as steps. `forced` are positions of nodes with graphs that the session is to compute itself."""

    source: Source
    forced: frozenset[int] = frozenset()

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return self.source.file

    @cached_property
    def inputs(self) -> list[HostInfo]:
        """The inputs without initializers, in the order of the model."""
        graph = self.source.proto.graph
        stored = initializers(graph)
        return [HostInfo(i.name, i.type) for i in graph.input if i.name not in stored]

    @cached_property
    def plan(self) -> HostPlan:
        """The steps of the model, in order."""
        types = {info.name: info.proto for info in self.inputs}
        return split(self.source, self.source.proto.graph, types, {}, forced=self.forced)

    @cached_property
    def outputs(self) -> list[HostInfo]:
        """The outputs, in the order of the model."""
        infos = []
        for info in self.source.proto.graph.output:
            declared = info.type.WhichOneof("value") is not None
            infos.append(
                HostInfo(
                    info.name, info.type if declared else self.plan.types.get(info.name, info.type)
                )
            )
        return infos

    @property
    def has_host_ports(self) -> bool:
        """Whether an input or output is no tensor of numbers."""
        return not all(is_numeric(info.proto) for info in (*self.inputs, *self.outputs))

    def check(self) -> None:
        """Raises an error that lists everything that is wrong whatever the shapes are."""
        raise_all([*self._port_errors(), *self._errors(self.plan)])

    def _port_errors(self) -> Iterator[UserError]:
        for info in (*self.inputs, *self.outputs):
            try:
                for elem_type in element_types(info.proto):
                    dtype_of(elem_type)
            except UserError as error:
                yield located(error, Loc(self.file), f"'{info.name}': ")

    def _errors(self, plan: HostPlan) -> Iterator[UserError]:
        for step in plan.steps:
            if isinstance(step, Segment):
                try:
                    OnnxModel(step.source).check()
                except UserError as error:
                    yield error
                continue
            yield from self._problems(step, plan)
            wrong = [[*self._errors(inner)] for inner in step.bodies.values()]
            if step.node.op_type == "If" and not all(wrong):
                continue  # the other branch can be taken
            for errors in wrong:
                yield from errors

    def loc(self, step: HostStep) -> Loc:
        """Where a node is."""
        return place_of(step.node, step.place, self.file, step.within)

    def _problems(self, step: HostStep, plan: HostPlan) -> Iterator[UserError]:
        node, loc = step.node, self.loc(step)
        if not is_computed(domain_of(node.domain), node.op_type, step.opset):
            yield UnsupportedError(
                f"{node.op_type} (opset {step.opset}) of strings, sequences, optionals or maps is not supported",
                loc=loc,
                verdict=_verdict(node, step.opset, plan),
            )
            return
        schema = schema_of(node, step.opset)
        attribute_names = (
            {a.name for a in node.attribute} if schema is None else set(schema.attributes)
        )
        for attribute in node.attribute:
            if attribute.name not in attribute_names:
                message = f"{node.op_type}: attribute '{attribute.name}' is not supported"
                yield UnsupportedError(message, loc=loc, verdict=_verdict(node, step.opset, plan))
        try:
            check_operands(node, step.opset, plan.types)
        except UserError as error:
            yield located(error, loc, f"{node.op_type}: ")
