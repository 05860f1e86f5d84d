"""The inputs of `glowpy run` for a model of strings, sequences, optionals and maps: from files, or made up."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glowpy.cli.files import read_array, read_arrays, read_text
from glowpy.cli.model import say_assumed
from glowpy.core.array_file import as_codes
from glowpy.core.random_array import random_array
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.importer.declared import check_names
from glowpy.importer.open_dimensions import ASSUMED
from glowpy.importer.reports import located
from glowpy.importer.shape_text import Dims, Shapes
from glowpy.importer.value_types import HostInfo
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, highest

__all__ = ["FILES", "must_be_given", "read_host_inputs"]

FILES = "strings as .txt with one in each line, .json, .npy or .pb, a sequence as .npz or .json, a map as .json"
"""The kinds of files for each type of input, in messages."""


def read_host_inputs(
    texts: Sequence[str],
    infos: Sequence[HostInfo],
    shapes: Shapes,
    dims: Dims,
    seed: int,
    values: Mapping[str, Array],
) -> dict[str, Any]:
    """A value for every input: from the files that --input names; random numbers, or nothing for an optional.

    Args:
        texts: `NAME=FILE`, or the name of a .npz file with arrays named after inputs.
        infos: The model's inputs.
        shapes: The shapes of inputs by --shape; of lines, too, which are a vector unless the model says otherwise.
        dims: The sizes of symbolic dimensions by --shape.
        seed: The seed of the random elements.
        values: The elements by --value.

    Raises UserError for an unknown input or dimension, an unreadable file, a value of another type, and what has to be
    given.
    """
    infos_by_name = {info.name: info for info in infos}
    check_names({name: info.shape for name, info in infos_by_name.items()}, shapes, dims)
    feeds: dict[str, Any] = {**values}
    for text in texts:
        name, separator, path = text.partition("=")
        arrays: Mapping[str, Any] = {name: None} if separator else read_arrays(text)
        for name, array in arrays.items():
            if name not in infos_by_name:
                names = ", ".join(infos_by_name) or "(there are none)"
                raise UserError(f"--input: expected one of the inputs {names}, got '{name}'")
            if name in values:
                raise UserError(
                    f"--input: '{name}' is given by --value as well", note="leave one out"
                )
            info = infos_by_name[name]
            value = _read(info, path, _declared(info, shapes, dims)) if separator else array
            try:
                feeds[name] = info.value(value)
            except UserError as error:
                raise located(error, Loc(path or text), "input ") from None
    rng, sizes = np.random.default_rng(seed), {**_said_by(feeds, infos_by_name), **dims}
    assumed: dict[str, None] = {}
    for name, info in infos_by_name.items():
        if name not in feeds:
            shape = _declared(info, shapes, sizes)
            feeds[name] = _made_up(info, [ASSUMED if size is None else size for size in shape], rng)
            if feeds[name] is not None:
                assumed |= dict.fromkeys(_open(info, shape))
    say_assumed(list(assumed))
    return feeds


def _said_by(feeds: Mapping[str, Any], infos: Mapping[str, HostInfo]) -> dict[str, Dim]:
    """Reads symbolic dimensions off the shapes of arrays."""
    shapes = {name: value.shape for name, value in feeds.items() if isinstance(value, np.ndarray)}
    return {
        dim: size
        for name, shape in shapes.items()
        for dim, size in zip(infos[name].shape or (), shape, strict=False)
        if isinstance(dim, str)
    }


def _open(info: HostInfo, shape: Sequence[int | None]) -> list[str]:
    """The dimensions of an input of which nothing is known, as messages call them."""
    dims = info.shape if info.shape is not None else (None,) * len(shape)
    return [
        dim if isinstance(dim, str) else f"{info.name}[{axis}]"
        for axis, (dim, size) in enumerate(zip(dims, shape, strict=False))
        if size is None
    ]


def must_be_given(info: HostInfo) -> bool:
    """Whether nothing can be made up for an input."""
    return info.kind is None and not info.type.startswith("optional")


def _declared(info: HostInfo, shapes: Shapes, dims: Dims) -> list[int | None]:
    """The extents of an input, as large as they may be; None for one of which nothing is known."""
    declared = shapes.get(info.name, info.shape if info.shape is not None else (None,))
    sizes = [dims.get(dim) if isinstance(dim, str) else dim for dim in declared]
    return [None if size is None else highest(size) for size in sizes]


def _read(info: HostInfo, path: str, shape: Sequence[int | None]) -> Any:
    """Reads a file for an input of this type and shape."""
    if path.endswith(".json"):
        return _read_json(info, path)
    if path.endswith(".npz") and info.type.startswith(("seq", "optional(seq")):
        return list(read_arrays(path).values())
    if path.endswith(".txt"):
        return _lines(info, path, shape)
    array = read_array(path)
    return array if info.kind is None else as_codes(array, info.kind)


def _read_json(info: HostInfo, path: str) -> Any:
    try:
        content = json.loads(read_text(path))
    except (ValueError, RecursionError) as error:
        raise LoadError(f"cannot read the JSON: {error}", loc=Loc(path)) from None
    try:
        return info.plain(content)
    except UserError as error:
        raise located(error, Loc(path), "input ") from None


def _lines(info: HostInfo, path: str, shape: Sequence[int | None]) -> Array:
    """A string for each line, in the shape of the input, of which one extent may follow from their number."""
    lines = np.array(read_text(path).splitlines(), object)
    count = math.prod(size for size in shape if size is not None)
    fits = shape.count(None) == 1 and count and lines.size % count == 0
    if not fits and (None in shape or count != lines.size):
        spelled = "x".join("?" if size is None else str(size) for size in shape)
        raise UserError(
            f"input '{info.name}': expected lines for the shape [{spelled}], got {lines.size}",
            loc=Loc(path),
            note=f"--shape {info.name}:{'x'.join([str(lines.size), *'1' * (len(shape) - 1)])}, or give a .json file",
        )
    return lines.reshape([-1 if size is None else size for size in shape])


def _made_up(info: HostInfo, shape: Sequence[int], rng: np.random.Generator) -> Any:
    """Random numbers, or an optional without an element."""
    if info.type.startswith("optional"):
        return None
    if info.kind is None:
        raise UserError(
            f"input '{info.name}' is of {info.type}, which must be given",
            note=f"--input {info.name}=FILE: {FILES}",
        )
    return random_array(Type(info.kind, tuple(shape)), rng).astype(info.dtype)
