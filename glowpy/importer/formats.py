"""Formats of models, and `open_model`, which opens one of any format: for sessions, `glowpy.load` and all verbs.

glowpy has ONNX and the text of its own graphs. A package that brings another one names its reader in its metadata, by
an entry point of the group `glowpy.readers`:

```toml
[project.entry-points."glowpy.readers"]
layers = "glowpy_layers.reader:READER"
```

What a file begins with tells its format, and where that tells nothing, how its name ends. For either glowpy's own
formats are asked first, in their order here, and then those of packages, in the order of their names. Packages are
only asked about a file that does not begin as one of glowpy's own, and nothing of one is imported before a file has to
be read. What nobody knows is opened as ONNX, whose errors say what it looks like: see `foreign`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any

from glowpy.core.state_pairs import StatePairs
from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.graph.function import Module
from glowpy.graph.node import Node
from glowpy.importer.format import Format, Unopened
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.needs import ValueNeededError
from glowpy.importer.onnx.format import OnnxFormat
from glowpy.importer.reports import blamed
from glowpy.importer.storage import InFile
from glowpy.importer.survey import Survey
from glowpy.importer.text_model import GraphText, InstructionText
from glowpy.support.errors import UserError, expect_type
from glowpy.support.limits import within_limits
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = [
    "GROUP",
    "Reader",
    "format_of",
    "is_onnx",
    "load",
    "open_model",
    "open_whole",
    "reader_packages",
    "survey_model",
]

GROUP = "glowpy.readers"
"""The group of entry points."""

_ONNX = OnnxFormat()
_OWN: tuple[Format, ...] = (_ONNX, GraphText(), InstructionText())
_LONGEST_START = 64


@dataclass(frozen=True)
class Reader(Format):
    """A reader of another package: what files of its format are called, how they begin and end, and what reads one.

    Attributes:
        name: The name of the format in messages.
        read: Reads and checks a file. Raises LoadError for one that is damaged.
        starts: What files begin with, if anything tells them: at most 64 bytes.
        suffixes: How names of files end, such as `.layers`.
        origin: The entry point and the package that it is from, in the words of messages; empty if it is not installed.
    """

    name: str
    read: Callable[[Path], Model | HostedModel]
    starts: tuple[bytes, ...] = ()
    suffixes: tuple[str, ...] = ()
    origin: str = ""

    def begins(self, start: bytes) -> bool:
        """Whether files begin so."""
        return start.startswith(self.starts)

    def open(self, unopened: Unopened) -> Model | HostedModel:
        """Reads and checks a file. Raises UserError that names the package for an error that is the reader's own."""
        path = unopened.model
        assert isinstance(path, Path)  # what has the format of a package is a file
        with blamed(self.origin, Loc(path.name)):
            opened: object = self.read(path)
            if not isinstance(opened, Model | HostedModel):
                raise UserError(f"{self.origin or self.name}: expected a Model, got {opened!r}")
            opened.inputs, opened.outputs  # noqa: B018 - what is wrong with them is the reader's to say as well
        if isinstance(opened, Model):
            opened.reader = self.origin
        return opened


def format_of(model: object) -> Format:
    """The format of a model: ONNX for all that is no path or bytes, and for what no format knows.

    Raises UserError that names a package whose reader cannot be loaded.
    """
    if isinstance(model, bytes):
        begun = model[:_LONGEST_START]
        return next((format for format in _OWN if format.begins(begun)), _ONNX)
    if not isinstance(model, str | os.PathLike):
        return _ONNX
    suffix = Path(model).suffix
    own = next((format for format in _OWN if suffix in format.suffixes), None)
    start = _start(Path(model))
    if start is None:
        return own or _ONNX
    by_own_start = next((format for format in _OWN if format.begins(start)), None)
    if by_own_start is not None:
        return by_own_start
    readers = [_loaded(entry) for entry in _entries()]
    by_start = next((reader for reader in readers if reader.begins(start)), None)
    by_suffix = (reader for reader in readers if suffix in reader.suffixes)
    return by_start or own or next(by_suffix, _ONNX)


def is_onnx(path: str | Path) -> bool:
    """Whether a file is one of ONNX, which other runtimes read as well."""
    return format_of(path) is _ONNX and Path(path).is_file()


def _named(model: Any) -> Any:
    """A path as `Path`, whatever stands for it, and all else as it is."""
    return Path(model) if isinstance(model, str | os.PathLike) else model


