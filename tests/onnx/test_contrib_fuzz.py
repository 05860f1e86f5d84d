"""Nodes of onnxruntime's own domains with inputs that do not fit are read or refused, and nothing else happens."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.contrib_cases import Case
from tests.onnx.test_contrib import CASES
from tests.onnx.test_contrib_attention import CASES as ATTENTION
from tests.onnx.test_contrib_quant import ARITHMETIC, ATTENDED, DYNAMIC, PRODUCTS
from tests.onnx.test_nchwc import POOL, WIDE, own

BLOCKED = [
    own("ReorderInput", WIDE),
    own("ReorderOutput", WIDE, channels=20),
    own("MaxPool", WIDE, **POOL),
    own("Upsample", WIDE, scales=[1, 1, 2, 2], mode="linear"),
]


def mutated(rng: random.Random, array: Array | None) -> Array | None:
    """None, or an array of another shape or with other elements."""
    if array is None:
        shape = rng.choice([(), (1,), (2,), (2, 5, 8)])
        return np.zeros(shape, rng.choice([np.float32, np.int32, np.int64]))
    axis = rng.randrange(max(array.ndim, 1))
    below = np.full(array.shape, -rng.choice([1, 7])).astype(array.dtype)
    changes = [array[None], array.reshape(-1), below, None]
    if array.ndim:
        changes += [np.repeat(array, repeats, axis) for repeats in (0, 2)]
        changes.append(array.take([0], axis) if array.size else None)
    change = rng.choice(changes)
    return None if change is None else np.asarray(change, array.dtype)


def emptied(rng: random.Random, inputs: Sequence[Array | None]) -> list[Array | None]:
    """All dimensions of one extent become empty, so that shapes which fit each other still do."""
    extents = sorted({extent for array in inputs if array is not None for extent in array.shape})
    gone = rng.choice(extents or [0])
    return [
        None if array is None else np.zeros([n * (n != gone) for n in array.shape], array.dtype)
        for array in inputs
    ]


def variant(rng: random.Random, node: Case) -> Case:
    """The node with one input or attribute changed, or two; or with empty inputs."""
    inputs, attributes = list(node.inputs), dict(node.attributes)
    if rng.random() < 0.2:
        return replace(node, inputs=emptied(rng, inputs))
    for _ in range(rng.choice([1, 1, 2])):
        names = [name for name, value in attributes.items() if isinstance(value, int)]
        if names and rng.random() < 0.3:
            attributes[rng.choice(names)] = rng.choice([0, -1, 3, 1 << 40])
        else:
            index = rng.randrange(len(inputs))
            inputs[index] = mutated(rng, inputs[index])
    known = [index for index in node.known if inputs[index] is not None]
    return replace(node, inputs=inputs, attributes=attributes, known=known)


@pytest.mark.parametrize("seed", range(4))
def test_misfits(seed: int) -> None:
    rng = random.Random(seed)
    nodes = [*CASES, *ATTENTION, *BLOCKED, *ARITHMETIC, *PRODUCTS, *DYNAMIC, *ATTENDED]
    refused = 0
    for _ in range(200):
        node = variant(rng, rng.choice(nodes))
        try:
            glowpy.load(node.model())
        except glowpy.UserError:
            refused += 1
    assert 50 < refused < 190
