"""Files and folders that a user has named for glowpy to write.

* A regular file is written beside its place and takes it when it is whole: until then, and whatever goes wrong, what
  was there is there. It keeps its permissions, and its owner where that is possible.
* A symbolic link is followed: what it leads to is written.
* What is no regular file (a device, a FIFO) is written in place, and so is a descriptor of this process, such as
  `/dev/stdout`.
* Where a folder is named, it is made with those above it. Where a file is named, no folder is made: a path that leads
  nowhere is a mistake.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
import stat
import sys
import tempfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import IO

from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

__all__ = ["check_output_file", "check_output_folder", "make_output_folder", "write_output_file"]

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_LINKS = 40
"""The number of links that Linux follows in a row."""


def check_output_file(path: str) -> None:
    """Finds out before the work that a file cannot be written. Raises UserError."""
    if not path:
        raise UserError("expected the name of a file to write, got ''")
    if os.path.isdir(path) or os.path.basename(path) in ("", os.curdir, os.pardir):
        raise UserError("expected a file to write, got the name of a folder", loc=Loc(path))
    if os.path.exists(path):
        if not os.access(path, os.W_OK):
            raise UserError("cannot write the file: it may not be written", loc=Loc(path))
        if not os.path.isfile(path) or _own_descriptor(path) is not None:
            return
    _check_parent(os.path.realpath(path), path)


def check_output_folder(path: str) -> None:
    """Finds out before the work that a folder cannot be made, or takes no files. Raises UserError."""
    if not path:
        raise UserError("expected the name of a folder to write to, got ''")
    place = os.path.realpath(path)
    while not os.path.lexists(place):
        place = os.path.dirname(place)
    if not os.path.isdir(place):
        raise UserError(f"expected a folder to write to, '{place}' is none", loc=Loc(path))
    if not os.access(place, os.W_OK | os.X_OK):
        raise UserError(
            f"cannot write there: the folder '{place}' takes no new files", loc=Loc(path)
        )


def _check_parent(target: str, path: str) -> None:
    parent = os.path.dirname(target)
    named = os.path.dirname(path)
    if named and os.path.realpath(named) == parent:
        parent = named  # as the user has said it
    if not os.path.isdir(parent):
        fault = f"'{parent}' is no folder" if os.path.exists(parent) else f"no folder '{parent}'"
        note = "" if os.path.exists(parent) else f"make it first: mkdir -p {parent}"
        raise UserError(f"cannot write there: {fault}", loc=Loc(path), note=note)
    if not os.access(parent, os.W_OK | os.X_OK):
        raise UserError(
            f"cannot write there: the folder '{parent}' takes no new files", loc=Loc(path)
        )


def make_output_folder(path: str | Path) -> Path:
    """The folder, which is there now, with those above it. Raises UserError where it cannot be made."""
    check_output_folder(str(path))
    try:
        Path(os.path.realpath(path)).mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"cannot make the folder: {error.strerror}", loc=Loc(str(path))) from None
    return Path(path)


def write_output_file(path: str | Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file: a regular one whole or not at all.

    Args:
        path: Where to.
        write: Writes the content to the file it is given.

    Raises UserError where that is impossible, and BrokenPipeError where the reader of a FIFO has gone.
    """
    name = str(path)
    check_output_file(name)
    try:
        descriptor = _own_descriptor(name)
        if descriptor is not None:
            sys.stdout.flush()
            _write_in_place(os.dup(descriptor), write)
        elif os.path.exists(name) and not os.path.isfile(name):
            _write_in_place(name, write)
        else:
            _replace(Path(os.path.realpath(name)), write)
    except BrokenPipeError:
        raise
    except OSError as error:
        note = "make room there; nothing is lost" if error.errno in _FULL else ""
        reason = error.strerror or error
        raise UserError(f"cannot write the file: {reason}", loc=Loc(name), note=note) from None


def _own_descriptor(path: str) -> int | None:
    """The descriptor of this process that a path such as `/dev/stdout` leads to.

    To open it once more would cut off what has been written to it, and is not possible for a socket.
    """
    for _ in range(_LINKS):
        path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        if match := re.fullmatch(rf"(?:/proc/{os.getpid()}(?:/task/\d+)?|/dev)/fd/(\d+)", path):
            return int(match[1])
        if not os.path.islink(path):
            return None
        path = os.path.join(os.path.dirname(path), os.readlink(path))
    return None


def _write_in_place(file: str | int, write: Callable[[IO[bytes]], object]) -> None:
    """Writes what need not be a file that one can seek in, which formats such as .npz want."""
    with tempfile.TemporaryFile() as scratch, open(file, "wb") as output:
        write(scratch)
        scratch.seek(0)
        shutil.copyfileobj(scratch, output)


def _replace(target: Path, write: Callable[[IO[bytes]], object]) -> None:
    """Writes a file of another name in the same folder, and renames it."""
    earlier = target.stat() if target.exists() else None
    part = target.with_name(f".{os.urandom(8).hex()}.part")
    flags = os.O_CREAT | os.O_EXCL | os.O_RDWR | getattr(os, "O_BINARY", 0)
    descriptor = os.open(part, flags, 0o666)
    try:
        with os.fdopen(descriptor, "w+b") as file:
            write(file)
            if earlier is not None:
                file.flush()
                _keep(file.fileno(), earlier)
                os.fsync(file.fileno())  # before what it replaces is gone
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _keep(descriptor: int, earlier: os.stat_result) -> None:
    """Gives a file the owner and permissions of another."""
    if sys.platform == "win32":
        return
    status = os.fstat(descriptor)
    if (status.st_uid, status.st_gid) != (earlier.st_uid, earlier.st_gid):
        with suppress(PermissionError):  # only root may give files away
            os.fchown(descriptor, earlier.st_uid, earlier.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(earlier.st_mode))
