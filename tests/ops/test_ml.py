"""What models of scikit-learn are made of, each operator by itself."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.strategy.cut import cut_of
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.graph.function import Module
from glowpy.graph.node import Operand
from glowpy.graph.nodes_gen import CouplePairsNode, FindNode, TreeEnsembleNode
from glowpy.ir.insts_gen import TreeEnsembleInst
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from tests.ops.harness import Case, Row, Tolerance, check_row, on_every_backend, random_array
from tests.unit.networks import unoptimized

FLOATS = (ElemKind.F32, ElemKind.F64)


# Trees.


def grown(
    rng: np.random.Generator, trees: int, depth: int, features: int, targets: int, width: int
) -> list[Array]:
    """The four tables of random trees; some have no branch, and some features of branches are those of missing ones."""
    branches: list[list[int]] = []
    leaves, roots = itertools.count(), []

    def grow(depth: int) -> int:
        if depth == 0 or rng.random() < 0.15:
            return ~next(leaves)
        own = len(branches)
        feature = int(rng.integers(features))
        branches.append([feature if rng.random() < 0.7 else ~feature, 0, 0])
        branches[own][1:] = [grow(depth - 1), grow(depth - 1)]
        return own

    roots = [(grow(depth), int(rng.integers(targets - width + 1))) for _ in range(trees)]
    thresholds = rng.integers(-4, 5, len(branches)) / 4
    weights = rng.integers(-8, 9, (next(leaves), width)) / 4
    tables = (np.array(branches, np.int32).reshape(-1, 3), thresholds)
    return [*tables, np.array(roots, np.int32).reshape(-1, 2), weights]


def walked(x: Array, tables: list[Array], targets: int, greatest: bool) -> Array:
    """One row after the other, one tree after the other."""
    branches, thresholds, roots, weights = tables
    result = np.zeros((len(x), targets))
    for row, values in enumerate(x):
        seen: dict[int, list[float]] = {}
        for root, first in roots.tolist():
            at = root
            while at >= 0:
                feature, *children = branches[at].tolist()
                value = float(values[~feature if feature < 0 else feature])
                left = feature < 0 if np.isnan(value) else value <= thresholds[at]
                at = children[0 if left else 1]
            for k, weight in enumerate(weights[~at].tolist()):
                seen.setdefault(first + k, []).append(weight)
        for target, numbers in seen.items():
            kept = [number for number in numbers if number == number] if greatest else numbers
            result[row, target] = max(kept, default=0.0) if greatest else sum(kept)
    return result


_FORESTS = [
    # rows, features, trees, depth, targets, width
    (1, 5, 20, 6, 1, 1),
    (7, 3, 3, 3, 2, 2),
    (8, 1, 9, 4, 4, 1),
    (33, 6, 17, 5, 5, 3),
    (260, 20, 5, 4, 1, 1),
    (3, 2, 5, 0, 2, 1),
    (0, 2, 5, 3, 2, 1),
    (9, 2, 0, 0, 3, 1),
]


def _tree_cases(kind: ElemKind) -> Iterator[Case]:
    for seed, (rows, features, trees, depth, targets, width) in enumerate(_FORESTS):
        rng = np.random.default_rng([seed, rows])
        x = (rng.integers(-6, 7, (rows, features)) / 4).astype(kind.dtype)
        x[rng.random(x.shape) < 0.1] = np.nan
        x[rng.random(x.shape) < 0.1] = np.inf
        branches, thresholds, roots, weights = grown(rng, trees, depth, features, targets, width)
        for greatest in (False, True):
            if greatest:
                weights = np.where(rng.random(weights.shape) < 0.2, np.nan, weights)
            tables = [branches, thresholds, roots, weights]
            expected = walked(x, tables, targets, greatest)
            attrs = {"targets": targets, "greatest": greatest, "missing": True}
            kinds = [np.dtype(np.int32), kind.dtype] * 2
            inputs = [t.astype(k) for t, k in zip(tables, kinds, strict=True)]
            yield Case([x, *inputs], [expected], attrs, constants=frozenset({1, 2, 3, 4}))
        if rows == 33:
            plain = np.where(branches[:, :1] < 0, ~branches[:, :1], branches[:, :1])
            tables = [np.hstack([plain, branches[:, 1:]]), thresholds, roots, weights]
            inputs = [t.astype(k) for t, k in zip(tables, kinds, strict=True)]
            expected = walked(x, tables, targets, True)
            attrs = {"targets": targets, "greatest": True, "missing": False}
            yield Case([x, *inputs], [expected], attrs, constants=frozenset({1, 2, 3, 4}))


# Places of elements.


def _find_cases(kind: ElemKind) -> Iterator[Case]:
    for shape, number in (((40,), 12), ((3, 5), 1), ((2, 0), 3), ((), 7), ((9,), 0), ((200,), 64)):
        keys = np.unique(random_array(kind, (number,), 3))
        x = random_array(kind, shape, 4)
        if kind.is_float:
            keys = np.append(np.append(-np.inf, keys), [np.inf, np.nan])[: number or 0]
            x = np.where(random_array(kind, shape, 5) > 1, np.nan, x)
            x = np.where(random_array(kind, shape, 6) > 1.5, -np.inf, x)
            x = np.where(x == 0, -0.0, x)
        else:
            limits = np.iinfo(np.int64)
            x = np.where(random_array(kind, shape, 5) > 6, limits.min, x)
            keys = np.append(limits.min, keys)[: number or 0]
        known = ["nan" if key != key else key + 0 for key in keys.tolist()]
        flat = ["nan" if item != item else item + 0 for item in x.reshape(-1).tolist()]
        places = [known.index(item) if item in known else len(known) for item in flat]
        expected = np.array(places, np.int64).reshape(shape)
        yield Case([np.asarray(x, kind.dtype), keys.astype(kind.dtype)], [expected])


# Probabilities of pairs.


def _pair_cases(kind: ElemKind) -> Iterator[Case]:
    """Where the pairs agree, the probabilities are those that they come of. Else the solution is that of equations."""
    rng = np.random.default_rng(7)
    for rows, classes in ((5, 2), (9, 3), (4, 6), (0, 3), (2, 1), (3, 12)):
        p = rng.dirichlet(np.ones(classes) * 5, rows).astype(kind.dtype)
        pairs = list(itertools.combinations(range(classes), 2))
        x = np.array([[row[a] / (row[a] + row[b]) for a, b in pairs] for row in p])
        yield Case([x.reshape(rows, len(pairs))], [p], tolerance=Tolerance(epsilons=0.02 / 2**-52))
        noisy = np.clip(x + rng.normal(0, 0.05, x.shape), 0.01, 0.99).reshape(rows, len(pairs))
        solution = np.array([_solved(row, pairs, classes) for row in noisy])
        tolerance = Tolerance(epsilons=0.02 / 2**-52)
        yield Case([noisy], [solution.reshape(rows, classes)], tolerance=tolerance)


def _solved(chances: Array, pairs: list[tuple[int, int]], classes: int) -> Array:
    """The least sum of (r_ba p_a - r_ab p_b)^2 over all pairs where probabilities add up to 1."""
    lines = np.zeros((len(pairs), classes))
    for line, (a, b), chance in zip(lines, pairs, chances, strict=True):
        line[a], line[b] = 1 - chance, -chance
    system = np.zeros((classes + 1, classes + 1))
    system[:classes, :classes] = lines.T @ lines
    system[classes, :classes] = system[:classes, classes] = 1
    return np.asarray(np.linalg.solve(system, [*[0] * classes, 1])[:classes])


ROWS = [
    Row(TreeEnsembleNode, FLOATS, _tree_cases),
    Row(FindNode, (*FLOATS, ElemKind.I64), _find_cases),
    Row(CouplePairsNode, (ElemKind.F64,), _pair_cases),
]


@on_every_backend(ROWS)
def test_ml(row: Row, backend: str) -> None:
    check_row(row, backend)


# Tables that would lead astray.


def forest(branches: object, roots: object, *, missing: bool = False, rows: object = 3) -> Module:
    """Trees for three features, with two leaves; `branches` may be a placeholder's type."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (rows, 3)))  # type: ignore[arg-type]
    table = np.array(branches, np.int32)
    operands: list[Operand] = [
        x,
        module.create_constant("branches", table),
        module.create_constant("thresholds", np.zeros(len(table), np.float32)),
        module.create_constant("trees", np.array(roots, np.int32)),
        module.create_constant("weights", np.array([[1], [2]], np.float32)),
    ]
    attrs = {"targets": 1, "greatest": False, "missing": missing}
    y = f.create(TreeEnsembleNode, "y", operands, attrs)
    f.create_save("save", y, module.create_placeholder("out", y.type))
    return module


