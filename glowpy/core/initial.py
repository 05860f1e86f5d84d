"""Initial values: what a variable holds before the first run.

Random ones follow from a seed, and are the same to the bit on every machine: bits are those of a counter (Salmon et al.
2011, "Parallel random numbers: as easy as 1, 2, 3"), and only sums and products of them are taken.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import ClassVar, TypeAlias

import numpy as np

from glowpy.core.tensor import Array, Tensor, converted
from glowpy.core.type import Type
from glowpy.support.errors import UserError
from glowpy.support.text import Attr

__all__ = ["Initial", "Initializer", "Normal", "Uniform", "elements", "initializer", "philox"]

_TERMS = 12
"""The sum of so many uniform numbers has a variance of 1."""


@dataclass(frozen=True)
class Initializer(ABC):
    """Random numbers for a variable of floats, which follow from `seed`, a number of 62 bits.

    Raises UserError for another seed, and for what is no finite number.
    """

    seed: int
    distribution: ClassVar[str]

    def __post_init__(self) -> None:
        if type(self.seed) is not int or not 0 <= self.seed < 1 << 62:
            raise UserError(f"expected a seed of 62 bits, got {self.seed!r}")
        for name, value in asdict(self).items():
            if isinstance(value, bool) or not isinstance(value, int | float):
                raise UserError(f"expected a number as {name}, got {value!r}")
            if not math.isfinite(value):
                raise UserError(f"expected a finite {name}, got {value}")

    @property
    def attrs(self) -> dict[str, Attr]:
        """All that the numbers follow from."""
        return {n: value if n == "seed" else float(value) for n, value in asdict(self).items()}

    def tensor(self, type: Type) -> Tensor:
        """The numbers, as elements of a static type of floats."""
        numbers = self._numbers(math.prod(type.extents))
        return Tensor(type, converted(numbers, type.kind).reshape(type.extents))

    @abstractmethod
    def _numbers(self, count: int) -> Array:
        """Returns `count` numbers, as f64."""

    def _units(self, count: int) -> Array:
        """Uniform numbers from 0 on and below 1."""
        bits = philox(count, (self.seed & 0x7FFFFFFF, self.seed >> 31))[:count]
        return (bits >> np.uint32(8)).astype(np.float64) * 2.0**-24


@dataclass(frozen=True)
class Uniform(Initializer):
    """Numbers from `low` on and below `high`, each as likely as the others."""

    low: float = -1.0
    high: float = 1.0
    distribution: ClassVar[str] = "uniform"

    def _numbers(self, count: int) -> Array:
        drawn: Array = self.low + self._units(count) * (self.high - self.low)
        return drawn


@dataclass(frozen=True)
class Normal(Initializer):
    """Numbers around `mean`, each a sum of twelve uniform ones: none is further away than six deviations."""

    mean: float = 0.0
    deviation: float = 1.0
    distribution: ClassVar[str] = "normal"

    def _numbers(self, count: int) -> Array:
        sums = self._units(count * _TERMS).reshape(count, _TERMS).sum(axis=1)
        drawn: Array = self.mean + (sums - _TERMS / 2) * self.deviation
        return drawn


_CLASSES: Mapping[str, type[Initializer]] = {cls.distribution: cls for cls in (Uniform, Normal)}


def initializer(distribution: str, attrs: Mapping[str, object]) -> Initializer | None:
    """Creates the initializer that `attrs` describe; None for an unknown distribution.

    Raises UserError for other attributes.
    """
    cls = _CLASSES.get(distribution)
    if cls is None:
        return None
    names = [field.name for field in fields(cls)]
    if sorted(attrs) != sorted(names):
        raise UserError(
            f"{distribution}: expected the attributes {', '.join(sorted(names))},"
            f" got {', '.join(sorted(attrs)) or 'none'}"
        )
    return cls(**attrs)  # type: ignore[arg-type]


Initial: TypeAlias = "Tensor | Initializer | None"
"""Initial contents of a variable; None stands for zeros."""


def elements(initial: Initial, type: Type) -> Tensor:
    """The elements of a variable before the first run."""
    if isinstance(initial, Initializer):
        return initial.tensor(type)
    return Tensor.splat(type, 0) if initial is None else initial


_LOW = np.uint64(0xFFFFFFFF)


def philox(size: int, key: Sequence[int]) -> Array:
    """Philox 4x32-10 of the counters 0, 1, 2 and so on: u32[at least size]."""
    counters = np.arange(-(-size // 4), dtype=np.uint64)
    a, b = counters & _LOW, counters >> np.uint64(32)
    c = d = np.zeros_like(counters)
    first, second = key
    for _ in range(10):
        left, right = a * np.uint64(0xD2511F53), c * np.uint64(0xCD9E8D57)
        a, c = (
            right >> np.uint64(32) ^ b ^ np.uint64(first),
            left >> np.uint64(32) ^ d ^ np.uint64(second),
        )
        b, d = right & _LOW, left & _LOW
        first, second = (first + 0x9E3779B9) % (1 << 32), (second + 0xBB67AE85) % (1 << 32)
    return np.stack([a, b, c, d], axis=1).astype(np.uint32).reshape(-1)
