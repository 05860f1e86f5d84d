"""Other processes, of which those of this Python have to find the packages that this one finds."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

__all__ = ["child_environment"]


def child_environment(command: Sequence[str], **more: str) -> dict[str, str]:
    """The environment for a command: this process's, and if it starts this Python, with all of its path.

    That may be longer than what it was given: packages may be there by `sys.path`, as for programs that unpack
    themselves, and the environment say nothing of it. Any other program, such as a compiler that is a script, may run
    in another Python, which has packages of its own. Folders that the variable cannot name are left out.
    """
    if command[0] != sys.executable:
        return {**os.environ, **more}
    folders = [os.path.abspath(folder) for folder in sys.path]
    path = os.pathsep.join(folder for folder in folders if os.pathsep not in folder)
    return {**os.environ, "PYTHONPATH": path, **more}
