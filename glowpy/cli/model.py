"""Reading the model a verb works on, and what the user says about its shapes and inputs."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import click
import numpy as np

from glowpy.backend import Port
from glowpy.cli.files import as_codes, read_array, read_arrays, read_constants, read_text
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import extents_of, symbols_of_types, type_at
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.engine import backend_class, known_nodes
from glowpy.graph.function import Function, Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.importer.onnx.model import OnnxModel, read_model
from glowpy.support.errors import LoadError, UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import Dim, symbol, symbol_name

__all__ = [
    "Source",
    "choose_function",
    "is_text",
    "load_model",
    "parse_shapes",
    "random_array",
    "read_inputs",
    "shape_option",
]

F = TypeVar("F", bound=Callable[..., Any])
Shapes = dict[str, Shape]
Dims = dict[str, Dim]

_DIM = r"[0-9]{1,18}(?:\.\.[0-9]{1,9})?"
_SHAPE = re.compile(rf"(?P<name>.+)(?P<sign>[=:])(?P<dims>(?:{_DIM}(?:x{_DIM})*)?)", re.DOTALL)


def shape_option(*, ranges: bool) -> Callable[[F], F]:
    """The option --shape of a verb, which may leave dimensions open or not."""
    given = "NAME=1x3x224x224 or DIMENSION=1"
    if ranges:
        given = "NAME=1x3x224x224, DIMENSION=1, or DIMENSION=1..8 to leave it open"
    return click.option(
        "--shape",
        "shapes",
        multiple=True,
        help=f"{given}. Shapes are the model's by default; a symbolic dimension has none.",
    )


def parse_shapes(texts: Sequence[str], inputs: Collection[str]) -> tuple[Shapes, Dims]:
    """What --shape says: the shapes of inputs, and the sizes of symbolic dimensions.

    `x=1x3x224x224` and `x:1x3x224x224` mean an input, `x:` one without dimensions, and `batch=1` a symbolic dimension
    unless one of `inputs` has the name; `1..8` in place of a number leaves it open. Raises UserError for anything else.
    """
    shapes: Shapes = {}
    dims: Dims = {}
    for text in texts:
        match = _SHAPE.fullmatch(text)
        if match is None or (not match["dims"] and match["sign"] == "="):
            raise UserError(
                f"--shape: expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got '{text}'",
                note="dimensions are whole numbers with an x between them",
            )
        name, texts_of_dims = match["name"], [dim for dim in match["dims"].split("x") if dim]
        is_shape = match["sign"] == ":" or len(texts_of_dims) > 1 or name in inputs
        sizes = tuple(
            _parse_dim(dim, f"{name}_{axis}" if is_shape else name, text)
            for axis, dim in enumerate(texts_of_dims)
        )
        if name in (shapes if is_shape else dims):
            raise UserError(f"--shape: '{name}' is given twice")
        if is_shape:
            shapes[name] = sizes
        else:
            dims[name] = sizes[0]
    return shapes, dims


def _parse_dim(text: str, name: str, option: str) -> Dim:
    """A number, or a range of what is called `name`."""
    low, _, high = text.partition("..")
    if not high:
        return int(low)
    if int(low) > int(high):
        raise UserError(f"--shape: expected LOW..HIGH with bounds that ascend, got '{option}'")
    return symbol(symbol_name(name), int(low), int(high))


def load_model(
    path: str, shapes: Sequence[str] = (), constants: str = "", backend: str = "cpu"
) -> Module:
    """The module in an .onnx file, or in the text of a .glow file (`-`: standard input).

    Args:
        path: The file.
        shapes: What --shape says, for ONNX.
        constants: A .npz file with the elements that text shows only the digest of.
        backend: Whose own operators text may name, beside those of glowpy's own backends.

    Raises LoadError, UnsupportedError or UserError, all with the file's name.
    """
    if is_text(path):
        if shapes:
            raise UserError(
                "--shape: the shapes of a .glow file are written in it", note="leave out --shape"
            )
        blobs = read_constants(constants) if constants else {}
        shown = "<stdin>" if path == "-" else path
        return parse_module(
            read_text(path), shown, extra=known_nodes(backend_class(backend)), blobs=blobs
        )
    model, bound, dims = _read_onnx(path, shapes, constants)
    return model.build(shapes=bound, dims=dims)


def is_text(path: str) -> bool:
    """Whether a model is the text of a graph."""
    return path == "-" or path.endswith(".glow")


def _read_onnx(path: str, shapes: Sequence[str], constants: str) -> tuple[OnnxModel, Shapes, Dims]:
    """The model in an .onnx file, and what --shape says of it. Raises as `load_model` does."""
    if not path.endswith(".onnx"):
        raise LoadError(
            "expected a file that ends in .onnx or .glow", loc=Loc(path), note="rename the model"
        )
    if constants:
        raise UserError("--constants: an ONNX file has its own", note="leave out --constants")
    model = read_model(path)
    return model, *parse_shapes(shapes, {info.name for info in model.inputs})


@dataclass(frozen=True)
class Source:
    """A model on the command line, whose graph is built only if something needs it.

    Attributes:
        path: The file.
        shapes: What --shape says, for ONNX.
        constants: What --constants says, for text.
        name: What --function says.
        backend: Whose own operators text may name.
    """

    path: str
    shapes: Sequence[str]
    constants: str
    name: str
    backend: str

    @cached_property
    def function(self) -> Function:
        """The graph. Raises as `load_model` and `choose_function` do."""
        return choose_function(self._module, self.name)

    @cached_property
    def key(self) -> str:
        """Names everything that the graph depends on."""
        if is_text(self.path):  # with or without the elements of which it shows the digest
            text = f"{self.name}\n{bool(self.constants)}\n{print_module(self._module)}"
            return hashlib.sha256(text.encode()).hexdigest()
        model, shapes, dims = self._onnx
        return f"{self.name} {model.key(shapes=shapes, dims=dims)}"

    @property
    def ports(self) -> list[Port]:
        """The function's inputs."""
        return [Port(p.original, p.name, p.type) for p in self.function.parameters]

    @cached_property
    def _onnx(self) -> tuple[OnnxModel, Shapes, Dims]:
        return _read_onnx(self.path, self.shapes, self.constants)

    @cached_property
    def _module(self) -> Module:
        if is_text(self.path):
            return load_model(self.path, self.shapes, self.constants, self.backend)
        model, shapes, dims = self._onnx
        return model.build(shapes=shapes, dims=dims)


