"""`Survey`: a model that may be wrong, everything that is, and as much of it as can be built all the same."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import TYPE_CHECKING

from glowpy.core.tensor import Array
from glowpy.core.type import Shape
from glowpy.importer.declared import ValueInfo
from glowpy.support.errors import Diagnostic
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from glowpy.graph.function import Module

__all__ = ["Survey"]


class Survey(ABC):
    """A model that may be wrong. Readers of formats that go on after an error derive from it."""

    @property
    @abstractmethod
    def inputs(self) -> list[ValueInfo]:
        """The inputs that are of supported types."""

    @property
    @abstractmethod
    def num_parameters(self) -> int:
        """How many elements are stored in the model."""

    @property
    @abstractmethod
    def weight_bytes(self) -> int:
        """How many bytes these take."""

    @abstractmethod
    def assumed(self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim]) -> dict[str, Dim]:
        """The dimensions that neither say, and what they are taken to be: `N`, or `x[0]` for one without a name."""

    @abstractmethod
    def build(
        self, shapes: Mapping[str, Shape], dims: Mapping[str, Dim], values: Mapping[str, Array]
    ) -> tuple[Module | None, list[Diagnostic]]:
        """As much of the module as there can be, with dimensions that are not given assumed, and all that is wrong."""
