"""Errors for what has to be known of symbolic extents, and does not follow from their bounds."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from glowpy.support.errors import UserError

if TYPE_CHECKING:
    from glowpy.support.symbolic import Dim

__all__ = ["UndecidedError", "UnequalError", "UnorderedError"]


class UndecidedError(UserError):
    """Something has to be known of a symbolic extent that its bounds do not say.

    Attributes:
        symbols: The names of the symbols on which it depends.
        found: Those of them that the network finds while it runs, in that order.
        questions: What had to be known first of these, where this is about what they depend on.
    """

    found: tuple[str, ...] = ()
    questions: tuple[UndecidedError, ...] = ()

    def __init__(self, message: str, dims: Iterable[Dim]) -> None:
        self.symbols = tuple(dict.fromkeys(one for dim in dims for one in _names(dim)))
        names = " or ".join(f"'{name}'" for name in self.symbols)
        note = f"give {names} one extent, or closer bounds" if names else ""
        super().__init__(message, note=note)


class UnequalError(UndecidedError):
    """Two symbolic extents have to be equal, and are not for all extents of their symbols.

    Attributes:
        pair: The two.
    """

    def __init__(self, dim: Dim, other: Dim) -> None:
        super().__init__(f"expected equal extents, got {dim} and {other}", [dim, other])
        self.pair = dim, other


class UnorderedError(UndecidedError):
    """One symbolic extent is less than another for some extents of their symbols, and not for others.

    Attributes:
        pair: The two.
    """

    def __init__(self, left: Dim, right: Dim) -> None:
        super().__init__(f"it is not known whether {left} < {right}", [left, right])
        self.pair = left, right


def _names(dim: Dim) -> Iterable[str]:
    """The symbols on which a dimension depends."""
    return () if isinstance(dim, int) else dim.symbols
