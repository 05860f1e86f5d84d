"""Where the elements of a model's tensors are: in memory, in the model's file, or in files beside it.

They are read when they are asked for. A file stays open as long as something refers to it, so that it may be renamed
or deleted meanwhile; that it is not changed is looked at with every reading.
"""

from __future__ import annotations

import hashlib
import os
import time
import weakref
from abc import ABC, abstractmethod
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import final

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.onnx.wire import Extracted
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import LoadError
from glowpy.support.forks import Lock

__all__ = ["InFile", "InMemory", "Storage", "Stores"]

_CHUNK = 1 << 20
_AT_ONCE = 1 << 24
"""Bytes that a single call reads: until it returns, no signal is heard."""

_MAX_OPEN = 64
"""Most files of external data that stay open; there may be one for each tensor."""

_FLAGS = os.O_RDONLY | getattr(os, "O_BINARY", 0)
_LOCK = Lock()

_SETTLED = 2_000_000_000
"""Nanoseconds after which a change of a file shows in its times: file systems count in steps."""


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
        opened = time.time_ns()
        try:
            self._kept = os.open(path, _FLAGS)
            status = os.fstat(self._kept)
        except OSError as error:
            raise LoadError(f"cannot read '{path}': {error.strerror or error}") from None
        if keep_open:
            weakref.finalize(self, os.close, self._kept)
        else:
            os.close(self._kept)
            self._kept = None
        self._version = _version(status)
        self.identity = ""
        """Text that differs for files with other content; empty for a file so young that a change may not show in
        its times."""
        if opened - max(status.st_mtime_ns, status.st_ctime_ns) > _SETTLED:
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
                is_complete = _read_into(file, content, start)
                changed = _version(os.fstat(file)) != self._version
            finally:
                if file != self._kept:
                    os.close(file)
        except OSError as error:
            raise LoadError(f"cannot read '{self._path}': {error.strerror or error}") from None
        if changed or not is_complete:
            raise LoadError(
                f"'{self._path}' was changed while it was in use",
                note="replace a model by renaming a new file, and load it again",
            )
        return content


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


@dataclass(frozen=True)
class Stores:
    """Where the elements of a model's tensors are.

    Attributes:
        own: The model's file.
        extracted: The parts that the parsed model has tickets for, and `own` holds.
        folder: Where the files of external data are; None for a model that was not read from a file.
        model: The path of that file, which may be a link.
    """

    own: Storage = field(default_factory=InMemory)
    extracted: Extracted = field(default_factory=Extracted)
    folder: Path | None = None
    model: Path | None = None
    _files: dict[Path, InFile] = field(default_factory=dict)

    def file(self, path: Path) -> InFile:
        """The file of external data at `path`; the first ones stay open. Raises LoadError if it cannot be opened."""
        if path not in self._files:
            self._files[path] = InFile(path, keep_open=len(self._files) < _MAX_OPEN)
        return self._files[path]

    @property
    def paths(self) -> list[Path]:
        """The files that were opened so far: the model's, if it is in one, and those of external data."""
        return [*([self.model] if self.model is not None else []), *self._files]

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the model, and of the files of external data that were opened so far.

        That of files is remembered as long as they have not changed.
        """
        files = [self._files[path] for path in sorted(self._files)]
        identities = [file.identity for file in (self.own, *files) if isinstance(file, InFile)]
        key = Key.of("digest", *identities) if identities and all(identities) else None
        remembered = read(key) if key is not None else None
        if remembered is not None:
            return remembered.decode()
        parts = [
            self.own.digest(start, count) for start, count in self.extracted.parts(self.own.size)
        ]
        parts += [file.digest(0, file.size) for file in files]
        digest = hashlib.sha256("\0".join(parts).encode()).hexdigest()
        if key is not None:
            write(key, digest.encode())
        return digest
