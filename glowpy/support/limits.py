"""Where the machine ends: no memory, no more threads, processes or open files. That is no bug, and users are told."""

from __future__ import annotations

import errno
import functools
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from glowpy.support.errors import ResourceError

__all__ = ["of_limits", "within_limits"]

P = ParamSpec("P")
T = TypeVar("T")

_SHORT_OF = {
    errno.ENOMEM: "memory",
    errno.EAGAIN: "processes or threads",
    errno.EMFILE: "files that may be open in this process",
    errno.ENFILE: "files that may be open on this machine",
}
_NO_THREAD = "can't start new thread"
"""What Python says in a RuntimeError."""


def of_limits(error: BaseException) -> ResourceError | None:
    """What an error means for users, if it is about what the machine has no more of."""
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


def within_limits(function: Callable[P, T]) -> Callable[P, T]:
    """The function, which raises ResourceError where the machine has not enough for it."""

    @functools.wraps(function)
    def limited(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return function(*args, **kwargs)
        except (MemoryError, OSError, RuntimeError) as error:
            if (told := of_limits(error)) is None:
                raise
            raise told from error

    return limited
