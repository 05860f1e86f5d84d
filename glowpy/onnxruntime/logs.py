"""What is said of options without effect: once in a process, to the logger `glowpy.onnxruntime`."""

from __future__ import annotations

import logging

from glowpy.support.forks import Lock

__all__ = ["say_once", "set_default_logger_severity", "set_default_logger_verbosity"]

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


def set_default_logger_verbosity(verbosity: int) -> None:
    """How much of what is verbose is logged. There is one level of it."""
    del verbosity
