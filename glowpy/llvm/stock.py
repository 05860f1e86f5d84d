"""The stock: object files of functions that many networks have, made where glowpy is built and not where it runs.

A stock is one file, which is only read: a line of JSON with the place and the size of each object, by the digest of
the text that it was compiled from; then the objects. Its name says all else that they depend on: the machine that they
are for, LLVM and the kernels. So one that does not fit is not found, such as that of a checkout whose kernels were
edited.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import astuple
from functools import lru_cache
from pathlib import Path
from typing import final

from glowpy.llvm.machine import LLVM_VERSION, Machine
from glowpy.support.cache import Key

__all__ = ["Stock", "open_stock", "write_stock"]

_DIGITS = 32
"""Hexadecimal digits that tell contents apart."""


@final
class Stock:
    """The objects of one file."""

    def __init__(self, content: bytes = b"{}\n") -> None:
        """Raises ValueError for a content that `write_stock` has not written, or not to its end."""
        line, _, self._objects = content.partition(b"\n")
        self._places: dict[str, tuple[int, int]] = json.loads(line)
        if sum(size for _, size in self._places.values()) != len(self._objects):
            raise ValueError("expected the objects that the first line names, got more or fewer")

    def find(self, text: str) -> bytes | None:
        """The object file of a text, or None."""
        place = self._places.get(_digest(text))
        return None if place is None else self._objects[place[0] :][: place[1]]


def open_stock(folder: Path, name: str, machine: Machine, libraries: Sequence[bytes]) -> Stock:
    """The stock for a machine and kernels, of a variant with this name; an empty one if the folder has none.

    So it is with a damaged one, such as that of a disk that was full: all is compiled then.
    """
    return _read(folder / _file_name(name, machine, libraries))


def write_stock(
    folder: Path,
    name: str,
    machine: Machine,
    libraries: Sequence[bytes],
    objects: Mapping[str, bytes],
) -> Path:
    """Writes the objects of some texts, and returns the file, which is named after the variant, too."""
    places, at = {}, 0
    for text, code in objects.items():
        places[_digest(text)] = at, len(code)
        at += len(code)
    file = folder / _file_name(name, machine, libraries)
    part = file.with_suffix(".part")
    part.write_bytes(b"".join([json.dumps(places).encode(), b"\n", *objects.values()]))
    return part.replace(file)


@lru_cache(maxsize=4)
def _read(file: Path) -> Stock:
    try:
        return Stock(file.read_bytes())
    except (OSError, ValueError):
        return Stock()


def _file_name(name: str, machine: Machine, libraries: Sequence[bytes]) -> str:
    digests = [hashlib.sha256(library).digest() for library in libraries]
    key = Key.of("code", "stock", *map(str, astuple(machine)), LLVM_VERSION, *digests)
    return f"{name}-{key.digest[:_DIGITS]}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGITS]
