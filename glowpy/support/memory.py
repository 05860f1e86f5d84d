"""How much memory this process has taken."""

from __future__ import annotations

import sys

if sys.platform != "win32":
    import resource

__all__ = ["peak_memory"]


def peak_memory() -> int | None:
    """The most bytes of memory that this process has had so far; None where the system does not say."""
    if sys.platform == "win32":
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # macOS counts in bytes
