"""`glowpy run` of a model of which a session computes a part itself: strings, sequences, optionals and maps."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import click
import numpy as np

from glowpy.backend import Backend
from glowpy.cli.files import (
    as_codes,
    plain,
    read_array,
    read_arrays,
    read_text,
    write_array,
    write_text,
)
from glowpy.cli.model import Dims, Shapes, parse_shapes, random_array
from glowpy.cli.output import print_json, print_table, progress
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.importer import HostInfo, HostModel
from glowpy.session import InferenceSession
from glowpy.support.errors import UserError
from glowpy.support.names import UniqueNames
from glowpy.support.output_files import make_output_folder, write_output_file

__all__ = ["run_hosted"]


def run_hosted(
    model: HostModel,
    texts: Sequence[str],
    shapes: Sequence[str],
    seed: int,
    backend: Backend,
    folder: Path | None,
    repeat: int,
    as_json: bool,
) -> None:
    """Runs a model, and prints what came out. The arguments are those of `glowpy run`.

    Raises UserError for inputs that have to be given, or do not fit.
    """
    feeds = _feeds(model.inputs, texts, *parse_shapes(shapes, model.inputs), seed)
    seconds = []
    with InferenceSession(model, backend=backend) as session:
        with progress(f"compiling {model.file}"):
            outputs = session.run(None, feeds)
        for _ in range(repeat):
            start = time.perf_counter()
            outputs = session.run(None, feeds)
            seconds.append(time.perf_counter() - start)
    named: dict[str, Any] = dict(zip((info.name for info in model.outputs), outputs, strict=True))
    files = _save(named, folder)
    rows = [[name, _spelled(value), str(files.get(name, ""))] for name, value in named.items()]
    if as_json:
        figures = [{"name": name, "type": type, "file": file or None} for name, type, file in rows]
        print_json(
            {
                "model": model.file,
                "backend": backend.name,
                "run_seconds": seconds,
                "outputs": figures,
            }
        )
        return
    columns = ["output", "type", "file"] if files else ["output", "type"]
    print_table("", columns, [row[: len(columns)] for row in rows])
    click.echo(f"run in {min(seconds) * 1e3:.3f} ms, a part of it in Python")


def _feeds(
    infos: Sequence[HostInfo], texts: Sequence[str], shapes: Shapes, dims: Dims, seed: int
) -> dict[str, Any]:
    """The inputs: from files, random numbers, and nothing for optionals."""
    known = {info.name: info for info in infos}
    feeds: dict[str, Any] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        if separator and name not in known:
            raise UserError(f"--input: expected one of the inputs {', '.join(known)}, got '{name}'")
        given = {name: _read(known[name], path)} if separator else read_arrays(text)
        feeds |= given
    rng = np.random.default_rng(seed)
    for name, info in known.items():
        if name not in feeds:
            feeds[name] = _made_up(info, shapes, dims, rng)
    return feeds


def _read(info: HostInfo, path: str) -> Any:
    """The elements of a sequence are the arrays of an archive; strings may be the lines of a text."""
    if info.type.startswith(("seq", "optional(seq")) and path.endswith(".npz"):
        return list(read_arrays(path).values())
    if path.endswith(".txt"):
        return np.array(read_text(path).splitlines(), object)
    array = read_array(path)
    numeric = info.type.startswith("tensor") and info.dtype.kind != "O"
    return (
        as_codes(array, ElemKind.of(info.dtype)) if numeric and array.dtype.kind in "uV" else array
    )


def _made_up(info: HostInfo, shapes: Shapes, dims: Dims, rng: np.random.Generator) -> Any:
    """Random numbers, or an optional without an element."""
    if info.type.startswith("optional"):
        return None
    if not info.type.startswith("tensor") or info.dtype.kind == "O":
        raise UserError(
            f"input '{info.name}' is of {info.type}, which must be given",
            note=f"--input {info.name}=FILE: strings as .npy, .pb, or .txt with one in each line, a sequence as .npz",
        )
    declared = shapes.get(info.name, info.shape if info.shape is not None else (None,))
    sizes = [dims.get(dim) if isinstance(dim, str) else dim for dim in declared]
    whole = [size for size in sizes if isinstance(size, int)]
    if len(whole) != len(sizes):
        raise UserError(
            f"input '{info.name}' has no size in every dimension",
            note=f"--shape {info.name}:{'x'.join('1' for _ in sizes)}, or give it: --input {info.name}=FILE",
        )
    return random_array(Type(ElemKind.of(info.dtype), tuple(whole)), rng)


def _spelled(value: Any) -> str:
    """A type with the shape that came out."""
    if isinstance(value, np.ndarray):
        kind = "string" if value.dtype.kind == "O" else ElemKind.of(value.dtype).value
        return f"{kind}[{'x'.join(map(str, value.shape))}]"
    if isinstance(value, Mapping):
        return f"map of {len(value)}"
    return "none" if value is None else f"sequence of {len(value)}"


def _write_archive(items: Sequence[Array], file: BinaryIO) -> None:
    np.savez(file, *items)


def _save(outputs: Mapping[str, Any], folder: Path | None) -> dict[str, Path]:
    """Writes outputs: arrays as .npy, sequences of them as .npz, maps as .json; the file of each."""
    if folder is None:
        return {}
    make_output_folder(folder)
    names, files = UniqueNames(), dict[str, Path]()
    for name, value in outputs.items():
        stem = names.take(name)
        if isinstance(value, np.ndarray):
            files[name] = folder / f"{stem}.npy"
            write_array(files[name], value)
        elif isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value):
            files[name] = path = folder / f"{stem}.npz"
            items = [plain(item) for item in value]
            write_output_file(path, partial(_write_archive, items))
        elif value is not None:
            files[name] = folder / f"{stem}.json"
            write_text(files[name], json.dumps(value, indent=1) + "\n")
    return files
