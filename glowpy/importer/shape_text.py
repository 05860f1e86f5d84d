"""Shapes of a model's inputs as text, as users write them after --shape."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Sequence
from typing import Protocol

from glowpy.core.type import Shape
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, symbol
from glowpy.support.text import parse_dim, symbol_name

__all__ = ["Dims", "Shaped", "Shapes", "parse_shapes"]

Shapes = dict[str, Shape]
Dims = dict[str, Dim]

_DIM = r"[0-9]{1,18}(?:\.\.[0-9]{1,9})?"
_COMPUTED = re.compile(r"\s*(?:[0-9]+\s*[*+-]\s*)*[A-Za-z_]")
_SHAPE = re.compile(rf"(?P<name>.+)(?P<sign>[=:])(?P<dims>(?:{_DIM}(?:x{_DIM})*)?)", re.DOTALL)


class Shaped(Protocol):
    """An input of a model, whose shape is known in part."""

    @property
    def name(self) -> str:
        """Its name."""

    @property
    def shape(self) -> Sequence[int | str | None] | None:
        """Sizes, names of symbolic dimensions, None for those without a name; None if no rank is known."""


def parse_shapes(texts: Sequence[str], infos: Sequence[Shaped]) -> tuple[Shapes, Dims]:
    """Parses --shape: the shapes of inputs, and the sizes of symbolic dimensions.

    `x=1x3x224x224` and `x:1x3x224x224` mean an input, `x:` one without dimensions, and `batch=1` a symbolic dimension
    unless an input has the name; `x[0]=1` is one without a name, and `1..8` in place of a number leaves it open.
    `total=past+seq` is computed of others, which need not be dimensions of the model. Raises UserError for all else.
    """
    inputs = {info.name for info in infos}
    shapes: Shapes = {}
    dims: Dims = {}
    computed: dict[str, str] = {}
    names = {text.partition("=")[0] for text in texts}
    for text in texts:
        match = _SHAPE.fullmatch(text)
        name, _, expression = text.partition("=")
        if match is None and name and _COMPUTED.match(expression):
            if name in computed:
                raise UserError(f"--shape: '{name}' is given twice")
            computed[name] = expression
            continue
        if match is None or (not match["dims"] and match["sign"] == "="):
            raise UserError(
                f"--shape: expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got '{text}'",
                note="dimensions are whole numbers with an x between them",
            )
        name, texts_of_dims = match["name"], [dim for dim in match["dims"].split("x") if dim]
        is_shape = match["sign"] == ":" or len(texts_of_dims) > 1 or name in inputs
        sizes = tuple(
            _parse_dim(dim, _axis_name(name, axis, names) if is_shape else _word(name), text)
            for axis, dim in enumerate(texts_of_dims)
        )
        if name in (shapes if is_shape else dims):
            raise UserError(f"--shape: '{name}' is given twice")
        if is_shape:
            shapes[name] = sizes
        else:
            dims[name] = sizes[0]
    for name, expression in computed.items():
        if name in dims:
            raise UserError(f"--shape: '{name}' is given twice")
        try:
            dims[name] = parse_dim(expression, dims)
        except UserError as error:
            raise UserError(
                f"--shape {name}={expression}: {error.diagnostics[0].message}",
                note="dimensions are computed of others that --shape gives: --shape 'total=past+seq'",
            ) from None
    _add_unnamed(infos, shapes, dims)
    declared = {dim for info in infos for dim in info.shape or ()}
    words = {word for expression in computed.values() for word in re.findall(r"\w+", expression)}
    helpers = {name for name in dims if name not in declared and symbol_name(name) in words}
    return shapes, {name: dim for name, dim in dims.items() if name not in helpers}


def _add_unnamed(infos: Iterable[Shaped], shapes: Shapes, dims: Dims) -> None:
    for info in infos:
        _add_shape(info, shapes, dims)


def _add_shape(info: Shaped, shapes: Shapes, dims: Dims) -> None:
    """Makes a shape of sizes that are given as `x[0]`. Raises UserError for some of those that an input needs."""
    spelled = [
        f"{info.name}[{axis}]" if dim is None else dim for axis, dim in enumerate(info.shape or ())
    ]
    unnamed = [name for name, dim in zip(spelled, info.shape or (), strict=True) if dim is None]
    dim_names = [name for name in unnamed if isinstance(name, str) and name in dims]
    if not dim_names:
        return
    if info.name in shapes:
        raise UserError(
            f"--shape: '{dim_names[0]}' is given twice", note=f"'{info.name}' has it as well"
        )
    missing = [name for name in spelled if isinstance(name, str) and name not in dims]
    if missing:
        options = " ".join(shlex.join(["--shape", f"{name}=1"]) for name in missing)
        raise UserError(
            f"--shape: expected all open dimensions of the input '{info.name}', got '{dim_names[0]}'",
            note=f"add {options}",
        )
    shapes[info.name] = tuple(dims[name] if isinstance(name, str) else name for name in spelled)
    for name in dim_names:
        del dims[name]


def _word(name: str) -> str:
    """The word for a dimension in texts: `x_0` for `x[0]`, which has no name."""
    return re.sub(r"\[(\d+)\]$", r"_\1", name)


def _axis_name(name: str, axis: int, taken: Collection[str]) -> str:
    """Names an open dimension of an input, beside those that the model names."""
    text = f"{name}_{axis}"
    while text in taken:
        text += "_"
    return text


def _parse_dim(text: str, name: str, option: str) -> Dim:
    """A number, or a range of what is called `name`."""
    low, _, high = text.partition("..")
    if not high:
        return int(low)
    if int(low) > int(high):
        raise UserError(f"--shape: expected LOW..HIGH with bounds that ascend, got '{option}'")
    return symbol(symbol_name(name), int(low), int(high))
