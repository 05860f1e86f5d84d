"""Everything that is wrong with a model, and as much of its graph as can be built all the same.

`load` ends where a later stage could not go on. `survey` goes on without the part that is wrong: a node that cannot be
imported is left out, and so is what depends on it, and whatever else is wrong is found as well.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import onnx

from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Shape, Type
from glowpy.graph.function import Function, Module
from glowpy.importer.onnx.model import OnnxModel, build_known, located
from glowpy.importer.onnx.narrow import NARROW
from glowpy.importer.onnx.signature import ValueInfo, bind, computed_dims
from glowpy.importer.onnx.source import read_source
from glowpy.importer.onnx.tensor import kind_of
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, ceil_div

__all__ = ["SurveyedModel", "read_with_problems"]

_ASSUMED = 1
"""What a dimension is taken to be that nobody gives a size."""


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
        """How many elements are stored in the model: its initializers and constants."""
        counts: list[int] = [math.prod(p.dims) for p in _tensors(self.model.source.proto.graph)]
        return sum(counts)

    @property
    def weight_bytes(self) -> int:
        """How many bytes these take; none for those of an element type that is not known."""
        return sum(map(_bytes, _tensors(self.model.source.proto.graph)))

    def assumed(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> dict[str, Dim]:
        """The symbolic dimensions that neither say, and what they are taken to be."""
        bound = _bound(self.inputs, shapes) | dict(dims)
        symbols = [d for info in self.inputs for d in info.shape or () if isinstance(d, str)]
        unbound = [name for name in dict.fromkeys(symbols) if name not in bound]
        plain: dict[str, Dim] = {name: _ASSUMED for name in unbound if name.isidentifier()}
        computed = computed_dims(unbound, bound | plain)
        return {name: _ASSUMED for name in unbound if name in plain or name not in computed}

    def build(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]
    ) -> tuple[Module | None, list[Diagnostic]]:
        """As much of the module as there can be, with dimensions that are not given assumed, and all that is wrong.

        What nothing reads, because a node that would is missing, is an output.
        """
        noted = self.model.noted = list(self.noted)
        assumed = self.assumed(shapes, dims)
        try:
            module = build_known(self.model, self._types(shapes, {**dims, **assumed}))
        except UserError as error:
            self.model.note([error])
            return None, _listed(noted, assumed)
        if noted:
            _save_all(module.main)
        return module, _listed(noted, assumed)

    def _types(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> dict[str, Type]:
        """The types of all inputs but those without a shape, which are noted."""
        ranked = [info for info in self.inputs if info.shape is not None or info.name in shapes]
        for info in self.inputs:
            if info not in ranked:
                try:
                    bind([info], {}, {})
                except UserError as error:
                    self.model.note([located(error, Loc(self.model.file))])
        sizes = _bound(self.inputs, shapes) | dict(dims)
        unnamed = {
            info.name: tuple(
                sizes.get(d, _ASSUMED) if isinstance(d, str) else _ASSUMED if d is None else d
                for d in info.shape
            )
            for info in ranked
            if info.shape is not None and None in info.shape and info.name not in shapes
        }
        try:
            types = bind(ranked, {**unnamed, **shapes}, dims)
        except UserError as error:
            raise located(error, Loc(self.model.file)) from None
        return dict(zip((info.name for info in ranked), types, strict=True))


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

    Raises LoadError for what is no model, and UserError for one that cannot be read any further: its nodes form a
    cycle, or read what nothing computes.
    """
    noted: list[UserError] = []
    try:
        read = OnnxModel(read_source(model, noted), noted)
        read.check()
    except UserError as error:
        if noted:
            raise UserError.of(_listed([*noted, error], {})) from error
        raise
    return SurveyedModel(read, noted)


def _listed(noted: list[UserError], assumed: Mapping[str, Dim]) -> list[Diagnostic]:
    """All diagnostics, once each; those without a remedy, where sizes are assumed, with the advice to give them."""
    options = " ".join(f"--shape {name}={size}" for name, size in assumed.items())
    listed: dict[Diagnostic, None] = {}
    for error in noted:
        for diagnostic in error.diagnostics:
            note = diagnostic.note
            if options and not note and _is_about_shapes(error):
                note = f"this is for {options}; give the sizes that the model is meant for"
            listed[replace(diagnostic, note=note)] = None
    return list(listed)


def _is_about_shapes(error: UserError) -> bool:
    return type(error) is UserError


def _save_all(f: Function) -> None:
    """Makes an output of every result that nothing reads."""
    for node in list(f.nodes):
        for result in node.results:
            if not result.num_users:
                output = f.module.create_placeholder(f"{node.name}_unread", result.type)
                f.create_save(f"save_{node.name}", result, output, loc=node.loc)


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for sparse in graph.sparse_initializer:
        yield sparse.values
    for node in graph.node:
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
