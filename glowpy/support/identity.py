"""Which glowpy this is: what was made by another one may be different."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import glowpy

__all__ = ["package_identity"]


@cache
def package_identity() -> str:
    """The same as long as no file of the package has changed: a digest of their names, sizes and times."""
    digest = hashlib.sha256()
    for file in glowpy.__path__:
        for line in sorted(_files(file)):
            digest.update(line.encode())
    return digest.hexdigest()


def _files(folder: str) -> Iterator[str]:
    folders = [Path(folder)]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir() and entry.name != "__pycache__":
                    folders.append(Path(entry.path))
                elif entry.name.endswith((".py", ".toml", ".bc")):
                    status = entry.stat()
                    yield f"{entry.path} {status.st_size} {status.st_mtime_ns}\n"
