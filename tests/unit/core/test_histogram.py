"""Histograms that are joined are those of the joined numbers, bin for bin."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowpy.core.histogram import LOWEST_EXPONENT, Histogram, grid_of

FINITE = st.floats(width=32, allow_nan=False, allow_infinity=False)
LISTS = st.lists(FINITE, max_size=40)
BINS = st.sampled_from([2, 8, 2048])


def holds(low: float, high: float, exponent: int, bins: int) -> bool:
    width = Fraction(2) ** exponent
    return Fraction(high) // width - Fraction(low) // width < bins


@given(FINITE, FINITE, BINS)
def test_no_narrower_bins_would_do(a: float, b: float, bins: int) -> None:
    low, high = min(a, b, 0.0), max(a, b, 0.0)
    exponent, first = grid_of(min(a, b), max(a, b), bins)
    assert first == Fraction(low) // Fraction(2) ** exponent
    assert holds(low, high, exponent, bins)
    assert exponent == LOWEST_EXPONENT or not holds(low, high, exponent - 1, bins)


@given(LISTS, LISTS, BINS)
def test_joined(some: list[float], others: list[float], bins: int) -> None:
    both = np.array([*some, *others], np.float32)
    whole = Histogram.of(both, bins)
    parts = [Histogram.of(np.array(numbers, np.float32), bins) for numbers in (some, others)]
    counts = sum(part.on(whole.exponent, whole.first).counts for part in parts)
    assert np.array_equal(counts, whole.counts)
    assert whole.total == both.size


@given(LISTS, BINS)
def test_numbers_lie_between_the_edges_of_their_bin(numbers: list[float], bins: int) -> None:
    histogram = Histogram.of(np.array(numbers, np.float32), bins)
    counts, _ = np.histogram(np.array(numbers), histogram.edges)
    # numpy counts what is equal to the last edge; nothing is.
    assert np.array_equal(counts, histogram.counts)


def test_no_numbers() -> None:
    histogram = Histogram.of(np.empty(0, np.float32))
    assert (histogram.exponent, histogram.first, histogram.total) == (LOWEST_EXPONENT, 0, 0)


@pytest.mark.parametrize(("low", "high"), [(0.0, 0.0), (1.0, 1.0), (-3.0, -3.0)])
def test_a_constant_has_a_grid_that_reaches_from_zero(low: float, high: float) -> None:
    exponent, first = grid_of(low, high)
    edges = first * 2.0**exponent, (first + 2048) * 2.0**exponent
    assert edges[0] <= min(low, 0) <= max(high, 0) < edges[1]
