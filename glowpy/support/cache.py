"""Cache on disk that processes share. Every entry proves that it is whole, or it counts as absent.

An entry is one file: the payload, which thus begins on a page and can be mapped, then a footer with the format's
version, the payload's length, and the XXH3-128 of payload and name. An entry without this proof is a miss, whatever
has happened to it; it is set aside as `NAME.damaged`, which `glowpy doctor` reports, so that it is made anew.

An entry appears whole or not at all: its bytes are on the disk before it gets its name. That it cannot be written (a
full disk, a folder of somebody else's) is no error, only slower next time.

The digest tells accidents, not attacks: who can write to the folder can run code as the user.
"""

from __future__ import annotations

import errno
import hashlib
import io
import mmap
import os
import stat
import struct
import sys
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO, Literal, TypeVar

from xxhash import xxh3_128

from glowpy.support.cache_folder import (
    CacheFile,
    cache_files,
    cache_folder,
    cache_limit,
    delete,
    make_room,
    open_part,
)

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = [
    "EntryWriter",
    "Key",
    "Kind",
    "damaged_files",
    "locked",
    "mapped",
    "read",
    "write",
    "write_all",
    "writing",
]

Kind = Literal[
    "bitcode",
    "code",
    "digest",
    "model",
    "need",
    "peaks",
    "program",
    "state",
    "target",
    "tuning",
    "weights",
]
"""Kinds of entries: kernel libraries, object files, digests of models, declarations of models, what compiling needs,
peaks of the machine, compiled programs, shapes that state begins with, the identity of code for this machine,
measurements of products, packed weights."""

_Content = TypeVar("_Content")

_FOOTER = struct.Struct("<4sIQ16s")
_MAGIC, _VERSION = b"glow", 1
_CHUNK = 1 << 18
"""Bytes that are digested at a time: they stay in the processor's cache."""

_HUGE = 1 << 21
"""Bytes of a huge page. Linux keeps what is written in such pieces, from a multiple on, in huge pages, and maps those:
weights that are read once in a run are read a seventh faster than in pages of 4 KiB."""

_MADV_POPULATE_READ = 22
"""Advice of Linux 5.14 and later; `mmap` does not name it."""

_WRITTEN_TOGETHER, _SYNCED_TOGETHER = 64, 8

