"""Everything that is wrong with a model, and as much of its graph as can be built all the same.

`load` ends where a later stage could not go on. `survey` goes on without the part that is wrong: a node that cannot be
imported is left out, and so is what depends on it, and whatever else is wrong is found as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function, Module
from glowpy.importer.declared import ValueInfo, bind
from glowpy.importer.elements import NARROW, kind_of
from glowpy.importer.onnx.model import OnnxModel, build_known
from glowpy.importer.onnx.order import subgraphs
from glowpy.importer.onnx.source import read_source
from glowpy.importer.open_dimensions import ASSUMED, Unsaid
from glowpy.importer.reports import located
from glowpy.importer.survey import Survey
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, ceil_div

__all__ = ["SurveyedModel", "read_with_problems"]

_OTHER = 2
"""Another size: what is just as wrong with it has nothing to do with what is assumed."""


@dataclass
class SurveyedModel(Survey):
    """A model that may be wrong, and what is wrong with it whatever the shapes are.

    Attributes:
        model: The model, as far as it could be read.
        noted: The errors of parts that could not be read.
    """

    model: OnnxModel
    noted: list[UserError]

    @property
    def inputs(self) -> list[ValueInfo]:
        """The inputs that are of supported types."""
        return self.model.inputs

    @property
    def num_parameters(self) -> int:
        """How many elements are stored in the model: its initializers and constants, in graphs of nodes, too."""
        counts: list[int] = [math.prod(p.dims) for p in _tensors(self.model.source.proto.graph)]
        return sum(counts)

    @property
    def weight_bytes(self) -> int:
        """How many bytes these take; none for those of an element type that is not known."""
        return sum(map(_bytes, _tensors(self.model.source.proto.graph)))

    def assumed(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> dict[str, Dim]:
        """The dimensions that neither say, and what they are taken to be: `N`, or `x[0]` if the model has no name.

        A dump has no shapes but its own.
        """
        return self._unsaid(shapes, dims).summary

    def _unsaid(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> Unsaid:
        return Unsaid([] if self.model.source.is_dump else self.inputs, shapes, dims)

    def build(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim], values: Mapping[str, Array]
    ) -> tuple[Module | None, list[Diagnostic]]:
        """As much of the module as there can be, with dimensions that are not given assumed, and all that is wrong.

        What nothing reads, because a node that would is missing, is an output.
        """
        self.model = self.model.resized(shapes)
        unsaid = self._unsaid(shapes, dims)
        module, problems = self._build(unsaid, ASSUMED, values)
        if problems and unsaid.summary:
            also = self._build(unsaid, _OTHER, values)[1]
            note = f"this is for {unsaid.options}; give the sizes that the model is meant for"
            problems = {
                problem if problem.note or problem in also else replace(problem, note=note): None
                for problem in problems
            }
        if module is not None and problems:
            _save_all(module.main)
        return module, list(problems)

    def _build(
        self, unsaid: Unsaid, size: int, values: Mapping[str, Array]
    ) -> tuple[Module | None, dict[Diagnostic, None]]:
        """The module if what nobody gives a size has this one, and what is wrong, each once."""
        noted = self.model.noted = list(self.noted)
        module = None
        try:
            module = build_known(self.model, self._types(unsaid, size), values)
        except UserError as error:
            noted.append(error)
        return module, _diagnostics(noted)

    def _types(self, unsaid: Unsaid, size: int) -> dict[str, Type]:
        """The types of all inputs but those without a shape, which are noted."""
        ranked = [
            info for info in self.inputs if info.shape is not None or info.name in unsaid.shapes
        ]
        for info in self.inputs:
            if info not in ranked:
                try:
                    bind([info], {}, {})
                except UserError as error:
                    self.model.note([located(error, Loc(self.model.file))])
        shapes, sizes = unsaid.said(size)
        try:
            types = bind(ranked, shapes, sizes)
        except UserError as error:
            raise located(error, Loc(self.model.file)) from None
        return dict(zip((info.name for info in ranked), types, strict=True))


def read_with_problems(model: str | Path | bytes | onnx.ModelProto) -> SurveyedModel:
    """Reads a model, and notes what is wrong with it whatever the shapes are.

    Raises LoadError for what is no model, and UserError for one that cannot be read any further, as of a cycle.
    """
    noted: list[UserError] = []
    try:
        read = OnnxModel(read_source(model, noted), noted)
        read.check()
    except UserError as error:
        if noted:
            raise UserError.of(_diagnostics([*noted, error])) from error
        raise
    return SurveyedModel(read, noted)


def _diagnostics(errors: Iterable[UserError]) -> dict[Diagnostic, None]:
    """All that errors say, each once."""
    return dict.fromkeys(diagnostic for error in errors for diagnostic in error.diagnostics)


def _save_all(f: Function) -> None:
    """Makes an output of every result that nothing reads."""
    for node in list(f.nodes):
        for result in node.results:
            if not result.num_users:
                output = f.module.create_placeholder(f"{node.name}_unread", result.type)
                f.create_save(f"save_{node.name}", result, output, loc=node.loc)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """Yields the tensors stored in a graph and in those of its nodes."""
    work = [graph]
    while work:
        graph = work.pop()
        yield from graph.initializer
        for sparse in graph.sparse_initializer:
            yield sparse.values
        for node in graph.node:
            work += subgraphs(node)
            for attribute in node.attribute if node.op_type == "Constant" else ():
                if attribute.type == onnx.AttributeProto.TENSOR:
                    yield attribute.t


def _bytes(proto: onnx.TensorProto) -> int:
    count: int = math.prod(proto.dims)
    if proto.data_type in NARROW:
        return ceil_div(count * NARROW[proto.data_type].bits, 8)
    try:
        kind: ElemKind = kind_of(proto.data_type)
    except UserError:
        return 0
    return count * kind.size
