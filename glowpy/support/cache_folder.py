"""The folder of the cache: where it lies, what it may hold, and what goes when that is too much.

* `GLOWPY_CACHE_DIR` places it; `off` means that nothing is read or written. Without it, it is the user's cache folder,
  and nothing is read or written for a user without a home.
* `GLOWPY_CACHE_LIMIT` bounds it (`512M`, `4G`), else what `glowpy cache limit` has set, else 4 GiB. Everything that
  this package writes there counts.
* Files are told by their names: `KIND-DIGEST` is an entry, `KIND-DIGEST.damaged` one that was set aside, and
  `KIND-DIGEST.XXXXXXXX.part` one that is being written. Other files are somebody else's, and left alone.
* Entries of another format are told by the version in their footers.
* Whoever writes a part holds a lock on it, which the operating system takes away when the process ends, however it
  ends: a part that nobody holds is rubbish.
* The time of an entry's last use is its file's modification time; what was used longest ago goes first.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from glowpy.support.errors import UserError
from glowpy.support.forks import Lock

if sys.platform != "win32":
    import fcntl

__all__ = [
    "OFF",
    "CacheFile",
    "cache_files",
    "cache_folder",
    "cache_limit",
    "clear",
    "delete",
    "is_held",
    "make_room",
    "open_part",
    "parse_bytes",
    "set_cache_limit",
    "why_off",
    "write_fault",
]

OFF = "off"
"""The value of GLOWPY_CACHE_DIR that turns the cache off."""

_IS_LINUX = sys.platform == "linux"
_DIRECTORY, _LIMIT = "GLOWPY_CACHE_DIR", "GLOWPY_CACHE_LIMIT"
_DEFAULT_LIMIT = 4 << 30
_LIMIT_FILE = "limit"
_NAME = re.compile(r"([a-z]+)-[0-9a-f]{64}(\.damaged|\.[0-9a-f]{8}\.part)?")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40}

_SHARE = 64
"""The part of the limit after which a process looks through the folder again, and which it frees when that is full.

Each of several processes that write at the same time may exceed the limit by that much."""

_room: dict[Path, int] = {}
"""How many bytes this process may write before it looks through a folder again."""
_room_lock = Lock()


@dataclass(frozen=True)
class CacheFile:
    """A file of the cache.

    Attributes:
        path: Where it is.
        kind: The kind of its entry: `code`, `weights`, ...
        state: `entry`, `damaged` (set aside) or `unfinished` (being written, or left by a process that was killed).
        size: Its bytes.
        used: When it was used last, in seconds since 1970.
    """

    path: Path
    kind: str
    state: str
    size: int
    used: float


def cache_folder() -> Path | None:
    """The cache's folder, which need not exist; None where the cache is turned off, or this user has no home."""
    place = os.environ.get(_DIRECTORY, "")
    if place == OFF:
        return None
    return Path(place).absolute() if place else _user_folder()


def _user_folder() -> Path | None:
    """The user's; None where neither the environment nor the system says where a user of that number has files."""
    try:
        folder = user_cache_path()
    except RuntimeError:
        return None
    return folder if folder.is_absolute() else None  # it may begin with ~


def user_cache_path() -> Path:
    """The folder that platformdirs names, which is not imported on Linux: that takes milliseconds."""
    if _IS_LINUX:
        given = Path(os.environ.get("XDG_CACHE_HOME", ""))
        return (given if given.is_absolute() else Path.home() / ".cache") / "glowpy"
    from platformdirs import user_cache_path  # noqa: PLC0415 - it takes long

    return user_cache_path("glowpy", appauthor=False)


def why_off() -> UserError:
    """Why there is no folder."""
    if os.environ.get(_DIRECTORY, "") == OFF:
        return UserError(
            f"the cache is turned off: {_DIRECTORY} is '{OFF}'", note=f"unset {_DIRECTORY}"
        )
    return UserError(
        "there is no place for the cache: this user has no home",
        note=f"{_DIRECTORY} names a folder",
    )


def write_fault(folder: Path) -> str:
    """Why nothing can be kept in a folder; empty if something can. Makes the folder."""
    try:
        part, descriptor = open_part(folder / f"code-{'0' * 64}")
        os.close(descriptor)
        part.unlink()
        list(cache_files(folder))
    except OSError as error:
        return error.strerror or str(error)
    return ""


def parse_bytes(text: str) -> int:
    """The number that 65536, 64K, 64KB, 64KiB, 512M or 4G says. Raises ValueError for anything else."""
    match = re.fullmatch(r"(\d+) ?([KMGT]?)(?:I?B)?", text.strip().upper(), re.ASCII)
    if match is None:
        raise ValueError(f"expected a number of bytes such as 65536, 64K or 1M, got '{text}'")
    return int(match[1]) * _UNITS[match[2]]


