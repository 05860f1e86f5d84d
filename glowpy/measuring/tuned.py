"""Products that a backend has measured several ways to compute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

__all__ = ["Tuned", "Tuning"]


@dataclass(frozen=True)
class Tuned:
    """Measurements of a product.

    Attributes:
        name: The name of the first node that it is.
        product: Operator, types and attributes.
        ways: In words, first the one that the model takes.
        seconds: The median of each; infinite for those that were not tried.
        taken: Which one is.
        kept: Whether it was measured before.
    """

    name: str
    product: str
    ways: tuple[str, ...]
    seconds: tuple[float, ...]
    taken: int
    kept: bool

    @property
    def gain(self) -> float:
        """The part of the time that the model's way takes that is saved."""
        return 1 - self.seconds[self.taken] / self.seconds[0]

    @property
    def figures(self) -> dict[str, Any]:
        """The product for JSON: the ways that were tried, and which is taken."""
        tried = zip(self.ways, self.seconds, strict=True)
        return {
            "name": self.name,
            "product": self.product,
            "kept": self.kept,
            "gain": self.gain,
            "taken": self.taken,
            "tried": [{"way": way, "seconds": seconds} for way, seconds in tried],
        }


class Tuning(Protocol):
    """Measurements that a backend has made to find out how products are computed best."""

    @property
    def results(self) -> Sequence[Tuned]:
        """The products of the networks that were compiled."""

    @property
    def busy(self) -> float:
        """The share of the time of all measurements for which they had a processor, at most 1; 1 without any."""
