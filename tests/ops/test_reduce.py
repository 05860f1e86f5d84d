"""Reductions and running sums against loops in Python's own numbers."""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import (
    ArgMaxNode,
    ArgMinNode,
    CumProdNode,
    CumSumNode,
    ReduceAddNode,
    ReduceMaxNode,
    ReduceMeanNode,
    ReduceMinNode,
    ReduceMulNode,
)
from tests.ops.harness import (
    ALL,
    EXACT,
    FLOATS,
    INTS,
    NUMBERS,
    Case,
    Row,
    Tolerance,
    check_row,
    normal_array,
    on_every_backend,
    random_array,
    sum_tolerance,
)
from tests.ops.test_elementwise import special_values

Fold = Callable[[Sequence[int | float], ElemKind], int | float]
Step = Callable[[float, float], float]

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...]]] = [
    ((3, 1013), (1,)),
    ((7,), (0,)),
    ((), ()),
    ((3, 5), ()),
    ((3, 5), (0,)),
    ((3, 37), (1,)),
    ((3, 5), (0, 1)),
    ((2, 3, 17), (1,)),
    ((2, 3, 5), (0, 2)),
    ((2, 3, 2, 5), (1, 3)),
    ((2, 1, 3, 1, 5), (1, 2, 4)),
    ((3, 0), (1,)),
    ((0, 3), (1,)),
    ((1, 1), (0,)),
]


def fold(x: Array, axes: tuple[int, ...], function: Fold) -> Array:
    """Applies `function` to the elements that share every index but those along `axes`."""
    kind = ElemKind.of(x.dtype)
    kept = tuple(1 if axis in axes else size for axis, size in enumerate(x.shape))
    groups: dict[tuple[int, ...], list[int | float]] = {index: [] for index in np.ndindex(*kept)}
    for index in np.ndindex(*x.shape):
        place = tuple(0 if axis in axes else i for axis, i in enumerate(index))
        groups[place].append(float(x[index]) if kind.is_float else int(x[index]))
    results = [function(items, kind) for items in groups.values()]
    if not kind.is_float:
        return _wrapped(results, kind).reshape(kept)
    return np.array(results, np.float64).reshape(kept)


def _wrapped(items: Sequence[int | float], kind: ElemKind) -> Array:
    """Integers of any size as elements of a kind."""
    return np.array([int(item) & ((1 << 64) - 1) for item in items], np.uint64).astype(kind.dtype)


def _sum(items: Sequence[int | float], kind: ElemKind) -> int | float:
    return math.fsum(items) if kind.is_float else sum(items)


def _product(items: Sequence[int | float], kind: ElemKind) -> int | float:
    return math.prod(items)


def _mean(items: Sequence[int | float], kind: ElemKind) -> int | float:
    if kind.is_float:
        return math.fsum(items) / len(items) if items else math.nan
    return math.trunc(Fraction(int(sum(items)), len(items))) if items else 0


def _extreme(items: Sequence[int | float], kind: ElemKind, *, largest: bool) -> int | float:
    if any(item != item for item in items):
        return math.nan
    if items:
        return max(items) if largest else min(items)
    if kind.is_float:
        return -math.inf if largest else math.inf
    if kind is ElemKind.BOOL:
        return not largest
    limits = np.iinfo(kind.dtype.name)
    return int(limits.min if largest else limits.max)


def _cases(kind: ElemKind, function: Fold, tolerance: Tolerance) -> Iterator[Case]:
    for shape, axes in SHAPES:
        x = normal_array(kind, shape) if kind.is_float else random_array(kind, shape)
        yield Case(
            [x],
            [fold(x, axes, function)],
            {"axes": axes},
            tolerance=tolerance if kind.is_float else EXACT,
        )


def _special(kind: ElemKind, function: Fold) -> Iterator[Case]:
    """Pairs of special values, along a dimension that is contiguous and one that is not."""
    special = special_values(kind)
    pairs = np.stack([np.repeat(special, len(special)), np.tile(special, len(special))])
    for x, axis in ((pairs, 0), (np.ascontiguousarray(pairs.T), 1)):
        expected = fold(x, (axis,), function)
        yield Case([x], [expected], {"axes": (axis,)}, tolerance=Tolerance(zero_sign=False))


def _maximum(items: Sequence[int | float], kind: ElemKind) -> int | float:
    return _extreme(items, kind, largest=True)


def _minimum(items: Sequence[int | float], kind: ElemKind) -> int | float:
    return _extreme(items, kind, largest=False)


def _whole(kind: ElemKind) -> Iterator[Case]:
    """Sums of integers at their limits wrap, the mean's do not."""
    x = np.resize(special_values(kind), (5, 67))
    yield Case([x], [fold(x, (1,), _sum)], {"axes": (1,)})


def _mean_whole(kind: ElemKind) -> Iterator[Case]:
    if kind.size < ElemKind.I64.size:
        x = np.resize(special_values(kind), (5, 300))
        yield Case([x], [fold(x, (1,), _mean)], {"axes": (1,)})
    yield from _cases(kind, _mean, EXACT)


