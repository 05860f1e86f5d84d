"""Machine code kept on disk between processes, named after everything it depends on."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_directory", "code_key", "read_code", "write_codes"]

_MAX_BYTES = 256 << 20
"""What the folder may hold; the files used longest ago go first."""


def cache_directory() -> Path:
    """The folder with cached machine code."""
    return user_cache_path("glowpy", appauthor=False) / "code"


def code_key(*parts: str) -> str:
    """The name of the code that follows from `parts`: IR text, target, versions."""
    digest = hashlib.sha256()
    for part in parts:
        digest.update(f"{len(part)}:".encode())
        digest.update(part.encode())
    return digest.hexdigest()


def read_code(key: str) -> bytes | None:
    """The cached code, or None."""
    path = cache_directory() / f"{key}.o"
    try:
        code = path.read_bytes()
        os.utime(path)
    except OSError:
        return None
    return code


def write_codes(codes: Mapping[str, bytes]) -> None:
    """Keeps the code of each key, whole or not at all.

    A folder that cannot be written is no error, only slower next time.
    """
    folder = cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for key, code in codes.items():
            handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
            with os.fdopen(handle, "wb") as file:
                file.write(code)
            Path(name).replace(folder / f"{key}.o")
        _trim(folder)
    except OSError:
        return


def _trim(folder: Path) -> None:
    """Deletes the files used longest ago while all of them take too much: a network has some tens, of a few kB each."""
    with os.scandir(folder) as entries:
        files = [(entry.stat(), entry.path) for entry in entries if entry.name.endswith(".o")]
    total = sum(stat.st_size for stat, _ in files)
    files.sort(key=lambda file: file[0].st_mtime)
    for stat, path in files:
        if total <= _MAX_BYTES:
            return
        Path(path).unlink(missing_ok=True)
        total -= stat.st_size
