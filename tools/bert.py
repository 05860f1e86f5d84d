"""Writes BERT base as exporters write it, with random weights: `python tools/bert.py FILE [--batch N] [--tokens 128]`.

Sizes: Devlin et al., *BERT: Pre-training of Deep Bidirectional Transformers*, section 3; 110 million parameters.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from glowpy.core.tensor import Array

__all__ = ["bert"]

LAYERS, HIDDEN, HEADS, INNER, WORDS, POSITIONS = 12, 768, 12, 3072, 30522, 512
OPSET = 17


@dataclass
class _Graph:
    """Nodes and initializers so far; every method returns the name of what it adds."""

    random: np.random.Generator
    nodes: list[onnx.NodeProto] = field(default_factory=list)
    initializers: list[onnx.TensorProto] = field(default_factory=list)

    def constant(self, name: str, array: Array | np.generic) -> str:
        self.initializers.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, name: str, *shape: int) -> str:
        array = self.random.standard_normal(shape, dtype=np.float32) * np.float32(0.02)
        return self.constant(name, array)

    def node(self, op_type: str, inputs: Sequence[str], name: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(op_type, inputs, [name], **attributes))
        return name

    def linear(self, x: str, name: str, inputs: int, outputs: int) -> str:
        weights = self.weights(f"{name}.weight", inputs, outputs)
        product = self.node("MatMul", [x, weights], f"{name}.product")
        return self.node("Add", [self.weights(f"{name}.bias", outputs), product], name)

    def normalized(self, x: str, name: str) -> str:
        scale = self.constant(f"{name}.scale", np.ones(HIDDEN, np.float32))
        inputs = [x, scale, self.weights(f"{name}.bias", HIDDEN)]
        return self.node("LayerNormalization", inputs, name, axis=-1, epsilon=1e-12)

    def embedded(self, tokens: int) -> str:
        positions = self.constant("positions", np.arange(tokens, dtype=np.int64)[np.newaxis])
        tables = {"word": WORDS, "type": 2, "position": POSITIONS}
        ids = {"word": "input_ids", "type": "token_type_ids", "position": positions}
        parts = [
            self.node("Gather", [self.weights(f"{name}.table", size, HIDDEN), ids[name]], name)
            for name, size in tables.items()
        ]
        first = self.node("Add", parts[:2], "words")
        return self.normalized(self.node("Add", [first, parts[2]], "sum"), "embedded")

    def attention(self, x: str, mask: str, name: str) -> str:
        split = self.constant(f"{name}.split", np.array([0, 0, HEADS, HIDDEN // HEADS], np.int64))
        orders = {"query": [0, 2, 1, 3], "key": [0, 2, 3, 1], "value": [0, 2, 1, 3]}
        query, key, value = (
            self.node(
                "Transpose",
                [
                    self.node(
                        "Reshape",
                        [self.linear(x, f"{name}.{part}", HIDDEN, HIDDEN), split],
                        f"{name}.{part}.split",
                    )
                ],
                f"{name}.{part}.heads",
                perm=order,
            )
            for part, order in orders.items()
        )
        root = self.constant(f"{name}.root", np.float32((HIDDEN // HEADS) ** 0.5))
        scores = self.node(
            "Div", [self.node("MatMul", [query, key], f"{name}.qk"), root], f"{name}.scaled"
        )
        masked = self.node("Add", [scores, mask], f"{name}.masked")
        chances = self.node("Softmax", [masked], f"{name}.chances", axis=-1)
        context = self.node("MatMul", [chances, value], f"{name}.context")
        rows = self.node("Transpose", [context], f"{name}.rows", perm=[0, 2, 1, 3])
        merge = self.constant(f"{name}.merge", np.array([0, 0, HIDDEN], np.int64))
        joined = self.node("Reshape", [rows, merge], f"{name}.joined")
        output = self.linear(joined, f"{name}.output", HIDDEN, HIDDEN)
        return self.normalized(self.node("Add", [output, x], f"{name}.residual"), name)

    def feed_forward(self, x: str, name: str) -> str:
        wide = self.linear(x, f"{name}.wide", HIDDEN, INNER)
        root = self.constant(f"{name}.root", np.float32(2**0.5))
        one = self.constant(f"{name}.one", np.float32(1))
        half = self.constant(f"{name}.half", np.float32(0.5))
        error = self.node("Erf", [self.node("Div", [wide, root], f"{name}.divided")], f"{name}.erf")
        gate = self.node("Add", [error, one], f"{name}.gate")
        gated = self.node("Mul", [wide, gate], f"{name}.gated")
        gelu = self.node("Mul", [gated, half], f"{name}.gelu")
        narrow = self.linear(gelu, f"{name}.narrow", INNER, HIDDEN)
        return self.normalized(self.node("Add", [narrow, x], f"{name}.residual"), name)


def bert(batch: int | str = 1, tokens: int = 128, layers: int = LAYERS) -> onnx.ModelProto:
    """The model: token numbers, mask and types of [batch, tokens] in; the last layer and the pooled first token out."""
    g = _Graph(np.random.default_rng(0))
    axes = g.constant("axes", np.array([1, 2], np.int64))
    wide = g.node("Unsqueeze", [g.node("Cast", ["attention_mask"], "ones", to=1), axes], "mask")
    absent = g.node("Sub", [g.constant("one", np.float32(1)), wide], "absent")
    mask = g.node("Mul", [absent, g.constant("least", np.float32(-10000))], "penalty")
    x = g.embedded(tokens)
    for layer in range(layers):
        x = g.feed_forward(g.attention(x, mask, f"layer{layer}.attention"), f"layer{layer}.output")
    first = g.node("Gather", [x, g.constant("zero", np.int64(0))], "first", axis=1)
    inputs = [first, g.weights("pool.weight", HIDDEN, HIDDEN), g.weights("pool.bias", HIDDEN)]
    pooled = g.node("Tanh", [g.node("Gemm", inputs, "pool", transB=1)], "pooled")
    names = ("input_ids", "attention_mask", "token_type_ids")
    ins = [helper.make_tensor_value_info(n, TensorProto.INT64, [batch, tokens]) for n in names]
    outs = [
        helper.make_tensor_value_info(x, TensorProto.FLOAT, [batch, tokens, HIDDEN]),
        helper.make_tensor_value_info(pooled, TensorProto.FLOAT, [batch, HIDDEN]),
    ]
    graph = helper.make_graph(g.nodes, "bert", ins, outs, g.initializers)
    opset = helper.make_opsetid("", OPSET)
    return helper.make_model(graph, opset_imports=[opset], ir_version=8)


def main() -> None:
    """Writes the model."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path)
    parser.add_argument("--batch", default="1", help="a number, or a name for any number")
    parser.add_argument("--tokens", type=int, default=128)
    options = parser.parse_args()
    batch = int(options.batch) if options.batch.isdigit() else options.batch
    onnx.save(bert(batch, options.tokens), options.file)


if __name__ == "__main__":
    main()