@pytest.mark.parametrize(
    ("branches", "roots", "message"),
    [
        ([(3, -1, -2)], [(0, 0)], "expected features below 3, got 3 to 3"),
        ([(-1, -1, -2)], [(0, 0)], "expected features below 3, got -1 to -1"),
        ([(0, 0, -2)], [(0, 0)], "expected children that come after their branches"),
        ([(0, -1, 1)], [(0, 0)], "expected children and roots from -2 to 0, got -1 to 1"),
        ([(0, -1, -3)], [(0, 0)], "expected children and roots from -2 to 0, got -3 to 0"),
        ([(0, -1, -2)], [(1, 0)], "expected children and roots from -2 to 0, got -2 to 1"),
        ([(0, -1, -2)], [(0, 1)], "expected trees for targets from 0 to 0, got 1 to 1"),
    ],
)
def test_tables_are_verified(branches: object, roots: object, message: str) -> None:
    with pytest.raises(UserError, match=message):
        glowpy.compile(forest(branches, roots))


def test_tables_are_constant() -> None:
    module = forest([(0, -1, -2)], [(0, 0)])
    node = next(node for node in module.main.nodes if isinstance(node, TreeEnsembleNode))
    table = module.create_placeholder("table", node.branches.type)
    node.set_input(1, table.value)
    with pytest.raises(UserError, match="expected constant branches and trees"):
        glowpy.compile(module)


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_rows_may_be_open(backend: str) -> None:
    module = forest([(0, -1, -2)], [(0, 0)], rows=symbol("n", 0, 40))
    compiled = glowpy.compile(module, backend)
    for rows in (0, 1, 7, 40):
        x = np.linspace(-1, 1, rows * 3, dtype=np.float32).reshape(rows, 3)
        assert (compiled({"x": x})["out"] == np.where(x[:, :1] <= 0, 1, 2)).all()


def test_threads_share_rows() -> None:
    """As much as there are trees to walk through, though rows are short."""
    rng = np.random.default_rng(1)
    module = Module()
    f = module.create_function("main")
    tables = grown(rng, 40, 5, 4, 1, 1)
    operands: list[Operand] = [module.create_placeholder("x", parse_type("f32[800x4]"))]
    for index, table in enumerate(tables):
        kind = np.int32 if index % 2 == 0 else np.float32
        operands.append(module.create_constant(f"table{index}", table.astype(kind)))
    attrs = {"targets": 1, "greatest": False, "missing": True}
    y = f.create(TreeEnsembleNode, "y", operands, attrs)
    f.create_save("save", y, module.create_placeholder("out", y.type))
    (inst,) = [i for i in unoptimized(module).ir.instructions if isinstance(i, TreeEnsembleInst)]
    cut = cut_of(inst)
    assert cut is not None
    assert cut.units == 5
    rows = rng.standard_normal((800, 4)).astype(np.float32)
    backend = CpuBackend(CpuOptions(threads=2))
    try:
        compiled = glowpy.compile(module, backend)
        assert (compiled({"x": rows})["out"] == walked(rows, tables, 1, False)).all()
    finally:
        backend.close()
