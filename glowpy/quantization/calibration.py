"""From what is known of a value to the range that its integers are to cover.

Every range has zero in it, because padding, ReLU and empty places need a zero that is exact.

* `MinMax`: everything that was seen.
* `MovingAverage`: the mean, over the runs, of the smallest and of the largest element. It is the plain mean and not one
  that forgets, which would depend on the order of the inputs.
* `Percentile`: without some per cent of the elements, the half of them on either side.
* `Entropy`: the range after which the distribution of the quantized elements tells least from that of the elements
  (Migacz, 8-bit inference with TensorRT, GTC 2017).
* `MeanSquaredError`: the range with the smallest squared error of the quantized elements.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from glowpy.core.tensor import Array
from glowpy.quantization.statistics import Statistics
from glowpy.support.errors import UserError

__all__ = ["Calibration", "Entropy", "MeanSquaredError", "MinMax", "MovingAverage", "Percentile"]

Range = tuple[float, float]

_STEPS = 64
"""Parts in which each side of a range is cut for the search of one."""


class Calibration(ABC):
    """A way to choose ranges."""

    def range(self, statistics: Statistics) -> Range:
        """The lowest and the highest number that the integers are to stand for; zero lies between, or is one of them.

        Raises UserError for a value that never had a finite element.
        """
        if not statistics.count:
            raise UserError("expected a value with finite elements to choose a range for")
        low, high = self._range(statistics)
        return min(low, 0.0), max(high, 0.0)

    @abstractmethod
    def _range(self, statistics: Statistics) -> Range:
        """The range, perhaps without zero, of a value with finite elements."""


@dataclass(frozen=True)
class MinMax(Calibration):
    """From the smallest to the largest element."""

    def _range(self, statistics: Statistics) -> Range:
        return statistics.low, statistics.high


@dataclass(frozen=True)
class MovingAverage(Calibration):
    """From the mean of the smallest elements of all runs to that of the largest ones."""

    def _range(self, statistics: Statistics) -> Range:
        runs = statistics.runs
        return float(statistics.sum_of_lows / runs), float(statistics.sum_of_highs / runs)


@dataclass(frozen=True)
class Percentile(Calibration):
    """The elements but for some at both ends, to the width of a bin.

    Attributes:
        percent: How many per cent of the elements are covered at least; half of the others lie at either end. More than
            0, at most 100.

    Raises UserError for another number.
    """

    percent: float = 99.99

    def __post_init__(self) -> None:
        if not 0 < self.percent <= 100:
            raise UserError(f"expected a percentile above 0, at most 100, got {self.percent}")

    def _range(self, statistics: Statistics) -> Range:
        histogram = statistics.histogram
        below = np.concatenate([[0], np.cumsum(histogram.counts)])
        outside = statistics.count * (100 - self.percent) / 200
        first = int(np.searchsorted(below, outside, side="right")) - 1
        last = int(np.searchsorted(below, statistics.count - outside, side="left"))
        edges = histogram.edges
        return max(float(edges[first]), statistics.low), min(float(edges[last]), statistics.high)


@dataclass(frozen=True)
class _Search(Calibration):
    """Tries narrower and narrower ranges.

    Attributes:
        levels: How many integers the range is cut into: 256 for 8 bits.
        symmetric: Whether the range reaches as far below zero as above, as for a symmetric schema.
    """

    levels: int = 256
    symmetric: bool = False

    def __post_init__(self) -> None:
        """Raises UserError for less than two levels."""
        if self.levels < 2:
            raise UserError(f"expected at least 2 levels, got {self.levels}")

    @abstractmethod
    def _loss(self, bins: _Bins) -> Callable[[int, int], float]:
        """How bad the range is that reaches so many bins below zero and so many above."""

    def _range(self, statistics: Statistics) -> Range:
        bins = _Bins.of(statistics, symmetric=self.symmetric)
        loss = self._loss(bins)
        best = bins.below, bins.above
        least = loss(*best)
        for candidates in (_even,) if self.symmetric else (_shrunk, _one_side, _one_side):
            for candidate in candidates(*best, bins):
                if (value := loss(*candidate)) < least:
                    best, least = candidate, value
        return bins.range(*best)


@dataclass(frozen=True)
class _Bins:
    """The bins between the outermost that are not empty, zero between them.

    Attributes:
        counts: The number of elements in each, f64.
        below: How many bins are below zero.
        width: The width of each.
        low: The smallest element, or zero.
        high: The largest one, or zero.
    """

    counts: Array
    below: int
    width: float
    low: float
    high: float

    @classmethod
    def of(cls, statistics: Statistics, *, symmetric: bool) -> _Bins:
        """Those of a value; as many on either side if `symmetric`."""
        histogram = statistics.histogram
        occupied = np.flatnonzero(histogram.counts) + histogram.first
        below = max(0, -int(occupied[0]))
        above = max(0, int(occupied[-1]) + 1)
        low, high = min(statistics.low, 0.0), max(statistics.high, 0.0)
        if symmetric:
            below = above = max(below, above)
            high = max(-low, high)
            low = -high
        counts = np.zeros(below + above)
        counts[occupied + below] = histogram.counts[occupied - histogram.first]
        return cls(counts, below, histogram.width, low, high)

    @property
    def above(self) -> int:
        """How many bins are above zero."""
        return len(self.counts) - self.below

    def range(self, below: int, above: int) -> Range:
        """The range of so many bins on each side of zero; the outermost end at their extreme elements."""
        return max(-below * self.width, self.low), min(above * self.width, self.high)


def _steps(count: int) -> Iterator[int]:
    """Some numbers from 1 to `count`; 0 alone if that is all."""
    yield from dict.fromkeys(-(-count * step // _STEPS) for step in range(1, _STEPS + 1))


def _shrunk(below: int, above: int, bins: _Bins) -> Iterator[tuple[int, int]]:
    """Both ends nearer to zero."""
    del bins
    for step in range(_STEPS, 0, -1):
        yield -(-below * step // _STEPS), -(-above * step // _STEPS)


def _one_side(below: int, above: int, bins: _Bins) -> Iterator[tuple[int, int]]:
    """One of the ends anywhere."""
    for other in _steps(bins.below):
        yield other, above
    for other in _steps(bins.above):
        yield below, other


def _even(below: int, above: int, bins: _Bins) -> Iterator[tuple[int, int]]:
    """Both ends as far from zero."""
    del below, above
    for reach in _steps(bins.below):
        yield reach, reach


@dataclass(frozen=True)
class Entropy(_Search):
    """The range with the smallest divergence of the quantized distribution from that of the elements.

    Attributes:
        levels: How many integers the range is cut into: 256 for 8 bits.
        symmetric: Whether the range reaches as far below zero as above, as for a symmetric schema.
    """

    def _loss(self, bins: _Bins) -> Callable[[int, int], float]:
        counts = _without_spike(bins)

        def loss(below: int, above: int) -> float:
            start, end = bins.below - below, bins.below + above
            inside = counts[start:end]
            limited = inside.copy()
            limited[0] += counts[:start].sum()
            limited[-1] += counts[end:].sum()
            return _divergence(limited, _quantized(inside, self.levels))

        return loss


def _without_spike(bins: _Bins) -> Array:
    """The counts, where that of zeros is at most a neighbour's: a ReLU makes many, and zero is exact in any range."""
    zero = bins.below
    neighbours = [*bins.counts[max(zero - 1, 0) : zero], *bins.counts[zero + 1 : zero + 2]]
    counts = bins.counts.copy()
    if any(neighbours) and bins.above:
        counts[zero] = min(counts[zero], max(neighbours))
    return counts


