"""Rotary position embeddings as exporters write them, for any length of sequence."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto

from tests.onnx.test_search import BACKENDS, check, model, node

RNG = np.random.default_rng(0)


def rotary(size: int, *, interleaved: bool) -> onnx.ModelProto:
    """x * cosines + turned(x) * sines: halves as in Llama, or neighbours as in GPT-J."""
    constants = {
        "zero": [0], "one": [1], "two": [2], "half": [size // 2], "last": [3], "end": [size],
        "flat": [0, 0, 0, size],
    }  # fmt: skip
    if interleaved:
        bounds = [["zero", "end", "last", "two"], ["one", "end", "last", "two"]]
        constants["column"] = [4]
    else:
        bounds = [["zero", "half", "last"], ["half", "end", "last"]]
    nodes = [
        node("Slice", ["x", *bounds[0]], ["first"]),
        node("Slice", ["x", *bounds[1]], ["second"]),
        node("Neg", ["second"], ["negated"]),
    ]
    if interleaved:
        nodes += [
            node("Unsqueeze", ["negated", "column"], ["a"]),
            node("Unsqueeze", ["first", "column"], ["b"]),
            node("Concat", ["a", "b"], ["pairs"], axis=-1),
            node("Reshape", ["pairs", "flat"], ["turned"]),
        ]
    else:
        nodes.append(node("Concat", ["negated", "first"], ["turned"], axis=-1))
    nodes += [
        node("Mul", ["x", "cosines"], ["along"]),
        node("Mul", ["turned", "sines"], ["across"]),
        node("Add", ["along", "across"], ["y"]),
    ]
    table: list[int | str] = [1, 1, "length", size]
    shapes: dict[str, list[int | str]] = {
        "x": ["batch", 3, "length", size],
        "cosines": table,
        "sines": table,
    }
    inputs = {name: (TensorProto.FLOAT, shape) for name, shape in shapes.items()}
    return model(nodes, inputs, {"y": TensorProto.FLOAT}, constants)


@BACKENDS
@pytest.mark.parametrize(("size", "interleaved"), [(16, False), (38, False), (16, True)])
def test_positions_of_any_number_are_turned(backend: str, size: int, interleaved: bool) -> None:
    feeds = [
        {
            name: RNG.standard_normal((rows, heads, length, size)).astype(np.float32)
            for name, rows, heads in (("x", batch, 3), ("cosines", 1, 1), ("sines", 1, 1))
        }
        for batch, length in ((1, 1), (2, 7), (3, 5))
    ]
    check(rotary(size, interleaved=interleaved), feeds, backend)