def choose_function(module: Module, name: str) -> Function:
    """The function called `name`; the only one if the name is empty. Raises UserError."""
    if name or len(module.functions) == 1:
        return module.function(name) if name else module.functions[0]
    names = ", ".join(f.name for f in module.functions)
    raise UserError(
        f"the model has {len(module.functions)} functions: {names}", note="choose with --function"
    )


def random_array(type: Type, rng: np.random.Generator) -> Array:
    """Elements to try a network with: floats from [0, 1), integers and booleans 0 or 1.

    So small an integer is a legal index nearly everywhere.
    """
    if type.kind.has_fractions:
        return np.asarray(rng.random(type.extents), type.kind.dtype)
    return rng.integers(0, 2, type.extents).astype(type.kind.dtype)


def read_inputs(
    texts: Sequence[str], ports: Sequence[Port], seed: int, model: str
) -> dict[str, Array]:
    """An array for every port: from the files that --input names, random where it names none.

    Symbolic dimensions are what the files have, or as large as they may be.

    Args:
        texts: `NAME=FILE` (.npy, .pb), or the name of a .npz file with arrays named after inputs.
        ports: The function's inputs.
        seed: Of the random elements.
        model: The file of the model, which says which shapes it allows.

    Raises UserError for an unknown input, an unreadable file, and an array of another type or shape.
    """
    arrays_by_name: dict[str, Array] = {}
    sources: dict[str, str] = {}
    for text in texts:
        name, separator, path = text.partition("=")
        arrays = {name: read_array(path)} if separator else read_arrays(text)
        arrays_by_name.update(arrays)
        sources.update(dict.fromkeys(arrays, path or text))
    known = {port.name: port for port in ports}
    for name, array in arrays_by_name.items():
        if name not in known:
            raise UserError(
                f"--input: expected one of the inputs {', '.join(known) or '(there are none)'}, got '{name}'"
            )
        arrays_by_name[name] = as_codes(array, known[name].type.kind)
        _check_array(known[name], arrays_by_name[name], sources[name], model)
    rng, extents = np.random.default_rng(seed), _extents(ports, arrays_by_name)
    return {
        port.name: arrays_by_name[port.name]
        if port.name in arrays_by_name
        else random_array(type_at(port.type, extents), rng)
        for port in ports
    }


def _extents(ports: Sequence[Port], arrays: Mapping[str, Array]) -> dict[str, int]:
    """What symbols are for some arrays; the highest where these do not say."""
    symbols = symbols_of_types(port.type for port in ports)
    given = [port for port in ports if port.name in arrays]
    extents = extents_of({port.name: (port.type.shape, arrays[port.name].shape) for port in given})
    return {name: one.high for name, one in symbols.items()} | extents


def _check_array(port: Port, array: Array, path: str, model: str) -> None:
    type = port.type
    got = f"{array.dtype}[{_spell(array.shape)}]"
    if array.shape != type.shape and (type.is_static or array.ndim != type.rank):
        raise UserError(
            f"input '{port.name}': expected {type}, got {got}",
            loc=Loc(path),
            note=_shape_remedy(port, array.shape, model),
        )
    if array.dtype != type.kind.dtype:
        raise UserError(
            f"input '{port.name}': expected {type}, got {got}",
            loc=Loc(path),
            note=f"convert it with array.astype({_spelled_kind(type.kind)})",
        )


def _shape_remedy(port: Port, shape: Shape, model: str) -> str:
    """What to do about an array of another shape: --shape only helps if the model leaves the shape open."""
    if model.endswith(".onnx"):
        infos = {info.name: info for info in read_model(model).inputs}
        if infos[port.name].admits(shape):
            return f"--shape {port.name}:{_spell(shape)} compiles for this shape"
    return (
        f"the model has no other shape for '{port.name}': give it a {_spell(port.type.shape)} array"
    )


def _spelled_kind(kind: ElemKind) -> str:
    """An element kind as numpy takes it in Python, which knows bf16 and codes from another package only."""
    foreign = kind is ElemKind.BF16 or kind.is_code
    return f"ml_dtypes.{kind.dtype}" if foreign else f"'{kind.dtype}'"


def _spell(shape: Shape) -> str:
    return "x".join(map(str, shape))
