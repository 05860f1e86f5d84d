"""Rows of normalisations: by channel, by group, by layer, by neighbouring channels."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array
from tests.onnx.opset_rows import BATCH, C3, EVERY, FINE, IMAGE, Row, X, _plain

__all__ = ["NORM_ROWS"]


def responses(x: Array, size: int, alpha: float, beta: float, bias: float) -> Array:
    """Local response normalisation over dimension 1."""
    channel = np.arange(x.shape[1])
    first = channel[:, None] - (size - 1) // 2
    window = (channel >= first) & (channel < first + size)
    squares = np.einsum("cd,ndw->ncw", window, x.astype(np.float64) ** 2)
    return _plain(x / (bias + alpha / size * squares) ** beta)


def instances(x: Array, epsilon: float) -> Array:
    """Every channel of every instance by its own mean and variance."""
    mean, variance = x.mean(2, keepdims=True), x.var(2, keepdims=True)
    normal = (x - mean) / np.sqrt(variance + epsilon)
    return _plain(normal * C3[:, None] + BATCH[1][:, None])


def standardized(x: Array, axes: tuple[int, ...], epsilon: float = 1e-5) -> Array:
    wide = x.astype(np.float64)
    deviation = np.sqrt(wide.var(axes, keepdims=True) + epsilon)
    return _plain((wide - wide.mean(axes, keepdims=True)) / deviation)


def inverse_deviation(x: Array, axes: tuple[int, ...]) -> Array:
    return _plain(1 / np.sqrt(x.astype(np.float64).var(axes, keepdims=True) + 1e-5))


def by_group(x: Array, groups: int, epsilon: float, scale: Array, bias: Array) -> Array:
    """Every group of channels by its own mean and variance, then its own scale and bias."""
    normal = standardized(x.reshape(len(x), groups, -1), (2,), epsilon)
    return _plain((normal * scale[:, None] + bias[:, None]).reshape(x.shape))


GROUPS = np.random.default_rng(18).standard_normal((2, 4, 3)).astype(np.float32)
ROW = np.linspace(-1, 1, 4, dtype=np.float32)
SQUARES = np.sqrt((X * X).mean((1, 2), keepdims=True) + np.float32(0.5))
HALF = {"epsilon": 0.5}
NORM_ROWS = [
    Row("LRN", EVERY, [100 * X], [responses(100 * X, 3, 1e-4, 0.75, 1)], {"size": 3}),
    Row(
        "LRN",
        EVERY,
        [X],
        [responses(X, 2, 0.5, 0.5, 2)],
        {"size": 2, "alpha": 0.5, "beta": 0.5, "bias": 2.0},
        "attributes",
    ),
    Row("InstanceNormalization", EVERY, [FINE, C3, BATCH[1]], [instances(FINE, 1e-5)]),
    Row(
        "InstanceNormalization",
        EVERY,
        [X, C3, BATCH[1]],
        [instances(X, 1)],
        {"epsilon": 1.0},
        "epsilon",
    ),
    Row("LpNormalization", EVERY, [X], [X / np.sqrt((X * X).sum(-1, keepdims=True))]),
    Row(
        "LpNormalization",
        EVERY,
        [X],
        [X / np.abs(X).sum(1, keepdims=True)],
        {"axis": 1, "p": 1},
        "sum",
    ),
    Row("LayerNormalization", EVERY, [X, ROW], [standardized(X, (2,)) * ROW]),
    Row(
        "LayerNormalization", EVERY, [X, ROW, ROW], [standardized(X, (2,)) * ROW + ROW], {}, "bias"
    ),
    Row(
        "LayerNormalization",
        EVERY,
        [X, np.ones(12, np.float32), X[0]],
        [
            standardized(X, (1, 2)) + X[0],
            X.mean((1, 2), keepdims=True),
            inverse_deviation(X, (1, 2)),
        ],
        {"axis": -2},
        "statistics",
    ),
    Row(
        "LayerNormalization",
        EVERY,
        [X, X[:, :, :1]],
        [standardized(X, (2,), 0.5) * X[:, :, :1]],
        HALF,
        "broadcast",
    ),
    Row(
        "RMSNormalization",
        EVERY,
        [X, ROW],
        [X / np.sqrt((X * X).mean(2, keepdims=True) + 1e-5) * ROW],
    ),
    Row("RMSNormalization", EVERY, [X, X[0]], [X / SQUARES * X[0]], {"axis": 1, **HALF}, "axis"),
    Row(
        "GroupNormalization",
        (18,),
        [GROUPS, C3[:2], C3[1:]],
        [by_group(GROUPS, 2, 1e-5, C3[:2], C3[1:])],
        {"num_groups": 2},
    ),
    Row(
        "GroupNormalization",
        (18,),
        [GROUPS, C3[:1], C3[1:2]],
        [by_group(GROUPS, 1, 0.5, C3[:1], C3[1:2])],
        {"num_groups": 1, **HALF},
        "epsilon",
    ),
    Row(
        "GroupNormalization",
        (21,),
        [IMAGE, C3[:2], C3[1:]],
        [standardized(IMAGE, (1, 2, 3)) * C3[:2, None, None] + C3[1:, None, None]],
        {"num_groups": 1},
    ),
    Row(
        "GroupNormalization",
        (21,),
        [X, C3, C3],
        [standardized(X, (2,), 0.5) * C3[:, None] + C3[:, None]],
        {"num_groups": 3, **HALF},
        "epsilon",
    ),
    Row("MeanVarianceNormalization", EVERY, [IMAGE], [standardized(IMAGE, (0, 2, 3), 0)]),
    Row(
        "MeanVarianceNormalization",
        EVERY,
        [X],
        [standardized(X, (0, 2), 0)],
        {"axes": [-1, 0]},
        "axes",
    ),
]
