"""Exports the models of scikit-learn: trees and coupled pairs are operators of the domain `ai.onnx.ml`."""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import numpy_helper

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.exporter.onnx.graph import OnnxGraph, to_onnx
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import CouplePairsNode, FindNode, TreeEnsembleNode
from glowpy.support.symbolic import static

__all__: list[str] = []

_DOMAIN = "ai.onnx.ml"

_MOST = 1 << 20
"""Copies of branches: there are as many as ways to them, which sets in a row multiply."""


@to_onnx(FindNode)
def _find(g: OnnxGraph, n: FindNode) -> None:
    """Every element is compared with every key."""
    (number,) = static(n.keys.type.shape)
    x = g.add("Unsqueeze", g.operand(n.input), g.ints("axis", [-1]))
    keys = g.operand(n.keys)
    same = g.add("Equal", x, keys)
    if n.keys.type.kind.is_float:
        both = g.add("And", g.add("IsNaN", x), g.add("IsNaN", keys))
        same = g.add("Or", same, both)
    places = g.constant("places", np.arange(number + 1))
    # One more, which is every element's: there always is a least place.
    none = g.add("Slice", places, g.ints("start", [number]), g.ints("end", [number + 1]))
    slice_of_places = g.add("Slice", places, g.ints("start", [0]), g.ints("end", [number]))
    matches = g.add("Where", same, slice_of_places, none)
    shape = g.ints("shape", (*n.type.shape, 1))
    last = g.add("Expand", none, shape)
    listed = g.add("Concat", matches, last, axis=-1)
    g.result("ReduceMin", listed, g.ints("axis", [-1]), keepdims=0)


@to_onnx(CouplePairsNode)
def _couple_pairs(g: OnnxGraph, n: CouplePairsNode) -> None:
    """A support vector for each pair, which belongs to the first of it and says the logit of the probability.

    SVMClassifier gives f32.
    """
    classes = static(n.type.shape)[1]
    pairs = list(itertools.combinations(range(classes), 2))
    if not pairs:
        g.refuse("ONNX has no operator for a single class")
        return
    coefficients = np.zeros((classes - 1, len(pairs)))
    for place, (_, second) in enumerate(pairs):
        coefficients[second - 1, place] = 1
    x = g.operand(n.input)
    against = g.add("Sub", g.scalar("one", ElemKind.F64, 1.0), x)
    logits = g.add("Log", g.add("Div", x, against))
    names = g.names("coupled", 2)
    g.add_all(
        "SVMClassifier",
        logits,
        outputs=names,
        domain=_DOMAIN,
        classlabels_ints=list(range(classes)),
        coefficients=coefficients.reshape(-1).tolist(),
        support_vectors=np.eye(len(pairs)).reshape(-1).tolist(),
        vectors_per_class=list(range(classes - 1, -1, -1)),
        rho=[0.0] * len(pairs),
        prob_a=[-1.0] * len(pairs),
        prob_b=[0.0] * len(pairs),
        kernel_type="LINEAR",
        kernel_params=[0.0, 0.0, 0.0],
    )
    g.result("Cast", names[1], to=11)


def _table(value: NodeValue) -> Array:
    constant = value.constant
    assert constant is not None  # a node is verified
    return constant.tensor.array


@to_onnx(TreeEnsembleNode)
def _tree_ensemble(g: OnnxGraph, n: TreeEnsembleNode) -> None:
    """A leaf has one weight there: as many trees stand for one as its leaves have weights."""
    if any(value.constant is None for value in n.inputs[1:]):
        g.refuse("ONNX has no operator for trees that are computed")
        return
    weights = _table(n.weights)
    unfolded = _unfolded(_table(n.branches), _table(n.thresholds), _table(n.trees))
    if unfolded is None:
        g.refuse(f"ONNX has no branches that are reached in two ways, and copies are over {_MOST}")
        return
    first = _first_targets(len(weights), unfolded.branches, unfolded.trees)
    if first is None:
        g.refuse("ONNX has no leaves that stand for several targets")
        return
    attributes = _attributes(n, unfolded, weights, first)
    result = g.add("TreeEnsemble", g.operand(n.input), **attributes)
    if not n.greatest:
        g.result("Identity", result)
        return
    nothing = g.scalar("nothing", n.type.kind, -np.inf)
    missing = g.add("Equal", result, nothing)
    g.result("Where", missing, g.scalar("zero", n.type.kind, 0.0), result)


