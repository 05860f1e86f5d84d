"""Ranges, compared with what numpy, onnxruntime and plain loops say of the same elements."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnxruntime.quantization.calibrate import HistogramCollector

from glowpy import UserError
from glowpy.core.tensor import Array
from glowpy.quantization import (
    Calibration,
    Entropy,
    MeanSquaredError,
    MinMax,
    MovingAverage,
    Percentile,
    Statistics,
)

COUNT = 50_000
RNG = np.random.default_rng(0)
SETS: dict[str, Array] = {
    "normal": RNG.normal(size=COUNT),
    "laplace": RNG.laplace(size=COUNT),
    "relu": np.maximum(RNG.normal(size=COUNT), 0),
    "outliers": np.concatenate([RNG.normal(size=COUNT), [30, -25]]),
    "shifted": RNG.normal(size=COUNT) + 2,
    "negative": -np.abs(RNG.laplace(size=COUNT)),
    "uniform": RNG.uniform(-1, 3, COUNT),
    "long tails": RNG.standard_t(3, COUNT),
}
SETS = {name: elements.astype(np.float32) for name, elements in SETS.items()}
ALL: tuple[Calibration, ...] = (
    MinMax(),
    MovingAverage(),
    Percentile(),
    Percentile(50),
    Entropy(),
    Entropy(16, symmetric=True),
    MeanSquaredError(),
    MeanSquaredError(16, symmetric=True),
)


@pytest.fixture(params=SETS)
def elements(request: pytest.FixtureRequest) -> Array:
    return SETS[request.param]


def test_min_max(elements: Array) -> None:
    low, high = MinMax().range(Statistics.of(elements))
    assert (low, high) == (min(elements.min(), 0), max(elements.max(), 0))


def test_moving_average(elements: Array) -> None:
    runs = np.array_split(elements, 8)
    statistics = Statistics.none()
    for run in runs:
        statistics = statistics.merged(Statistics.of(run))
    low, high = MovingAverage().range(statistics)
    assert low == pytest.approx(min(np.mean([run.min() for run in runs], dtype=float), 0))
    assert high == pytest.approx(max(np.mean([run.max() for run in runs], dtype=float), 0))


# -------------------------------------------------------------------------------------------- percentile


@pytest.mark.parametrize("percent", [50.0, 99.0, 99.99, 100.0])
def test_percentile_covers_that_many(elements: Array, percent: float) -> None:
    statistics = Statistics.of(elements)
    low, high = Percentile(percent).range(statistics)
    assert np.count_nonzero((elements >= low) & (elements <= high)) >= elements.size * percent / 100
    width = 2 * statistics.histogram.width  # an element more or less is another bin
    tail = (100 - percent) / 2
    if low < 0:
        assert low == pytest.approx(np.percentile(elements, tail, method="lower"), abs=width)
    if high > 0:
        assert high == pytest.approx(
            np.percentile(elements, 100 - tail, method="higher"), abs=width
        )


@pytest.mark.parametrize("percent", [90.0, 99.0, 99.99])
def test_percentile_is_that_of_onnxruntime(
    elements: Array, percent: float, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which takes the lower edge of the bin with the upper percentile, and the next of elements."""
    statistics = Statistics.of(elements)
    histogram = statistics.histogram
    collector = HistogramCollector("percentile", False, 2048, 128, percent, None)
    ends = statistics.low, statistics.high
    collector.histogram_dict = {"v": (histogram.counts, histogram.edges, *ends, max(ends))}
    theirs = [float(end) for end in collector.compute_percentile()["v"][:2]]
    capsys.readouterr()
    low, high = Percentile(percent).range(statistics)
    assert low == pytest.approx(min(theirs[0], 0), abs=2 * histogram.width)
    assert high == pytest.approx(max(theirs[1], 0), abs=2 * histogram.width)


@pytest.mark.parametrize("percent", [0, -1, 100.1, math.nan])
def test_percentile_refuses(percent: float) -> None:
    with pytest.raises(UserError, match="expected a percentile above 0, at most 100"):
        Percentile(percent)


# ----------------------------------------------------------------------------------------------- entropy


