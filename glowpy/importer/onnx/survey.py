"""Everything that is wrong with a model, and as much of its graph as can be built all the same.

`load` ends where a later stage could not go on. `survey` goes on without the part that is wrong: a node that cannot be
imported is left out, and so is what depends on it, and whatever else is wrong is found as well.
"""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function, Module
from glowpy.importer.onnx.model import OnnxModel, build_known, located
from glowpy.importer.onnx.narrow import NARROW
from glowpy.importer.onnx.order import subgraphs
from glowpy.importer.onnx.signature import ValueInfo, bind, computed_dims
from glowpy.importer.onnx.source import read_source
from glowpy.importer.onnx.tensor import kind_of
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, ceil_div

__all__ = ["SurveyedModel", "read_with_problems"]

_ASSUMED = 1
"""What a dimension is taken to be that nobody gives a size."""

_OTHER = 2
"""Another size: what is just as wrong with it has nothing to do with what is assumed."""


@dataclass
class SurveyedModel:
    """A model that may be wrong, and what is wrong with it whatever the shapes are.

    Attributes:
        model: What could be read.
        noted: What could not, and why.
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
        named = dict.fromkeys(self._unbound(shapes, dims), _ASSUMED)
        unnamed = {
            f"{info.name}[{axis}]": _ASSUMED
            for info in self._unnamed(shapes)
            for axis, dim in enumerate(info.shape or ())
            if dim is None
        }
        return {**named, **unnamed}

    def _unbound(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> list[str]:
        """The symbolic dimensions that neither say, and that follow from no others."""
        if self.model.source.is_dump:
            return []
        bound = _bound(self.inputs, shapes) | dict(dims)
        symbols = [d for info in self.inputs for d in info.shape or () if isinstance(d, str)]
        unbound = [name for name in dict.fromkeys(symbols) if name not in bound]
        plain: dict[str, Dim] = {name: _ASSUMED for name in unbound if name.isidentifier()}
        computed = computed_dims(unbound, bound | plain)
        return [name for name in unbound if name in plain or name not in computed]

    def _unnamed(self, shapes: Mapping[str, Shape]) -> list[ValueInfo]:
        """The inputs with dimensions that have neither a size nor a name, and whose shapes are not given."""
        return [
            info for info in self.inputs if None in (info.shape or ()) and info.name not in shapes
        ]

    def build(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]
    ) -> tuple[Module | None, list[Diagnostic]]:
        """As much of the module as there can be, with dimensions that are not given assumed, and all that is wrong.

        What nothing reads, because a node that would is missing, is an output.
        """
        module, problems = self._build(shapes, dims, _ASSUMED)
        if problems and self.assumed(shapes, dims):
            also = self._build(shapes, dims, _OTHER)[1]
            note = f"this is for {self._options(shapes, dims)}; give the sizes that the model is meant for"
            problems = {
                problem if problem.note or problem in also else replace(problem, note=note): None
                for problem in problems
            }
        if module is not None and problems:
            _save_all(module.main)
        return module, list(problems)

    def _build(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim], size: int
    ) -> tuple[Module | None, dict[Diagnostic, None]]:
        """The module if what nobody gives a size has this one, and what is wrong, each once."""
        noted = self.model.noted = list(self.noted)
        module = None
        try:
            module = build_known(self.model, self._types(shapes, dims, size))
        except UserError as error:
            noted.append(error)
        return module, _diagnostics(noted)

    def _types(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim], size: int
    ) -> dict[str, Type]:
        """The types of all inputs but those without a shape, which are noted."""
        ranked = [info for info in self.inputs if info.shape is not None or info.name in shapes]
        for info in self.inputs:
            if info not in ranked:
                try:
                    bind([info], {}, {})
                except UserError as error:
                    self.model.note([located(error, Loc(self.model.file))])
        known = {**dims, **dict.fromkeys(self._unbound(shapes, dims), size)}
        whole = {**self._whole(shapes, known, size), **shapes}
        try:
            types = bind(ranked, whole, known)
        except UserError as error:
            raise located(error, Loc(self.model.file)) from None
        return dict(zip((info.name for info in ranked), types, strict=True))

    def _whole(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim], size: int
    ) -> dict[str, Shape]:
        """The shapes of inputs with dimensions that have no name."""
        sizes = _bound(self.inputs, shapes) | dict(dims)
        return {
            info.name: tuple(
                dim if isinstance(dim, int) else sizes.get(dim, size) if dim else size
                for dim in info.shape or ()
            )
            for info in self._unnamed(shapes)
        }

    def _options(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> str:
        """What is assumed, as it would be typed."""
        named = self._unbound(shapes, dims)
        texts = [f"{name}={_ASSUMED}" for name in named]
        whole = self._whole(shapes, {**dims, **dict.fromkeys(named, _ASSUMED)}, _ASSUMED)
        texts += [f"{name}:{'x'.join(map(str, shape))}" for name, shape in whole.items()]
        return " ".join(shlex.join(["--shape", text]) for text in texts)


def _bound(infos: Sequence[ValueInfo], shapes: Mapping[str, Shape]) -> dict[str, Dim]:
    """The symbolic dimensions that whole shapes say."""
    return {
        dim: size
        for info in infos
        for dim, size in zip(info.shape or (), shapes.get(info.name, ()), strict=False)
        if isinstance(dim, str)
    }


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
    """What is stored in a graph and in those of its nodes."""
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
