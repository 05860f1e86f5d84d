"""Gathers, element by element."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import GatherNode
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


ROWS = [Row(GatherNode, ALL, _cases)]


@on_every_backend(ROWS)
def test_gather(row: Row, backend: str) -> None:
    check_row(row, backend)
