"""Warnings about options without effect: once in a process, to the logger `glowpy.onnxruntime`."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, final

from glowpy.support.forks import Lock

__all__ = [
    "say_once",
    "set_default_logger_callback",
    "set_default_logger_severity",
    "set_default_logger_verbosity",
]

_LOGGER = logging.getLogger("glowpy.onnxruntime")
_LEVELS = (logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR, logging.CRITICAL)
"""By onnxruntime's severities: verbose, info, warning, error, fatal."""

_said: set[str] = set()
_lock = Lock()


def say_once(message: str, severity: int = -1) -> None:
    """Logs a warning, unless it was logged before or `severity` asks for errors only; -1 is the default severity."""
    level = _LOGGER.getEffectiveLevel() if severity < 0 else _LEVELS[min(severity, 4)]
    if level > logging.WARNING:
        return
    with _lock:
        if message in _said:
            return
        _said.add(message)
    _LOGGER.warning(message)


def set_default_logger_severity(severity: int) -> None:
    """From which severity on something is logged: 0 verbose, 1 info, 2 warning, 3 error, 4 fatal.

    Raises RuntimeError for another number.
    """
    if not 0 <= severity < len(_LEVELS):
        raise RuntimeError(f"expected a severity from 0 to 4, got {severity}")
    _LOGGER.setLevel(_LEVELS[severity])


Callback = Callable[[int, str, str, str, str], object]
"""Takes a severity, a category, an identifier, the place in the code, and a message."""


@dataclass
class _Unraised:
    """The argument of `sys.unraisablehook`."""

    exc_type: type[BaseException]
    exc_value: BaseException | None
    exc_traceback: TracebackType | None
    err_msg: str | None
    object: Any


@final
class _Calling(logging.Handler):
    """Hands messages to a function. What that raises goes to `sys.unraisablehook`."""

    def __init__(self, callback: Callback) -> None:
        super().__init__()
        self._callback = callback

    def emit(self, record: logging.LogRecord) -> None:
        """Hands over a message."""
        severity = _LEVELS.index(record.levelno) if record.levelno in _LEVELS else 2
        place = f"{record.pathname}:{record.lineno}"
        try:
            self._callback(severity, "glowpy", "Default", place, record.getMessage())
        except Exception as error:  # noqa: BLE001 -- logging must not fail
            sys.unraisablehook(_Unraised(type(error), error, error.__traceback__, None, self))


def set_default_logger_callback(callback: Callback | None, severity: int = 2) -> None:
    """Has a function called with every message from a severity on; None ends that.

    Raises RuntimeError for what cannot be called, and for another severity than 0 to 4.
    """
    if callback is not None and not callable(callback):
        raise RuntimeError(f"expected a function or None, got {callback!r}")
    if not 0 <= severity < len(_LEVELS):
        raise RuntimeError(f"expected a severity from 0 to 4, got {severity}")
    for handler in [
        other_handler for other_handler in _LOGGER.handlers if isinstance(other_handler, _Calling)
    ]:
        _LOGGER.removeHandler(handler)
    if callback is not None:
        _LOGGER.addHandler(_Calling(callback))
        set_default_logger_severity(severity)


def set_default_logger_verbosity(verbosity: int) -> None:
    """How much of what is verbose is logged. There is one level of it."""
    del verbosity
