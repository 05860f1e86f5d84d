"""Rules of what models of scikit-learn are made of."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import CouplePairsNode, FindNode, TreeEnsembleNode
from glowpy.graph.verifier import verify
from glowpy.ir.insts_gen import CouplePairsInst, FindInst, TreeEnsembleInst
from glowpy.irgen import scratch
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__: list[str] = []


# TreeEnsemble.


@infer(TreeEnsembleNode)
def _infer_tree_ensemble(
    input: Type,
    branches: Type,
    thresholds: Type,
    trees: Type,
    weights: Type,
    *,
    targets: int,
    greatest: bool,
    missing: bool,
) -> Type:
    del greatest, missing
    if input.rank != 2 or input.kind not in (ElemKind.F32, ElemKind.F64):
        raise UserError(f"expected a matrix of f32 or f64, got {input}")
    for name, table, columns in (("branches", branches, 3), ("trees", trees, 2)):
        if table != Type(ElemKind.I32, (*table.shape[:1], columns)):
            raise UserError(f"expected {name} i32[n x {columns}], got {table}")
    if thresholds != Type(input.kind, branches.shape[:1]):
        raise UserError(f"expected a threshold for each branch of {branches}, got {thresholds}")
    if weights.rank != 2 or weights.kind is not input.kind:
        raise UserError(f"expected weights {input.kind.value}[leaves x n], got {weights}")
    if targets < weights.shape[1]:
        raise UserError(f"expected at least {weights.shape[1]} targets, got {targets}")
    return input.with_shape((input.shape[0], targets))


@verify(TreeEnsembleNode)
def _verify_tree_ensemble(n: TreeEnsembleNode) -> Iterator[str]:
    """Kernels follow the numbers in the tables without a look at them: they have to be right, and known to be."""
    branches, trees = n.branches.constant, n.trees.constant
    if branches is None or trees is None:
        yield "expected constant branches and trees"
        return
    yield from _wrong_branches(n, branches.tensor.array)
    yield from _wrong_trees(n, branches.tensor.array, trees.tensor.array)


def _wrong_branches(n: TreeEnsembleNode, branches: Array) -> Iterator[str]:
    features, children = branches[:, 0], branches[:, 1:]
    plain = np.where((features < 0) & n.missing, ~features, features)
    number = n.input.type.shape[1]
    if plain.size and not (plain.min() >= 0 and number > plain.max()):
        yield f"expected features below {number}, got {plain.min()} to {plain.max()}"
    rows = np.arange(len(branches))[:, None]
    if ((children >= 0) & (children <= rows)).any():
        yield "expected children that come after their branches"


def _wrong_trees(n: TreeEnsembleNode, branches: Array, trees: Array) -> Iterator[str]:
    leaves, width = n.weights.type.shape
    reached = [*branches[:, 1:].reshape(-1), *trees[:, 0]]
    if reached and not (max(reached) < len(branches) and leaves > ~min(reached)):
        yield (
            f"expected children and roots from -{leaves} to {len(branches) - 1}, "
            f"got {min(reached)} to {max(reached)}"
        )
    first = trees[:, 1]
    if first.size and not (first.min() >= 0 and first.max() + width <= n.targets):
        yield f"expected trees for targets from 0 to {n.targets - width}, got {first.min()} to {first.max()}"


@interpret(TreeEnsembleInst)
def _tree_ensemble(
    result: Tensor,
    input: Tensor,
    branches: Tensor,
    thresholds: Tensor,
    trees: Tensor,
    weights: Tensor,
    *,
    targets: int,
    greatest: bool,
    missing: bool,
) -> None:
    del targets
    rows = input.array
    width = weights.type.shape[1]
    result.array[...] = np.nan if greatest else 0
    for root, first in trees.array:
        leaves = _leaves(rows, branches.array, thresholds.array, int(root), missing)
        leaf_weights = weights.array[~leaves]
        total = result.array[:, first : first + width]
        total[...] = np.fmax(total, leaf_weights) if greatest else total + leaf_weights
    if greatest:
        result.array[np.isnan(result.array)] = 0


def _leaves(rows: Array, branches: Array, thresholds: Array, root: int, missing: bool) -> Array:
    """The leaf of one tree that each row comes to."""
    at = np.full(len(rows), root, np.int32)
    while len(inner := np.flatnonzero(at >= 0)):
        features, first, second = branches[at[inner]].T
        to_first = (features < 0) & missing
        values = rows[inner, np.where(to_first, ~features, features)]
        below = (values <= thresholds[at[inner]]) | (to_first & np.isnan(values))
        at[inner] = np.where(below, first, second)
    return at


# Find.


@infer(FindNode)
def _infer_find(input: Type, keys: Type) -> Type:
    if input.kind not in (ElemKind.F32, ElemKind.F64, ElemKind.I64):
        raise UserError(f"expected f32, f64 or i64, got {input}")
    if keys.rank != 1 or keys.kind is not input.kind:
        raise UserError(f"expected keys {input.kind.value}[n], got {keys}")
    return input.with_kind(ElemKind.I64)


@interpret(FindInst)
def _find(result: Tensor, input: Tensor, keys: Tensor) -> None:
    """Searches as numpy does, in the same order, NaN last; but here a NaN is equal to others."""
    values, known = input.array, keys.array
    places = np.searchsorted(known, values)
    if not known.size:
        result.array[...] = 0
        return
    nearest = known[np.minimum(places, known.size - 1)]
    same = (nearest == values) | ((nearest != nearest) & (values != values))
    result.array[...] = np.where(same, places, known.size)


# CouplePairs.


@infer(CouplePairsNode)
def _infer_couple_pairs(input: Type) -> Type:
    if input.rank != 2 or input.kind is not ElemKind.F64:
        raise UserError(f"expected a matrix of f64, got {input}")
    (pairs,) = static(input.shape[1:])
    classes = (1 + math.isqrt(1 + 8 * pairs)) // 2
    if classes * (classes - 1) // 2 != pairs:
        raise UserError(f"expected a column for every two of some classes, got {input}")
    return input.with_shape((input.shape[0], classes))


@scratch(CouplePairsNode)
def _scratch_couple_pairs(n: CouplePairsNode) -> tuple[Type, ...]:
    classes = n.type.shape[1]
    return (Type(ElemKind.F64, (classes + 1, classes)),)


@interpret(CouplePairsInst)
def _couple_pairs(result: Tensor, input: Tensor, matrix: Tensor) -> None:
    del matrix
    classes = result.type.extents[1]
    for row, first in enumerate(input.array):
        ahead = np.zeros((classes, classes))  # the probability of the row's class, of two
        ahead[np.triu_indices(classes, 1)] = first
        ahead += np.tril(1 - ahead.T, -1)
        form = -ahead * ahead.T
        form[np.diag_indices(classes)] = (ahead**2).sum(0)
        result.array[row] = _coupled(form)


def _coupled(matrix: Array) -> Array:
    """The second algorithm of Wu, Lin and Weng (2004), which is stopped early: what it gives depends on its steps."""
    classes = len(matrix)
    p = np.full(classes, 1 / classes)
    for _ in range(max(100, classes)):
        product = matrix @ p
        form = p @ product
        if np.abs(product - form).max() < 0.005 / classes:
            break
        for label in range(classes):
            change = (form - product[label]) / matrix[label, label]
            form += change * (change * matrix[label, label] + 2 * product[label])
            form /= (1 + change) ** 2
            product = (product + change * matrix[label]) / (1 + change)
            p[label] += change
            p /= 1 + change
    return p
