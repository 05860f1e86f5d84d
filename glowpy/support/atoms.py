"""Atoms of symbolic integers: symbols, quotients that do not divide evenly, the least or greatest of several.

Their operands are expressions of `support.symbolic`, which has the arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from glowpy.support.symbolic import Dim, Expr

__all__ = [
    "UNBOUNDED",
    "Atom",
    "Extreme",
    "Quotient",
    "Symbol",
    "at_extents",
    "highest",
    "lowest",
]

UNBOUNDED = 1 << 40
"""The highest extent of a symbol without a bound: more than any tensor has elements."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named extent and its bounds, both of which it may have.

    Code is made for the likely extent, of the others it only has to be right.
    """

    name: str
    low: int = 1
    high: int = UNBOUNDED
    likely: int = UNBOUNDED

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, slots=True)
class Quotient:
    """The floor of a quotient of expressions; the divisor is positive."""

    dividend: Expr
    divisor: Dim

    @property
    def parts(self) -> tuple[Dim, ...]:
        """The dimensions that it is computed from."""
        return self.dividend, self.divisor

    @property
    def low(self) -> int:
        """The least that it can be."""
        return min(
            self.dividend.low // end for end in (lowest(self.divisor), highest(self.divisor))
        )

    @property
    def high(self) -> int:
        """The most that it can be."""
        return max(
            self.dividend.high // end for end in (lowest(self.divisor), highest(self.divisor))
        )

    def __str__(self) -> str:
        return f"div({self.dividend},{self.divisor})"

    def number(self, extents: Mapping[str, int]) -> int:
        """Returns its value for these extents."""
        return at_extents(self.dividend, extents) // at_extents(self.divisor, extents)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least (`min`) or the greatest (`max`) of several, in the order of their texts."""

    name: str
    choices: tuple[Dim, ...]

    @property
    def parts(self) -> tuple[Dim, ...]:
        """The dimensions that it is computed from."""
        return self.choices

    @property
    def low(self) -> int:
        """The least that it can be."""
        return (min if self.name == "min" else max)(map(lowest, self.choices))

    @property
    def high(self) -> int:
        """The most that it can be."""
        return (min if self.name == "min" else max)(map(highest, self.choices))

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.choices))})"

    def number(self, extents: Mapping[str, int]) -> int:
        """Returns its value for these extents."""
        return (min if self.name == "min" else max)(
            at_extents(dim, extents) for dim in self.choices
        )


Atom: TypeAlias = Symbol | Quotient | Extreme
"""Factors of the products in an expression."""


def lowest(dim: Dim) -> int:
    """A bound of a dimension from below."""
    return dim if isinstance(dim, int) else dim.low


def highest(dim: Dim) -> int:
    """A bound of a dimension from above."""
    return dim if isinstance(dim, int) else dim.high


def at_extents(dim: Dim, extents: Mapping[str, int]) -> int:
    """The number that a dimension is for these extents. Raises KeyError for a symbol that is not among them."""
    if isinstance(dim, int):
        return dim
    total = 0
    for atoms, factor in dim.terms:
        for atom in atoms:
            factor *= extents[atom.name] if isinstance(atom, Symbol) else atom.number(extents)
        total += factor
    return total
