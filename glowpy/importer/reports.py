"""Reports: errors of a model, placed where they are, and all in one."""

from __future__ import annotations

from dataclasses import replace

from glowpy.importer.needs import RoundsError
from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc

__all__ = ["located", "raise_all"]


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
