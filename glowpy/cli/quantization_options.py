"""How a network is quantized, as options of the command line."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from typing import Any

import click

from glowpy.backends.cpu.options import CpuOptions
from glowpy.cli.backends import backend_option, bound_backend
from glowpy.cli.gathered import gathered
from glowpy.core.elemkind import ElemKind
from glowpy.quantization.calibration import (
    Calibration,
    Entropy,
    MeanSquaredError,
    MinMax,
    MovingAverage,
    Percentile,
)
from glowpy.quantization.options import Options
from glowpy.quantization.schema import Schema
from glowpy.support.errors import UserError

__all__ = ["OF_PROFILES", "quantization_options"]

OF_PROFILES = frozenset(
    {
        *("schema", "activations", "weights", "bias", "calibrations", "tables", "norms"),
        *("skip_first", "skip_last", "assert_all"),
    }
)
"""The options that say nothing without a profile."""

_CALIBRATIONS = ("min-max", "average", "percentile", "entropy", "squared-error")


def _calibration(text: str, activations: ElemKind, schema: Schema) -> Calibration:
    """Parses --calibration. Raises UserError."""
    name, separator, number = text.partition(":")
    if name not in _CALIBRATIONS or (separator and name != "percentile"):
        calibrations = ", ".join(_CALIBRATIONS)
        raise UserError(
            f"--calibration: expected one of {calibrations}, got '{text}'",
            note="percentile takes a number: percentile:99.9",
        )
    levels = 1 << 8 * activations.size
    symmetric = schema in (Schema.SYMMETRIC, Schema.POWER_OF_TWO)
    simple = {"min-max": MinMax(), "average": MovingAverage(), "percentile": Percentile()}
    searches = {"entropy": Entropy, "squared-error": MeanSquaredError}
    if name in searches:
        return searches[name](levels, symmetric)
    try:
        return Percentile(float(number)) if separator else simple[name]
    except ValueError:
        raise UserError(f"--calibration: expected a number, got '{number}'") from None


def _calibrations(
    texts: Sequence[str], activations: ElemKind, schema: Schema
) -> dict[str, Calibration]:
    """Parses every --calibration, by the value it is for; by '' for all others. Raises UserError."""
    ways: dict[str, Calibration] = {}
    for text in texts:
        value, _, name = text.rpartition("=")
        if value in ways:
            what = f"the way for '{value}'" if value else "the way for all values"
            raise UserError(f"--calibration: {what} is given twice")
        ways[value] = _calibration(name, activations, schema)
    return ways


_OPTIONS: tuple[Callable[[Callable[..., None]], Callable[..., None]], ...] = (
    click.option(
        "--schema",
        type=click.Choice([schema.value for schema in Schema]),
        default=Schema.ASYMMETRIC.value,
        show_default=True,
        help="The mapping of a value's range to integers.",
    ),
    click.option(
        "--activations",
        type=click.Choice(["u8", "i8", "i16"]),
        default="u8",
        show_default=True,
        help="The kind of integers for activations.",
    ),
    click.option(
        "--weights",
        type=click.Choice(["channel", "tensor"]),
        default="channel",
        show_default=True,
        help="The granularity of the scales of weights.",
    ),
    click.option(
        "--bias",
        type=click.Choice(["i8", "i16", "i32", "float"]),
        default="i32",
        show_default=True,
        help="The kind of biases.",
    ),
    click.option(
        "--calibration",
        "calibrations",
        multiple=True,
        metavar="NAME",
        help="The way to choose ranges: min-max (default), average, percentile, percentile:99.9, entropy, "
        "squared-error. VALUE=NAME is for one value of the profile.",
    ),
    click.option(
        "--tables",
        type=click.Choice(["8", "4", "float"]),
        default="8",
        show_default=True,
        help="The bits of tables from which rows are gathered.",
    ),
    click.option(
        "--norms",
        type=click.Choice(["integer", "float"]),
        help="The arithmetic of layer norms; by default integer where values are i16, else float.",
    ),
    click.option("--keep", multiple=True, metavar="NODE", help="A node or kind to keep in floats."),
    click.option("--skip-first", is_flag=True, help="Keep the first product in floats."),
    click.option("--skip-last", is_flag=True, help="Keep the last product in floats."),
    click.option("--assert-all", is_flag=True, help="Fail if a node stays in floats."),
    backend_option(
        "cpu",
        "The backend to quantize for: operations that it cannot run on integers stay in floats.",
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Words:
    """Options about quantization, in the words of the command line."""

    schema: str
    activations: str
    weights: str
    bias: str
    calibrations: tuple[str, ...]
    tables: str
    norms: str | None
    keep: tuple[str, ...]
    skip_first: bool
    skip_last: bool
    assert_all: bool
    backend: str

    def options(self) -> Options:
        """The options for the library. Raises UserError."""
        kind, schema = ElemKind(self.activations), Schema(self.schema)
        ways = _calibrations(self.calibrations, kind, schema)
        return Options(
            schema=schema,
            activations=kind,
            per_channel=self.weights == "channel",
            bias=ElemKind.F32 if self.bias == "float" else ElemKind(self.bias),
            calibration=ways.pop("", MinMax()),
            calibrations=ways,
            tables=None if self.tables == "float" else int(self.tables),
            norms=None if self.norms is None else self.norms == "integer",
            keep=self.keep,
            skip_first=self.skip_first,
            skip_last=self.skip_last,
            assert_all=self.assert_all,
            backend=bound_backend(self.backend, CpuOptions()),
        )


def quantization_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options of a command that quantizes. It gets them as `quantization`, and the name of the `backend`."""

    @wraps(command)
    def with_options(words: _Words, **others: Any) -> None:
        command(quantization=words.options(), backend=words.backend, **others)

    decorated = gathered(_Words, "words")(with_options)
    for option in reversed(_OPTIONS):
        decorated = option(decorated)
    return decorated
