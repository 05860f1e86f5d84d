"""Histograms whose bins are multiples of a power of two wide, and can be joined without loss.

Bin i holds the numbers from i * 2**exponent on, below (i + 1) * 2**exponent. The exponent is the smallest with which a
given number of bins holds every number seen and zero; it depends on the smallest and the largest number alone. A wider
bin is two neighbours, exactly. So the histogram of many arrays is the sum of theirs, in whatever order they are seen.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from glowpy.core.tensor import Array

__all__ = ["BINS", "LOWEST_EXPONENT", "Histogram", "grid_of"]

BINS = 2048
"""Bins of a profile: at least half of them lie between the smallest and the largest number."""

LOWEST_EXPONENT = -126
"""Bins are at least as wide as the smallest normal f32."""


def grid_of(low: float, high: float, bins: int = BINS) -> tuple[int, int]:
    """The exponent of the bins that hold `low`, `high` and zero, and the number of the first bin."""
    low, high = min(low, 0.0), max(high, 0.0)
    exponent = LOWEST_EXPONENT
    if reach := max(-low, high):  # in bins of half the width it has no place
        exponent = max(exponent, int(np.frexp(reach / bins)[1]) - 1)
    while np.floor(high / 2.0**exponent) - np.floor(low / 2.0**exponent) >= bins:
        exponent += 1
    return exponent, int(np.floor(low / 2.0**exponent))


@dataclass(frozen=True)
class Histogram:
    """How many numbers are in each bin.

    Attributes:
        exponent: Bins are 2**exponent wide.
        first: The number of the first bin, which begins at first * 2**exponent; at most 0.
        counts: For each bin from the first on, i64.
    """

    exponent: int
    first: int
    counts: Array

    @classmethod
    def of(cls, array: Array, bins: int = BINS) -> Histogram:
        """The histogram of finite numbers, computed in f64."""
        numbers = np.asarray(array, np.float64).ravel()
        low, high = numbers.min(initial=0.0), numbers.max(initial=0.0)
        exponent, first = grid_of(float(low), float(high), bins)
        places = np.floor(numbers / 2.0**exponent).astype(np.int64) - first
        return cls(exponent, first, np.bincount(places, minlength=bins))

    @property
    def width(self) -> float:
        """The width of a bin."""
        return 2.0**self.exponent

    @property
    def edges(self) -> Array:
        """The beginnings of bins, and the end of the last: f64, one more than there are bins."""
        return np.arange(self.first, self.first + len(self.counts) + 1) * self.width

    @property
    def total(self) -> int:
        """How many numbers there are."""
        return int(self.counts.sum())

    def on(self, exponent: int, first: int) -> Histogram:
        """Returns the histogram in bins that are not narrower, and which hold all numbers."""
        if (exponent, first) == (self.exponent, self.first):
            return self
        doublings = min(exponent - self.exponent, 63)
        places = np.arange(self.first, self.first + len(self.counts)) >> doublings
        counted = self.counts > 0
        counts = np.zeros_like(self.counts)
        np.add.at(counts, places[counted] - first, self.counts[counted])
        return Histogram(exponent, first, counts)