def cache_limit() -> int:
    """How many bytes the folder may hold. Raises UserError where GLOWPY_CACHE_LIMIT is no number of bytes."""
    if text := os.environ.get(_LIMIT, ""):
        try:
            return parse_bytes(text)
        except ValueError as error:
            raise UserError(f"{_LIMIT}: {error}") from None
    folder = cache_folder()
    try:
        return parse_bytes((folder / _LIMIT_FILE).read_text(encoding="ascii")) if folder else 0
    except (OSError, ValueError):
        return _DEFAULT_LIMIT


def set_cache_limit(limit: int) -> None:
    """Lets the folder hold `limit` bytes from now on, and deletes what is beyond them.

    Raises OSError where the folder cannot be written, UserError where the environment turns the cache off or limits it.
    """
    folder = cache_folder()
    if folder is None:
        raise why_off()
    if text := os.environ.get(_LIMIT, ""):
        raise UserError(
            f"{_LIMIT} is '{text}', and counts in place of a limit that is set here",
            note=f"unset {_LIMIT}",
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    (folder / _LIMIT_FILE).write_text(f"{limit}\n", encoding="ascii")
    _trim(folder)


def cache_files(folder: Path) -> Iterator[CacheFile]:
    """Yields the files in a folder of the cache, in no order; nothing where there is no folder.

    Raises OSError where the folder cannot be read.
    """
    for entry, status, match in _matches(folder, _NAME):
        yield CacheFile(entry, match[1], _state(match[2]), status.st_size, status.st_mtime)


def _matches(
    folder: Path, names: re.Pattern[str]
) -> Iterator[tuple[Path, os.stat_result, re.Match[str]]]:
    """The files of a folder, if there is one, that are named so."""
    try:
        entries = os.scandir(folder)
    except (FileNotFoundError, NotADirectoryError):
        return
    with entries:
        for entry in entries:
            if match := names.fullmatch(entry.name):
                with suppress(FileNotFoundError):  # another process has deleted it
                    yield Path(entry.path), entry.stat(follow_symlinks=False), match


def _state(suffix: str | None) -> str:
    if suffix is None:
        return "entry"
    return "damaged" if suffix == ".damaged" else "unfinished"


def open_part(path: Path) -> tuple[Path, int]:
    """A new file beside an entry, held by this process, and the descriptor to write it with. Raises OSError."""
    part = path.with_name(f"{path.name}.{os.urandom(4).hex()}.part")
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    flags = os.O_CREAT | os.O_EXCL | os.O_WRONLY | getattr(os, "O_BINARY", 0)
    descriptor = os.open(part, flags, 0o666)
    if sys.platform != "win32":
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            delete(part)
            raise
    return part, descriptor


def is_held(part: Path) -> bool:
    """Whether a process is writing a part. Windows does not say so, but keeps such a file from being deleted."""
    if sys.platform == "win32":
        return False
    try:
        if not stat.S_ISREG(part.lstat().st_mode):
            return False
        descriptor = os.open(part, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return True
    finally:
        os.close(descriptor)
    return False


def delete(path: Path) -> bool:
    """Deletes a file of the cache, or a folder in its place; whether it is gone."""
    try:
        if stat.S_ISDIR(path.lstat().st_mode):
            import shutil  # noqa: PLC0415 - seldom

            shutil.rmtree(path)
        else:
            path.unlink()
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


def make_room(folder: Path, written: int) -> None:
    """Sees to it that a folder to which so many bytes were written keeps to the limit. Raises OSError, UserError."""
    with _room_lock:
        room = _room.get(folder, 0) - written
        if room < 0:
            room = min(_trim(folder), _share())
        _room[folder] = room


def _share() -> int:
    return cache_limit() // _SHARE


def _trim(folder: Path) -> int:
    """Deletes rubbish and, if all takes too much, what goes first; how many bytes may be written."""
    files = list(cache_files(folder))
    deleted = set(_discard(file for file in files if _is_rubbish(file)))
    files = [file for file in files if file not in deleted]
    room = cache_limit() - sum(file.size for file in files)
    if room >= 0:
        return room
    files = [file for file in files if file.state != "unfinished"]
    for file in sorted(files, key=lambda file: (file.state == "entry", file.used)):
        if room >= _share():
            break
        if delete(file.path):
            room += file.size
    return room


def _is_rubbish(file: CacheFile) -> bool:
    """Whether nobody reads or writes a file any more."""
    return file.state == "unfinished" and not is_held(file.path)


def _discard(files: Iterable[CacheFile]) -> list[CacheFile]:
    """Deletes files, and returns those that are gone."""
    return [file for file in files if delete(file.path)]


def clear(folder: Path) -> list[CacheFile]:
    """Deletes everything that nobody is writing; what it was. The limit stays. Raises OSError."""
    return _discard(
        file
        for file in list(cache_files(folder))
        if file.state != "unfinished" or _is_rubbish(file)
    )
