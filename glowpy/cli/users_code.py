"""Code of the user's that the command line runs: `module:name` says where it is."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module

from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["names_object", "users_code", "users_object"]


def names_object(text: str) -> bool:
    """Whether a text is `module:name`; either may have dots."""
    module, separator, name = text.partition(":")
    parts = [*module.split("."), *name.split(".")]
    return bool(separator) and all(part.isidentifier() for part in parts)


def users_object(text: str, option: str) -> object:
    """Returns the object that `module:name` names; the module may lie in the current folder.

    Args:
        text: Where it is.
        option: The option of the command line which says so, for errors.

    Raises UserError for a text of another form, for what is not there, and for what importing it raises.
    """
    module, _, name = text.partition(":")
    if not names_object(text):
        raise UserError(f"{option}: expected module:name, got '{text}'")
    sys.path.insert(0, os.getcwd())
    try:
        with users_code(f"the module '{module}'", option):
            named: object = _imported(module, option)
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(named, part):
            raise UserError(f"{option}: the module '{module}' has no '{name}'")
        named = getattr(named, part)
    return named


def _imported(module: str, option: str) -> object:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        note = "the current folder is searched first, then where Python looks"
        raise UserError(f"{option}: there is no module '{error.name}'", note=note) from None


@contextmanager
def users_code(name: str, option: str) -> Iterator[None]:
    """Makes whatever code of the user's raises a UserError, with the line."""
    try:
        yield
    except UserError:
        raise
    except (Exception, SystemExit) as error:
        frame = traceback.extract_tb(error.__traceback__)[-1]
        raise UserError(
            f"{option}: {name} raised {type(error).__name__}: {error}",
            loc=Loc(frame.filename, frame.lineno or 0),
        ) from error
