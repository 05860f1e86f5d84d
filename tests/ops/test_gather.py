"""Gathers, element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import glowpy
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import DynamicSliceNode, GatherNode
from glowpy.support.symbolic import symbol
from tests.ops.harness import ALL, Case, Row, check_row, on_every_backend, random_array

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


ROWS = [Row(GatherNode, ALL, _cases), Row(DynamicSliceNode, ALL, _slice_cases)]


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
