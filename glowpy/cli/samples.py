"""The inputs that a network is profiled with: a folder, an archive, or what a function of the user's gives."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from itertools import count
from pathlib import Path

from glowpy.backend import Port
from glowpy.cli.files import read_array, read_arrays
from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.quantization.profiling import Inputs, number_of, samples_of
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc

__all__ = ["Samples", "read_samples"]

_ARRAYS = (".npy", ".pb")


@dataclass(frozen=True)
class Samples:
    """Inputs, of which only one is in memory at a time where they lie in files of their own.

    Attributes:
        total: How many there are; 0 if that is not known.
        all: Each with where it is from.
    """

    total: int
    all: Iterator[tuple[str, Mapping[str, Array]]]


def read_samples(text: str, ports: Sequence[Port]) -> Samples:
    """What --inputs says.

    Args:
        text: A folder with a .npz file for each input, or with a folder of .npy or .pb files for each, or, for a model
            with one input, a .npy or .pb file for each; or a .npz file with arrays of one input, or of several, one
            after the other; or `module:name` of an iterable of dicts, of a data reader, or of a function that
            returns one.
        ports: The model's inputs.

    Raises LoadError and UserError.
    """
    path = Path(text)
    if path.is_dir():
        return _of_folder(path, ports)
    module, separator, name = text.partition(":")
    if path.suffix == ".npz" and (path.exists() or not separator):
        return _of_archive(text, ports)
    if separator and all(part.isidentifier() for part in [*module.split("."), *name.split(".")]):
        return _of_reader(module, name)
    reason = "no such folder" if not path.exists() else "it is none of them"
    raise UserError(
        f"--inputs: expected a folder, a .npz file, or module:name, got '{text}': {reason}"
    )


def _of_folder(folder: Path, ports: Sequence[Port]) -> Samples:
    """In the order of the names."""
    try:
        entries = sorted(entry for entry in folder.iterdir() if not entry.name.startswith("."))
    except OSError as error:
        raise LoadError(f"cannot read the folder: {error.strerror}", loc=Loc(str(folder))) from None
    reads = [(str(entry), partial(_entry_reader(entry), entry, ports)) for entry in entries]
    return Samples(len(reads), ((place, read()) for place, read in reads))


def _entry_reader(entry: Path) -> Callable[[Path, Sequence[Port]], Mapping[str, Array]]:
    if entry.is_dir():
        return _folder_of_arrays
    if entry.suffix == ".npz":
        return lambda path, ports: read_arrays(str(path))
    if entry.suffix in _ARRAYS:
        return _single_array
    raise LoadError(
        "expected .npz, .npy or .pb files, or folders of these",
        loc=Loc(str(entry)),
        note="put everything else elsewhere",
    )


def _folder_of_arrays(folder: Path, ports: Sequence[Port]) -> Mapping[str, Array]:
    """Files named after inputs; what else lies there, such as expected outputs, is left alone."""
    files = {file.stem: file for file in sorted(folder.iterdir()) if file.suffix in _ARRAYS}
    return {port.name: read_array(str(files[port.name])) for port in ports if port.name in files}


def _single_array(file: Path, ports: Sequence[Port]) -> Mapping[str, Array]:
    if len(ports) != 1:
        names = ", ".join(f"'{port.name}'" for port in ports)
        raise LoadError(
            f"expected arrays for the inputs {names}, got one array",
            loc=Loc(str(file)),
            note="write a .npz file with an array of each name",
        )
    return {ports[0].name: read_array(str(file))}


def _of_archive(path: str, ports: Sequence[Port]) -> Samples:
    """Arrays of the inputs' shapes, or of several one after the other, in a dimension of their own or in the first."""
    arrays = read_arrays(path)
    counts = {
        port.name: _count(port, arrays[port.name], path) for port in ports if port.name in arrays
    }
    if len(set(counts.values())) > 1:
        numbers = ", ".join(f"{count} of '{name}'" for name, count in counts.items())
        raise LoadError(f"expected as many of each input, got {numbers}", loc=Loc(path))
    total = next(iter(counts.values()), 1)
    shapes = {port.name: port.type.shape for port in ports}

    def sample(index: int) -> Mapping[str, Array]:
        return {
            name: array.reshape(total, *shapes[name])[index] if name in shapes else array
            for name, array in arrays.items()
        }

    return Samples(total, ((f"{path}[{index}]", sample(index)) for index in range(total)))


def _count(port: Port, array: Array, path: str) -> int:
    """How many arrays for an input one holds."""
    shape = port.type.shape
    whole: Shape = array.shape
    if whole == shape:
        return 1
    if whole[1:] == shape:
        return whole[0]
    if shape and whole[1:] == shape[1:] and shape[0] and whole and whole[0] % shape[0] == 0:
        return whole[0] // shape[0]
    got = "x".join(map(str, whole))
    raise LoadError(
        f"input '{port.name}': expected arrays of {port.type} one after the other, got {array.dtype}[{got}]",
        loc=Loc(path),
    )


def _of_reader(module: str, name: str) -> Samples:
    """What code of the user's gives, which may lie in the current folder."""
    sys.path.insert(0, os.getcwd())
    try:
        with _users_code(f"the module '{module}'"):
            named: object = _imported(module)
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(named, part):
            raise UserError(f"--inputs: the module '{module}' has no '{name}'")
        named = getattr(named, part)
    with _users_code(name):
        inputs: Inputs = named() if callable(named) else named  # type: ignore[assignment] # samples_of checks it
        total, samples = number_of(inputs), samples_of(inputs)
    return Samples(total, _numbered(samples, name))


def _imported(module: str) -> object:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        note = "the current folder is searched first, then where Python looks"
        raise UserError(f"--inputs: there is no module '{error.name}'", note=note) from None


def _numbered(
    samples: Iterator[Mapping[str, Array]], name: str
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    for index in count():
        with _users_code(name):
            sample = next(samples, None)
        if sample is None:
            return
        yield f"input {index}", sample


@contextmanager
def _users_code(name: str) -> Iterator[None]:
    """Makes whatever code of the user's raises a UserError, with the line."""
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"--inputs: {name} raised {type(error).__name__}: {error}",
            loc=Loc(frame.filename, frame.lineno or 0),
        ) from error
