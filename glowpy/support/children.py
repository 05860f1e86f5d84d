"""Other processes of Python, which have to find the packages that this one finds."""

from __future__ import annotations

import os
import sys

__all__ = ["child_environment"]


def child_environment(**more: str) -> dict[str, str]:
    """This process's environment for another Python: with all of its path, which may be longer than that it was given.

    Packages may be there by `sys.path`, as for programs that unpack themselves, and the environment say nothing of it.
    """
    path = os.pathsep.join(os.path.abspath(folder) for folder in sys.path)
    return {**os.environ, "PYTHONPATH": path, **more}
