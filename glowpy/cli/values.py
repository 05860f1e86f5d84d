"""--value: elements of inputs that the user says while compiling, such as a shape or what chooses a branch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, TypeVar

import click
import numpy as np

from glowpy.cli.files import read_array
from glowpy.core.array_file import as_codes
from glowpy.core.tensor import Array
from glowpy.importer.declared import ValueInfo
from glowpy.importer.value_types import HostInfo
from glowpy.support.errors import UserError

__all__ = ["parse_values", "value_option"]

F = TypeVar("F", bound=Callable[..., Any])

_FILES = (".npy", ".pb")
_TRUTHS = {"true": 1, "false": 0}


def value_option() -> Callable[[F], F]:
    """The option --value of a verb."""
    return click.option(
        "--value",
        "values",
        multiple=True,
        help="INPUT=16000, INPUT=1,3,224,224 or INPUT=FILE.npy: elements of an input to compile for.",
    )


def parse_values(
    texts: Sequence[str], infos: Sequence[ValueInfo] | Sequence[HostInfo]
) -> dict[str, Array]:
    """Parses --value: the elements of inputs, as arrays of their types. Raises UserError."""
    infos_by_name = {info.name: info for info in infos}
    values: dict[str, Array] = {}
    for text in texts:
        name, separator, elements = text.partition("=")
        if not (name and separator and elements):
            raise UserError(f"--value: expected INPUT=NUMBERS or INPUT=FILE.npy, got '{text}'")
        if name not in infos_by_name:
            names = ", ".join(infos_by_name) or "(there are none)"
            raise UserError(f"--value: expected one of the inputs {names}, got '{name}'")
        if name in values:
            raise UserError(f"--value: '{name}' is given twice")
        info = infos_by_name[name]
        if info.kind is None:
            raise UserError(f"--value: expected an input of numbers, got '{name}' of {info.type}")
        is_file = elements.endswith(_FILES)
        array = as_codes(read_array(elements), info.kind) if is_file else _numbers(info, elements)
        if array.dtype != info.dtype:
            raise UserError(f"--value: expected '{name}' of {info.dtype}, got {array.dtype}")
        values[name] = array
    return values


def _numbers(info: ValueInfo | HostInfo, text: str) -> Array:
    """Numbers with commas between them, in the shape of an input: a scalar, a vector, or what the model says."""
    numbers = [_number(info, word.strip()) for word in text.split(",")]
    shape = info.shape if info.shape is not None else [None] * (len(numbers) > 1)
    try:
        return np.array(numbers, info.dtype).reshape(
            [d if isinstance(d, int) else -1 for d in shape]
        )
    except ValueError:
        spelled = "x".join("?" if dim is None else str(dim) for dim in shape)
        raise UserError(
            f"--value: expected '{info.name}' of shape [{spelled}], got {len(numbers)} numbers",
            note=f"a file has any shape: --value {info.name}=FILE.npy",
        ) from None


def _number(info: ValueInfo | HostInfo, word: str) -> float:
    """An element of an input. Raises UserError for a word that is none."""
    fractions = info.kind is not None and info.kind.has_fractions
    try:
        number = _TRUTHS[word.lower()] if word.lower() in _TRUTHS else int(word)
        if fractions or int(np.array(number).astype(info.dtype)) == number:
            return number
    except (ValueError, OverflowError):
        if fractions:
            with suppress(ValueError):
                return float(word)
    raise UserError(
        f"--value: expected numbers of {info.dtype} for '{info.name}', got '{word}'",
        note=f"numbers have commas between them; all else is a file: --value {info.name}=FILE.npy",
    )
