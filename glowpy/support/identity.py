"""Identity of this glowpy: results of another one may be different."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

import glowpy

__all__ = ["files_identity", "installed_identity", "package_identity"]


def package_identity() -> str:
    """Returns the identity of the package, a digest of its files' names, sizes and times.

    The files are looked at when this module is imported: later changes do not change a process. The versions
    of the packages that compute and define operators are part of it.
    """
    return _IDENTITY


def _identity() -> str:
    versions = [f"{name} {installed_identity(name)}\n" for name in ("numpy", "onnx")]
    return f"{''.join(versions)}{files_identity(glowpy.__path__)}"


def installed_identity(name: str) -> str:
    """Which package of another project there is, found out without importing it; empty if there is none."""
    spec = find_spec(name)
    if spec is None or spec.origin is None:
        return ""
    folder = Path(spec.origin).parent
    try:
        status = Path(spec.origin).stat()
        versions = [folder / file for file in ("version.py", "_version.py")]
        texts = [
            path.read_text(encoding="utf-8", errors="replace")
            for path in versions
            if path.is_file()
        ]
    except OSError:
        return ""
    return f"{folder} {status.st_mtime_ns} {status.st_size} {texts}"


def files_identity(folders: Iterable[str]) -> str:
    """A digest of the names, sizes and times of the files of a package."""
    lines = [line for folder in folders for line in sorted(_files(folder))]
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def _files(folder: str) -> Iterator[str]:
    folders = [folder]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                name = entry.name
                if name.endswith((".py", ".toml", ".bc", ".c", ".h")):
                    status = entry.stat()
                    yield f"{entry.path} {status.st_size} {status.st_mtime_ns}\n"
                elif name != "__pycache__" and entry.is_dir():
                    folders.append(entry.path)


_IDENTITY = _identity()
