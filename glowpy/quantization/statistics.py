"""Statistics of one value after some runs, in memory that does not grow with them.

Everything is a count, an extreme, or a sum that is computed exactly. So the statistics of all runs are those of some of
them, joined with those of the others, in whatever order.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from glowpy.core.histogram import BINS, LOWEST_EXPONENT, Histogram, grid_of
from glowpy.core.tensor import Array

__all__ = ["Statistics"]


@dataclass(frozen=True)
class Statistics:
    """The elements of one value, over all runs.

    Attributes:
        low: The smallest element; infinity if there has been none but NaNs and infinities, which do not count.
        high: The largest one; minus infinity if there has been none.
        histogram: How many elements are where.
        nans: How many elements were no number.
        infinities: How many elements were infinite.
        runs: In how many runs there were finite elements.
        sum_of_lows: The sum of the smallest elements of these runs.
        sum_of_highs: The sum of their largest elements.
    """

    low: float
    high: float
    histogram: Histogram
    nans: int
    infinities: int
    runs: int
    sum_of_lows: Fraction
    sum_of_highs: Fraction

    @classmethod
    def none(cls) -> Statistics:
        """Before the first run."""
        histogram = Histogram(LOWEST_EXPONENT, 0, np.zeros(BINS, np.int64))
        return cls(math.inf, -math.inf, histogram, 0, 0, 0, Fraction(0), Fraction(0))

    @classmethod
    def of_run(cls, counts: Array, range: Array, grid: Array) -> Statistics:
        """Reads the results of a `quantization_profile` node: i64 counts, f32 range, i64 grid."""
        low, high = (float(end) for end in range)
        exponent, first, nans, infinities = (int(number) for number in grid)
        histogram = Histogram(exponent, first, counts)
        if low > high:
            return cls(low, high, histogram, nans, infinities, 0, Fraction(0), Fraction(0))
        return cls(low, high, histogram, nans, infinities, 1, Fraction(low), Fraction(high))

    @classmethod
    def of(cls, array: Array) -> Statistics:
        """Those of one run, in which the value was `array`, of any kind of float."""
        numbers = np.asarray(array, np.float32).ravel()
        finite = numbers[np.isfinite(numbers)]
        histogram = Histogram.of(finite)
        ends = np.array([finite.min(initial=np.inf), finite.max(initial=-np.inf)])
        nans = np.count_nonzero(np.isnan(numbers))
        odd = numbers.size - finite.size - nans
        grid = np.array([histogram.exponent, histogram.first, nans, odd])
        return cls.of_run(histogram.counts, ends + 0.0, grid)

    def merged(self, other: Statistics) -> Statistics:
        """Those of the runs of both."""
        low, high = min(self.low, other.low), max(self.high, other.high)
        exponent, first = grid_of(low, high)
        counts = sum(part.histogram.on(exponent, first).counts for part in (self, other))
        return Statistics(
            low,
            high,
            Histogram(exponent, first, np.asarray(counts)),
            self.nans + other.nans,
            self.infinities + other.infinities,
            self.runs + other.runs,
            self.sum_of_lows + other.sum_of_lows,
            self.sum_of_highs + other.sum_of_highs,
        )

    @property
    def count(self) -> int:
        """How many finite elements there have been."""
        return self.histogram.total

    @property
    def size(self) -> float:
        """From the smallest to the largest element, zero among them."""
        return max(self.high, 0.0) - min(self.low, 0.0)
