"""Matrix products against numpy in a wider kind."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.nodes_gen import DeterminantNode, FullyConnectedNode, MatMulNode
from tests.ops.harness import (
    FLOATS,
    HALVES,
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

SHAPES = [
    ((3, 5), (5, 7)),
    ((1, 1), (1, 1)),
    ((1, 64), (64, 33)),
    ((17, 31), (31, 1)),
    ((37, 129), (129, 67)),
    ((1, 20), (20, 19)),
    ((2, 9, 70), (70, 1)),
    ((2, 1, 6, 40), (3, 40, 1)),
    ((2, 3, 5), (2, 5, 4)),
    ((3, 5), (2, 5, 4)),
    ((2, 1, 3, 5), (4, 5, 2)),
    ((2, 1, 3, 5), (1, 3, 5, 2)),
    ((1, 2, 1, 2, 3), (2, 3, 1)),
    ((3, 0), (0, 4)),
    ((0, 3), (3, 4)),
    ((2, 3), (3, 0)),
    ((0, 2, 3), (3, 2)),
    ((1, 2, 1, 1, 2, 1, 2, 3), (2, 1, 1, 3, 1, 1, 3, 5)),
    ((2, 1, 1, 1, 1, 2, 3), (1, 2, 1, 1, 1, 1, 3, 5)),
]


def _operand(kind: ElemKind, shape: tuple[int, ...], seed: int) -> Array:
    """Integers over their whole range, so that products and sums wrap."""
    if kind.is_float:
        return normal_array(kind, shape, seed)
    bits = np.random.default_rng([seed, *shape]).integers(0, 1 << 63, shape, np.uint64)
    return (bits * np.uint64(0x9E3779B97F4A7C15)).astype(kind.dtype)


def product(lhs: Array, rhs: Array) -> Array:
    """The product in f64, or modulo 2**64."""
    wide = np.float64 if ElemKind.of(lhs.dtype).is_float else np.uint64
    terms = lhs.astype(wide)[..., :, :, None] * rhs.astype(wide)[..., None, :, :]
    return np.asarray(np.sum(terms, axis=-2, dtype=wide))


def _mat_mul(kind: ElemKind, constants: frozenset[int]) -> Iterator[Case]:
    for left, right in SHAPES:
        lhs, rhs = _operand(kind, left, 1), _operand(kind, right, 2)
        yield Case(
            [lhs, rhs],
            [product(lhs, rhs)],
            tolerance=sum_tolerance(kind, left[-1] + 1),
            constants=constants,
        )


def _special(kind: ElemKind) -> Iterator[Case]:
    lhs = np.array([[1, np.inf], [np.nan, 1], [0, 1], [-np.inf, np.inf]], kind.dtype)
    rhs = np.array([[1, 0, -1], [2, 1, 1]], kind.dtype)
    with np.errstate(all="ignore"):
        yield Case([lhs, rhs], [product(lhs, rhs)], tolerance=Tolerance(ulps=1))


def _fully_connected(kind: ElemKind, constants: frozenset[int]) -> Iterator[Case]:
    for n, k, m in [(1, 5, 3), (3, 128, 10), (7, 17, 33), (2, 0, 3), (0, 2, 2)]:
        arrays = [_operand(kind, (n, k), 1), _operand(kind, (k, m), 2), _operand(kind, (m,), 3)]
        wide = np.float64 if kind.is_float else np.uint64
        expected = product(*arrays[:2]) + arrays[2].astype(wide)
        tolerance = sum_tolerance(kind, k + 1)
        if kind in HALVES:  # the product is rounded before the bias is added
            tolerance = Tolerance(ulps=1, epsilons=0.5, scale=4 * math.sqrt(k + 1))
        yield Case(arrays, [expected], tolerance=tolerance, constants=constants)


def _leibniz(matrix: Array) -> float:
    """The sum over all permutations."""
    size, total = len(matrix), 0.0
    for columns in itertools.permutations(range(size)):
        swaps = sum(columns[i] > columns[j] for i in range(size) for j in range(i, size))
        factors = [float(matrix[row, column]) for row, column in enumerate(columns)]
        total += (-1) ** swaps * math.prod(factors)
    return total


def _determinant(kind: ElemKind) -> Iterator[Case]:
    """Some have a zero where elimination begins, some are singular."""
    for seed, shape in enumerate(
        [(3, 3), (2, 5, 5), (4, 2, 2), (2, 3, 1, 1), (3, 0, 0), (0, 2, 2)]
    ):
        matrices = random_array(kind, shape, seed)
        if shape[-1] > 2:
            matrices[..., 0, 0] = 0
            matrices.reshape(-1, *shape[-2:])[0, 2] = matrices.reshape(-1, *shape[-2:])[0, 1]
        expected = [
            _leibniz(matrix) for matrix in matrices.reshape(math.prod(shape[:-2]), *shape[-2:])
        ]
        yield Case(
            [matrices],
            [np.array(expected).reshape(shape[:-2])],
            tolerance=sum_tolerance(kind, 32),
        )
    infinite = np.array([[[np.inf, 0], [0, 1]], [[np.nan, 0], [0, 1]]], kind.dtype)
    yield Case([infinite], [np.array([np.inf, np.nan])])


ROWS = [
    Row(DeterminantNode, FLOATS, _determinant),
    Row(MatMulNode, NUMBERS, lambda kind: _mat_mul(kind, frozenset())),
    Row(MatMulNode, FLOATS, lambda kind: _mat_mul(kind, frozenset({1})), "mat_mul of a constant"),
    Row(MatMulNode, (ElemKind.F64,), lambda kind: _mat_mul(kind, frozenset()), "mat_mul in f64"),
    Row(
        MatMulNode,
        (ElemKind.F64,),
        lambda kind: _mat_mul(kind, frozenset({1})),
        "mat_mul in f64 of a constant",
    ),
    Row(MatMulNode, FLOATS, _special, "mat_mul of infinities"),
    Row(FullyConnectedNode, NUMBERS, lambda kind: _fully_connected(kind, frozenset())),
    Row(
        FullyConnectedNode,
        FLOATS,
        lambda kind: _fully_connected(kind, frozenset({1, 2})),
        "fully_connected of constants",
    ),
]


@on_every_backend(ROWS)
def test_product(row: Row, backend: str) -> None:
    check_row(row, backend)