def _quantized(counts: Array, levels: int) -> Array:
    """The distribution after quantization: what a level has is spread evenly over its bins that had any."""
    if len(counts) <= levels:
        return counts
    level = np.arange(len(counts)) * levels // len(counts)
    occupied = counts > 0
    totals = np.bincount(level, counts, levels)
    bins = np.bincount(level, occupied, levels)
    shares: Array = np.where(occupied, totals[level] / np.maximum(bins[level], 1), 0.0)
    return shares


def _divergence(expected: Array, got: Array) -> float:
    """Computes the Kullback-Leibler divergence of counts; a bin that is empty only in `got` has half an element."""
    occupied = expected > 0
    p = expected[occupied]
    q = np.maximum(got[occupied], 0.5)
    return float(np.sum(p * np.log(p / q)) / p.sum() + np.log(q.sum() / p.sum()))


@dataclass(frozen=True)
class MeanSquaredError(_Search):
    """The range with the smallest mean squared error, of elements that lie in the middle of their bins.

    Attributes:
        levels: How many integers the range is cut into: 256 for 8 bits.
        symmetric: Whether the range reaches as far below zero as above, as for a symmetric schema.
    """

    def _loss(self, bins: _Bins) -> Callable[[int, int], float]:
        occupied = np.flatnonzero(bins.counts)
        middles = (occupied - bins.below + 0.5) * bins.width
        weights = bins.counts[occupied] / bins.counts.sum()

        def loss(below: int, above: int) -> float:
            low, high = bins.range(below, above)
            # A symmetric schema leaves out the lowest integer.
            steps = 2 * max(self.levels // 2 - 1, 1) if self.symmetric else self.levels - 1
            scale = (high - low) / steps
            if not scale:
                return float(np.sum(weights * middles**2))
            lowest = np.rint(low / scale)
            places = np.clip(np.rint(middles / scale), lowest, lowest + steps)
            return float(np.sum(weights * (middles - places * scale) ** 2))

        return loss
