"""Facts about symbolic extents that do not follow from their bounds but are needed: as records, and as errors.

A compilation that cannot go on raises an error, whose `need` is a record of what would get it further. Whoever called
answers that by what it compiles for next; nobody writes to errors.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from glowpy.support.errors import UserError

if TYPE_CHECKING:
    from glowpy.support.symbolic import Dim

__all__ = ["Asked", "Need", "Question", "UndecidedError", "UnequalError", "UnorderedError"]


@dataclass(frozen=True)
class Question:
    """Whether two dimensions are equal, or the first is less than the second, which their bounds leave open."""

    relation: Literal["equal", "less"]
    left: Dim
    right: Dim


@dataclass(frozen=True)
class Asked:
    """A question about extents that a network finds while it runs.

    Attributes:
        question: The question.
        found: The names of these extents, in the order in which they are found.
    """

    question: Question
    found: tuple[str, ...]


@dataclass(frozen=True)
class Need:
    """Knowledge that a compilation needs to get further.

    Attributes:
        why: The reason, as a sentence.
        symbols: The symbols that it is about.
        question: The relation of them that has to be known, where one extent of each is more than that.
        inputs: The inputs whose elements decide about it, in place of symbols.
        counts: The extents that have no bound.
        asked: The questions about extents that the network finds.
    """

    why: str
    symbols: tuple[str, ...] = ()
    question: Question | None = None
    inputs: tuple[str, ...] = ()
    counts: tuple[str, ...] = ()
    asked: tuple[Asked, ...] = ()


class UndecidedError(UserError):
    """Something has to be known of a symbolic extent that its bounds do not say.

    Attributes:
        symbols: The names of the symbols on which it depends.
        question: The relation of these that has to be known, where that is a question about two dimensions.
        asked: Earlier questions about extents that the network finds, where this is about what they depend on.
    """

    def __init__(
        self,
        message: str,
        dims: Iterable[Dim],
        question: Question | None = None,
        asked: Sequence[Asked] = (),
    ) -> None:
        self.symbols = tuple(dict.fromkeys(name for dim in dims for name in _names(dim)))
        self.question, self.asked = question, tuple(asked)
        names = " or ".join(f"'{name}'" for name in self.symbols)
        note = f"give {names} one extent, or closer bounds" if names else ""
        super().__init__(message, note=note)

    @property
    def need(self) -> Need:
        """The need that this error leaves, which the compilation has to know to get further."""
        message = self.diagnostics[0].message
        return Need(message, self.symbols, self.question, asked=self.asked)

    def asked_of(self, found: Iterable[str]) -> tuple[Asked, ...]:
        """The question, where some of the symbols are extents that the network finds."""
        return () if self.question is None else (Asked(self.question, tuple(found)),)


class UnequalError(UndecidedError):
    """Two symbolic extents have to be equal, and are not for all extents of their symbols."""

    def __init__(self, dim: Dim, other: Dim) -> None:
        message = f"expected equal extents, got {dim} and {other}"
        super().__init__(message, [dim, other], Question("equal", dim, other))


class UnorderedError(UndecidedError):
    """One symbolic extent is less than another for some extents of their symbols, and not for others."""

    def __init__(self, left: Dim, right: Dim) -> None:
        message = f"it is not known whether {left} < {right}"
        super().__init__(message, [left, right], Question("less", left, right))


def _names(dim: Dim) -> Iterable[str]:
    """The symbols on which a dimension depends."""
    return () if isinstance(dim, int) else dim.symbols
