"""Reports: errors of a model, placed where they are, and all in one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

from glowpy.importer.needs import RoundsError
from glowpy.support.errors import GlowError, UnsupportedError, UserError
from glowpy.support.limits import of_limits
from glowpy.support.loc import Loc

__all__ = ["blamed", "located", "raise_all"]


@contextmanager
def blamed(reader: str, loc: Loc) -> Iterator[None]:
    """Names the reader of a package in errors that are its own and say nothing of it: no bugs of glowpy.

    Without the name of a reader, errors are as they are.
    """
    try:
        yield
    except GlowError:
        raise
    except Exception as error:
        if not reader or of_limits(error) is not None:
            raise
        raise UserError(
            f"{reader} cannot read the file: {type(error).__name__}: {error}",
            loc=loc,
            note="the file may be damaged; if it is not, report it to the authors of the package",
        ) from error


def located(error: UserError, loc: Loc, prefix: str = "") -> UserError:
    """The error, with `loc` and `prefix` in the diagnostics that have no location."""
    error.diagnostics = [
        diagnostic
        if diagnostic.loc
        else replace(diagnostic, message=f"{prefix}{diagnostic.message}", loc=loc)
        for diagnostic in error.diagnostics
    ]
    return error


def raise_all(errors: list[UserError]) -> None:
    """Raises one error for all, if there are any: an UnsupportedError or RoundsError iff all of them are."""
    if errors:
        kinds = (RoundsError, UnsupportedError, UserError)
        kind = next(k for k in kinds if all(isinstance(error, k) for error in errors))
        raise kind.of(diagnostic for error in errors for diagnostic in error.diagnostics)