_NOT_THE_ENTRYS_FAULT = (errno.ENOENT, errno.ENOTDIR, errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class _DamageError(Exception):
    """A file is not what was written under its name."""


@dataclass(frozen=True)
class Key:
    """The name of an entry: its kind, and a digest of everything that its payload depends on."""

    kind: Kind
    digest: str

    @classmethod
    def of(cls, kind: Kind, *parts: str | ReadableBuffer) -> Key:
        """The key that follows from `parts`: texts, versions, contents. Parts cut differently give other keys."""
        digest = hashlib.sha256()
        for part in parts:
            content = memoryview(part.encode() if isinstance(part, str) else part)
            digest.update(f"{content.nbytes}:".encode())
            digest.update(content)
        return cls(kind, digest.hexdigest())

    def __str__(self) -> str:
        return f"{self.kind}-{self.digest}"


def read(key: Key) -> bytes | None:
    """The payload of an entry, or None."""
    return _used(key, _read)


def mapped(key: Key) -> memoryview | None:
    """The payload of an entry as read-only memory that processes share, or None.

    It begins on a page, and stays when the entry is deleted. It is read once to be verified, in small pieces: only
    what is used of it afterwards takes memory.
    """
    return _used(key, _map)


def _used(key: Key, take: Callable[[BinaryIO, str], _Content]) -> _Content | None:
    """Reads an entry that is there and whole by `take`, and records the use."""
    folder = cache_folder()
    if folder is None:
        return None
    path = folder / str(key)
    try:
        with _open_entry(path) as file:
            content = take(file, path.name)
    except _DamageError:
        _set_aside(path)
        return None
    except OSError as error:
        if error.errno not in _NOT_THE_ENTRYS_FAULT:
            _set_aside(path)
        return None
    with suppress(OSError):
        os.utime(path)
    return content


def _open_entry(path: Path) -> BinaryIO:
    if not stat.S_ISREG(path.lstat().st_mode):  # to open a FIFO would wait for a writer
        raise _DamageError
    return path.open("rb")


def _read(file: BinaryIO, name: str) -> bytes:
    length, digest = _footer(file)
    payload = file.read(length)
    check = xxh3_128(payload)
    check.update(name.encode())
    if check.digest() != digest:
        raise _DamageError
    return payload


def _map(file: BinaryIO, name: str) -> memoryview:
    length, _ = _footer(file)
    mapping = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
    if sys.platform == "linux" and length >= _HUGE:
        with suppress(OSError):  # of a kernel that has no huge pages, or cannot populate
            mapping.madvise(mmap.MADV_HUGEPAGE)
            mapping.madvise(_MADV_POPULATE_READ)  # what the disk has comes into huge pages
            mapping.madvise(mmap.MADV_DONTNEED)
    _verify(file, name)
    return memoryview(mapping)[:length]


def _verify(file: BinaryIO, name: str) -> None:
    """Raises `_DamageError` unless the entry is whole; the payload is digested piece by piece."""
    length, digest = _footer(file)
    check, buffer = xxh3_128(), memoryview(bytearray(_CHUNK))
    remaining = length
    while remaining:
        count = file.readinto(buffer[: min(remaining, _CHUNK)])  # type: ignore[attr-defined]
        if not count:
            raise _DamageError
        check.update(buffer[:count])
        remaining -= count
    check.update(name.encode())
    if check.digest() != digest:
        raise _DamageError


def _footer(file: BinaryIO) -> tuple[int, bytes]:
    """Length and digest of the payload, at which the file is then."""
    length = os.fstat(file.fileno()).st_size - _FOOTER.size
    if length < 0:
        raise _DamageError
    file.seek(length)
    footer = file.read(_FOOTER.size)
    if len(footer) != _FOOTER.size:
        raise _DamageError
    magic, version, stated, digest = _FOOTER.unpack(footer)
    if (magic, version, stated) != (_MAGIC, _VERSION, length):
        raise _DamageError
    file.seek(0)
    return length, digest


def _set_aside(path: Path) -> None:
    aside = path.with_name(f"{path.name}.damaged")
    with suppress(OSError):
        try:
            path.replace(aside)
        except (IsADirectoryError, NotADirectoryError):  # one of them is a folder
            delete(aside)
            path.replace(aside)
        except OSError as error:
            if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
                raise
            delete(path)


def damaged_files(folder: Path) -> list[CacheFile]:
    """The entries of a folder that are damaged or were set aside; reads all of them. Raises OSError."""
    return [
        file
        for file in cache_files(folder)
        if file.state == "damaged" or (file.state == "entry" and _is_damaged(file.path))
    ]


def _is_damaged(path: Path) -> bool:
    try:
        with _open_entry(path) as file:
            _verify(file, path.name)
    except _DamageError:
        return True
    except OSError as error:
        return error.errno not in _NOT_THE_ENTRYS_FAULT
    return False


class EntryWriter(io.BufferedIOBase):
    """Takes the payload of an entry in sequence. After a piece that could not be written it forgets the entry."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._digest = xxh3_128()
        self._length = 0
        self._limit = 0
        self._part: tuple[Path, BinaryIO] | None = None
        if path is not None:
            self._limit = cache_limit()
            with suppress(OSError):
                part, descriptor = open_part(path)
                self._part = part, os.fdopen(descriptor, "wb", _HUGE)

    def writable(self) -> bool:
        """True."""
        return True

    def tell(self) -> int:
        """How many bytes there are so far."""
        return self._length

    def write(self, data: ReadableBuffer, /) -> int:
        """Appends a contiguous buffer; the number of its bytes."""
        content = memoryview(data)
        if content.nbytes:  # else there is no cast
            content = content.cast("B")
        room = -self._length % _HUGE  # of the buffer, which is written when it is full
        self._length += content.nbytes
        if self._part is not None:
            _, file = self._part
            try:
                if self._length + _FOOTER.size > self._limit:
                    raise OSError(errno.EFBIG, "more than the cache may hold")
                file.write(content[:room])
                for start in range(room, content.nbytes, _HUGE):
                    file.write(content[start : start + _HUGE])
                self._digest.update(content)
            except OSError:
                self.forget()
        return content.nbytes

    def forget(self) -> None:
        """Gives the entry up, if it is not finished, and leaves nothing of it."""
        if self._part is None:
            return
        part, file = self._part
        self._part = None
        with suppress(OSError):  # what is left in its buffer cannot be written either
            file.close()
        delete(part)

    def finish(self) -> int:
        """Makes the entry one that is read; how many bytes it takes, 0 if it could not be written."""
        if self._part is None or self._path is None:
            return 0
        part, file = self._part
        self._digest.update(self._path.name.encode())
        try:
            file.write(_FOOTER.pack(_MAGIC, _VERSION, self._length, self._digest.digest()))
            file.flush()
            os.fsync(file.fileno())
            if sys.platform == "win32":  # an open file cannot be renamed there
                file.close()
            part.replace(self._path)
            self._part = None
            file.close()
        except OSError:
            self.forget()
            return 0
        return self._length + _FOOTER.size


@contextmanager
def writing(key: Key) -> Iterator[EntryWriter]:
    """A binary file for the payload of an entry, which is there when the `with` ends; nothing is after an exception.

    Takes the payload and forgets it where the cache is turned off or cannot be written.
    """
    folder = cache_folder()
    writer = EntryWriter(None if folder is None else folder / str(key))
    try:
        yield writer
        size = writer.finish()
    finally:
        writer.forget()
    if folder is not None:
        _settle(folder, size)


def write(key: Key, payload: ReadableBuffer) -> None:
    """Makes an entry of a payload; one that was there is replaced."""
    with writing(key) as file:
        file.write(payload)


def write_all(entries: Mapping[Key, ReadableBuffer]) -> None:
    """Makes several entries, much faster than one after the other: a disk syncs many files in the time of one."""
    folder = cache_folder()
    if folder is None:
        return
    size = 0
    waiting = iter(entries.items())
    with ThreadPoolExecutor(_SYNCED_TOGETHER) as pool:
        while batch := list(islice(waiting, _WRITTEN_TOGETHER)):
            with ExitStack() as stack:
                writers = []
                for key, payload in batch:
                    writers.append(EntryWriter(folder / str(key)))
                    stack.callback(writers[-1].forget)
                    writers[-1].write(payload)
                size += sum(pool.map(EntryWriter.finish, writers))
    _settle(folder, size)


def _settle(folder: Path, written: int) -> None:
    """Puts the names of new entries on the disk as well, and deletes others for them."""
    with suppress(OSError):
        if sys.platform != "win32":
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
        make_room(folder, written)


@contextmanager
def locked(kind: Kind) -> Iterator[None]:
    """Keeps other processes out while this one makes an entry that takes long, so that they find it then.

    Without a cache, or where no lock can be had, each makes its own.
    """
    from filelock import FileLock  # noqa: PLC0415 - heavy, and seldom asked for

    folder = cache_folder()
    lock = None if folder is None else FileLock(folder / f"{kind}.lock")
    if folder is not None and lock is not None:
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock.acquire()
        except (OSError, NotImplementedError):
            lock = None
    try:
        yield
    finally:
        if lock is not None:
            lock.release()