ALONG: list[tuple[tuple[int, ...], int]] = [
    ((3, 301), 1),
    ((1,), 0),
    ((17, 3), 1),
    ((5, 67), 0),
    ((2, 3, 5), 1),
    ((2, 2, 2, 130), 2),
    ((0, 3), 1),
    ((2, 3, 0), 1),
]
"""Shapes and the dimension along which is searched or summed."""


def _lines(x: Array, axis: int) -> Iterator[tuple[tuple[slice | int, ...], list[int | float]]]:
    """Each line of elements along `axis`: how to index it, and the elements."""
    kind = ElemKind.of(x.dtype)
    around = tuple(1 if at == axis else size for at, size in enumerate(x.shape))
    for index in np.ndindex(*around):
        place = (*index[:axis], slice(None), *index[axis + 1 :])
        yield place, [float(item) if kind.is_float else int(item) for item in x[place]]


def _position(items: Sequence[int | float], *, largest: bool, last: bool) -> int:
    """A NaN is the most extreme."""
    places = [i for i, item in enumerate(items) if item != item]
    if not places:
        extreme = max(items) if largest else min(items)
        places = [i for i, item in enumerate(items) if item == extreme]
    return places[-1 if last else 0]


def _arg(kind: ElemKind, *, largest: bool) -> Iterator[Case]:
    """Few different values, so that there are equal ones; NaN in some rows, nothing else in others."""
    special = special_values(kind)
    rng = np.random.default_rng(0)
    rows = [rng.choice(special, size=size) for size in (2, 130, 131, 200, 700)]
    inputs = [(random_array(kind, shape), axis) for shape, axis in ALONG]
    inputs += [(row, 0) for row in rows]
    inputs += [(np.stack([row, row[::-1], np.repeat(row[:1], row.size)], 1), 0) for row in rows]
    if kind.is_float:
        inputs += [(np.stack([rows[2], np.full_like(rows[2], np.nan)]), 1)]
    for last in (False, True):
        for x, axis in inputs:
            kept = tuple(1 if at == axis else size for at, size in enumerate(x.shape))
            expected = np.empty(kept, np.int64)
            for place, items in _lines(x, axis):
                expected[place] = _position(items, largest=largest, last=last)
            yield Case([x], [expected], {"axis": axis, "last": last})


def _running(kind: ElemKind, step: Step, begin: float) -> Iterator[Case]:
    """One by one in f64, or wrapping; a NaN does not reach what comes before it."""
    inputs = [
        (normal_array(kind, s) if kind.is_float else random_array(kind, s), a) for s, a in ALONG
    ]
    inputs += [(special_values(kind), 0), (np.resize(special_values(kind), (67, 9)), 0)]
    inputs += [(np.resize(special_values(kind), (19, 70)), 1)]
    for exclusive, reverse in itertools.product((False, True), repeat=2):
        for x, axis in inputs:
            expected = np.empty(x.shape, np.float64 if kind.is_float else kind.dtype)
            for place, items in _lines(x, axis):
                way = -1 if reverse else 1
                ordered: list[float] = list(items[::way])
                totals = list(itertools.accumulate(ordered, step, initial=begin))
                line = (totals[:-1] if exclusive else totals[1:])[::way]
                expected[place] = line if kind.is_float else _wrapped(line, kind)
            attrs = {"axis": axis, "exclusive": exclusive, "reverse": reverse}
            yield Case([x], [expected], attrs)


EXTREMA = Tolerance(zero_sign=False)
ROWS = [
    Row(ReduceAddNode, NUMBERS, lambda kind: _cases(kind, _sum, sum_tolerance(kind, 20))),
    Row(ReduceAddNode, INTS, _whole, "reduce_add wraps"),
    Row(ReduceMulNode, NUMBERS, lambda kind: _cases(kind, _product, Tolerance(ulps=40))),
    Row(ReduceMaxNode, ALL, lambda kind: _cases(kind, _maximum, EXTREMA)),
    Row(ReduceMinNode, ALL, lambda kind: _cases(kind, _minimum, EXTREMA)),
    Row(ReduceMaxNode, NUMBERS, lambda kind: _special(kind, _maximum), "reduce_max of specials"),
    Row(ReduceMinNode, NUMBERS, lambda kind: _special(kind, _minimum), "reduce_min of specials"),
    Row(ReduceMeanNode, FLOATS, lambda kind: _cases(kind, _mean, sum_tolerance(kind, 4))),
    Row(ReduceMeanNode, INTS, _mean_whole, "reduce_mean of integers"),
    Row(ArgMaxNode, NUMBERS, lambda kind: _arg(kind, largest=True)),
    Row(ArgMinNode, NUMBERS, lambda kind: _arg(kind, largest=False)),
    Row(CumSumNode, NUMBERS, lambda kind: _running(kind, operator.add, 0)),
    Row(CumProdNode, NUMBERS, lambda kind: _running(kind, operator.mul, 1)),
]


@on_every_backend(ROWS)
def test_reduce(row: Row, backend: str) -> None:
    check_row(row, backend)
