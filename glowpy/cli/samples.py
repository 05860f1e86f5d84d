"""The inputs that a network is profiled with: a folder, an archive, or what a function of the user's gives."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from pathlib import Path

from glowpy.cli.files import read_array, read_arrays
from glowpy.cli.users_code import names_object, users_code, users_object
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.quantization.profiling import Inputs, number_of, samples_of
from glowpy.runtime.ports import Port
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc

__all__ = ["Samples", "read_samples", "sample_shapes"]

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


def read_samples(text: str, ports: Sequence[Port], advice: str = "") -> Samples:
    """Reads the samples that --inputs names.

    Args:
        text: A folder with a .npz file for each input, or with a folder of .npy or .pb files for each, or, for a model
            with one input, a .npy or .pb file for each; or a .npz file with arrays of one input, or of several, one
            after the other; or `module:name` of an iterable of dicts, of a data reader, or of a function that
            returns one.
        ports: The model's inputs.
        advice: The remedy for files with other shapes than the first, which has said what dimensions are.

    Raises LoadError and UserError.
    """
    path = Path(text)
    if path.is_dir():
        samples = _of_folder(path, ports)
        return replace(samples, all=_alike(samples.all, ports, advice)) if advice else samples
    if path.suffix == ".npz" and (path.exists() or ":" not in text):
        return _of_archive(text, ports)
    if names_object(text):
        return _of_reader(text)
    reason = "no such folder" if not path.exists() else "it is none of them"
    raise UserError(
        f"--inputs: expected a folder, a .npz file, or module:name, got '{text}': {reason}"
    )


def sample_shapes(
    text: str, shapes: Mapping[str, Sequence[object] | None]
) -> tuple[dict[str, Shape], list[str]]:
    """The shapes in the first sample of a folder or archive, and the inputs of several rows that are a sample each.

    Args:
        text: The text of --inputs; readers say nothing before they run.
        shapes: The inputs as the model declares them: sizes, and anything else for a dimension that is open.
    """
    path = Path(text)
    if not text or all(isinstance(d, int) for shape in shapes.values() for d in shape or [None]):
        return {}, []
    if path.is_dir():
        ports = [
            Port(name, name, Type(ElemKind.F32, ())) for name in shapes
        ]  # by their names alone
        _, first = next(_of_folder(path, ports).all, ("", {}))
        return {name: array.shape for name, array in first.items()}, []
    seen: dict[str, Shape] = {}
    rows: list[str] = []
    for name, array in read_arrays(text).items() if path.suffix == ".npz" and path.exists() else ():
        declared, array_shape = shapes.get(name), array.shape
        if declared is None or not array_shape:
            continue
        if len(array_shape) == len(declared):  # as `_count` has it: along the first dimension
            rows += [] if isinstance(declared[0], int) else [name]
            array_shape = (declared[0] if isinstance(declared[0], int) else 1, *array_shape[1:])
            seen[name] = array_shape
        elif len(array_shape) == len(declared) + 1:
            seen[name] = array_shape[1:]
    return seen, rows


def _alike(
    samples: Iterator[tuple[str, Mapping[str, Array]]], ports: Sequence[Port], advice: str
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    """The same samples. Raises UserError with the advice for an array that does not fit."""
    for place, sample in samples:
        for port in ports:
            array = sample.get(port.name)
            if array is not None and port.type.is_static and array.shape != port.type.extents:
                got = "x".join(map(str, array.shape))
                raise UserError(
                    f"'{port.name}': expected an array of type {port.type}, got {array.dtype}[{got}]",
                    loc=Loc(place),
                    note=advice,
                )
        yield place, sample


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
    if not port.type.is_static:
        raise LoadError(
            f"input '{port.name}': expected a constant shape for arrays one after the other, got {port.type}",
            loc=Loc(path),
            note="give a folder with a .npz file for each sample, or a reader",
        )
    shape = port.type.extents
    array_shape: tuple[int, ...] = array.shape
    if array_shape == shape:
        return 1
    if array_shape[1:] == shape:
        return array_shape[0]
    if (
        shape
        and array_shape[1:] == shape[1:]
        and shape[0]
        and array_shape
        and array_shape[0] % shape[0] == 0
    ):
        return array_shape[0] // shape[0]
    got = "x".join(map(str, array_shape))
    raise LoadError(
        f"input '{port.name}': expected arrays of {port.type} one after the other, got {array.dtype}[{got}]",
        loc=Loc(path),
    )


def _of_reader(text: str) -> Samples:
    """Samples from the user's code."""
    named, name = users_object(text, "--inputs"), text.partition(":")[2]
    with users_code(name, "--inputs"):
        inputs: Inputs = named() if callable(named) else named  # type: ignore[assignment] # samples_of checks it
        total, samples = number_of(inputs), samples_of(inputs)
    return Samples(total, _numbered(samples, name))


def _numbered(
    samples: Iterator[Mapping[str, Array]], name: str
) -> Iterator[tuple[str, Mapping[str, Array]]]:
    for index in count():
        with users_code(name, "--inputs"):
            sample = next(samples, None)
        if sample is None:
            return
        yield f"input {index}", sample
