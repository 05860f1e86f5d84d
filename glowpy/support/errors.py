"""The two kinds of failure: the user's input is wrong, or glowpy is.

```
GlowError -- UserError      LoadError, VerifyError, UnsupportedError,
          |                 FrozenError, NoRoomError, ResourceError      exit code 1, no traceback
          '- InternalError  a bug in glowpy: the stage, and a traceback;
                            AccessError, what a sanitizer finds, without one
```

A message is one lower-case sentence that names the operand and says "expected ..., got ..."; the
location goes in `loc`, the line of the IR in `context`, and at most one remedy in `note`. Messages
are written where the error is raised.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from types import UnionType

from glowpy.support.loc import UNKNOWN, Loc

__all__ = [
    "AccessError",
    "Diagnostic",
    "FrozenError",
    "GlowError",
    "InternalError",
    "LoadError",
    "NoRoomError",
    "ResourceError",
    "UnsupportedError",
    "UserError",
    "VerifyError",
    "expect_type",
]


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One thing that is wrong: what, where, the line of the IR it is about, and a remedy.

    `verdict` is what onnxruntime says of the same, where programs look for its words: see importer/onnx/verdicts.py.
    """

    message: str
    loc: Loc = UNKNOWN
    context: str = ""
    note: str = ""
    verdict: str = ""

    def __str__(self) -> str:
        lines = [f"{self.loc}: {self.message}" if self.loc else self.message]
        lines += [f"  {line}" for line in self.context.splitlines()]
        if self.note:
            lines.append(f"note: {self.note}")
        return "\n".join(lines)


class GlowError(Exception):
    """The base of everything glowpy raises on purpose."""


class UserError(GlowError):
    """The input is wrong. Holds one or more diagnostics; the command line prints them and exits with 1."""

    def __init__(
        self,
        message: str,
        *,
        loc: Loc = UNKNOWN,
        context: str = "",
        note: str = "",
        verdict: str = "",
    ) -> None:
        super().__init__(message)
        self.diagnostics: list[Diagnostic] = [Diagnostic(message, loc, context, note, verdict)]

    @classmethod
    def of(cls, diagnostics: Iterable[Diagnostic]) -> UserError:
        """One error that reports several diagnostics at once."""
        collected = list(diagnostics)
        error = cls(collected[0].message)
        error.diagnostics = collected
        return error

    def __str__(self) -> str:
        return "\n".join(str(diagnostic) for diagnostic in self.diagnostics)


class LoadError(UserError):
    """A file cannot be read: it is missing, truncated, too large, or not what its name says."""


class VerifyError(UserError):
    """A graph or an IR function breaks rules of its level; every broken rule is one diagnostic."""


class UnsupportedError(UserError):
    """Well-formed input that glowpy, or the chosen backend, cannot handle."""


class FrozenError(UserError):
    """A session that is to compile nothing any more has no code for a call."""


class NoRoomError(UserError):
    """Raised where the memory planned for the bounds of dimensions is more than there is."""


class ResourceError(UserError):
    """The machine, or what this process may take of it, has no more memory, threads, processes or open files."""


class InternalError(GlowError):
    """A bug in glowpy, or in code that extends it, not in the user's input; `remedy` says what to do about it."""

    def __init__(
        self,
        message: str,
        *,
        remedy: str = "This is a bug in glowpy; please report it with the model that causes it.",
    ) -> None:
        super().__init__(message)
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{super().__str__()}\n{self.remedy}" if self.remedy else super().__str__()


class AccessError(InternalError):
    """Machine code touches memory that it should not: a fault of a kernel, of which a traceback of Python says nothing.

    Attributes:
        package: Whose kernel it is; empty for glowpy's own.
    """

    def __init__(self, message: str, *, package: str = "") -> None:
        if package:
            super().__init__(message, remedy="")
        else:
            super().__init__(message)
        self.package = package


def expect_type(what: str, got: object, type_: type | UnionType, expected: str) -> None:
    """Raises UserError for an argument, called `what`, of another type; `expected` says what it should be."""
    if not isinstance(got, type_):
        shown = repr(got) if isinstance(got, str) else type(got).__name__
        raise UserError(f"{what}: expected {expected}, got {shown}")
