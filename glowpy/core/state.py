"""Variables of compiled networks, as ports, and what they say of the extents of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from glowpy.core.extents import Extents, extents_of
from glowpy.core.initial import Initial, elements
from glowpy.core.tensor import Tensor, allocated
from glowpy.core.type import Shape, Type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Symbol, symbol

__all__ = ["Known", "StatePort", "box", "given_extents"]

Known: TypeAlias = tuple[tuple[str, Shape, tuple[int, ...]], ...]
"""A variable's name, dimensions as they are declared, and what they are: all that it says of the symbols of a run."""


@dataclass(frozen=True)
class StatePort:
    """A variable of a compiled network.

    Attributes:
        name: In the user's model, where it was an input.
        placeholder: In dumps.
        type: The type that a run reads.
        following: The type that the run leaves, which the next one reads.
        memory: Where both lie, at the beginning along each axis.
        initial: The elements that the first run reads; None for zeros. Equal ports may begin differently.
    """

    name: str
    placeholder: str
    type: Type
    following: Type
    memory: Type
    initial: Initial = field(default=None, compare=False)

    @property
    def fresh(self) -> tuple[int | None, ...]:
        """The shape of a variable that no run has saved: dimensions that change are 0, the others what inputs say.

        One with an initial value has the shape of that.
        """
        if self.initial is not None:
            return self.type.extents
        pairs = zip(self.type.shape, self.following.shape, strict=True)
        return tuple(
            0 if size != following else size if isinstance(size, int) else None
            for size, following in pairs
        )

    @property
    def contents(self) -> Tensor:
        """The memory before the first run: the initial value at the beginning along each axis, and zeros."""
        memory = allocated(self.memory.extents, self.memory.kind.dtype)
        if self.initial is not None:
            memory[box(self.type.extents)] = elements(self.initial, self.type).array
        return Tensor(self.memory, memory)

    @property
    def growing(self) -> Shape:
        """The dimensions that change from run to run."""
        pairs = zip(self.type.shape, self.following.shape, strict=True)
        return tuple(size for size, following in pairs if size != following)


def box(shape: Sequence[int | None]) -> tuple[slice, ...]:
    """The part of a variable's memory in which contents of a shape lie."""
    return tuple(slice(0, size or 0) for size in shape)


def given_extents(symbols: Mapping[str, Symbol], given: Extents, known: Known) -> dict[str, int]:
    """All symbols of a network, of which the user says some and variables the others.

    Raises UserError for a symbol that is none, no whole number or outside its bounds, for contradictions, and for what
    nobody says.
    """
    if unknown := [name for name in given if name not in symbols]:
        expected = ", ".join(map(repr, symbols)) or "(there are none)"
        raise UserError(f"expected the extents of {expected}, got '{unknown[0]}'")
    for name, extent in given.items():
        if not isinstance(extent, int | np.integer):
            raise UserError(f"expected a whole number for '{name}', got {extent!r}")
    dims: dict[str, tuple[Shape, tuple[int, ...]]] = {
        name: (declared, actual) for name, declared, actual in known
    }
    stated = [symbol(name, symbols[name].low, symbols[name].high) for name in given]
    dims["extents"] = tuple(stated), tuple(given.values())
    extents = extents_of(dims)
    if missing := [name for name in symbols if name not in extents]:
        raise UserError(f"expected the extent of {', '.join(map(repr, missing))}")
    return extents
