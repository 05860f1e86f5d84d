"""Bytes that do not change: in memory, or in a file.

They are read when they are asked for. A file stays open as long as something refers to it, so that it may be renamed
or deleted meanwhile; that it is not changed is looked at with every reading. Its times tell that, if it was not changed
just before it was opened: times of files count in steps, and two changes within one look like one. So a file that is
that young is waited for.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from abc import ABC, abstractmethod
from pathlib import Path
from typing import final

import numpy as np

from glowpy.core.tensor import Array
from glowpy.support.errors import LoadError
from glowpy.support.forks import Lock

__all__ = ["InFile", "InMemory", "Storage"]

_CHUNK = 1 << 20
_AT_ONCE = 1 << 24
"""Bytes that a single call reads: until it returns, no signal is heard."""

_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_LOCK = Lock()

_SETTLED = 2_000_000_000
"""Nanoseconds after which another change of a file shows in its times, on a file system with steps of up to 2 s."""
_TICKS = 20_000_000
"""The same where times have nanoseconds: they are those of the last tick of the system, at least a hundred a second."""
_MILLISECOND = 1_000_000
_MOST_WAITS = 5
"""A file that is changed again and again is not waited for any more."""


class Storage(ABC):
    """Bytes that do not change."""

    def __init__(self) -> None:
        self._digests: dict[tuple[int, int], str] = {}

    @property
    @abstractmethod
    def size(self) -> int:
        """How many there are."""

    @abstractmethod
    def read(self, start: int, count: int) -> Array:
        """`count` bytes from `start` on, as an array of u8. Raises LoadError if they can no longer be read."""

    def digest(self, start: int, count: int) -> str:
        """SHA-256 of these bytes, which are read in small parts, and once."""
        if (start, count) not in self._digests:
            digest = hashlib.sha256()
            end = start + count
            for at in range(start, end, _CHUNK):
                digest.update(self.read(at, min(_CHUNK, end - at)).data)
            self._digests[start, count] = digest.hexdigest()
        return self._digests[start, count]


@final
class InMemory(Storage):
    """Bytes that are in memory anyway."""

    def __init__(self, content: bytes = b"") -> None:
        super().__init__()
        self._content = content

    @property
    def size(self) -> int:
        """How many there are."""
        return len(self._content)

    def read(self, start: int, count: int) -> Array:
        """`count` bytes from `start` on, not copied."""
        return np.frombuffer(self._content, np.uint8, count, start)


@final
class InFile(Storage):
    """The bytes of a file. Raises LoadError if it cannot be opened.

    A file that is kept open may be renamed and deleted. That it is not changed in place is told by its size and time of
    modification.
    """

    def __init__(self, path: Path, *, keep_open: bool = True) -> None:
        super().__init__()
        self._path = path
        self._kept: int | None = None
        try:
            self._kept = os.open(path, _FLAGS)
            close = weakref.finalize(self, os.close, self._kept)  # also where Ctrl-C ends the wait
            status, is_settled = _settled(self._kept)
        except OSError as error:
            raise LoadError(f"cannot read '{path}': {error.strerror or error}") from None
        if not keep_open:
            close()
            self._kept = None
        self._version = _version(status)
        self.identity = ""
        """Text that differs for files with other content; empty where a change may not show in its times."""
        if is_settled:
            place = path.resolve(), status.st_dev
            self.identity = f"{place} {self._version} {status.st_ctime_ns}"

    @property
    def path(self) -> Path:
        """Where it was opened."""
        return self._path

    @property
    def size(self) -> int:
        """How many bytes the file had when it was opened."""
        return self._version[1]

    def read(self, start: int, count: int) -> Array:
        """`count` bytes from `start` on. Raises LoadError if the file was changed since it was opened."""
        content = np.empty(count, np.uint8)
        try:
            file = self._kept if self._kept is not None else os.open(self._path, _FLAGS)
            try:
                whole = _read_into(file, content, start)
                changed = _version(os.fstat(file)) != self._version
            finally:
                if file != self._kept:
                    os.close(file)
        except OSError as error:
            raise LoadError(f"cannot read '{self._path}': {error.strerror or error}") from None
        if changed or not whole:
            raise LoadError(
                f"'{self._path}' was changed while it was in use",
                note="replace a model by renaming a new file, and load it again",
            )
        return content


def _settled(file: int) -> tuple[os.stat_result, bool]:
    """The status of an open file, and whether each change from now on shows in its times, which may take a moment.

    False where the file is changed all the time, and where a clock of another machine is ahead.
    """
    for _ in range(_MOST_WAITS):
        now = time.time_ns()
        status = os.fstat(file)
        is_fine = status.st_ctime_ns % _MILLISECOND != 0
        step = min(_TICKS, _SETTLED) if is_fine else _SETTLED
        wait = max(status.st_mtime_ns, status.st_ctime_ns) + step - now
        if wait < 0:
            return status, True
        if wait > step:
            break
        time.sleep((wait + _MILLISECOND) / 1e9)
    return os.fstat(file), False


def _version(status: os.stat_result) -> tuple[int, int, int]:
    """Which file it is, its size, and when it was changed."""
    return status.st_ino, status.st_size, status.st_mtime_ns


def _read_into(file: int, content: Array, start: int) -> bool:
    """Fills `content`; whether there were bytes enough. A fork that has the open file as well is not disturbed."""
    rest = content.data
    while rest:
        if hasattr(os, "preadv"):
            length = os.preadv(file, [rest[:_AT_ONCE]], start)
        else:
            with _LOCK:
                os.lseek(file, start, os.SEEK_SET)
                part = os.read(file, min(len(rest), _AT_ONCE))
            length = len(part)
            rest[:length] = part
        if not length:
            return False
        rest, start = rest[length:], start + length
    return True
