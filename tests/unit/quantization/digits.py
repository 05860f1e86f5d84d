"""Two small networks that learn the handwritten digits of scikit-learn: a perceptron and a convolutional one."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np

import glowpy
from glowpy.core.tensor import Array

__all__ = ["COUNT", "Digits", "accuracy", "cnn", "digits", "mlp"]

COUNT = 897
"""Digits to learn from; as many as that, and three more, to test with."""

_RATE = 0.003
_BATCH = 64


@dataclass(frozen=True)
class Digits:
    """Images of 8 x 8 numbers from 0 to 1, and which digits they show."""

    images: Array
    labels: Array


@cache
def digits() -> tuple[Digits, Digits]:
    """Those to learn from, and those to test with, in an order that is always the same."""
    package = find_spec("sklearn")  # not imported: that takes a second, and many megabytes
    assert package is not None
    assert package.origin is not None
    table = np.loadtxt(Path(package.origin).parent / "datasets/data/digits.csv.gz", delimiter=",")
    table = table[np.random.default_rng(0).permutation(len(table))]
    images = (table[:, :-1].reshape(-1, 8, 8, 1) / 16).astype(np.float32)
    labels = table[:, -1].astype(np.int64)
    return Digits(images[:COUNT], labels[:COUNT]), Digits(images[COUNT:], labels[COUNT:])


def _patches(x: Array) -> Array:
    """The 3 x 3 neighbourhoods of all places of NHWC images, with zeros around these."""
    n, h, w, c = x.shape
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    parts = [padded[:, i : i + h, j : j + w] for i in range(3) for j in range(3)]
    return np.concatenate(parts, axis=-1).reshape(n * h * w, 9 * c)


def _unpatched(g: Array, shape: tuple[int, ...]) -> Array:
    """The gradient of images from that of their neighbourhoods."""
    n, h, w, c = shape
    padded = np.zeros((n, h + 2, w + 2, c), np.float32)
    parts = np.split(g.reshape(n, h, w, 9 * c), 9, axis=-1)
    for place, part in enumerate(parts):
        i, j = divmod(place, 3)
        padded[:, i : i + h, j : j + w] += part
    return padded[:, 1:-1, 1:-1]


class _Layer:
    """A product, a ReLU unless it is the last, and the largest of 2 x 2 after a convolution; learns by Adam."""

    def __init__(self, rng: np.random.Generator, inputs: int, outputs: int, kind: str) -> None:
        scale = np.sqrt(2 / inputs)
        self.weights = (scale * rng.normal(size=(inputs, outputs))).astype(np.float32)
        self.bias = np.zeros(outputs, np.float32)
        self.kind = kind
        self._moments = [np.zeros_like(p) for p in (self.weights, self.bias) for _ in range(2)]
        self._steps = 0

    def forward(self, x: Array) -> Array:
        """What the layer gives; it remembers what it needs for `backward`."""
        self._shape = x.shape
        self._rows = _patches(x) if self.kind == "conv" else x.reshape(len(x), -1)
        sums: Array = self._rows @ self.weights + self.bias
        if self.kind == "last":
            return sums
        self._positive = sums > 0
        values: Array = sums * self._positive
        if self.kind == "dense":
            return values
        n, h, w, _ = x.shape
        windows = values.reshape(n, h // 2, 2, w // 2, 2, -1)
        largest: Array = windows.max((2, 4))
        self._chosen = windows == largest[:, :, None, :, None]
        return largest

    def backward(self, g: Array) -> Array:
        """The gradient of the input, from that of the result; learns from it."""
        if self.kind == "conv":
            g = (self._chosen * g[:, :, None, :, None]).reshape(-1, self.bias.size)
        if self.kind != "last":
            g = g.reshape(len(self._rows), -1) * self._positive
        below = g @ self.weights.T
        self._learn(0, self.weights, self._rows.T @ g)
        self._learn(1, self.bias, g.sum(0))
        return _unpatched(below, self._shape) if self.kind == "conv" else below.reshape(self._shape)

    def _learn(self, place: int, parameter: Array, gradient: Array) -> None:
        self._steps += place == 0
        mean, square = self._moments[2 * place : 2 * place + 2]
        mean += 0.1 * (gradient - mean)
        square += 0.001 * (gradient**2 - square)
        steps = self._steps
        parameter -= (
            _RATE * (mean / (1 - 0.9**steps)) / (np.sqrt(square / (1 - 0.999**steps)) + 1e-8)
        )


def _trained(layers: list[_Layer], epochs: int) -> list[_Layer]:
    rng = np.random.default_rng(1)
    known, _ = digits()
    for _ in range(epochs):
        for batch in np.array_split(rng.permutation(COUNT), COUNT // _BATCH):
            values = known.images[batch]
            for layer in layers:
                values = layer.forward(values)
            likely = np.exp(values - values.max(1, keepdims=True))
            g = likely / likely.sum(1, keepdims=True)
            g[np.arange(len(batch)), known.labels[batch]] -= 1
            g /= len(batch)
            for layer in reversed(layers):
                g = layer.backward(g)
    return layers


@cache
def mlp(batch: int = 1) -> glowpy.Module:
    """64 numbers, 48 of a hidden layer, 10 of the result."""
    return _network(_mlp_layers(), batch)


@cache
def cnn(batch: int = 1) -> glowpy.Module:
    """Two convolutions, each with a ReLU and a pool, and a fully connected layer."""
    return _network(_cnn_layers(), batch)


@cache
def _mlp_layers() -> list[_Layer]:
    rng = np.random.default_rng(2)
    return _trained([_Layer(rng, 64, 48, "dense"), _Layer(rng, 48, 10, "last")], 40)


@cache
def _cnn_layers() -> list[_Layer]:
    rng = np.random.default_rng(3)
    kinds = [(9, 8, "conv"), (72, 16, "conv"), (64, 10, "last")]
    return _trained([_Layer(rng, *kind) for kind in kinds], 20)


def _network(layers: list[_Layer], batch: int) -> glowpy.Module:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", glowpy.parse_type(f"f32[{batch}x8x8x1]"))
    value = x.value
    for index, layer in enumerate(layers):
        weights = layer.weights
        bias = module.create_constant(f"bias{index}", layer.bias)
        if layer.kind == "conv":
            filters = weights.T.reshape(-1, 3, 3, len(weights) // 9)
            filter = module.create_constant(f"filter{index}", filters)
            attrs = ((3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
            value = f.create_convolution(f"conv{index}", value, filter, bias, *attrs).result
            value = f.create_relu(f"relu{index}", value).result
            window = ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False)
            value = f.create_max_pool(f"pool{index}", value, *window).result
            continue
        if value.type.rank > 2:
            flat = glowpy.parse_type(f"f32[{batch}x{len(weights)}]")
            value = f.create_reshape("flat", flat, value).result
        matrix = module.create_constant(f"weights{index}", weights)
        value = f.create_fully_connected(f"dense{index}", value, matrix, bias).result
        if layer.kind == "dense":
            value = f.create_relu(f"relu{index}", value).result
    f.create_save("save", value, module.create_placeholder("y", value.type))
    return module


def accuracy(scores: Array) -> float:
    """How many per cent of the digits to test with get the highest score."""
    _, unseen = digits()
    return 100 * float(np.mean(scores.argmax(1) == unseen.labels))
