"""Formats of models: ONNX, and those that other packages read.

A package names each reader in its metadata, by an entry point of the group `glowpy.readers`:

```toml
[project.entry-points."glowpy.readers"]
layers = "glowpy_layers.reader:READER"
```

What a file begins with tells its format, and where no reader knows that, how its name ends. Packages are only asked
about a file that does not begin as those of ONNX do, and nothing of one is imported before a file has to be read.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import TYPE_CHECKING

from glowpy.core.state_pairs import StatePairs
from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.graph.function import Module
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.onnx.host.model import open_model
from glowpy.importer.onnx.model import read_model
from glowpy.importer.storage import InFile
from glowpy.support.errors import UserError
from glowpy.support.limits import within_limits
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["GROUP", "Reader", "load", "open_any", "open_file", "reader_of"]

GROUP = "glowpy.readers"
"""The group of entry points."""

_LONGEST_START = 64
_ONNX_START = b"\x08"
"""The tag of the version, which all writers of ONNX files begin with."""


@dataclass(frozen=True)
class Reader:
    """A reader of a format: what its files are called, how they begin and end, and what makes a model of one.

    Attributes:
        name: The name of the format in messages.
        read: Reads and checks a file. Raises LoadError for one that is damaged.
        starts: What files begin with, if anything tells them: at most 64 bytes.
        suffixes: How names of files end, such as `.layers`.
    """

    name: str
    read: Callable[[Path], Model]
    starts: tuple[bytes, ...] = ()
    suffixes: tuple[str, ...] = ()


def reader_of(model: object) -> Reader | None:
    """The reader of another package for a file; None for an ONNX file, what no package reads, and what is no path.

    Raises UserError that names a package whose reader cannot be loaded.
    """
    if not isinstance(model, str | os.PathLike):
        return None
    path = Path(model)
    start = _start(path)
    if start is None or start.startswith(_ONNX_START):
        return None
    readers = [_loaded(entry) for entry in _entries()]
    for reader in readers:
        if start.startswith(reader.starts):
            return reader
    return next((reader for reader in readers if path.suffix in reader.suffixes), None)


def _start(path: Path) -> bytes | None:
    """The first bytes of a file; None if it cannot be read."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST_START)
    except (OSError, ValueError):
        return None


@cache
def _entries() -> tuple[EntryPoint, ...]:
    return tuple(sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)))


@cache
def _loaded(entry: EntryPoint) -> Reader:
    package = f"{entry.dist.name} {entry.dist.version}" if entry.dist else entry.module
    where = f"the reader '{entry.name}' of the package {package}"
    try:
        reader: object = entry.load()
    except Exception as error:  # whatever it is, it is the package's
        raise UserError(
            f"{where} cannot be loaded: {type(error).__name__}: {error}",
            note="update or uninstall the package",
        ) from error
    if not isinstance(reader, Reader):
        raise UserError(f"{where}: expected a Reader of glowpy.importer, got {reader!r}")
    return reader


@within_limits
def open_file(model: str | Path | bytes | ModelProto) -> Model:
    """Reads and checks a model of any format, without shapes. Raises what `load` raises."""
    reader = reader_of(model)
    return read_model(model) if reader is None else reader.read(Path(str(model)))


def open_any(
    model: str | Path | bytes | ModelProto, files: Mapping[Path, InFile] | None = None
) -> Model | HostedModel:
    """Reads and checks a model of any format, for a session. Raises what `load` raises."""
    return open_model(model, files=files) if reader_of(model) is None else open_file(model)


@within_limits
def load(
    model: str | Path | bytes | ModelProto,
    *,
    shapes: Mapping[str, Shape] | None = None,
    dims: Mapping[str, Dim] | None = None,
    values: Mapping[str, Array] | None = None,
    state: StatePairs | None = None,
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

    Raises LoadError for a file that is no model, UnsupportedError that lists everything that cannot be
    imported, ValueNeededError if an operator needs the elements of an input that is not in `values`, and
    UserError for a model that contradicts itself.
    """
    opened = open_file(model).resized(shapes or {})
    return opened.build(shapes=shapes, dims=dims, values=values, state=state)
