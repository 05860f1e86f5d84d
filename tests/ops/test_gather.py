"""Gathers and scatters, element by element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import (
    DynamicSliceNode,
    GatherNode,
    ScatterAddNode,
    ScatterMaxNode,
    ScatterMinNode,
    ScatterMulNode,
    ScatterNode,
)
from glowpy.support.symbolic import symbol
from tests.ops.harness import (
    ALL,
    EXACT_BUT_ZERO,
    INTS,
    NUMBERS,
    Case,
    Row,
    check_row,
    on_every_backend,
    random_array,
)

SHAPES: list[tuple[tuple[int, ...], tuple[int, ...], int]] = [
    ((7,), (3,), 0),
    ((7,), (), 0),
    ((5, 3), (2, 4), 0),
    ((5, 3), (2, 4), 1),
    ((2, 5, 17), (3,), 1),
    ((2, 3, 4), (1, 2, 2), 2),
    ((1, 3), (11,), 0),
    ((4, 3), (0,), 1),
    ((0, 3), (2,), 1),
    ((0, 3), (0,), 0),
    ((2, 0), (3,), 0),
]


def gather(input: Array, indices: Array, axis: int) -> Array:
    """Negative indices count from the end; others are clamped."""
    shape = (*input.shape[:axis], *indices.shape, *input.shape[axis + 1 :])
    result = np.empty(shape, input.dtype)
    size = input.shape[axis]
    for place in np.ndindex(*shape):
        picked = int(indices[place[axis : axis + indices.ndim]])
        picked = min(max(picked + size if picked < 0 else picked, 0), size - 1)
        result[place] = input[(*place[:axis], picked, *place[axis + indices.ndim :])]
    return result


def _indices(kind: ElemKind, shape: tuple[int, ...], size: int, seed: int) -> Array:
    """In range, negative, and beyond both ends up to the limits of the kind."""
    rng = np.random.default_rng([seed, size, *shape])
    indices = np.asarray(rng.integers(-size, max(size, 1), shape)).astype(kind.dtype)
    flat = indices.reshape(-1)
    limits = np.iinfo(kind.dtype.name)
    wild = [limits.min, limits.max, -size - 1, size]
    for position, value in zip(range(0, flat.size, 2), wild, strict=False):
        flat[position] = value
    return indices


def _cases(kind: ElemKind) -> Iterator[Case]:
    for seed, (shape, picks, axis) in enumerate(SHAPES):
        input = random_array(kind, shape)
        for index_kind in (ElemKind.I32, ElemKind.I64):
            indices = _indices(index_kind, picks, shape[axis], seed)
            yield Case([input, indices], [gather(input, indices, axis)], {"axis": axis})


def _slice_cases(kind: ElemKind) -> Iterator[Case]:
    """Starts inside and beyond both ends; so many that some are outside, or none."""
    for shape, axis, count, step in (
        ((40,), 0, 33, 1),
        ((5, 17, 3), 1, 6, 1),
        ((5, 17, 3), 1, 6, -2),
        ((4, 3), 0, 7, 1),
        ((2, 1, 9), 2, 0, 1),
        ((3, 0), 1, 0, 1),
        ((6, 2), 0, 3, 2),
    ):
        input = random_array(kind, shape)
        for start in (0, 3, shape[axis], -1, -(1 << 63), (1 << 63) - 1):
            first = min(max(start, 0), shape[axis] - 1)
            places = [min(max(first + step * i, 0), shape[axis] - 1) for i in range(count)]
            expected = input.take(np.array(places, np.int64), axis)
            type = Type(kind, expected.shape)
            yield Case([input, np.array([start])], [expected], {"axis": axis, "step": step}, type)


def _powers(kind: ElemKind) -> Iterator[Case]:
    """Products that need no rounding."""
    input = np.array([[3, 0.5], [0, -1]], kind.dtype)
    updates = np.array([[2, 2], [4, np.inf], [np.nan, -0.5]], kind.dtype)
    for indices in ([0, 0, 1], [1, 0, -1], [0, -2, 1]):
        expected = input.copy()
        for index, update in zip(indices, updates, strict=True):
            with np.errstate(invalid="ignore"):
                expected[index] *= update
        yield Case([input, np.array(indices), updates], [expected])


SCATTERED = [((7, 3), 5), ((1, 4), 6), ((40, 1), 90), ((3, 17), 0), ((0, 3), 0), ((4, 0), 3)]
"""Matrices, and how many of their rows are updated."""


def scatter(
    change: Callable[[Any, Any], Any], *, nan: bool = False
) -> Callable[[ElemKind], Iterator[Case]]:
    """Cases for updates that change an old element to a new one, one after the other."""

    def cases(kind: ElemKind) -> Iterator[Case]:
        for seed, (shape, count) in enumerate(SCATTERED):
            input, updates = random_array(kind, shape), random_array(kind, (count, shape[1]), seed)
            if kind.is_integer:  # products leave the kind
                updates = np.asarray(updates * kind.dtype.type(37)).astype(kind.dtype)
            if nan and kind.is_float and count > 4:
                updates[2], input[0] = np.nan, np.nan
            indices = _indices(ElemKind.I64, (count,), shape[0], seed)
            wide = input.astype(np.float64 if kind.is_float else object)
            for index, update in zip(indices, updates.astype(wide.dtype), strict=True):
                place = int(index) + (shape[0] if index < 0 else 0)
                row = min(max(place, 0), shape[0] - 1)
                wide[row] = [change(*pair) for pair in zip(wide[row], update, strict=True)]
            expected = wide if kind.is_float else _wrapped(wide, kind)
            yield Case([input, indices, updates], [expected], tolerance=EXACT_BUT_ZERO)

    return cases


def _wrapped(wide: Array, kind: ElemKind) -> Array:
    """Integers of any size as elements of a kind."""
    items = [int(item) & ((1 << 64) - 1) for item in wide.reshape(-1)]
    return np.array(items, np.uint64).astype(kind.dtype).reshape(wide.shape)


def _larger(old: float, update: float) -> float:
    return old if old > update or old != old else update


def _smaller(old: float, update: float) -> float:
    return old if old < update or old != old else update


ROWS = [
    Row(GatherNode, ALL, _cases),
    Row(DynamicSliceNode, ALL, _slice_cases),
    Row(ScatterNode, ALL, scatter(lambda old, update: update)),
    Row(ScatterAddNode, NUMBERS, scatter(operator.add)),
    Row(ScatterMulNode, INTS, scatter(operator.mul), "scatter_mul of integers"),
    Row(ScatterMulNode, (ElemKind.F32, ElemKind.F64), _powers, "scatter_mul of floats"),
    Row(ScatterMaxNode, NUMBERS, scatter(_larger, nan=True)),
    Row(ScatterMinNode, NUMBERS, scatter(_smaller, nan=True)),
]


@on_every_backend(ROWS)
def test_gather(row: Row, backend: str) -> None:
    check_row(row, backend)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_slices_of_an_open_dimension_without_elements_are_zero(backend: str) -> None:
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (symbol("rows", 0, 4), 2)))
    f = module.create_function("main")
    indices = module.create_constant("indices", np.array([0, -1, 7]))
    gathered = f.create_gather("gathered", x, indices, 0).result
    f.create_save("save", gathered, module.create_placeholder("y", gathered.type))
    network = glowpy.compile(module, backend)
    array = np.arange(1, 9, dtype=np.float32).reshape(4, 2)
    np.testing.assert_array_equal(network({"x": array})["y"], array[[0, 3, 3]])
    np.testing.assert_array_equal(network({"x": array[:0]})["y"], np.zeros((3, 2)))