@dataclass(frozen=True)
class _Trees:
    """The operands of these names, with one way to each branch."""

    branches: Array
    thresholds: Array
    trees: Array


def _unfolded(branches: Array, thresholds: Array, trees: Array) -> _Trees | None:
    """Copies of the branches for each way to them, which sets have several of; None if that are too many."""
    targets = trees[:, 1]
    origins = trees[trees[:, 0] >= 0, 0]
    roots = trees[:, 0].copy()
    roots[roots >= 0] = np.arange(len(origins))
    levels, total = [origins], len(origins)
    children = []
    while origins.size:
        below = branches[origins, 1:]
        origins = below[below >= 0]
        below[below >= 0] = total + np.arange(len(origins))
        children.append(below)
        levels.append(origins)
        total += len(origins)
        if total > max(_MOST, len(branches)):
            return None
    order = np.concatenate(levels)
    ways = np.concatenate([branches[:0, 1:], *children])
    rows = np.concatenate([branches[order, :1], ways], 1)
    return _Trees(rows, thresholds[order], np.stack([roots, targets], 1))


def _attributes(n: TreeEnsembleNode, own: _Trees, weights: Array, first: Array) -> dict[str, Any]:
    """Tables of copies for each weight, and a branch to the same leaf on both sides for each tree without any."""
    branches, thresholds, trees = own.branches.astype(np.int64), own.thresholds, own.trees
    leaves, width = weights.shape
    alone = np.flatnonzero(trees[:, 0] < 0)
    single = np.stack([alone * 0, trees[alone, 0], trees[alone, 0]], 1).astype(np.int64)
    rows = np.concatenate([branches, single])
    roots = trees[:, 0].astype(np.int64)
    roots[alone] = len(branches) + np.arange(len(alone))
    children = rows[:, 1:]
    copies = np.arange(width)[:, None, None]
    moved = np.where(children < 0, ~children + copies * leaves, children + copies * len(rows))
    true, false = moved.reshape(-1, 2).T
    true_leaf, false_leaf = np.tile(children < 0, (width, 1)).astype(np.int64).T
    features = np.tile(rows[:, 0], width)
    splits = np.concatenate([thresholds, np.zeros(len(alone), thresholds.dtype)])
    flat = weights.T.reshape(-1)
    if n.greatest:
        flat = np.where(np.isnan(flat), -np.inf, flat).astype(weights.dtype)
    return {
        "domain": _DOMAIN,
        "aggregate_function": 3 if n.greatest else 1,
        "n_targets": n.targets,
        "tree_roots": (roots + np.arange(width)[:, None] * len(rows)).T.reshape(-1).tolist(),
        "nodes_modes": numpy_helper.from_array(np.zeros(len(features), np.uint8)),
        "nodes_featureids": np.where(features < 0, ~features, features).tolist(),
        "nodes_splits": numpy_helper.from_array(np.tile(splits, width)),
        "nodes_missing_value_tracks_true": (features < 0).astype(np.int64).tolist(),
        "nodes_truenodeids": true.tolist(),
        "nodes_falsenodeids": false.tolist(),
        "nodes_trueleafs": true_leaf.tolist(),
        "nodes_falseleafs": false_leaf.tolist(),
        "leaf_targetids": (first + np.arange(width)[:, None]).reshape(-1).tolist(),
        "leaf_weights": numpy_helper.from_array(flat),
    }


def _first_targets(leaves: int, branches: Array, trees: Array) -> Array | None:
    """The first target of each leaf is that of its tree; None if a leaf has several.

    Children come after their branches, and belong to the same tree.
    """
    first, owner = [-1] * leaves, [-1] * len(branches)
    work = [(root, target) for root, target in trees.tolist()]
    for row, (_, *children) in enumerate(branches.tolist()):
        work += [(child, ~row) for child in children]
    for child, target in work:
        index = target if target >= 0 else owner[~target]
        table, place = (first, ~child) if child < 0 else (owner, child)
        if table[place] not in (-1, index):
            return None
        table[place] = index
    return np.maximum(first, 0)
