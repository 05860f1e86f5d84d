"""`Format`: what a format of models can do, and `Unopened`: a model that somebody names."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from glowpy.core.tensor import Array
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.storage import InFile
from glowpy.support.errors import UnsupportedError
from glowpy.support.loc import Loc

if TYPE_CHECKING:
    from onnx import ModelProto

    from glowpy.graph.node import Node
    from glowpy.importer.survey import Survey

__all__ = ["Format", "Unopened"]


@dataclass(frozen=True)
class Unopened:
    """A model that somebody names, and what helps to read it.

    Attributes:
        model: A path, the bytes of a file, or a parsed model.
        files: Files that are open already, such as that of the model.
        constants: The elements of constants that text shows only the digest of; None for those beside its file.
        nodes: Operators that text may name beside those of glowpy and of installed packages.
    """

    model: Path | bytes | ModelProto
    files: Mapping[Path, InFile] = field(default_factory=dict)
    constants: Mapping[str, Array] | None = None
    nodes: tuple[type[Node], ...] = ()


class Format(ABC):
    """A format of models: what its files are called, how they begin and end, and what opens them.

    Attributes:
        name: The name of the format in messages.
        suffixes: How names of files end, such as `.onnx`.
    """

    name: str
    suffixes: tuple[str, ...]

    @abstractmethod
    def begins(self, start: bytes) -> bool:
        """Whether files begin so, as far as their first 64 bytes tell."""

    @abstractmethod
    def open(self, unopened: Unopened) -> Model | HostedModel:
        """Reads and checks a model for a session, which may compute a part itself.

        Raises LoadError for a file that is damaged, or none of the format.
        """

    def open_whole(self, unopened: Unopened) -> Model:
        """Reads and checks a model that is to be compiled as a whole.

        Raises UnsupportedError for one that cannot be.
        """
        opened = self.open(unopened)
        if isinstance(opened, HostedModel):
            raise UnsupportedError(
                "the model has parts that no machine code computes",
                loc=Loc(opened.file),
                note="glowpy.InferenceSession and glowpy run take it",
            )
        return opened

    def survey(self, unopened: Unopened) -> Survey | None:
        """Reads a model and notes what is wrong with it; None for a format that ends with the first error."""
        del unopened
        return None
