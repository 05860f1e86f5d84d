"""The reader: a text with one layer in a line, `dense 3 0.5`, `relu` or `first 2`.

The first line says `layers 1`, the second what goes in, such as `input x batch 4`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.importer import Model, Reader
from glowpy.importer.declared import ValueInfo
from glowpy.importer.kit.importing import Importing, Scope
from glowpy.importer.kit.moves import slice_axis
from glowpy.importer.kit.values import Value
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, static

__all__ = ["READER", "LayersModel"]


class LayersModel(Model):
    """A list of layers, each with the line that it is in."""

    def __init__(self, path: Path) -> None:
        self._file = path.name
        self._text = path.read_text()
        head, first, *rest = [line.split() for line in self._text.splitlines()] + [[], []]
        if head != ["layers", "1"] or first[:1] != ["input"] or len(first) < 3:
            raise LoadError("expected 'layers 1', then 'input NAME SIZE...'", loc=Loc(path.name))
        self._input = first[1:]
        self._layers = [(line, words) for line, words in enumerate(rest, 3) if words]

    @property
    def file(self) -> str:
        """The name of the file."""
        return self._file

    @property
    def digest(self) -> str:
        """The digest of the text."""
        return f"layers {hashlib.sha256(self._text.encode()).hexdigest()}"

    @cached_property
    def inputs(self) -> list[ValueInfo]:
        """The only input."""
        name, *sizes = self._input
        dims: list[int | str | None] = [int(size) if size.isdigit() else size for size in sizes]
        return [ValueInfo(name, ElemKind.F32, dims)]

    @cached_property
    def outputs(self) -> list[ValueInfo]:
        """The only output, whose shape only an import knows."""
        return [ValueInfo("y", ElemKind.F32, None)]

    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """Imports one layer after the other."""
        module = Module()
        scope = Scope(module.create_function("main"))
        (info,) = self.inputs
        value: Value = module.create_placeholder(info.name, types[0]).value
        if info.name in values:
            value = Tensor(types[0], values[info.name])
        for line, (kind, *words) in self._layers:
            n = Importing(f"{kind}{line}", Loc(self._file, line), scope)
            with scope.f.at(n.loc):
                value = _layer(n, kind, words, value)
        output = module.create_placeholder("y", value.type)
        scope.f.create_save("save_y", scope.materialize(value, "y"), output)
        return module


def _layer(n: Importing, kind: str, words: list[str], value: Value) -> Value:
    match kind:
        case "dense":
            (rows,) = static(value.type.shape[-1:])
            weights = np.full((rows, int(words[0])), float(words[1]), np.float32)
            return n.f.create_mat_mul(
                n.name, n.operand(value), n.operand(Tensor.of(weights))
            ).result
        case "relu":
            return n.f.create_relu(n.name, n.operand(value)).result
        case "first":
            return slice_axis(n, value, value.type.rank - 1, 0, int(words[0]), 1)
        case _:
            raise UserError(f"expected dense, relu or first, got '{kind}'", loc=n.loc)


READER = Reader("layers", LayersModel, starts=(b"layers ",), suffixes=(".layers",))
