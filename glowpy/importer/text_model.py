"""Text of glowpy's own as formats of models: graphs, as `glowpy dump` prints them, and what is no model of it."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np

from glowpy.core.array_file import named
from glowpy.core.state_pairs import StatePairs
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Shape, Type
from glowpy.engine import known_nodes
from glowpy.graph.function import Function, Module
from glowpy.graph.node import Node, Storage
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.state import keep_others, release_state
from glowpy.importer.declared import DeclaredDim, ValueInfo, check_shapes
from glowpy.importer.foreign import foreign_file
from glowpy.importer.format import Format, Unopened
from glowpy.importer.model import Model
from glowpy.importer.reports import located
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim

__all__ = ["GraphText", "InstructionText", "TextModel"]

_BLOB = re.compile(r"\"sha256:([0-9a-f]{64})\"")


class TextModel(Model):
    """The text of a module, whose shapes, variables and functions are written in it.

    Raises UserError with line, column and caret for text that is none.
    """

    def __init__(
        self,
        text: str,
        file: str,
        constants: Mapping[str, Array] | None = None,
        nodes: tuple[type[Node], ...] = (),
    ) -> None:
        self._text, self._file = text, file
        self._constants = constants or {}
        self._nodes = tuple(dict.fromkeys([*known_nodes(), *nodes]))
        self._spare = [self._parse()]  # for the first who builds

    def _parse(self) -> Module:
        return parse_module(self._text, self._file, extra=self._nodes, blobs=self._constants)

    def _taken(self) -> Module:
        """A module that nobody else has."""
        try:
            return self._spare.pop()
        except IndexError:
            return self._parse()

    @property
    def is_dump(self) -> bool:
        """True: it has no shapes but its own."""
        return True

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return Path(self._file).name

    @cached_property
    def digest(self) -> str:
        """A name that is the same for equal text, with the elements that it shows the digest of or without."""
        text = f"{bool(self._constants)}\n{print_module(self._parse())}"
        return hashlib.sha256(text.encode()).hexdigest()

    @cached_property
    def _ports(self) -> tuple[list[ValueInfo], list[ValueInfo], StatePairs]:
        """The inputs and outputs, those that stand for variables among them, and which do."""
        main = _only_function(self._parse())
        pairs = release_state(main)
        return [*map(_info, main.parameters)], [*map(_info, main.outputs)], pairs

    @property
    def inputs(self) -> list[ValueInfo]:
        """The inputs of its function. Raises UserError if it has several."""
        return self._ports[0]

    @property
    def outputs(self) -> list[ValueInfo]:
        """The outputs of its function."""
        return self._ports[1]

    @property
    def kept(self) -> StatePairs:
        """The variables of its function, as inputs and outputs."""
        return self._ports[2]

    def module(
        self, types: Sequence[Type], values: Mapping[str, Array], supposed: Mapping[str, Dim]
    ) -> Module:
        """The module. Raises UserError for types that are not those of the text."""
        del values, supposed
        pairs = zip(self.inputs, types, strict=True)
        return self.build(shapes={info.name: type.shape for info, type in pairs})

    def build(
        self,
        *,
        shapes: Mapping[str, Shape] | None = None,
        dims: Mapping[str, Dim] | None = None,
        values: Mapping[str, Array] | None = None,
        state: StatePairs | None = None,
        supposed: Mapping[str, Dim] | None = None,
    ) -> Module:
        """The module, with all its functions; with pairs of inputs and outputs that are state in place of its own.

        Variables of its own among these begin as the text says. Raises UserError for other shapes than the text has.
        """
        del supposed
        for what, given in (("shapes", shapes), ("dims", dims), ("values", values)):
            self._refuse(what, given)
        module = self._taken()
        if state is not None:
            self.check_state(state)
            if state != self.kept:
                keep_others(_only_function(module), state)
        return module

    def resized(self, shapes: Mapping[str, Sequence[Dim | DeclaredDim]]) -> TextModel:
        """The same. Raises UserError for other shapes than the text has."""
        if shapes:  # a text of several functions has no inputs
            try:
                check_shapes(self.inputs, shapes)
            except UserError as error:
                raise located(error, Loc(self.file)) from None
            self._refuse("shapes", shapes)
        return self

    def _refuse(self, what: str, given: Mapping[str, Any] | None) -> None:
        if not given:
            return
        fits = what == "shapes" and all(
            info.name not in given or tuple(given[info.name]) == tuple(info.shape or ())
            for info in self.inputs
        )
        if not fits:
            raise UserError(
                "the shapes of a graph as text are written in it",
                loc=Loc(self._file),
                note=f"leave out the {what}",
            )


def _only_function(module: Module) -> Function:
    networks = module.networks
    if len(networks) != 1:
        names = ", ".join(f.name for f in networks)
        raise UserError(
            f"the model has {len(networks)} functions: {names}", note="choose with --function"
        )
    return networks[0]


def _info(port: Storage) -> ValueInfo:
    dims = [dim if isinstance(dim, int) else str(dim) for dim in port.type.shape]
    return ValueInfo(port.original, port.type.kind, [*dims])


class GraphText(Format):
    """Text of graphs, in files that end in .glow."""

    name = "the text of a graph"
    suffixes = (".glow",)

    def begins(self, start: bytes) -> bool:
        """Whether files begin so."""
        return _text(start).startswith((b"module {", b"function @"))

    def open(self, unopened: Unopened) -> TextModel:
        """Reads the text, with the constants that are given, or in the .npz file beside it."""
        model = unopened.model
        if isinstance(model, bytes):
            text, file = _decoded(model, "model"), "model"
            beside = None
        else:
            assert isinstance(model, Path)  # all else is no text
            text, file = _read(model), str(model)
            beside = model.with_suffix(".npz")
        constants = unopened.constants
        if constants is None and beside is not None:
            constants = _constants(beside, _BLOB.findall(text))
        return TextModel(text, file, constants, unopened.nodes)


class InstructionText(Format):
    """Text of IR functions, in files that end in .ir: no models, which verbs read that work on instructions."""

    name = "the text of an IR function"
    suffixes = (".ir",)

    def begins(self, start: bytes) -> bool:
        """Whether files begin so."""
        return _text(start).startswith(b"irfunction @")

    def open(self, unopened: Unopened) -> Model:
        """Raises LoadError: nothing here is a model."""
        model = unopened.model
        place = "model" if isinstance(model, bytes) else str(model)
        raise LoadError(
            f"expected a model, got {self.name} of glowpy",
            loc=Loc(place),
            note="glowpy run and glowpy opt read it",
        )


def _text(start: bytes) -> bytes:
    return start.removeprefix(b"\xef\xbb\xbf").lstrip()


def _read(path: Path) -> str:
    """The text of a file. Raises LoadError."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise LoadError(
            f"cannot read the file: {error.strerror}", loc=Loc(str(path)), note="check the path"
        ) from None
    return _decoded(content, str(path))


def _decoded(content: bytes, file: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        format = foreign_file(content, file)
        got = f", got {format.what}" if format is not None else ""
        raise LoadError(
            f"expected text in UTF-8{got}", loc=Loc(file), note="an ONNX model ends in .onnx"
        ) from None


def _constants(path: Path, digests: Sequence[str]) -> dict[str, Array]:
    """The constants of these digests in a .npz file; those that it does not have, or has changed, are left out."""
    constants: dict[str, Array] = {}
    with suppress(OSError, ValueError, BadZipFile), path.open("rb") as file:
        content = np.load(file, allow_pickle=False)
        stored = set() if isinstance(content, np.ndarray) else {*content}
        for digest in stored & {*digests}:
            array = named(content[digest])
            if Tensor.of(array).digest() == digest:
                constants[digest] = array
    return constants
