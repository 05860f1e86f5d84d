"""Ctrl-C: a command ends within half a second, with one line and the exit status that shells expect.

Python raises KeyboardInterrupt between two steps of its own, so that files are closed and temporary ones deleted on the
way out. A single call of machine code (a network that runs, a large product of numpy's) can keep it from that for many
seconds. So a thread watches: if the main thread has not heard of the signal in time, there is nothing to clean up that
it could clean up, and the process ends.

Nothing else of glowpy is imported here: to import the rest takes long enough to be interrupted.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import NoReturn

__all__ = ["INTERRUPTED", "run_to_end"]

INTERRUPTED = 130
"""The exit status of a command that Ctrl-C ended: 128 and the number of the signal."""

_PATIENCE = 0.25
"""Seconds in which the main thread must have heard."""

_RESTORE = "\r\x1b[2K\x1b[?25h"
"""Clears the line that shows the progress, and shows the cursor again."""


def run_to_end(command: Callable[[], int]) -> NoReturn:
    """Runs a command in the main thread and ends the process with its exit status."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        _watch()
    try:
        status = command()
    except KeyboardInterrupt:
        sys.stderr.write("interrupted\n")
        status = INTERRUPTED
    if status == INTERRUPTED:
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(INTERRUPTED)  # without waiting for a thread that is in LLVM
    sys.exit(status)


def _watch() -> None:
    """Makes sure that the process ends after SIGINT, whatever the main thread does."""
    heard = threading.Event()
    signals, alarm = socket.socketpair()
    alarm.setblocking(False)
    descriptor = alarm.detach()  # open as long as the process

    def hear(number: int, frame: FrameType | None) -> None:
        del number, frame
        heard.set()
        raise KeyboardInterrupt

    def watch() -> None:
        while number := signals.recv(1):
            if number[0] == signal.SIGINT and not heard.wait(_PATIENCE):
                restore = _RESTORE if os.isatty(2) else ""
                os.write(2, f"{restore}interrupted\n".encode())
                os._exit(INTERRUPTED)
            heard.clear()  # for the next one, while the main thread is on its way out

    signal.signal(signal.SIGINT, hear)
    signal.set_wakeup_fd(descriptor, warn_on_full_buffer=False)
    threading.Thread(target=watch, name="interrupt", daemon=True).start()
