"""Models of one operator of `ai.onnx.ml`, and trees as plain Python walks through them."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import info

DOMAIN = "ai.onnx.ml"


def ml_model(
    op_type: str,
    inputs: Sequence[Array],
    outputs: Sequence[int] = (TensorProto.FLOAT,),
    opset: int = 1,
    **attributes: Any,
) -> onnx.ModelProto:
    """One node; the first dimension of its inputs is open."""
    names = [f"x{index}" for index in range(len(inputs))]
    results = [f"y{index}" for index in range(len(outputs))]
    node = helper.make_node(op_type, names, results, domain=DOMAIN, **attributes)
    graph = helper.make_graph(
        [node],
        op_type,
        [info(name, array) for name, array in zip(names, inputs, strict=True)],
        [
            helper.make_tensor_value_info(name, kind, None)
            for name, kind in zip(results, outputs, strict=True)
        ],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid(DOMAIN, opset)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def run(
    model: onnx.ModelProto, inputs: Sequence[Array], backend: str = "interpreter"
) -> list[Array]:
    """What glowpy computes."""
    session = glowpy.InferenceSession(model, backend=backend)
    return session.run(None, {f"x{index}": array for index, array in enumerate(inputs)})


def expected(model: onnx.ModelProto, inputs: Sequence[Array]) -> list[Array]:
    """What onnxruntime computes."""
    import onnxruntime as ort  # noqa: PLC0415

    session = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = session.run(None, {f"x{index}": array for index, array in enumerate(inputs)})
    return [np.asarray(output) for output in outputs]


# Trees.

MODES = ("BRANCH_LEQ", "BRANCH_LT", "BRANCH_GTE", "BRANCH_GT", "BRANCH_EQ", "BRANCH_NEQ")


@dataclass
class TreeNode:
    """A branch with two children, or a leaf with weights by target."""

    feature: int = 0
    mode: int = 0
    split: float = 0.0
    missing: bool = False
    members: list[float] = field(default_factory=list)
    children: list[TreeNode] = field(default_factory=list)
    """Where it goes on if the comparison holds, and where if not."""
    weights: dict[int, float] = field(default_factory=dict)

    def holds(self, x: float) -> bool:
        """The comparison. A NaN goes where the node says, whatever the comparison is."""
        if math.isnan(x):
            return self.missing
        return (
            x <= self.split, x < self.split, x >= self.split, x > self.split, x == self.split,
            x != self.split, x in self.members,
        )[self.mode]  # fmt: skip

    def leaf(self, row: Sequence[float]) -> TreeNode:
        """The leaf that a row comes to."""
        node = self
        while node.children:
            node = node.children[0 if node.holds(row[node.feature]) else 1]
        return node

    def nodes(self) -> list[TreeNode]:
        """All nodes, each before its children."""
        return [self, *(node for child in self.children for node in child.nodes())]


SPLITS = (-1.0, -0.5, 0.0, 0.5, 1.0, 0.1, math.inf, -math.inf)


def tree(rng: random.Random, depth: int, features: int, targets: int, modes: int) -> TreeNode:
    """A random one. The sixth mode is membership."""
    if depth == 0 or rng.random() < 0.1:
        chosen = rng.sample(range(targets), rng.randint(0, targets))
        return TreeNode(weights={target: rng.randint(-8, 8) / 4 for target in chosen})
    return TreeNode(
        rng.randrange(features),
        rng.randrange(modes),
        float(np.float32(rng.choice(SPLITS))),
        rng.random() < 0.4,
        [float(np.float32(rng.choice(SPLITS))) for _ in range(rng.randint(0, 5))],
        [tree(rng, depth - 1, features, targets, modes) for _ in range(2)],
    )


def totals(trees: Sequence[TreeNode], rows: Array, targets: int, aggregate: str) -> Array:
    """What trees say of each row, in f64."""
    result = np.zeros((len(rows), targets))
    for index, row in enumerate(rows.astype(np.float64).tolist()):
        seen: dict[int, list[float]] = {}
        for one in trees:
            for target, weight in one.leaf(row).weights.items():
                seen.setdefault(target, []).append(weight)
        for target, numbers in seen.items():
            combined = {
                "SUM": sum(numbers), "AVERAGE": sum(numbers) / len(trees),
                "MIN": min(numbers), "MAX": max(numbers),
            }  # fmt: skip
            result[index, target] = combined[aggregate]
    return result


def listed(trees: Sequence[TreeNode], kind: str, rng: random.Random) -> dict[str, Any]:
    """The attributes of the first four opsets, with nodes in any order but for the roots."""
    attributes: dict[str, list[Any]] = {}

    def append(**values: Any) -> None:
        for name, value in values.items():
            attributes.setdefault(name, []).append(value)

    for number, root in enumerate(trees):
        nodes = root.nodes()
        ids = {id(node): index for index, node in enumerate(nodes)}
        for node in [root, *rng.sample(nodes[1:], len(nodes) - 1)]:
            true, false = [ids[id(child)] for child in node.children] or [0, 0]
            append(
                nodes_treeids=2 * number,
                nodes_nodeids=ids[id(node)],
                nodes_featureids=node.feature,
                nodes_modes=MODES[node.mode] if node.children else "LEAF",
                nodes_values=node.split,
                nodes_truenodeids=true,
                nodes_falsenodeids=false,
                nodes_missing_value_tracks_true=int(node.missing),
            )
            for target, weight in node.weights.items():
                append(
                    **{
                        f"{kind}_treeids": 2 * number,
                        f"{kind}_nodeids": ids[id(node)],
                        f"{kind}_ids": target,
                        f"{kind}_weights": weight,
                    }
                )
    return attributes


def as_doubles(attributes: Mapping[str, Any]) -> dict[str, Any]:
    """The same of opset 3: tensors of doubles in place of lists of floats."""
    names = ("nodes_values", "target_weights", "class_weights", "base_values")
    return {
        f"{name}_as_tensor" if name in names else name: numpy_helper.from_array(
            np.array(values, np.float64)
        )
        if name in names
        else values
        for name, values in attributes.items()
    }


def indexed(trees: Sequence[TreeNode], dtype: Any) -> dict[str, Any]:
    """The attributes of opset 5. A leaf has exactly one weight there."""
    branches: list[TreeNode] = []
    leaves: list[TreeNode] = []
    roots = []
    for root in trees:
        if not root.children:  # one branch, to the same leaf in any case
            root = TreeNode(children=[root, root])
        roots.append(len(branches))
        branches += [node for node in root.nodes() if node.children]
        leaves += [node for node in root.nodes() if not node.children]
    branch_at = {id(node): index for index, node in enumerate(branches)}
    leaf_at = {id(node): index for index, node in enumerate(leaves)}
    sides: dict[str, list[int]] = {}
    for node, (side, child) in itertools.product(branches, enumerate(("true", "false"))):
        target = node.children[side]
        places = branch_at if target.children else leaf_at
        sides.setdefault(f"nodes_{child}nodeids", []).append(places[id(target)])
        sides.setdefault(f"nodes_{child}leafs", []).append(int(not target.children))
    members = [[*node.members, math.nan] for node in branches if node.mode == 6]
    weights = [next(iter(leaf.weights.items())) for leaf in leaves]
    return {
        **sides,
        "tree_roots": roots,
        "nodes_featureids": [node.feature for node in branches],
        "nodes_modes": numpy_helper.from_array(np.array([n.mode for n in branches], np.uint8)),
        "nodes_splits": numpy_helper.from_array(np.array([n.split for n in branches], dtype)),
        "nodes_missing_value_tracks_true": [int(node.missing) for node in branches],
        "membership_values": numpy_helper.from_array(np.array([*itertools.chain(*members)], dtype)),
        "leaf_targetids": [target for target, _ in weights],
        "leaf_weights": numpy_helper.from_array(np.array([w for _, w in weights], dtype)),
    }