def _start(path: Path) -> bytes | None:
    """The first bytes of a file; None if it cannot be read, and of a pipe, which can be read only once."""
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            return file.read(_LONGEST_START)
    except (OSError, ValueError):
        return None


@cache
def _entries() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)))


@cache
def _loaded(entry: EntryPoint) -> Reader:
    where = f"the reader '{entry.name}' of the package {_package(entry)}"
    try:
        reader: object = entry.load()
    except Exception as error:  # whatever it is, it is the package's
        raise UserError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}",
            note="update or uninstall the package",
        ) from error
    if not isinstance(reader, Reader):
        raise UserError(f"{where}: expected a Reader of glowpy.importer, got {reader!r}")
    return replace(reader, origin=where)


def _package(entry: EntryPoint) -> str:
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module


def reader_packages() -> dict[str, str]:
    """Returns the package of every reader of an installed one, or what is wrong with it: `failed: ...`."""
    packages = {}
    for entry in _entries():
        try:
            _loaded(entry)
            packages[entry.name] = _package(entry)
        except UserError as error:
            packages[entry.name] = f"failed: {error.diagnostics[0].message}"
    return packages


@within_limits
def open_model(
    model: str | Path | bytes | ModelProto,
    *,
    files: Mapping[Path, InFile] | None = None,
    constants: Mapping[str, Array] | None = None,
    nodes: tuple[type[Node], ...] = (),
) -> Model | HostedModel:
    """Reads and checks a model of any format, for a session, which may have to compute a part of it itself.

    Args:
        model: A path, the bytes of a file, or a parsed model.
        files: Files that are open already.
        constants: The elements of constants that text shows only the digest of; by default those in the .npz file of
            the same name.
        nodes: Operators that text may name beside those of glowpy and of installed packages.

    Raises what `load` raises.
    """
    return format_of(model).open(Unopened(_named(model), files or {}, constants, nodes))


@within_limits
def open_whole(
    model: str | Path | bytes | ModelProto,
    *,
    constants: Mapping[str, Array] | None = None,
    nodes: tuple[type[Node], ...] = (),
) -> Model:
    """The same for a model that is to be compiled as a whole. Raises UnsupportedError for one that cannot be."""
    return format_of(model).open_whole(Unopened(_named(model), {}, constants, nodes))


@within_limits
def survey_model(model: str | Path | bytes | ModelProto) -> Survey | None:
    """Reads a model and notes what is wrong with it; None for a format whose reader ends with the first error."""
    return format_of(model).survey(Unopened(_named(model)))


@within_limits
def load(
    model: str | Path | bytes | ModelProto,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, Dim] | None = None,
    values: Mapping[str, Array] | None = None,
    state: StatePairs | None = None,
    trainable: str | Sequence[str] | None = None,
) -> Module:
    """Imports a model as a module with one function.

    Args:
        model: A path, the bytes of a file, or a parsed model.
        shapes: Shapes of inputs by name, also with other sizes than the model declares: targets of reshapes that it
            writes as numbers follow, or the error says where that is not clear.
        dims: Sizes of symbolic dimensions by name: numbers, or `support.symbolic.symbol(name, low, high)`, and
            expressions of these, which stay open.
        values: Inputs whose elements are to be known while compiling, such as shapes. They stay inputs of
            the model, but nothing reads them. Copied.
        state: Inputs that become variables, and the outputs that they are in the next run, such as the cache of a
            decoder.
        trainable: Weights of an ONNX model that become variables and begin as they are in the file: their names,
            patterns such as `layer1.*`, or `all`. Patterns and `all` take floating-point initializers whose elements no
            operator needs to be known, and no statistics of batch normalizations; `all` takes no numbers of rank 0.
            Running averages of batch normalizations in training are variables as well, which each run moves.

    Raises LoadError for a file that is no model, UnsupportedError that lists everything that cannot be
    imported, ValueNeededError if an operator needs the elements of an input that is not in `values`, and
    UserError for a model that contradicts itself.
    """
    opened = open_whole(model).resized(shapes or {})
    if trainable is None:
        return opened.build(shapes=shapes, dims=dims, values=values, state=state)
    expect_type("trainable", trainable, str | Sequence, "names, patterns or 'all'")
    opened = opened.with_trainable(trainable)
    while True:
        try:
            return opened.build(shapes=shapes, dims=dims, values=values, state=state)
        except ValueNeededError as error:
            opened = opened.without_trainable(error)