def divergence(counts: list[int], reach: int, levels: int) -> float:
    """Of a symmetric range of so many bins on either side of the middle, as it is defined."""
    middle = len(counts) // 2
    start, end = middle - reach, middle + reach
    inside = counts[start:end]
    p = [float(count) for count in inside]
    p[0] += sum(counts[:start])
    p[-1] += sum(counts[end:])
    q = [0.0] * len(inside)
    for level in range(levels):
        bins = [i for i in range(len(inside)) if i * levels // len(inside) == level]
        occupied = [i for i in bins if inside[i]]
        for i in occupied:
            q[i] = sum(inside[i] for i in bins) / len(occupied)
    if len(inside) <= levels:
        q = [float(count) for count in inside]
    pairs = [(a, max(b, 0.5)) for a, b in zip(p, q, strict=True) if a]
    total, others = sum(a for a, _ in pairs), sum(b for _, b in pairs)
    return sum(a / total * math.log((a / total) / (b / others)) for a, b in pairs)


@pytest.mark.parametrize("levels", [4, 16, 100])
def test_entropy_is_least_where_plain_loops_say(levels: int) -> None:
    elements = SETS["long tails"][:3000]
    statistics = Statistics.of(elements)
    histogram = statistics.histogram
    places = np.flatnonzero(histogram.counts) + histogram.first
    reach = max(-int(places[0]), int(places[-1]) + 1)
    counts = [0] * (2 * reach)
    for place in places:
        counts[place + reach] = int(histogram.counts[place - histogram.first])
    counts[reach] = min(counts[reach], max(counts[reach - 1], counts[reach + 1]))
    tried = sorted({math.ceil(reach * step / 64) for step in range(1, 65)})
    losses = {bins: divergence(counts, bins, levels) for bins in tried}
    _, high = Entropy(levels, symmetric=True).range(statistics)
    chosen = min(tried, key=lambda bins: abs(bins * histogram.width - high))
    assert losses[chosen] == pytest.approx(min(losses.values()), rel=1e-9)


@pytest.mark.parametrize(
    ("name", "share"),
    [("normal", 0.1), ("laplace", 0.15), ("outliers", 0.15), ("long tails", 0.15)],
)
def test_entropy_is_near_that_of_onnxruntime(name: str, share: float) -> None:
    """Which smooths empty bins in another way, and has a bin around zero."""
    elements = SETS[name]
    reach = np.abs(elements).max()
    counts, edges = np.histogram(elements, 2049, (-reach, reach))
    collector = HistogramCollector("entropy", True, 2049, 256, 99.99, None)
    ends = elements.min(), elements.max(), reach
    _, theirs = collector.get_entropy_threshold((counts, edges, *ends), 256)
    _, ours = Entropy(symmetric=True).range(Statistics.of(elements))
    assert ours == pytest.approx(float(theirs), rel=share)


def test_zeros_do_not_narrow_the_range() -> None:
    some = np.abs(SETS["normal"])
    many_zeros = np.concatenate([some, np.zeros(20 * COUNT, np.float32)])
    alone, among = (Entropy().range(Statistics.of(array)) for array in (some, many_zeros))
    assert among == pytest.approx(alone, rel=0.2)


# -------------------------------------------------------------------------------------------------- error


def squared_error(elements: Array, low: float, high: float, levels: int) -> float:
    scale = (high - low) / (levels - 1)
    zero = np.rint(-low / scale)
    places = np.clip(np.rint(elements / scale) + zero, 0, levels - 1)
    return float(np.mean((elements - (places - zero) * scale) ** 2))


@pytest.mark.parametrize("levels", [16, 256])
def test_squared_error_is_nearly_the_least(elements: Array, levels: int) -> None:
    elements = elements[-10_000:]
    numbers = elements.astype(np.float64)
    low, high = MeanSquaredError(levels).range(Statistics.of(elements))
    shares = np.linspace(0.04, 1, 25)
    ends = MinMax().range(Statistics.of(elements))
    least = min(
        squared_error(numbers, ends[0] * a, ends[1] * b, levels)
        for a in shares
        for b in shares
        if ends[1] * b > ends[0] * a
    )
    assert squared_error(numbers, low, high, levels) <= 1.05 * least


# -------------------------------------------------------------------------------------------- every way


@pytest.mark.parametrize("calibration", ALL, ids=repr)
@settings(deadline=None, max_examples=40)
@given(numbers=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1))
def test_ranges_hold_zero_and_lie_within_the_elements(
    calibration: Calibration, numbers: list[float]
) -> None:
    elements = np.array(numbers, np.float32)
    low, high = calibration.range(Statistics.of(elements))
    symmetric = getattr(calibration, "symmetric", False)
    reach = float(np.abs(elements).max())
    lowest, highest = (-reach, reach) if symmetric else MinMax().range(Statistics.of(elements))
    assert lowest <= low <= 0 <= high <= highest
    if symmetric:
        assert low == -high


@pytest.mark.parametrize("calibration", ALL, ids=repr)
@pytest.mark.parametrize("number", [0.0, 3.0, -0.25])
def test_a_constant(calibration: Calibration, number: float) -> None:
    """Reaches from zero to it: all elements are the same, so nothing is gained by cutting them off."""
    low, high = calibration.range(Statistics.of(np.full(100, number, np.float32)))
    assert (low if number < 0 else high) == number


@pytest.mark.parametrize("calibration", ALL, ids=repr)
def test_without_finite_elements(calibration: Calibration) -> None:
    odd = Statistics.of(np.array([np.nan, np.inf], np.float32))
    for statistics in (Statistics.none(), odd):
        with pytest.raises(UserError, match="expected a value with finite elements"):
            calibration.range(statistics)


@pytest.mark.parametrize("search", [Entropy, MeanSquaredError])
def test_one_level_is_refused(search: type[Entropy] | type[MeanSquaredError]) -> None:
    with pytest.raises(UserError, match="expected at least 2 levels, got 1"):
        search(1)
