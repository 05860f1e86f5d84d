"""Limits of the machine: no memory, no more threads, processes or open files. That is no bug, and users are told."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import NoReturn, ParamSpec, TypeVar

from glowpy.support.errors import ResourceError

__all__ = ["LIMIT_ERRORS", "of_limits", "raise_told", "within_limits"]

P = ParamSpec("P")
T = TypeVar("T")

_SHORT_OF = {
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or threads",
    errno.EMFILE: "files that may be open in this process",
    errno.ENFILE: "files that may be open on this machine",
}
_NO_THREAD = "can't start new thread"
"""Message of Python's RuntimeError when no thread can be started."""
LIMIT_ERRORS = (MemoryError, OSError, RuntimeError)
"""Errors that may be about exhausted resources of the machine."""


def of_limits(error: BaseException) -> ResourceError | None:
    """Translates an error for users, if it is about an exhausted resource of the machine."""
    match error:
        case MemoryError():
            what, why = "memory", str(error)
        case OSError() if error.errno in _SHORT_OF:
            what, why = _SHORT_OF[error.errno], error.strerror or ""
        case RuntimeError() if _NO_THREAD in str(error):
            what, why = "threads", str(error)
        case _:
            return None
    reason = f": {why[0].lower()}{why[1:]}" if why else ""
    return ResourceError(f"there {'is' if what == 'memory' else 'are'} not enough {what}{reason}")


def raise_told(error: BaseException) -> NoReturn:
    """Raises the ResourceError that an error is for users, or the error: in what runs often, in place of a wrapper."""
    if (told := of_limits(error)) is None:
        raise error
    raise told from error


def within_limits(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which raises ResourceError where the machine has not enough for it."""

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except LIMIT_ERRORS as error:
            raise_told(error)

    return limited
