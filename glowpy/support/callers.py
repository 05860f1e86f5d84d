"""Caller of glowpy: the place that warnings point at."""

from __future__ import annotations

import sys
import warnings
from types import FrameType

__all__ = ["level_outside", "warn_caller"]


def level_outside() -> int:
    """The `stacklevel` with which the caller of this warns of the line outside glowpy that led to it."""
    frame: FrameType | None = sys._getframe(1)
    level = 1
    while frame is not None and frame.f_globals.get("__name__", "").partition(".")[0] == "glowpy":
        frame, level = frame.f_back, level + 1
    return level


def warn_caller(message: str) -> None:
    """Warns of the line outside glowpy that led to it."""
    warnings.warn(message, RuntimeWarning, stacklevel=level_outside())
