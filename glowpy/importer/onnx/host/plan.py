"""From a graph that is split to the plan that a session has: nodes, attributes and types as plain data."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import onnx
from onnx import AttributeProto

from glowpy.core.elemkind import ElemKind
from glowpy.importer.elements import kind_named
from glowpy.importer.host_plan import Attribute, HostPlan, HostStep, Segment
from glowpy.importer.model import Model
from glowpy.importer.onnx.host.operators import refusal
from glowpy.importer.onnx.host.steps import HostNode, SplitGraph
from glowpy.importer.onnx.host.types import element_word, value_type
from glowpy.importer.onnx.order import place_of
from glowpy.importer.onnx.source import Source, domain_of
from glowpy.importer.onnx.string_tensors import decoded
from glowpy.importer.reports import located, raise_all
from glowpy.importer.value_types import TensorType, ValueType
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc

__all__ = ["OnnxSegment", "Opening", "location", "planned"]


Opening: TypeAlias = Callable[[Source], Model]
"""Makes a checked model of a part. Raises UserError that lists what is wrong with it."""


@dataclass(frozen=True)
class OnnxSegment(Segment):
    """Nodes that are compiled together, whose model is in ONNX."""

    source: Source
    opening: Opening

    def model(self) -> Model:
        """Opens the model, checked. Raises UserError that lists what is wrong with it."""
        return self.opening(self.source)


def planned(source: Source, graph: SplitGraph, opening: Opening) -> HostPlan:
    """The plan of a graph, whose parts are opened so. Raises UserError that lists the nodes that are wrong.

    One in a branch whose other branch is sound is wrong when it runs.
    """
    plan, errors = _Planning(source, opening).plan(graph)
    raise_all(errors)
    return plan


def location(source: Source, step: HostNode) -> Loc:
    """Where a node is."""
    return place_of(step.node, step.place, source.file, step.within)


@dataclass(frozen=True)
class _Planning:
    source: Source
    opening: Opening

    def plan(self, graph: SplitGraph) -> tuple[HostPlan, list[UserError]]:
        """The plan of the graph of the model, or of a node, and what is wrong with its nodes."""
        types = {name: value_type(type) for name, type in graph.types.items()}
        steps: list[Segment | HostStep] = []
        errors: list[UserError] = []
        for step in graph.steps:
            if isinstance(step, HostNode):
                planned_step, wrong = self._step(step, types)
                steps.append(planned_step)
                errors += wrong
            else:
                ports = step.inputs, step.outputs, step.strings
                steps.append(OnnxSegment(*ports, step.source, self.opening))
        plan = HostPlan(
            graph.inputs,
            graph.outputs,
            tuple(types.get(name) for name in graph.inputs),
            tuple(types.get(name) for name in graph.outputs),
            graph.outer,
            graph.constants,
            tuple(steps),
            _kinds(types),
        )
        return plan, errors

    def _step(
        self, step: HostNode, types: Mapping[str, ValueType | None]
    ) -> tuple[HostStep, list[UserError]]:
        node, loc = step.node, location(self.source, step)
        attributes: dict[str, Attribute] = {}
        problem: UserError | None = refusal(domain_of(node.domain), node.op_type, step.opset)
        try:
            attributes = self._attributes(node)
        except UserError as error:
            problem = located(error, loc, f"{node.op_type}: ")
        bodies, errors = {}, []
        for name, body in step.bodies.items():
            bodies[name], wrong = self.plan(body)
            errors.append(wrong)
        problems = [] if problem is None else [located(problem, loc)]
        if node.op_type != "If" or all(errors):  # else the other branch can be taken
            problems += [error for wrong in errors for error in wrong]
        inputs, outputs = tuple(node.input), tuple(node.output)
        input_types = tuple(types.get(name) for name in inputs)
        planned_step = HostStep(
            node.op_type, attributes, inputs, outputs, input_types, bodies, loc, problem
        )
        return planned_step, problems

    def _attributes(self, node: onnx.NodeProto) -> dict[str, Attribute]:
        """The attributes of a node but its graphs, and those that no rule reads."""
        attributes: dict[str, Attribute] = {}
        for attribute in node.attribute:
            value = self._value(attribute)
            if value is not None:
                attributes[attribute.name] = value
        if node.op_type == "Cast" and isinstance(to := attributes.get("to"), int):
            attributes["to"] = element_word(to)
        return attributes

    def _value(self, attribute: AttributeProto) -> Attribute | None:
        match attribute.type:
            case AttributeProto.INT:
                return attribute.i
            case AttributeProto.INTS:
                return tuple(attribute.ints)
            case AttributeProto.FLOAT:
                return attribute.f
            case AttributeProto.FLOATS:
                return tuple(attribute.floats)
            case AttributeProto.STRING:
                return attribute.s.decode("utf-8", "replace")
            case AttributeProto.STRINGS:
                return tuple(text.decode("utf-8", "replace") for text in attribute.strings)
            case AttributeProto.TENSOR:
                return decoded(attribute.name, attribute.t, self.source.stores)
            case _:
                return None


def _kinds(types: Mapping[str, ValueType | None]) -> frozenset[ElemKind]:
    """The kinds of numbers among values."""
    elements = {type.element for type in types.values() if isinstance(type, TensorType)}
    return frozenset(kind for element in elements if (kind := _kind(element)) is not None)


def _kind(element: str) -> ElemKind | None:
    try:
        return kind_named(element)
    except UnsupportedError:
        return None
