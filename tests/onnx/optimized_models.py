"""A small CNN, encoder and decoder as exporters write them, and what onnxruntime's optimizers make of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper

from glowpy.core.tensor import Array
from tests.onnx.comparison import graph_model, info

LEVELS = ("DISABLE_ALL", "ENABLE_BASIC", "ENABLE_EXTENDED", "ENABLE_LAYOUT", "ENABLE_ALL")
BATCH, LENGTH, WIDTH, HEADS, HIDDEN, WORDS = 2, 8, 32, 4, 48, 23


def saved(model: onnx.ModelProto, level: str, path: Path) -> Path:
    """The file that onnxruntime writes of a model at an optimization level."""
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, f"ORT_{level}")
    options.optimized_model_filepath = str(path)
    onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return path


class Net:
    """A graph under construction, with random weights."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)
        self.nodes: list[onnx.NodeProto] = []
        self.constants: dict[str, Array] = {}

    def constant(self, array: Array) -> str:
        name = f"c{len(self.constants)}"
        self.constants[name] = array
        return name

    def weight(self, *shape: int, depth: int = 0) -> str:
        """Random numbers, so small that sums of `depth` products keep their size."""
        numbers = self.rng.standard_normal(shape) / np.sqrt(depth or shape[0])
        return self.constant(numbers.astype(np.float32))

    def ints(self, *values: int) -> str:
        return self.constant(np.array(values, np.int64))

    def number(self, value: float) -> str:
        return self.constant(np.array(value, np.float32))

    def node(self, op_type: str, *inputs: str, outputs: int = 1, **attributes: Any) -> str:
        """Adds a node; returns the name of its first output."""
        name = f"t{len(self.nodes)}"
        names = [name, *(f"{name}_{index}" for index in range(1, outputs))]
        self.nodes.append(helper.make_node(op_type, inputs, names, name=name, **attributes))
        return name

    def model(self, inputs: Sequence[Any], result: str, opset: int) -> onnx.ModelProto:
        output = helper.make_tensor_value_info(result, TensorProto.FLOAT, None)
        return graph_model(self.nodes, inputs, [output], opset, self.constants)


