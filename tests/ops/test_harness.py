"""The comparison that all operator tests rest on tells right from wrong."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import AddNode
from tests.ops.harness import (
    EXACT,
    EXACT_BUT_ZERO,
    FLOATS,
    Case,
    Row,
    Tolerance,
    check_row,
    difference,
)

ONE = np.float32(1)
NEXT = np.nextafter(ONE, np.float32(2))
AFTER = np.nextafter(NEXT, np.float32(2))
TOP = np.finfo(np.float32).max


@pytest.mark.parametrize(
    ("actual", "expected", "tolerance", "fits"),
    [
        (ONE, 1.0, EXACT, True),
        (NEXT, 1.0, EXACT, False),
        (NEXT, 1.0, Tolerance(ulps=1), True),
        (AFTER, 1.0, Tolerance(ulps=1), False),
        (AFTER, 1.0, Tolerance(epsilons=2), True),
        (np.float32(-0.0), 0.0, EXACT, False),
        (np.float32(-0.0), 0.0, EXACT_BUT_ZERO, True),
        (np.float32(np.nan), np.nan, EXACT, True),
        (np.float32(np.nan), 1.0, Tolerance(ulps=9), False),
        (ONE, np.nan, Tolerance(ulps=9), False),
        (np.float32(np.inf), -np.inf, Tolerance(ulps=9), False),
        (np.float32(np.inf), 1e39, EXACT, True),
        (TOP, np.inf, Tolerance(ulps=9), False),
        (np.float32(np.inf), float(TOP), Tolerance(ulps=2), True),
        (np.float32(np.inf), float(TOP) / 2, Tolerance(ulps=2), False),
        (np.float32(1e-45), 0.0, Tolerance(ulps=1), True),
        (np.float32(1e-44), 0.0, Tolerance(ulps=1), False),
        (np.int8(3), 3, EXACT, True),
        (np.int8(3), 4, Tolerance(ulps=9), False),
        (np.float16(1), 1.0004, Tolerance(ulps=1), True),
        (np.float16(1), 1.002, Tolerance(ulps=1), False),
        (ml_dtypes.bfloat16(1), 1.007, Tolerance(ulps=1), True),
        (ml_dtypes.bfloat16(1), 1.01, Tolerance(ulps=1), False),
    ],
)
def test_difference(actual: object, expected: object, tolerance: Tolerance, fits: bool) -> None:
    mismatch = difference(np.asarray(actual), np.asarray(expected), tolerance)
    assert (mismatch == "") == fits, mismatch


def test_difference_of_shapes() -> None:
    assert "expected shape (2,), got (1,)" in difference(np.zeros(1), np.zeros(2))


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_check_row_reports_every_wrong_case(backend: str) -> None:
    def cases(kind: object) -> list[Case]:
        arrays: list[Array] = [np.arange(n, dtype=np.float32) for n in (3, 4)]
        return [Case([array, array], [array * 2 + 1]) for array in arrays]

    row = Row(AddNode, FLOATS[2:3], cases)
    with pytest.raises(AssertionError) as caught:
        check_row(row, backend)
    text = str(caught.value)
    assert "add(f32[3], f32[3])" in text
    assert "add(f32[4], f32[4])" in text
    assert "4 of 4 elements differ, the first at (0,)" in text
