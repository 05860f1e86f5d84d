"""Import of trees, as three forms of the standard have them.

All become tables of branches and leaves for `tree_ensemble`. There a branch asks one thing: whether a feature is at
most a threshold. x < t is x <= the number before t; equality, and membership in a set, are several branches between
which the numbers of the set lie. Numbers are compared exactly, whatever kinds the file has: for features of f32,
thresholds of f64 are rounded down.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.importer.kit.moves import convert, slice_axis
from glowpy.importer.kit.values import Value
from glowpy.importer.onnx.ml.scores import (
    DOMAIN,
    best,
    constant,
    labelled,
    opposites,
    plus,
    rows,
    transformed,
)
from glowpy.importer.onnx.node import OnnxNode, from_onnx
from glowpy.support.errors import UserError
from glowpy.support.symbolic import static

__all__: list[str] = []

_MODES = ("LEQ", "LT", "GTE", "GT", "EQ", "NEQ", "MEMBER")
"""In the order of the numbers that stand for them from opset 5 on."""
_LEQ, _LT, _GTE, _GT, _EQ, _NEQ, _MEMBER = range(7)
_TRANSFORMS = ("NONE", "SOFTMAX", "LOGISTIC", "SOFTMAX_ZERO", "PROBIT")
_AGGREGATES = ("AVERAGE", "SUM", "MIN", "MAX")

_MOST_TARGETS = 1 << 20
"""More would only take memory."""

_MOST_WEIGHTS = 1 << 27
"""All leaves have as many weights as the one with most of them, which takes memory."""


@dataclass(frozen=True)
class _Branches:
    """Branches as a file has them, row by row.

    Attributes:
        features: The feature that is asked about.
        modes: How it is compared with the threshold.
        thresholds: In f64.
        true: Where it goes on if the comparison holds: the row of a branch, or ~leaf.
        false: The same if it does not.
        missing: Whether it goes on to `true` with a NaN.
        members: The set of each branch that asks for membership, by row.
    """

    features: Array
    modes: Array
    thresholds: Array
    true: Array
    false: Array
    missing: Array
    members: dict[int, Array] = field(default_factory=dict)


@dataclass(frozen=True)
class _Leaves:
    """Rows of a weight for a target at a leaf. A leaf may have several."""

    leaf: Array
    target: Array
    weight: Array


# From the attributes of the first four opsets.


def _whole(n: OnnxNode, name: str) -> Array:
    return np.array(n.integers(name) or (), np.int64)


def _numbers(n: OnnxNode, name: str) -> Array:
    """A list of floats, or the tensor of doubles that may be in its place, in f64."""
    tensor = n.tensor(f"{name}_as_tensor")
    if tensor is not None and tensor.array.size:
        return tensor.array.reshape(-1).astype(np.float64)
    return np.array(n.reals(name) or (), np.float64)


def _listed(n: OnnxNode, kind: str) -> tuple[_Branches, _Leaves, Array]:
    """Nodes with the names of trees and nodes; what leaves have is listed by these names, too."""
    trees, ids = _whole(n, "nodes_treeids"), _whole(n, "nodes_nodeids")
    modes = _mode_numbers(n.texts("nodes_modes"))
    columns = {
        "nodes_nodeids": ids,
        "nodes_modes": modes,
        "nodes_featureids": _whole(n, "nodes_featureids"),
        "nodes_values": _numbers(n, "nodes_values"),
        "nodes_truenodeids": _whole(n, "nodes_truenodeids"),
        "nodes_falsenodeids": _whole(n, "nodes_falsenodeids"),
    }
    missing = _whole(n, "nodes_missing_value_tracks_true")
    columns["nodes_missing_value_tracks_true"] = missing if missing.size else trees * 0
    _expect_rows(columns, len(trees))
    is_leaf = modes < 0
    # A leaf has the number of leaves before it, a branch that of branches.
    places = np.where(is_leaf, ~(np.cumsum(is_leaf) - 1), np.cumsum(~is_leaf) - 1)
    table = _Names(trees, ids)
    children = {
        name: places[table.rows(trees[~is_leaf], columns[name][~is_leaf], name)]
        for name in ("nodes_truenodeids", "nodes_falsenodeids")
    }
    branches = _Branches(
        columns["nodes_featureids"][~is_leaf],
        modes[~is_leaf],
        columns["nodes_values"][~is_leaf],
        children["nodes_truenodeids"],
        children["nodes_falsenodeids"],
        columns["nodes_missing_value_tracks_true"][~is_leaf] != 0,
    )
    weights = {f"{kind}_{name}": _whole(n, f"{kind}_{name}") for name in ("nodeids", "ids")}
    owners = _whole(n, f"{kind}_treeids")
    weights[f"{kind}_weights"] = _numbers(n, f"{kind}_weights")
    _expect_rows(weights, len(owners))
    at = places[table.rows(owners, weights[f"{kind}_nodeids"], f"{kind}_nodeids")]
    at_leaf = at < 0  # what branches have is never asked for
    leaves = _Leaves(
        ~at[at_leaf], weights[f"{kind}_ids"][at_leaf], weights[f"{kind}_weights"][at_leaf]
    )
    _, first = np.unique(trees, return_index=True)
    return branches, leaves, places[np.sort(first)]


def _expect_rows(columns: dict[str, Array], rows: int) -> None:
    for name, column in columns.items():
        if len(column) != rows:
            raise UserError(f"attribute '{name}': expected {rows} elements, got {len(column)}")


def _mode_numbers(texts: Sequence[str]) -> Array:
    """The numbers of opset 5 in place of words, and -1 for leaves."""
    numbers = {f"BRANCH_{name}": number for number, name in enumerate(_MODES[:_MEMBER])}
    numbers["LEAF"] = -1
    unknown = next((text for text in texts if text not in numbers), None)
    if unknown is not None:
        raise UserError(
            f"attribute 'nodes_modes': expected BRANCH_LEQ or the like, got '{unknown}'"
        )
    return np.array([numbers[text] for text in texts], np.int64)


class _Names:
    """Finds rows by the names of tree and node: a number for each pair of these, in order."""

    def __init__(self, trees: Array, ids: Array) -> None:
        self._trees, tree_places = np.unique(trees, return_inverse=True)
        self._ids, id_places = np.unique(ids, return_inverse=True)
        keys = tree_places * len(self._ids) + id_places
        self._order = np.argsort(keys, kind="stable")
        self._keys = keys[self._order]
        if (self._keys[1:] == self._keys[:-1]).any():
            raise UserError("attribute 'nodes_nodeids': a tree has two nodes with the same id")

    def rows(self, trees: Array, ids: Array, name: str) -> Array:
        """The row of each name. Raises UserError for a name that there is not."""
        keys = _place(self._trees, trees, name) * len(self._ids) + _place(self._ids, ids, name)
        return np.asarray(self._order[_place(self._keys, keys, name)])


def _place(known: Array, wanted: Array, name: str) -> Array:
    """The place of each number among others in ascending order. Raises UserError for one that is not among them."""
    places = np.searchsorted(known, wanted)
    if len(wanted) and not (len(known) and (known.take(places, mode="clip") == wanted).all()):
        raise UserError(f"attribute '{name}': a node is named that there is not")
    return np.asarray(places)


# From those of opset 5.


def _indexed(n: OnnxNode) -> tuple[_Branches, _Leaves, Array]:
    """Branches and leaves in tables of their own, which name each other by row."""
    modes = n.tensor("nodes_modes")
    splits, weights = n.tensor("nodes_splits"), n.tensor("leaf_weights")
    assert modes is not None
    assert splits is not None
    assert weights is not None
    numbers = modes.array.reshape(-1).astype(np.int64)
    missing = _whole(n, "nodes_missing_value_tracks_true")
    columns = {
        "nodes_featureids": _whole(n, "nodes_featureids"),
        "nodes_splits": splits.array.reshape(-1).astype(np.float64),
        "nodes_truenodeids": _whole(n, "nodes_truenodeids"),
        "nodes_falsenodeids": _whole(n, "nodes_falsenodeids"),
        "nodes_trueleafs": _whole(n, "nodes_trueleafs"),
        "nodes_falseleafs": _whole(n, "nodes_falseleafs"),
        "nodes_missing_value_tracks_true": missing if missing.size else numbers * 0,
    }
    _expect_rows(columns, len(numbers))
    if numbers.size and not 0 <= numbers.min() <= numbers.max() <= _MEMBER:
        raise UserError(f"attribute 'nodes_modes': expected 0 to {_MEMBER}, got {numbers.max()}")
    leaves = _Leaves(
        np.arange(weights.array.size),
        _whole(n, "leaf_targetids"),
        weights.array.reshape(-1).astype(np.float64),
    )
    _expect_rows({"leaf_targetids": leaves.target}, len(leaves.leaf))
    children = []
    for side in ("true", "false"):
        name = f"nodes_{side}nodeids"
        is_leaf, indices = columns[f"nodes_{side}leafs"] != 0, columns[name]
        ends = np.where(is_leaf, len(leaves.leaf), len(numbers))
        if ((indices < 0) | (indices >= ends)).any():
            raise UserError(f"attribute '{name}': a row is named that there is not")
        children.append(np.where(is_leaf, -1 - indices, indices))
    branches = _Branches(
        columns["nodes_featureids"],
        numbers,
        columns["nodes_splits"],
        children[0],
        children[1],
        columns["nodes_missing_value_tracks_true"] != 0,
        _members(n, numbers),
    )
    roots = _whole(n, "tree_roots")
    if ((roots < 0) | (roots >= len(numbers))).any():
        raise UserError("attribute 'tree_roots': a row is named that there is not")
    return branches, leaves, roots


def _members(n: OnnxNode, modes: Array) -> dict[int, Array]:
    """The sets that branches ask for, in the order of these; a NaN ends each."""
    owners = np.flatnonzero(modes == _MEMBER)
    tensor = n.tensor("membership_values")
    values = np.empty(0) if tensor is None else tensor.array.reshape(-1).astype(np.float64)
    ends = np.flatnonzero(np.isnan(values))
    if len(ends) != len(owners):
        raise UserError(
            f"attribute 'membership_values': expected {len(owners)} sets, got {len(ends)}"
        )
    starts = [0, *(ends[:-1] + 1)]
    return {
        int(owner): values[start:end]
        for owner, start, end in zip(owners, starts, ends, strict=False)
    }


# Tables of branches.


def _reached(branches: _Branches, roots: Array) -> tuple[Array, Array]:
    """The rows of all branches, tree by tree, and in each the nearest to the root first; and the tree of each.

    Raises UserError if a branch is reached twice: then it is no tree, or even a circle.
    """
    trees = np.flatnonzero(roots >= 0)
    rows = roots[trees]
    seen = np.zeros(len(branches.features), np.bool_)
    levels, owners = [rows], [trees]
    while rows.size:
        if seen[rows].any() or len(np.unique(rows)) < len(rows):
            raise UserError("expected trees, got a branch that is reached in two ways")
        seen[rows] = True
        below = np.stack([branches.true[rows], branches.false[rows]], 1).reshape(-1)
        trees = np.repeat(trees, 2)[below >= 0]
        rows = below[below >= 0]
        levels.append(rows)
        owners.append(trees)
    owner = np.concatenate(owners)
    by_tree = np.argsort(owner, kind="stable")
    return np.concatenate(levels)[by_tree], owner[by_tree]


def _before(values: Array) -> Array:
    """The next lower numbers; NaN, which nothing is at most, where there are none."""
    return np.where(values == -np.inf, np.nan, np.nextafter(values, -np.inf))


def _ends(branches: _Branches, row: int) -> Array:
    """The numbers at which the answer of a branch that compares with a set changes, ascending.

    Up to the first one, nothing is in the set.
    """
    threshold = branches.thresholds[row : row + 1]
    values = np.unique(branches.members.get(row, threshold))
    return (
        np.stack([_before(values), values], 1).reshape(-1)
        if values.size
        else np.array([np.nan] * 2)
    )


@dataclass
class _Tables:
    """The operands `branches` and `thresholds`, these in f64."""

    branches: Array
    thresholds: Array

    def split(self, row: int, feature: int, ends: Array, sides: tuple[int, int], side: int) -> None:
        """Fills rows from `row` on, one for each end, so that a feature between two of these comes to one of the sides.

        Up to the first end that is the first side, up to the second one the second, and so on by turns; a NaN comes to
        `side`. After the last end it is at a side where NaN comes by itself; to come to the other, it turns off there.
        """
        turns = sides[len(ends) % 2] != sides[side]
        work = [(0, len(ends))]
        where = {}
        next_row = row
        while work:
            low, high = work.pop()
            middle = (low + high) // 2
            where[low, high] = next_row
            next_row += 1
            work += [part for part in ((middle + 1, high), (low, middle)) if part[0] < part[1]]
        for (low, high), at in where.items():
            middle = (low + high) // 2
            parts = ((low, middle), (middle + 1, high))
            children = [where.get(part, sides[part[0] % 2]) for part in parts]
            flagged = turns and middle == len(ends) - 1
            self.branches[at] = (~feature if flagged else feature, *children)
            self.thresholds[at] = ends[middle]


def _tables(
    branches: _Branches, roots: Array, order: Array, *, missing: bool
) -> tuple[_Tables, Array]:
    """Branches in an order, as many rows for each as it takes, and the roots.

    Args:
        branches: The branches in the file.
        roots: The root of each tree, the row of a branch or ~leaf.
        order: The rows of those that are reached.
        missing: Whether features may be NaN.
    """
    modes = branches.modes[order]
    sets = {int(row): _ends(branches, int(row)) for row in order[modes >= _EQ]}
    sizes = np.array([len(sets.get(row, " ")) for row in order.tolist()], np.int64)
    places = np.zeros(len(branches.features) + 1, np.int64)
    starts = np.cumsum(sizes) - sizes
    places[order] = starts

    def placed(children: Array) -> Array:
        return np.where(children >= 0, places[np.maximum(children, 0)], children)

    true, false, trees = (
        placed(branches.true[order]),
        placed(branches.false[order]),
        branches.thresholds[order],
    )
    tables = _Tables(np.zeros((sizes.sum(), 3), np.int32), np.zeros(sizes.sum()))
    # Where the threshold is NaN, nothing is at most it, and nothing above it.
    to_true = (modes == _LEQ) | (modes == _LT) | np.isnan(trees)
    tables.thresholds[starts] = np.where((modes == _LT) | (modes == _GTE), _before(trees), trees)
    turns = missing & (branches.missing[order] == to_true)
    features = branches.features[order]
    tables.branches[starts, 0] = np.where(turns, ~features, features)
    tables.branches[starts, 1] = np.where(to_true, true, false)
    tables.branches[starts, 2] = np.where(to_true, false, true)
    for at in np.flatnonzero(modes >= _EQ):
        row = int(order[at])
        outside, inside = (true, false) if modes[at] == _NEQ else (false, true)
        sides = (int(outside[at]), int(inside[at]))
        side = int(branches.missing[row] != (modes[at] == _NEQ)) if missing else len(sets[row]) % 2
        tables.split(int(starts[at]), int(features[at]), sets[row], sides, side)
    return tables, placed(roots)


def _rounded_down(thresholds: Array, kind: ElemKind) -> Array:
    """The greatest numbers of a kind that are at most these."""
    with np.errstate(over="ignore"):
        rounded = thresholds.astype(kind.dtype)
    return np.where(rounded > thresholds, np.nextafter(rounded, kind.dtype.type(-np.inf)), rounded)


# The operator.


def _weights(
    leaves: _Leaves, trees: Array, reached: Array, number: int, targets: int, aggregate: str
) -> tuple[Array, Array]:
    """A row of weights for each leaf, and the first target of each tree: rows are as long as the widest tree needs.

    Args:
        leaves: The leaves in the file.
        trees: The tree of each way to a leaf.
        reached: The leaf of each of these ways.
        number: How many trees there are.
        targets: How many targets there are.
        aggregate: The function that joins weights of the same target.
    """
    count = int(max(leaves.leaf.max(initial=-1), reached.max(initial=-1))) + 1
    low, high = np.full(count, targets), np.full(count, -1)
    np.minimum.at(low, leaves.leaf, leaves.target)
    np.maximum.at(high, leaves.leaf, leaves.target)
    first, last = np.full(number, targets), np.full(number, -1)
    np.minimum.at(first, trees, low[reached])
    np.maximum.at(last, trees, high[reached])
    width = int((last - first).max(initial=0)) + 1
    first = np.minimum(first, targets - width)
    start = np.zeros(count, np.int64)
    start[reached] = first[trees]
    if (start[reached] != first[trees]).any():  # a leaf of several trees
        width, first, start = targets, first * 0, start * 0
    if count * width > _MOST_WEIGHTS:
        raise UserError(
            f"expected at most {_MOST_WEIGHTS} weights, got {width} for each of {count} leaves"
        )
    used = np.isin(leaves.leaf, reached)
    weights = np.full((count, width), 0.0 if aggregate in ("SUM", "AVERAGE") else np.nan)
    places = leaves.leaf[used], leaves.target[used] - start[leaves.leaf[used]]
    if aggregate in ("SUM", "AVERAGE"):
        np.add.at(weights, places, leaves.weight[used])
    else:
        leaf_weights = leaves.weight[used]
        np.fmax.at(weights, places, -leaf_weights if aggregate == "MIN" else leaf_weights)
    return weights, first


def _aggregated(
    n: OnnxNode, forest: tuple[_Branches, _Leaves, Array], targets: int, aggregate: str
) -> NodeValue:
    """Aggregates all trees for each target, without base values. Raises UserError if trees contradict themselves."""
    branches, leaves, roots = forest
    if aggregate not in _AGGREGATES:
        expected = ", ".join(_AGGREGATES)
        raise UserError(
            f"attribute 'aggregate_function': expected one of {expected}, got '{aggregate}'"
        )
    if targets > _MOST_TARGETS:
        raise UserError(f"expected at most {_MOST_TARGETS} targets, got {targets}")
    if targets < 1 or ((leaves.target < 0) | (leaves.target >= targets)).any():
        raise UserError(f"expected targets below {targets}, got {leaves.target.max(initial=0)}")
    x = rows(n)
    (features,) = static(x.type.shape[1:])
    order, owners = _reached(branches, roots)
    asked = branches.features[order]
    if asked.size and not 0 <= asked.min() <= asked.max() < features:
        raise UserError(f"expected features below {features}, got {asked.min()} to {asked.max()}")
    tables, starts = _tables(branches, roots, order, missing=n.kind(0).is_float)
    ways = np.stack([branches.true[order], branches.false[order]], 1).reshape(-1)
    trees = np.concatenate([np.repeat(owners, 2)[ways < 0], np.flatnonzero(roots < 0)])
    reached = ~np.concatenate([ways[ways < 0], roots[roots < 0]])
    weights, first = _weights(leaves, trees, reached, len(roots), targets, aggregate)
    kind = x.type.kind
    result = n.f.create_tree_ensemble(
        n.name,
        x,
        constant(n, tables.branches, ElemKind.I32, "branches"),
        constant(n, _rounded_down(tables.thresholds, kind), kind, "thresholds"),
        constant(n, np.stack([starts, first], 1), ElemKind.I32, "trees"),
        constant(n, weights, kind, "weights"),
        targets,
        greatest=aggregate in ("MIN", "MAX"),
        missing=bool((tables.branches[:, 0] < 0).any()),
    ).result
    if aggregate == "MIN":
        return n.f.create_neg(n.name, result).result
    if aggregate == "AVERAGE":
        number = n.f.create_splat(f"{n.name}_count", Type(kind, ()), float(len(roots)))
        return n.f.create_div(n.name, result, number).result
    return result


@from_onnx("TreeEnsembleRegressor", domain=DOMAIN)
@from_onnx("TreeEnsembleRegressor", domain=DOMAIN, since=5)
def _regressor(n: OnnxNode) -> Value:
    aggregate = n.text("aggregate_function", "SUM")
    scores = _aggregated(n, _listed(n, "target"), n.integer("n_targets", 1), aggregate)
    return transformed(n, plus(n, scores, _numbers(n, "base_values")))


@from_onnx("TreeEnsembleClassifier", domain=DOMAIN)
@from_onnx("TreeEnsembleClassifier", domain=DOMAIN, since=5)
def _classifier(n: OnnxNode) -> tuple[Value, ...]:
    """Where all weights are for the first of two classes, its score is that of the second one.

    Unless one of these weights is below zero, such a score is a probability.
    """
    classes = len(n.integers("classlabels_int64s") or n.texts("classlabels_strings"))
    forest = _listed(n, "class")
    scores, base = _aggregated(n, forest, classes, "SUM"), _numbers(n, "base_values")
    if classes == 2 and not forest[1].target.any():
        single = n.operand(slice_axis(n, scores, 1, 0, 1, 1))
        name = n.text("post_transform", "NONE")
        positive = bool((forest[1].weight >= 0).all())
        chances = name == "PROBIT" or (name == "NONE" and positive)
        scores = opposites(n, plus(n, single, base[:1]), chances=chances)
    else:
        scores = plus(n, scores, base)
    final = transformed(n, scores)
    return labelled(n, best(n, final), "classlabels_int64s"), final


@from_onnx("TreeEnsemble", domain=DOMAIN, since=5)
def _ensemble(n: OnnxNode) -> Value:
    kinds = {"aggregate_function": (_AGGREGATES, 1), "post_transform": (_TRANSFORMS, 0)}
    attributes = []
    for name, (choices, default) in kinds.items():
        number = n.integer(name, default)
        if not 0 <= number < len(choices):
            raise UserError(f"attribute '{name}': expected 0 to {len(choices) - 1}, got {number}")
        attributes.append(choices[number])
    aggregate, transform = attributes
    scores = _aggregated(n, _indexed(n), n.integer("n_targets", 1), aggregate)
    return convert(n, transformed(n, scores, transform), n.kind(0))
