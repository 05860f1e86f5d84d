"""Outputs of a network beside those of its model: extents that it found, and whether indices led out of range.

Whoever runs it reads them. A check is four numbers: whether an index is out of range, which one, and between which
bounds all should be.
"""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping, Sequence
from typing import TYPE_CHECKING

from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.loc import Loc

if TYPE_CHECKING:
    from glowpy.core.tensor import Array
    from glowpy.support.symbolic import Dim

__all__ = ["CHECK", "checks_among", "count_output", "raise_wrong", "range_sentence"]

CHECK = "index check "
"""First part of the name of a check."""


def count_output(name: str) -> str:
    """The output that says what an extent is of which something is supposed."""
    return f"extent {name}"


def range_sentence(index: int, low: Dim, high: Dim) -> str:
    """Describes what is wrong with an index."""
    return f"expected indices from {low} to {high}, got {index}"


def checks_among(outputs: Iterable[str]) -> list[str]:
    """The outputs of a network that are checks."""
    return [name for name in outputs if name.startswith(CHECK)]


def raise_wrong(outputs: MutableMapping[str, Array], checks: Sequence[str], file: str) -> None:
    """Takes the checks out of what a network gave. Raises UserError that names the nodes with indices out of range."""
    wrong = [(name, numbers) for name in checks if (numbers := outputs.pop(name))[0]]
    if wrong:
        raise UserError.of(
            Diagnostic(
                f"{name.removeprefix(CHECK).split(' ', 1)[1]}: {range_sentence(*numbers.tolist()[1:])}",
                Loc(file),
            )
            for name, numbers in wrong
        )
