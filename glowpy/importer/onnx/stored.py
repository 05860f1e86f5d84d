"""Where the elements of a model's tensors are: in memory, in the model's file, or in files beside it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from glowpy.importer.onnx.wire import Extracted
from glowpy.importer.storage import InFile, InMemory, Storage
from glowpy.support.cache import Key, read, write

__all__ = ["Stores"]

_MAX_OPEN = 64
"""Most files of external data that stay open; there may be one for each tensor."""


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
    def files(self) -> Mapping[Path, InFile]:
        """The files of external data that were opened so far."""
        return self._files

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
