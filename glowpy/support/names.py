"""Unique, stable, human names for values in dumps."""

from __future__ import annotations

import hashlib
import re

__all__ = ["UniqueNames", "file_stem", "legal_name", "stem_of"]

_ILLEGAL = re.compile(r"[^A-Za-z0-9_]+")
_LONGEST_STEM = 160
"""File systems take names of 255 bytes, of which what is around a stem needs some."""
_SUFFIX = re.compile(r"_\d+$")


def legal_name(name: str) -> str:
    """`name` with everything the text form cannot spell replaced by underscores; never empty, never digits only."""
    legal = _ILLEGAL.sub("_", name).strip("_")
    return legal if legal and not legal[0].isdigit() else f"v{legal}"


def file_stem(name: str) -> str:
    """A legal name as the stem of a file: of a long one the beginning, and a digest that tells it from others."""
    if len(name) <= _LONGEST_STEM:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:8]
    return f"{name[: _LONGEST_STEM - 9]}_{digest}"


def stem_of(name: str) -> str:
    """`name` without the number that made it unique."""
    return _SUFFIX.sub("", name)


class UniqueNames:
    """Hands out names that were not handed out before: `conv`, `conv_1`, `conv_2`."""

    def __init__(self) -> None:
        self._taken: set[str] = set()
        self._next: dict[str, int] = {}

    def take(self, name: str) -> str:
        """`name` made legal, with a number appended if that name is taken."""
        name = legal_name(name)
        if name in self._taken:
            stem = stem_of(name)
            number = self._next.get(stem, 1)
            while f"{stem}_{number}" in self._taken:
                number += 1
            self._next[stem] = number + 1
            name = f"{stem}_{number}"
        self._taken.add(name)
        return name

    def release(self, name: str) -> None:
        """Makes `name` free again."""
        self._taken.discard(name)
