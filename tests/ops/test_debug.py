"""Operators that look at values."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import QuantizationProfileNode
from tests.ops.harness import Case, Row, check_row, on_every_backend

TINY, HUGE = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)
LISTS: list[list[float]] = [
    [],
    [0.0],
    [-0.0, 0.0],
    [1.0],
    [-1.0],
    [1.0, -1.0],
    [math.nan, math.nan, math.inf, -math.inf, -math.inf],
    [math.nan, 2.0, math.inf, -3.5, -math.inf, 0.25],
    [HUGE, -HUGE, TINY, -TINY, 1e-45, -1e-45, 0.0],
    [HUGE, HUGE, -1e-45, -1.0],
    [-HUGE, 1.0],
    [-1e-45],
    [1e-45, TINY, 3 * TINY],
    [7.9375, -0.0625, -8.0, 8.0],
    [8.0, -7.999999],
    [-4.0, -8.0, -8.000001],
    [1000.0, 1000.0625, 999.9375],
]


def profile(array: Array, bins: int) -> list[Array]:
    """With rational numbers, one element after the other."""
    finite = [Fraction(float(x)) for x in array.ravel() if math.isfinite(x)]
    exponent = -126
    while True:
        places = [math.floor(x / Fraction(2) ** exponent) for x in [*finite, Fraction(0)]]
        if max(places) - min(places) < bins:
            break
        exponent += 1
    counts = np.zeros(bins, np.int64)
    for place in places[:-1]:
        counts[place - min(places)] += 1
    nans = sum(math.isnan(x) for x in array.ravel())
    infinities = array.size - len(finite) - nans
    ends = (float(min(finite, default=math.inf)), float(max(finite, default=-math.inf)))
    grid = [exponent, min(places), nans, infinities]
    return [counts, np.array(ends, np.float32), np.array(grid, np.int64)]


def _cases(kind: ElemKind) -> Iterator[Case]:
    rng = np.random.default_rng(0)
    arrays = [np.array(numbers, kind.dtype) for numbers in LISTS]
    arrays += [rng.normal(size=n).astype(kind.dtype) for n in (1, 63, 64, 65, 200)]
    arrays += [np.maximum(rng.normal(size=(3, 5, 7)), 0).astype(kind.dtype)]
    for array in arrays:
        for bins in (2, 16, 2048) if array.size < 10 else (16,):
            yield Case([array], profile(array, bins), {"bins": bins})


ROWS = [Row(QuantizationProfileNode, (ElemKind.F32,), _cases)]


@on_every_backend(ROWS)
def test_debug(row: Row, backend: str) -> None:
    check_row(row, backend)
