"""Machine code kept on disk between processes, named after everything it depends on."""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path

from platformdirs import user_cache_path

__all__ = ["cache_directory", "code_key", "read_code", "write_code"]

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


def write_code(key: str, code: bytes) -> None:
    """Keeps `code`, whole or not at all; a folder that cannot be written is no error, only slower next time."""
    folder = cache_directory()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=folder, suffix=".part")
        with os.fdopen(handle, "wb") as file:
            file.write(code)
        Path(name).replace(folder / f"{key}.o")
        _trim(folder)
    except OSError:
        return


def _trim(folder: Path) -> None:
    files = sorted(
        ((f.stat().st_mtime, f.stat().st_size, f) for f in folder.glob("*.o")), reverse=True
    )
    total = 0
    for _, size, file in files:
        total += size
        if total > _MAX_BYTES:
            file.unlink(missing_ok=True)