class Cnn(Net):
    """Convolutions with what follows them in practice."""

    def conv(self, x: str, inputs: int, outputs: int, size: int, **attributes: Any) -> str:
        depth = inputs // attributes.get("group", 1)
        w = self.weight(outputs, depth, size, size, depth=depth * size * size)
        pads = [size // 2] * 4
        return self.node("Conv", x, w, self.weight(outputs), pads=pads, **attributes)

    def normalized(self, x: str, channels: int) -> str:
        scale, shift, mean = (self.weight(channels, depth=1) for _ in range(3))
        variance = self.constant(self.rng.uniform(0.5, 2, channels).astype(np.float32))
        return self.node("BatchNormalization", x, scale, shift, mean, variance)

    def enlarged(self, x: str, mode: str, **attributes: Any) -> str:
        scales = self.constant(np.array([1, 1, 2, 2], np.float32))
        return self.node("Resize", x, "", scales, mode=mode, **attributes)


@cache
def cnn() -> onnx.ModelProto:
    """An image of 3 channels, a residual block, a pyramid, and a gate; 20 channels are no multiple of any block."""
    net = Cnn(0)
    x = net.node("Relu", net.normalized(net.conv("x", 3, 32, 3, strides=[2, 2]), 32))
    x = net.node("MaxPool", x, kernel_shape=[3, 3], strides=[2, 2], pads=[1, 1, 1, 1])
    bounds = net.number(0), net.number(6)
    depthwise = net.node("Clip", net.conv(x, 32, 32, 3, group=32), *bounds)
    x = net.node("Relu", net.node("Add", net.normalized(net.conv(depthwise, 32, 32, 1), 32), x))
    wide = net.node("LeakyRelu", net.conv(x, 32, 20, 3), alpha=0.1)
    narrow = net.node("HardSigmoid", net.conv(x, 32, 16, 1), alpha=0.2, beta=0.4)
    x = net.node("Tanh", net.conv(net.node("Concat", wide, narrow, axis=1), 36, 64, 3))
    x = net.node("AveragePool", x, kernel_shape=[2, 2], strides=[2, 2])
    x = net.node("Concat", net.conv(x, 64, 64, 3, group=2), x, axis=1)
    x = net.conv(net.node("Relu", net.normalized(x, 128)), 128, 32, 1)
    asymmetric = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor"}
    x = net.node("Relu", net.conv(net.enlarged(x, "nearest", **asymmetric), 32, 32, 3))
    x = net.node("Sigmoid", net.conv(net.enlarged(x, "linear"), 32, 64, 1))
    gate = net.conv(net.node("GlobalAveragePool", x), 64, 64, 1)
    x = net.node("GlobalMaxPool", net.node("Mul", x, gate))
    x = net.node("Gemm", net.node("Flatten", x), net.weight(64, 24), net.weight(24))
    x = net.node("Gemm", net.node("Relu", x), net.weight(24, 10), net.weight(10))
    return net.model([info("x", np.zeros((2, 3, 33, 33), np.float32))], x, 17)


class Transformer(Net):
    """Layers as the exporters of PyTorch write them."""

    def linear(self, x: str, depth: int, width: int) -> str:
        product = self.node("MatMul", x, self.weight(depth, width))
        return self.node("Add", self.weight(width), product)

    def gemm(self, x: str, depth: int, width: int) -> str:
        """As GPT-2 has it: a matrix product of all rows."""
        flat = self.node("Reshape", x, self.ints(-1, depth))
        product = self.node("Gemm", flat, self.weight(depth, width), self.weight(width))
        return self.node("Reshape", product, self.ints(BATCH, LENGTH, width))

    def heads(self, x: str, order: list[int]) -> str:
        shape = self.ints(0, 0, HEADS, WIDTH // HEADS)
        return self.node("Transpose", self.node("Reshape", x, shape), perm=order)

    def joined(self, x: str) -> str:
        x = self.node("Transpose", x, perm=[0, 2, 1, 3])
        return self.node("Reshape", x, self.ints(0, 0, WIDTH))

    def scores(self, query: str, key: str) -> str:
        root = self.number((WIDTH / HEADS) ** 0.5)
        return self.node("Div", self.node("MatMul", query, key), root)

    def normalized(self, x: str) -> str:
        scale, shift = self.weight(WIDTH), self.weight(WIDTH)
        return self.node("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    def normalized_in_steps(self, x: str) -> str:
        """Layer normalization as it is written at opsets below 17."""
        centred = self.node("Sub", x, self.node("ReduceMean", x, axes=[-1]))
        square = self.node("ReduceMean", self.node("Pow", centred, self.number(2)), axes=[-1])
        deviation = self.node("Sqrt", self.node("Add", square, self.number(1e-5)))
        normal = self.node("Mul", self.node("Div", centred, deviation), self.weight(WIDTH))
        return self.node("Add", normal, self.weight(WIDTH))

    def gelu(self, x: str) -> str:
        erf = self.node("Erf", self.node("Div", x, self.number(2**0.5)))
        x = self.node("Mul", x, self.node("Add", erf, self.number(1)))
        return self.node("Mul", x, self.number(0.5))

    def tanh_gelu(self, x: str) -> str:
        cube = self.node("Mul", self.node("Pow", x, self.number(3)), self.number(0.044715))
        angle = self.node("Mul", self.node("Add", x, cube), self.number((2 / np.pi) ** 0.5))
        one = self.node("Add", self.node("Tanh", angle), self.number(1))
        return self.node("Mul", self.node("Mul", x, self.number(0.5)), one)

    def positions(self, ids: str) -> str:
        """0, 1, 2, ... up to the length of the words."""
        length = self.node("Gather", self.node("Shape", ids), self.constant(np.array(1)), axis=0)
        end = self.node("Unsqueeze", length, self.ints(0))
        numbers = self.constant(np.arange(16)[None])
        return self.node("Slice", numbers, self.ints(0), end, self.ints(1), self.ints(1))

    def seen(self, scores: str) -> str:
        """Which keys a query sees, from a table that is larger than the scores."""
        shape = self.node("Shape", scores)
        queries, keys = (
            self.node(
                "Squeeze", self.node("Slice", shape, self.ints(i), self.ints(i + 1)), self.ints(0)
            )
            for i in (2, 3)
        )
        start = self.node("Unsqueeze", self.node("Sub", keys, queries), self.ints(0))
        end = self.node("Unsqueeze", keys, self.ints(0))
        table = self.constant(np.tril(np.ones((1, 1, 16, 16), bool)))
        rows = self.node("Slice", table, start, end, self.ints(2), self.ints(1))
        return self.node("Slice", rows, self.ints(0), end, self.ints(3), self.ints(1))


@cache
def bert() -> onnx.ModelProto:
    """Two layers of an encoder with embeddings and a padding mask, for any batch and length."""
    net = Transformer(1)
    names = ["input_ids", "segment_ids", "mask"]
    words = net.node("Gather", net.weight(WORDS, WIDTH, depth=1), names[0])
    segments = net.node("Gather", net.weight(2, WIDTH, depth=1), names[1])
    places = net.node("Gather", net.weight(16, WIDTH, depth=1), net.positions(names[0]))
    x = net.normalized(net.node("Add", net.node("Add", words, segments), places))
    wide = net.node("Unsqueeze", net.node("Unsqueeze", names[2], net.ints(1)), net.ints(2))
    gap = net.node("Sub", net.number(1), net.node("Cast", wide, to=TensorProto.FLOAT))
    bias = net.node("Mul", gap, net.number(-10000))
    for _ in range(2):
        query, key, value = (
            net.heads(net.linear(x, WIDTH, WIDTH), order)
            for order in ([0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3])
        )
        weights = net.node("Softmax", net.node("Add", net.scores(query, key), bias), axis=-1)
        mixed = net.linear(net.joined(net.node("MatMul", weights, value)), WIDTH, WIDTH)
        x = net.normalized(net.node("Add", mixed, x))
        inner = net.linear(net.gelu(net.linear(x, WIDTH, HIDDEN)), HIDDEN, WIDTH)
        x = net.normalized(net.node("Add", inner, x))
    words_like = np.zeros((BATCH, LENGTH), np.int64)
    inputs = [info(name, words_like, ["batch", "length"]) for name in names]
    return net.model(inputs, x, 17)


@cache
def gpt() -> onnx.ModelProto:
    """Two layers of a decoder that looks back, without keys and values of the past."""
    net = Transformer(2)
    words = net.node("Gather", net.weight(WORDS, WIDTH, depth=1), "input_ids")
    x = net.node("Add", words, net.weight(1, LENGTH, WIDTH, depth=1))
    orders = [0, 2, 1, 3], [0, 2, 3, 1], [0, 2, 1, 3]
    for _ in range(2):
        packed = net.gemm(net.normalized_in_steps(x), WIDTH, 3 * WIDTH)
        first = net.node("Split", packed, axis=2, outputs=3)
        names = first, f"{first}_1", f"{first}_2"
        query, key, value = (
            net.heads(name, order) for name, order in zip(names, orders, strict=True)
        )
        plain = net.scores(query, key)
        scores = net.node("Where", net.seen(plain), plain, net.number(-10000))
        mixed = net.joined(net.node("MatMul", net.node("Softmax", scores, axis=-1), value))
        x = net.node("Add", net.gemm(mixed, WIDTH, WIDTH), x)
        inner = net.tanh_gelu(net.gemm(net.normalized_in_steps(x), WIDTH, HIDDEN))
        x = net.node("Add", x, net.gemm(inner, HIDDEN, WIDTH))
    logits = net.node("MatMul", net.normalized_in_steps(x), net.weight(WIDTH, WORDS))
    return net.model([info("input_ids", np.zeros((BATCH, LENGTH), np.int64))], logits, 14)
