"""A mutant: one file of the tree with one small wrong change."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Change", "Mutant", "MutationError"]


class MutationError(Exception):
    """The run cannot be made; the message is for whoever started it."""


@dataclass(frozen=True, slots=True)
class Change:
    """One way in which a source can be changed."""

    line: int
    about: str
    apply: Callable[[], str]
    """The changed source."""


@dataclass(frozen=True, slots=True)
class Mutant:
    """One wrong change of one file."""

    name: str
    area: str
    file: Path
    """Relative to the root of the tree."""
    line: int
    """The first line that differs."""
    about: str
    original: str
    mutated: str
    tests: tuple[str, ...] = ()
    """The tests to run; empty where they are chosen by what they cover."""

    @property
    def place(self) -> str:
        """File and line."""
        return f"{self.file.as_posix()}:{self.line}"

    @property
    def diff(self) -> str:
        """The change as a unified diff."""
        name = self.file.as_posix()
        lines = difflib.unified_diff(
            self.original.splitlines(keepends=True),
            self.mutated.splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
        return "".join(line if line.endswith("\n") else line + "\n" for line in lines)
