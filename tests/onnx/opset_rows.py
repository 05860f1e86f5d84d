"""Operators at every opset that changed them: one node, its inputs, and what numpy says; old quirks among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import TensorProto, defs, numpy_helper

from glowpy.core.tensor import Array

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 5, 5)).astype(np.float32)
A = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal((4, 5)).astype(np.float32)
ROW = RNG.standard_normal(5).astype(np.float32)
FULL = RNG.standard_normal((3, 5)).astype(np.float32)
C3 = RNG.standard_normal(3).astype(np.float32)
SQUARE = RNG.standard_normal((2, 3, 3)).astype(np.float32)
LARGEST = np.finfo(np.float32).max
SPECIAL = np.array([np.inf, -np.inf, 1, -0.5, 0], np.float32)
EMPTY = np.zeros(0, np.float32)
WIDE = np.linspace(-4, 4, 24, dtype=np.float32).reshape(2, 3, 4)
SIXFOLD = RNG.standard_normal((1, 2, 2, 1, 3, 2)).astype(np.float32)
FINE = (X / 64).astype(np.float32)
BATCH = [C3, C3 + 1, C3 * 2, C3**2 + 1]
EACH = [
    RNG.standard_normal((3, 4)).astype(np.float32) ** 2 + np.float32(index) for index in range(4)
]


def each_normalised() -> Array:
    """With statistics for each element of an image."""
    scale, bias, mean, variance = EACH
    result: Array = (X - mean) / np.sqrt(variance + 1e-5) * scale + bias
    return result


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def scalar(value: float, dtype: type = np.float32) -> Array:
    return np.array(value, dtype)


def u8(*values: int) -> Array:
    return np.array(values, np.uint8)


def _plain(array: Array) -> Array:
    """Doubles as f32."""
    return array.astype(np.float32) if array.dtype == np.float64 else array


def selu(x: Array, alpha: float, gamma: float) -> Array:
    wide = x.astype(np.float64)
    return _plain(gamma * np.where(wide > 0, wide, alpha * np.expm1(wide)))


def normalised() -> Array:
    scale, bias, mean, variance = (array.reshape(1, 3, 1) for array in BATCH)
    result: Array = (X - mean) / np.sqrt(variance + 1e-5) * scale + bias
    return result


def softmax(array: Array, axis: tuple[int, ...] | int) -> Array:
    top = np.exp(array - array.max(axis=axis, keepdims=True))
    result: Array = top / top.sum(axis=axis, keepdims=True)
    return result


def pooled(function: Any, fill: float) -> Array:
    """Windows of 3x3 with stride 2 and pads of 1."""
    wide = np.pad(IMAGE, ((0, 0), (0, 0), (1, 1), (1, 1)), constant_values=fill)
    windows = np.lib.stride_tricks.sliding_window_view(wide, (3, 3), (2, 3))[:, :, ::2, ::2]
    result: Array = function(windows, axis=(-1, -2)).astype(np.float32)
    return result


POOL = {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]}
INSIDE = np.pad(np.ones((1, 2, 5, 5), bool), ((0, 0), (0, 0), (1, 1), (1, 1)))
COUNTS = np.lib.stride_tricks.sliding_window_view(INSIDE, (3, 3), (2, 3))[:, :, ::2, ::2].sum(
    axis=(-1, -2)
)
MEANS = (pooled(np.sum, 0) / COUNTS).astype(np.float32)
TIES = np.array(
    [[1, 3, 0, 3], [np.nan, 2, -1, 0], [np.nan, 1, np.nan, np.inf]], np.float32
)  # numpy takes the first NaN for both extremes
LONG = np.where(np.arange(4100) == 4000, np.nan, 1).astype(np.float32)  # a NaN stays where it is
WINDOWS = np.lib.stride_tricks.sliding_window_view(IMAGE, (3, 3), (2, 3))
TIES_1D = np.array([[[0, 1, 2], [4, 5, 6]]], np.float32)
DEEP = np.arange(2 * 8 * 2 * 3, dtype=np.float32).reshape(2, 8, 2, 3)
DCR = DEEP.reshape(2, 2, 2, 2, 2, 3).transpose(0, 3, 4, 1, 5, 2).reshape(2, 2, 4, 6)
CRD = DEEP.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)
LINE = np.arange(10, dtype=np.float32)
BOXES = np.array(
    [[[0, 0, 2, 2], [0, 0, 2, 3], [5, 5, 6, 6]]], np.float32
)  # the first two overlap by 2/3
SCORES = np.array([[[0.5, 0.9, 0.2]]], np.float32)
THIRDS = [4, 3, 3, 4, 3, 3, 4, 3, 3, 3]  # 3.3 times as many in f32: 33
TWICE = IMAGE.repeat(2, axis=2).repeat(2, axis=3)


VERSIONS: dict[str, list[int]] = {}
"""The opsets that brought a version of each operator."""
for _schema in defs.get_all_schemas_with_history():
    _is_read = not _schema.deprecated or _schema.name == "GroupNormalization"
    if _schema.domain == "" and _is_read:
        VERSIONS.setdefault(_schema.name, []).append(_schema.since_version)
        VERSIONS[_schema.name].sort()

EVERY = ()
"""All versions of an operator."""


@dataclass(frozen=True)
class Row:
    """An operator, versions of it that mean the same, inputs, and what numpy says.

    Each of `opsets` stands for the version that holds there: all opsets from the one that brought it to the last
    one before the next version. `EVERY` is all versions.
    """

    op_type: str
    opsets: Sequence[int]
    inputs: Sequence[Array | None]
    expected: Sequence[Array]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    title: str = ""


ROWS = [
    Row("Add", (1, 6), [X, C3], [X + C3[:, None]], {"broadcast": 1, "axis": 1}, "axis"),
    Row("Add", (1, 6), [X, X[0, 0]], [X + X[0, 0]], {"broadcast": 1}, "suffix"),
    Row("Add", (1, 6), [X, X], [X + X], {}, "same"),
    Row("Add", (7, 13, 14), [X, C3[:, None]], [X + C3[:, None]]),
    Row("Sub", (7, 13, 14), [A, A[0]], [A - A[0]]),
    Row("Sub", (1, 6), [X, C3], [X - C3[:, None]], {"broadcast": 1, "axis": -2}, "negative"),
    Row("Mul", (1, 6), [X, X[0]], [X * X[0]], {"broadcast": 1}),
    Row("Mul", (7, 13, 14), [X, scalar(2)], [X * 2]),
    Row("Div", (7, 13, 14), [i64(7, -7, 8), i64(2)], [i64(3, -3, 4)], {}, "integers"),
    Row("Div", (1, 6), [X, scalar(2)], [X / 2], {"broadcast": 1}),
    Row("Pow", (1,), [A * A, A[0]], [(A * A) ** A[0]], {"broadcast": 1}),
    Row("Pow", (7, 12, 13, 15), [A * A, A], [(A * A) ** A]),
    Row("Pow", (12, 13, 15), [i64(-3, 2), scalar(3)], [i64(-27, 8)], {}, "mixed"),
    Row("Less", (1,), [X, C3], [C3[:, None] > X], {"broadcast": 1, "axis": 1}),
    Row("Less", (7, 9, 13), [X, C3[:, None]], [C3[:, None] > X]),
    Row("LessOrEqual", EVERY, [X, X], [X <= X]),
    Row("Greater", (1,), [X, C3], [C3[:, None] < X], {"broadcast": 1, "axis": 1}),
    Row("Greater", (7, 9, 13), [X, C3[:, None]], [C3[:, None] < X]),
    Row("GreaterOrEqual", (12, 16), [X, X], [X >= X]),
    Row("Equal", (1,), [i64(1, 2), i64(2)], [np.array([False, True])], {"broadcast": 1}),
    Row("Equal", (7, 11, 13, 19), [i64(1, 2), i64(2)], [np.array([False, True])]),
    Row("Or", (1,), [X > 0, C3 > 0], [(X > 0) | (C3 > 0)[:, None]], {"broadcast": 1, "axis": 1}),
    Row("Xor", (1,), [X > 0, C3 > 0], [(X > 0) ^ (C3 > 0)[:, None]], {"broadcast": 1, "axis": 1}),
    Row("And", (7,), [A > 0, A[0] > 0], [(A > 0) & (A[0] > 0)]),
    Row("Or", (7,), [A > 0, A[0] > 0], [(A > 0) | (A[0] > 0)]),
    Row("Xor", (7,), [A > 0, A[0] > 0], [(A > 0) ^ (A[0] > 0)]),
    Row("And", (1,), [X > 0, C3 > 0], [(X > 0) & (C3 > 0)[:, None]], {"broadcast": 1, "axis": 1}),
    Row("Relu", (1, 6, 13, 14), [X], [np.maximum(X, 0)]),
    Row("Relu", (1,), [X], [np.maximum(X, 0)], {"consumed_inputs": [0]}, "consumed"),
    Row("LeakyRelu", (1, 6, 16), [X], [np.where(X > 0, X, np.float32(0.01) * X)]),
    Row("Sum", (1, 6), [X, X, X], [3 * X]),
    Row("Sum", (8, 13), [X, C3[:, None], X], [X + C3[:, None] + X]),
    Row("Max", (1, 6, 8, 12, 13), [X, -X], [np.abs(X)]),
    Row("Min", (1, 6, 8), [X, -X], [-np.abs(X)]),
    Row("Min", (12, 13), [i64(1, 5), i64(3)], [i64(1, 3)]),
    Row("Mean", (1, 6, 8, 13), [X, 3 * X], [2 * X]),
    Row("Clip", (1, 6), [X], [X.clip(-0.5, 0.5)], {"min": -0.5, "max": 0.5}),
    Row("Clip", (1, 6), [X], [X.clip(-0.5, None)], {"min": -0.5}, "one"),
    Row("Clip", (1,), [SPECIAL], [SPECIAL], {}, "none"),
    Row("Clip", (6,), [SPECIAL], [SPECIAL.clip(-LARGEST, LARGEST)], {}, "none"),
    Row("Clip", (11, 12, 13), [X, scalar(-0.5), scalar(0.5)], [X.clip(-0.5, 0.5)]),
    Row("Clip", (11, 12, 13), [X, None, scalar(0.5)], [X.clip(None, 0.5)], {}, "max"),
    Row("Clip", (12, 13), [i64(1, 5, 9), scalar(2, np.int64)], [i64(2, 5, 9)], {}, "integers"),
    Row("Cast", (1,), [X], [X.astype(np.int32)], {"to": "INT32"}),
    Row("Cast", VERSIONS["Cast"][1:], [X], [X.astype(np.int32)], {"to": TensorProto.INT32}),
    Row("Cast", (19, 21, 23, 24, 25, 28), [X], [X != 0], {"to": TensorProto.BOOL, "saturate": 0}),
    Row("Dropout", (1, 6), [X], [X, np.ones_like(X)], {"is_test": 1}),
    Row("Dropout", (7,), [X], [X, np.zeros_like(X)]),
    Row("Dropout", (10,), [X], [X, np.zeros(X.shape, bool)]),
    Row("Dropout", (12, 13, 22), [X], [X, np.ones(X.shape, bool)]),
    Row("Dropout", (12, 13, 22), [X, scalar(0.5), np.array(False)], [X], {}, "inference"),
    Row("Reshape", (1,), [X], [X.reshape(2, 12)], {"shape": [0, -1]}),
    Row("Reshape", (5, 13, 14, 19, 21, 23, 24, 25), [X, i64(0, -1)], [X.reshape(2, 12)]),
    Row("Reshape", (5, 14), [X[:, :0], i64(0, 0, -1)], [X[:, :0]], {}, "nothing"),
    Row("Reshape", (14,), [X[:0], i64(0, 4)], [X[:0].reshape(0, 4)], {"allowzero": 1}, "zero"),
    *[
        Row("DepthToSpace", opsets, [DEEP], [DCR], {"blocksize": 2, **mode}, title)
        for opsets, mode, title in ((EVERY, {}, ""), ((11, 13, 28), {"mode": "DCR"}, "DCR"))
    ],
    Row("DepthToSpace", (11, 13, 28), [DEEP], [CRD], {"blocksize": 2, "mode": "CRD"}, "CRD"),
    Row("SpaceToDepth", EVERY, [DCR], [DEEP], {"blocksize": 2}),
    Row("SpaceToDepth", (28,), [CRD], [DEEP], {"blocksize": 2, "mode": "CRD"}, "CRD"),
    Row("Flatten", EVERY, [X], [X.reshape(6, 4)], {"axis": 2}),
    Row("Flatten", (11, 13), [X], [X.reshape(6, 4)], {"axis": -1}, "negative"),
    Row("Unsqueeze", (1, 11), [A], [A[None, :, None]], {"axes": [0, 2]}),
    Row("Unsqueeze", (13, 21, 23, 24, 25), [A, i64(0, -2)], [A[None, :, None]]),
    Row("Squeeze", (1, 11), [X[:1, :, :1]], [X[0, :, :1]], {"axes": [0]}),
    Row("Squeeze", (1, 11, 13), [X[:1, :, :1]], [X[0, :, 0]], {}, "all"),
    Row("Squeeze", (13, 21, 23, 24, 25), [X[:1, :, :1], i64(-3)], [X[0, :, :1]]),
    Row("Transpose", EVERY, [X], [X.transpose(2, 1, 0)]),
    Row("Concat", (1,), [X, X], [np.concatenate([X, X], 1)], {}, "default"),
    Row("Concat", (4, 11, 13), [X, X], [np.concatenate([X, X], 2)], {"axis": 2}),
    Row("Slice", (1,), [X], [X[:, 1:, :-1]], {"axes": [1, 2], "starts": [1, 0], "ends": [9, -1]}),
    Row("Slice", (1,), [X], [X[1:, :2]], {"starts": [1, 0], "ends": [2, 2]}, "no axes"),
    Row("Slice", (10, 11, 13), [X, i64(1), i64(9), i64(2)], [X[:, :, 1:]]),
    Row(
        "Slice", (10, 11, 13), [X, i64(-1), i64(-99), i64(2), i64(-2)], [X[:, :, ::-2]], {}, "back"
    ),
    Row("Slice", (13,), [X, i64(5), i64(9), i64(2)], [X[:, :, 5:9]], {}, "empty"),
    Row("Split", (1,), [X, np.array([1, 3], np.float32)], [X[..., :1], X[..., 1:]], {"axis": 2}),
    Row("Split", (2, 11), [X], [X[..., :1], X[..., 1:]], {"axis": 2, "split": [1, 3]}),
    Row("Split", (2, 11, 13), [X], [X[:1], X[1:]], {}, "equal"),
    Row("Split", (13, 18), [X, i64(1, 3)], [X[..., :1], X[..., 1:]], {"axis": -1}),
    Row("Split", (18,), [X], [X[:, :2], X[:, 2:]], {"axis": 1, "num_outputs": 2}, "uneven"),
    Row("Pad", (1,), [A], [np.pad(A, ((1, 0), (0, 2)))], {"paddings": [1, 0, 0, 2]}),
    Row("Pad", (2,), [A], [np.pad(A, ((1, 0), (0, 2)))], {"pads": [1, 0, 0, 2]}),
    Row("Pad", (2,), [A], [A[1:]], {"pads": [-1, 0, 0, 0]}, "crop"),
    Row(
        "Pad",
        (11, 13, 18, 19, 21, 23, 24, 25),
        [A, i64(1, 0, 0, 2), scalar(7)],
        [np.pad(A, ((1, 0), (0, 2)), constant_values=7)],
    ),
    Row("Pad", (18, 19), [A, i64(1, 2), None, i64(-1)], [np.pad(A, ((0, 0), (1, 2)))], {}, "axes"),
    Row(
        "Pad",
        (2,),
        [A],
        [np.pad(A, ((1, 0), (0, 2)), "reflect")],
        {"pads": [1, 0, 0, 2], "mode": "reflect"},
        "reflect",
    ),
    Row("Tile", (1,), [A, scalar(2, np.float32), scalar(1, np.float32)], [np.tile(A, (1, 2))]),
    Row("Tile", (6, 13), [A, i64(2, 3)], [np.tile(A, (2, 3))]),
    Row("Expand", (8, 13), [C3[:, None], i64(2, 1, 4)], [np.broadcast_to(C3[:, None], (2, 3, 4))]),
    Row("Gather", (1, 11, 13), [X, i64(1, 0)], [X[:, [1, 0]]], {"axis": 1}),
    Row("Gather", (11, 13), [X, i64(-1)], [X[:, [-1]]], {"axis": 1}, "negative"),
    Row("Shape", EVERY, [X], [i64(2, 3, 4)]),
    Row("Shape", (15, 19), [X], [i64(3)], {"start": 1, "end": -1}, "part"),
    Row("Gemm", (1, 6), [A, B, FULL], [A @ B + FULL]),
    Row("Gemm", (1, 6), [A, B, ROW], [A @ B + ROW], {"broadcast": 1}, "broadcast"),
    Row("Gemm", (7, 9, 11, 13), [A, B, ROW], [A @ B + ROW]),
    Row("Gemm", (11, 13), [A, B], [A @ B], {}, "two"),
    Row(
        "Gemm",
        (7, 13),
        [A.T.copy(), B.T.copy(), ROW],
        [0.5 * (A @ B) + 2 * ROW],
        {"transA": 1, "transB": 1, "alpha": 0.5, "beta": 2.0},
        "factors",
    ),
    Row("MatMul", (1, 9, 13), [X, B], [X @ B]),
    Row("MatMul", (9, 13), [C3, A], [C3 @ A], {}, "vector"),
    Row("Softmax", (1, 11), [X], [softmax(X, (1, 2))]),
    Row("Softmax", (11,), [X], [softmax(X, 2)], {"axis": -1}, "negative"),
    Row("Softmax", (13,), [X], [softmax(X, 2)]),
    Row("Hardmax", (1, 11), [A], [np.eye(4, dtype=np.float32)[A.argmax(1)]]),
    Row("Hardmax", EVERY, [X[:, :, :0]], [X[:, :, :0]], {}, "empty"),
    Row("Hardmax", (13,), [X], [np.eye(4, dtype=np.float32)[X.argmax(2)]]),
    Row("ArgMax", (1, 11, 12, 13), [TIES], [np.argmax(TIES, 1)[:, None]], {"axis": 1}),
    Row("ArgMin", (1, 11, 12, 13), [TIES], [np.argmin(TIES, 0)], {"keepdims": 0}),
    Row(
        "ArgMax",
        (12, 13),
        [TIES],
        [i64(3, 0, 2)],
        {"axis": 1, "keepdims": 0, "select_last_index": 1},
        "last",
    ),
    Row(
        "ArgMin",
        (12, 13),
        [TIES],
        [i64(2, 0, 2)[:, None]],
        {"axis": -1, "select_last_index": 1},
        "last",
    ),
    Row("CumSum", (11, 14), [LONG, scalar(0, np.int32)], [LONG.cumsum()]),
    Row(
        "CumSum",
        (11, 14),
        [X, i64(-2)],
        [X.sum(1, keepdims=True) - X.cumsum(1)],
        {"exclusive": 1, "reverse": 1},
        "turned",
    ),
    Row("LogSoftmax", (1, 11), [X], [np.log(softmax(X, (1, 2)))]),
    Row("LogSoftmax", (13,), [X], [np.log(softmax(X, 1))], {"axis": 1}),
    Row(
        "BatchNormalization",
        (1,),
        [X, *BATCH],
        [normalised()],
        {"is_test": 1, "consumed_inputs": [0]},
    ),
    Row("BatchNormalization", (6,), [X, *BATCH], [normalised()], {"is_test": 1}),
    Row("BatchNormalization", (7,), [X, *BATCH], [normalised()]),
    Row("BatchNormalization", (6,), [X, *EACH], [each_normalised()], {"is_test": 1, "spatial": 0}),
    Row("BatchNormalization", (7,), [X, *EACH], [each_normalised()], {"spatial": 0}),
    Row("BatchNormalization", (9, 14, 15), [X, *BATCH], [normalised()]),
    Row("MaxPool", (1, 8, 10, 11, 12, 22), [IMAGE], [pooled(np.max, -np.inf)], POOL),
    Row("AveragePool", (1, 7, 10, 11, 19, 22), [IMAGE], [MEANS], POOL),
    Row(
        "AveragePool",
        (7, 10, 19),
        [IMAGE],
        [(pooled(np.sum, 0) / 9).astype(np.float32)],
        {**POOL, "count_include_pad": 1},
        "pads count",
    ),
    Row("GlobalAveragePool", (1, 22), [IMAGE], [IMAGE.mean((2, 3), keepdims=True)]),
    Row("GlobalMaxPool", (1, 22), [IMAGE], [IMAGE.max((2, 3), keepdims=True)]),
    Row("Conv", (1, 11, 22), [IMAGE, np.ones((1, 2, 1, 1), np.float32)], [IMAGE.sum(1)[:, None]]),
    Row(
        "Conv",
        EVERY,
        [IMAGE, np.ones((1, 2, 3, 3), np.float32)],
        [WINDOWS.sum((1, 4, 5))[:, None, ::2]],
        {"auto_pad": "VALID", "strides": [2, 1]},
        "valid",
    ),
    Row(
        "MaxPool",
        (8, 10, 11, 12, 22),
        [TIES_1D],
        [TIES_1D[:, :, 1:3], i64(1, 2, 4, 5).reshape(1, 2, 2)],
        {"kernel_shape": [2], "storage_order": 1},
        "one dimension",
    ),
    Row("Concat", (4, 11, 13), [X], [X], {"axis": 1}, "one"),
    Row("Upsample", (1,), [IMAGE], [TWICE], {"height_scale": 2.0, "width_scale": 2.0}),
    Row("Upsample", (7,), [IMAGE], [TWICE], {"scales": [1.0, 1.0, 2.0, 2.0]}),
    Row("Upsample", (9,), [IMAGE, np.array([1, 1, 2, 2], np.float32)], [TWICE]),
    Row("Resize", (10,), [IMAGE, np.array([1, 1, 2, 2], np.float32)], [TWICE]),
    Row("Resize", (10,), [LINE, scalar(0.6)[None]], [LINE[[0, 2, 4, 5, 7, 9]]], {}, "smaller"),
    Row("Resize", (10,), [LINE, scalar(3.3)[None]], [LINE.repeat(THIRDS)], {}, "rounded"),
    Row("Resize", (11, 13, 18, 19), [IMAGE, EMPTY, np.array([1, 1, 2, 2], np.float32)], [TWICE]),
    Row("Resize", (11, 13, 18, 19), [IMAGE, EMPTY, EMPTY, i64(1, 2, 10, 10)], [TWICE], {}, "sizes"),
    Row(
        "Resize",
        (11, 13, 18, 19),
        [u8(0, 100, 7), EMPTY, EMPTY, i64(6)],
        [u8(0, 25, 75, 77, 30, 7)],
        {"mode": "linear"},
        "integers",
    ),
    Row("Resize", (18, 19), [IMAGE, None, None, i64(10, 10)], [TWICE], {"axes": [2, 3]}, "axes"),
    Row("Identity", EVERY, [X], [X]),
    Row("PRelu", (1, 6), [X, C3], [np.where(X > 0, X, C3[:, None] * X)], {}, "channels"),
    Row("PRelu", (7, 9, 16), [X, C3[:, None]], [np.where(X > 0, X, C3[:, None] * X)]),
    Row(
        "PRelu",
        (1, 6),
        [SQUARE, C3],
        [np.where(SQUARE > 0, SQUARE, C3[:, None] * SQUARE)],
        {},
        "square",
    ),
    Row(
        "PRelu", (7, 9, 16), [SQUARE, C3], [np.where(SQUARE > 0, SQUARE, C3 * SQUARE)], {}, "square"
    ),
]


def _erf(x: Array) -> Array:
    return np.array([math.erf(item) for item in x.flat], np.float32).reshape(x.shape)


def _gelu_tanh(x: Array) -> Array:
    slope = np.sqrt(np.float32(2 / math.pi))
    return np.asarray(x * (1 + np.tanh(slope * (x + np.float32(0.044715) * x**3))) / 2)


UNARY: dict[str, Callable[[Array], Array]] = {
    "Abs": np.abs,
    "Ceil": np.ceil,
    "Cos": np.cos,
    "Elu": lambda x: np.where(x > 0, x, np.expm1(x)),
    "Erf": _erf,
    "Exp": np.exp,
    "Floor": np.floor,
    "Gelu": lambda x: x * (1 + _erf(x / math.sqrt(2))) / 2,
    "HardSigmoid": lambda x: (0.2 * x + 0.5).clip(0, 1),
    "HardSwish": lambda x: x * (x / 6 + 0.5).clip(0, 1),
    "IsNaN": np.isnan,
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "Neg": np.negative,
    "Reciprocal": lambda x: 1 / x,
    "Round": np.rint,
    "Sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "Sign": np.sign,
    "Sin": np.sin,
    "Softplus": lambda x: np.log1p(np.exp(x)),
    "Softsign": lambda x: x / (1 + np.abs(x)),
    "Swish": lambda x: x / (1 + np.exp(-x)),
    "Tan": np.tan,
    "Tanh": np.tanh,
    "ThresholdedRelu": lambda x: np.where(x > 1, x, 0),
}
"""Functions of one f32, with their default attributes."""

BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "Add": np.add,
    "Div": np.divide,
    "Greater": np.greater,
    "Less": np.less,
    "Mul": np.multiply,
    "Pow": np.power,
    "Sub": np.subtract,
}
"""Functions of two f32 of one shape, which need no word about broadcasting."""

ROWS += [
    Row(_op, EVERY, [_x, _y], [_function(_x, _y)], {}, "one shape")
    for _op, _function in BINARY.items()
    for _x, _y in [(np.abs(X), WIDE)]
]
ROWS += [
    Row(_op, EVERY, [X > 0, WIDE > 0], [_function(X > 0, WIDE > 0)], {}, "one shape")
    for _op, _function in {
        "And": np.logical_and,
        "Equal": np.equal,
        "Or": np.logical_or,
        "Xor": np.logical_xor,
    }.items()
]
ROWS += [Row(_op, EVERY, [WIDE], [_plain(_function(WIDE))]) for _op, _function in UNARY.items()]
ROWS += [
    Row("ArgMax", EVERY, [TIES], [np.argmax(TIES, 0)[None]], {}, "plain"),
    Row("ArgMin", EVERY, [TIES], [np.argmin(TIES, 0)[None]], {}, "plain"),
    Row("Flatten", EVERY, [X], [X.reshape(2, 12)], {}, "plain"),
    Row("Gather", EVERY, [X, i64(1, 0, 1)], [X[[1, 0, 1]]], {}, "plain"),
    Row("LogSoftmax", (13,), [X], [np.log(softmax(X, 2))], {}, "plain"),
    Row("Split", (18,), [X], [X[:1], X[1:]], {"num_outputs": 2}, "plain"),
    Row("Flatten", EVERY, [X], [X.reshape(24, 1)], {"axis": 3}, "all"),
    Row("Flatten", (11, 25), [X], [X.reshape(1, 24)], {"axis": -3}, "none"),
    Row("Gather", EVERY, [X, i64(-2, 1)], [X[[0, 1]]], {}, "ends"),
    Row("GlobalAveragePool", EVERY, [A], [A], {}, "nothing"),
    Row("GlobalMaxPool", EVERY, [A], [A], {}, "nothing"),
    Row(
        "GlobalAveragePool",
        EVERY,
        [SIXFOLD],
        [SIXFOLD.mean((2, 3, 4, 5), keepdims=True)],
        {},
        "wide",
    ),
    Row("ReduceMean", EVERY, [i64(2, 5)], [i64(3)], {}, "integers"),
    Row("Constant", (12, 13, 19), [], [C3], {"value_floats": C3.tolist()}, "floats"),
    Row("Constant", (12, 13, 19), [], [scalar(5, np.int64)], {"value_int": 5}, "int"),
    Row(
        "IsInf",
        EVERY,
        [SPECIAL],
        [SPECIAL != SPECIAL],
        {"detect_positive": 0, "detect_negative": 0},
        "no",
    ),
    Row("Softmax", (13,), [scalar(3)], [scalar(1)], {}, "scalar"),
    Row("LogSoftmax", (13,), [scalar(3)], [scalar(0)], {}, "scalar"),
    Row("MatMul", EVERY, [C3, C3], [np.asarray(C3 @ C3)], {}, "vectors"),
    Row(
        "Resize",
        (11, 13, 18, 19),
        [IMAGE[:, :, :0], EMPTY, np.array([1, 1, 2, 2], np.float32)],
        [TWICE[:, :, :0]],
        {},
        "empty",
    ),
    Row("Log", EVERY, [X * X], [np.log(X * X)]),
    Row("Sqrt", EVERY, [X * X], [np.abs(X)]),
    Row("Not", EVERY, [X > 0], [X <= 0]),
    Row("Elu", EVERY, [X], [np.where(X > 0, X, 3 * np.expm1(X))], {"alpha": 3.0}, "alpha"),
    Row("Celu", EVERY, [X], [np.where(X > 0, X, np.expm1(X))]),
    Row("Celu", EVERY, [X], [np.where(X > 0, X, 2 * np.expm1(X / 2))], {"alpha": 2.0}, "alpha"),
    Row("Selu", (1,), [FINE], [selu(FINE, 1.6732, 1.0507)]),
    Row(
        "Selu", (6, 22), [FINE], [selu(FINE, 1.67326319217681884765625, 1.05070102214813232421875)]
    ),
    Row("Selu", EVERY, [FINE], [selu(FINE, 2, 3)], {"alpha": 2.0, "gamma": 3.0}, "attributes"),
    Row("LeakyRelu", EVERY, [X], [np.where(X > 0, X, -X)], {"alpha": -1.0}, "alpha"),
    Row("HardSigmoid", EVERY, [X], [(X + 0.25).clip(0, 1)], {"alpha": 1.0, "beta": 0.25}, "line"),
    Row("ThresholdedRelu", EVERY, [X], [np.where(X > -1, X, 0)], {"alpha": -1.0}, "alpha"),
    Row("Swish", EVERY, [X], [X / (1 + np.exp(-2 * X))], {"alpha": 2.0}, "alpha"),
    Row("Gelu", EVERY, [X], [_gelu_tanh(X)], {"approximate": "tanh"}, "tanh"),
    Row("Shrink", EVERY, [X], [np.where(np.abs(X) > 0.5, X, 0)]),
    Row("Shrink", EVERY, [i64(-3, 0, 4)], [i64(-2, 0, 3)], {"bias": 1.0}, "whole"),
    Row(
        "Shrink",
        EVERY,
        [X],
        [np.where(X < -1, X + 0.5, np.where(X > 1, X - 0.5, 0))],
        {"lambd": 1.0, "bias": 0.5},
        "bias",
    ),
    Row("IsInf", EVERY, [SPECIAL], [np.isinf(SPECIAL)]),
    Row("IsInf", EVERY, [SPECIAL], [np.isposinf(SPECIAL)], {"detect_negative": 0}, "positive"),
    Row("IsInf", EVERY, [SPECIAL], [np.isneginf(SPECIAL)], {"detect_positive": 0}, "negative"),
    Row("BitwiseAnd", EVERY, [i64(12, -1), i64(10)], [i64(8, 10)]),
    Row("BitwiseOr", EVERY, [i64(12, -1), i64(10)], [i64(14, -1)]),
    Row("BitwiseXor", EVERY, [i64(12, -1), i64(10)], [i64(6, -11)]),
    Row("BitwiseNot", EVERY, [i64(12, -1)], [i64(-13, 0)]),
    Row("BitShift", EVERY, [u8(200, 3), u8(1)], [u8(144, 6)], {"direction": "LEFT"}, "left"),
    Row("BitShift", EVERY, [u8(200, 3), u8(1, 2)], [u8(100, 0)], {"direction": "RIGHT"}, "right"),
    Row("Mod", EVERY, [i64(7, -7, 7, -7), i64(3, 3, -3, -3)], [i64(1, 2, -2, -1)]),
    Row("Mod", EVERY, [A, scalar(0.5)], [np.fmod(A, np.float32(0.5))], {"fmod": 1}, "fmod"),
    Row("Where", EVERY, [X > 0, X, C3[:, None]], [np.where(X > 0, X, C3[:, None])]),
    Row("CastLike", EVERY, [X, i64(1)], [X.astype(np.int64)]),
    Row("Constant", EVERY, [], [A], {"value": numpy_helper.from_array(A)}),
    Row("Constant", (12, 13, 19), [], [scalar(0.5)], {"value_float": 0.5}, "float"),
    Row("Constant", (12, 13, 19), [], [i64(5, -6)], {"value_ints": [5, -6]}, "ints"),
    Row("ConstantOfShape", EVERY, [i64(2, 3)], [np.zeros((2, 3), np.float32)]),
    Row(
        "ConstantOfShape",
        EVERY,
        [i64(3)],
        [i64(7, 7, 7)],
        {"value": numpy_helper.from_array(i64(7))},
        "value",
    ),
    Row("EyeLike", EVERY, [A], [np.eye(3, 4, dtype=np.float32)]),
    Row(
        "EyeLike",
        EVERY,
        [A],
        [np.eye(3, 4, -1, np.int64)],
        {"k": -1, "dtype": TensorProto.INT64},
        "k",
    ),
    Row("Size", EVERY, [X], [scalar(24, np.int64)]),
    Row("Range", EVERY, [i64(5)[0], i64(-2)[0], i64(-3)[0]], [i64(5, 2, -1)]),
    Row("Trilu", EVERY, [A], [np.triu(A)]),
    Row("Trilu", EVERY, [A, scalar(-1, np.int64)], [np.tril(A, -1)], {"upper": 0}, "lower"),
    Row("OneHot", EVERY, [i64(0, 2), i64(3), i64(5, 7)], [np.where(np.eye(3)[[0, 2]], 7, 5)]),
    Row(
        "OneHot",
        EVERY,
        [i64(0, 2), i64(3), i64(5, 7)],
        [np.where(np.eye(3)[:, [0, 2]], 7, 5)],
        {"axis": 0},
        "axis",
    ),
    Row("NonZero", EVERY, [TIES], [np.array(np.nonzero(TIES))]),
    Row("Compress", EVERY, [A, np.array([True, False, True])], [A.reshape(-1)[[0, 2]]]),
    Row("Compress", EVERY, [A, np.array([False, True])], [A[:, [1]]], {"axis": -1}, "axis"),
    Row(
        "Unique",
        EVERY,
        [i64(2, 1, 1, 3)],
        [i64(1, 2, 3), i64(1, 0, 3), i64(1, 0, 0, 2), i64(2, 1, 1)],
    ),
    Row("Unique", EVERY, [i64(2, 1, 1, 3)], [i64(2, 1, 3)], {"sorted": 0}, "unsorted"),
    Row(
        "NonMaxSuppression",
        EVERY,
        [BOXES, SCORES, i64(2), scalar(0.5), scalar(0.1)],
        [i64(0, 0, 1, 0, 0, 2).reshape(2, 3)],
    ),
    Row("NonMaxSuppression", EVERY, [BOXES, SCORES], [i64().reshape(0, 3)], {}, "none"),
    Row("GatherElements", EVERY, [A, i64(1, 0, -1, 2)[None]], [A[[[1, 0, 2, 2]], range(4)]]),
    Row(
        "GatherElements",
        EVERY,
        [A, i64(1, 0, -1)[:, None]],
        [A[range(3), [1, 0, 3]][:, None]],
        {"axis": 1},
        "axis",
    ),
    Row("GatherND", EVERY, [X, np.stack([i64(1, 0), i64(0, -1)])], [X[[1, 0], [0, 2]]]),
    Row(
        "GatherND",
        (12, 13),
        [X, i64(2, 0)[:, None]],
        [X[[0, 1], [2, 0]]],
        {"batch_dims": 1},
        "batch",
    ),
    Row(
        "ConvTranspose",
        EVERY,
        [IMAGE, np.ones((2, 1, 2, 2), np.float32)],
        [TWICE.sum(1, keepdims=True)],
        {"strides": [2, 2]},
    ),
]
