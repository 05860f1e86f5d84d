"""Operators at every opset that changed them: one-node models against numpy, old quirks among them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, defs, helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.importer.onnx.registry import registered
from glowpy.importer.onnx.source import NEWEST_OPSETS
from tests.onnx.comparison import assert_same, graph_model, info

RNG = np.random.default_rng(0)
X = RNG.standard_normal((2, 3, 4)).astype(np.float32)
IMAGE = RNG.standard_normal((1, 2, 5, 5)).astype(np.float32)
A = RNG.standard_normal((3, 4)).astype(np.float32)
B = RNG.standard_normal((4, 5)).astype(np.float32)
ROW = RNG.standard_normal(5).astype(np.float32)
FULL = RNG.standard_normal((3, 5)).astype(np.float32)
C3 = RNG.standard_normal(3).astype(np.float32)
BATCH = [C3, C3 + 1, C3 * 2, C3**2 + 1]


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def scalar(value: float, dtype: type = np.float32) -> Array:
    return np.array(value, dtype)


def normalised() -> Array:
    scale, bias, mean, variance = (each.reshape(1, 3, 1) for each in BATCH)
    result: Array = (X - mean) / np.sqrt(variance + 1e-5) * scale + bias
    return result


def logistic(array: Array) -> Array:
    return np.asarray(1 / (1 + np.exp(-array)))


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
NORMAL = np.vectorize(lambda x: math.erfc(-x / math.sqrt(2)) / 2)(X).astype(np.float32)
SLOPE = np.float32(math.sqrt(8 / math.pi))
TANH = {"approximate": "tanh"}
TIES = np.array(
    [[1, 3, 0, 3], [np.nan, 2, -1, 0], [np.nan, 1, np.nan, np.inf]], np.float32
)  # numpy takes the first NaN for both extremes
LONG = np.where(np.arange(4100) == 4000, np.nan, 1).astype(np.float32)  # a NaN stays where it is
TWICE = IMAGE.repeat(2, axis=2).repeat(2, axis=3)


@dataclass(frozen=True)
class Row:
    """An operator, opsets at which it means the same, inputs, and what numpy says."""

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
    Row("Sub", (1, 6), [X, C3], [X - C3[:, None]], {"broadcast": 1, "axis": -2}, "negative"),
    Row("Mul", (7, 13, 14), [X, scalar(2)], [X * 2]),
    Row("Div", (1, 6), [X, scalar(2)], [X / 2], {"broadcast": 1}),
    Row("Pow", (1,), [A * A, A[0]], [(A * A) ** A[0]], {"broadcast": 1}),
    Row("Pow", (7, 12, 13, 15), [A * A, A], [(A * A) ** A]),
    Row("Pow", (12, 13, 15), [i64(-3, 2), scalar(3)], [i64(-27, 8)], {}, "mixed"),
    Row("Less", (1,), [X, C3], [C3[:, None] > X], {"broadcast": 1, "axis": 1}),
    Row("Greater", (1,), [X, C3], [C3[:, None] < X], {"broadcast": 1, "axis": 1}),
    Row("Greater", (7, 9, 13), [X, C3[:, None]], [C3[:, None] < X]),
    Row("GreaterOrEqual", (12, 16), [X, X], [X >= X]),
    Row("Equal", (1,), [i64(1, 2), i64(2)], [np.array([False, True])], {"broadcast": 1}),
    Row("And", (1,), [X > 0, C3 > 0], [(X > 0) & (C3 > 0)[:, None]], {"broadcast": 1, "axis": 1}),
    Row("Relu", (1, 6, 13, 14), [X], [np.maximum(X, 0)]),
    Row("Relu", (1,), [X], [np.maximum(X, 0)], {"consumed_inputs": [0]}, "consumed"),
    Row("Elu", (6, 22), [X], [np.where(X > 0, X, np.expm1(X))]),
    Row("Elu", (1,), [X], [np.where(X > 0, X, 2 * np.expm1(X))], {"alpha": 2.0}, "alpha"),
    Row("Selu", (1,), [X], [1.0507 * np.where(X > 0, X, 1.6732 * np.expm1(X))], {}, "rounded"),
    Row("Selu", (6, 22), [X], [1.0507010 * np.where(X > 0, X, 1.6732632 * np.expm1(X))]),
    Row("Celu", (12, 28), [X], [np.where(X > 0, X, 2 * np.expm1(X / 2))], {"alpha": 2.0}),
    Row("Softplus", (1, 22), [X], [np.log1p(np.exp(X))]),
    Row("Softsign", (1, 22), [X], [X / (1 + np.abs(X))]),
    Row("HardSigmoid", (1, 6, 22), [X * 3], [np.clip(X * 0.6 + 0.5, 0, 1)]),
    Row("HardSwish", (14, 22), [X * 3], [X * 3 * np.clip(X / 2 + 0.5, 0, 1)]),
    Row("ThresholdedRelu", (10, 22), [X], [np.where(X > 1, X, 0)]),
    Row("Shrink", (9,), [i64(-3, 0, 4)], [i64(-2, 0, 3)], {"bias": 1.0}, "whole"),
    Row("Gelu", (20,), [X], [X * NORMAL]),
    Row("Gelu", (20,), [X], [X * logistic(SLOPE * (X + 0.044715 * X**3))], TANH, "tanh"),
    Row("Mish", (18, 22), [X], [X * np.tanh(np.log1p(np.exp(X)))]),
    Row("Swish", (24,), [X], [X * logistic(2 * X)], {"alpha": 2.0}),
    Row("LeakyRelu", (1, 6, 16), [X], [np.where(X > 0, X, np.float32(0.01) * X)]),
    Row("Sum", (1, 6), [X, X, X], [3 * X]),
    Row("Sum", (8, 13), [X, C3[:, None], X], [X + C3[:, None] + X]),
    Row("Max", (1, 6, 8, 12, 13), [X, -X], [np.abs(X)]),
    Row("Min", (12, 13), [i64(1, 5), i64(3)], [i64(1, 3)]),
    Row("Mean", (1, 6, 8, 13), [X, 3 * X], [2 * X]),
    Row("Clip", (1, 6), [X], [X.clip(-0.5, 0.5)], {"min": -0.5, "max": 0.5}),
    Row("Clip", (1, 6), [X], [X.clip(-0.5, None)], {"min": -0.5}, "one"),
    Row("Clip", (6,), [X], [X], {}, "none"),
    Row("Clip", (11, 12, 13), [X, scalar(-0.5), scalar(0.5)], [X.clip(-0.5, 0.5)]),
    Row("Clip", (11, 12, 13), [X, None, scalar(0.5)], [X.clip(None, 0.5)], {}, "max"),
    Row("Clip", (12, 13), [i64(1, 5, 9), scalar(2, np.int64)], [i64(2, 5, 9)], {}, "integers"),
    Row("Cast", (1,), [X], [X.astype(np.int32)], {"to": "INT32"}),
    Row("Cast", (6, 9, 13), [X], [X.astype(np.int32)], {"to": TensorProto.INT32}),
    Row("Cast", (19, 21, 23, 24, 25, 28), [X], [X != 0], {"to": TensorProto.BOOL, "saturate": 0}),
    Row("Dropout", (1, 6), [X], [X, np.ones_like(X)], {"is_test": 1}),
    Row("Dropout", (7,), [X], [X, np.ones_like(X)]),
    Row("Dropout", (10, 12, 13, 22), [X], [X, np.ones(X.shape, bool)]),
    Row("Dropout", (12, 13, 22), [X, scalar(0.5), np.array(False)], [X], {}, "inference"),
    Row("Reshape", (1,), [X], [X.reshape(2, 12)], {"shape": [0, -1]}),
    Row("Reshape", (5, 13, 14, 19, 25), [X, i64(0, -1)], [X.reshape(2, 12)]),
    Row("Reshape", (14,), [X[:0], i64(0, 4)], [X[:0].reshape(0, 4)], {"allowzero": 1}, "zero"),
    Row("Flatten", (1, 9, 11, 13, 21, 25), [X], [X.reshape(6, 4)], {"axis": 2}),
    Row("Flatten", (11, 13), [X], [X.reshape(6, 4)], {"axis": -1}, "negative"),
    Row("Unsqueeze", (1, 11), [A], [A[None, :, None]], {"axes": [0, 2]}),
    Row("Unsqueeze", (13, 21, 25), [A, i64(0, -2)], [A[None, :, None]]),
    Row("Squeeze", (1, 11), [X[:1]], [X[0]], {"axes": [0]}),
    Row("Squeeze", (1, 11, 13), [X[:1, :, :1]], [X[0, :, 0]], {}, "all"),
    Row("Squeeze", (13, 21, 25), [X[:1], i64(-3)], [X[0]]),
    Row("Transpose", (1, 13, 21, 25), [X], [X.transpose(2, 1, 0)]),
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
        (11, 13, 18, 19, 21, 25),
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
    Row("Shape", (1, 13, 15, 25), [X], [i64(2, 3, 4)]),
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
    Row("BatchNormalization", (7,), [X, *BATCH], [normalised()], {"spatial": 1}),
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
    Row("Upsample", (7,), [IMAGE], [TWICE], {"scales": [1.0, 1.0, 2.0, 2.0]}),
    Row("Upsample", (9,), [IMAGE, np.array([1, 1, 2, 2], np.float32)], [TWICE]),
    Row("Resize", (10,), [IMAGE, np.array([1, 1, 2, 2], np.float32)], [TWICE]),
    Row("Resize", (13, 18, 19), [IMAGE, None, np.array([1, 1, 2, 2], np.float32)], [TWICE]),
    Row("Resize", (13, 18, 19), [IMAGE, None, None, i64(1, 2, 10, 10)], [TWICE], {}, "sizes"),
    Row("Resize", (18, 19), [IMAGE, None, None, i64(10, 10)], [TWICE], {"axes": [2, 3]}, "axes"),
    Row("Identity", (1, 13, 14, 16, 25), [X], [X]),
    Row("PRelu", (1, 6), [X, C3], [np.where(X > 0, X, C3[:, None] * X)], {}, "channels"),
    Row("PRelu", (7, 9, 16), [X, C3[:, None]], [np.where(X > 0, X, C3[:, None] * X)]),
]

REDUCTIONS: dict[str, Callable[..., Array]] = {
    "Sum": np.sum,
    "Mean": np.mean,
    "Max": np.max,
    "Min": np.min,
    "Prod": np.prod,
}
for _name, _function in REDUCTIONS.items():
    _op, _until = f"Reduce{_name}", 13 if _name == "Sum" else 18
    _old = [o for o in (1, 11, 12, 13) if o < _until]
    _kept, _all = _function(X, axis=(0, 2), keepdims=True), _function(X, keepdims=True)
    _gone = _function(X, axis=1)
    ROWS += [
        Row(_op, _old, [X], [_kept], {"axes": [0, -1]}, "attribute"),
        Row(_op, _old, [X], [_gone], {"axes": [1], "keepdims": 0}, "dropped"),
        Row(_op, (1, 11, _until), [X], [_all], {}, "all"),
        Row(_op, (_until,), [X, i64(0, -1)], [_kept], {}, "input"),
        Row(_op, (_until,), [X], [X], {"noop_with_empty_axes": 1}, "none"),
    ]

PAIRS = [(row, opset) for row in ROWS for opset in row.opsets]


@pytest.mark.parametrize("known", [False, True], ids=["run", "folded"])
@pytest.mark.parametrize(
    ("row", "opset"), PAIRS, ids=[f"{r.op_type}-{o}-{r.title}".strip("-") for r, o in PAIRS]
)
def test_operator_at_opset(row: Row, opset: int, known: bool) -> None:
    """The first input comes at run time, or is known as the others are."""
    names = [f"in{index}" if array is not None else "" for index, array in enumerate(row.inputs)]
    outputs = [f"out{index}" for index in range(len(row.expected))]
    node = helper.make_node(row.op_type, names, outputs, **row.attributes)
    arrays = {n: a for n, a in zip(names, row.inputs, strict=True) if a is not None}
    fed = {} if known else {"in0": arrays.pop("in0")}
    model = graph_model(
        [node],
        [info(name, array) for name, array in fed.items()],
        [info(name, array) for name, array in zip(outputs, row.expected, strict=True)],
        opset,
        arrays,
    )
    got = glowpy.InferenceSession(model, backend="interpreter").run(None, fed)
    for found, expected in zip(got, row.expected, strict=True):
        assert_same(found, np.asarray(expected), rtol=1e-5, atol=1e-6)


def test_every_opset_is_covered() -> None:
    """Nothing is registered that ONNX does not have, and no import function begins late.

    Those that mean the same in every opset begin at 1, even where the operator came later.
    """
    known: dict[tuple[str, str], set[int]] = {}
    for schema in defs.get_all_schemas_with_history():
        known.setdefault((schema.domain, schema.name), set()).add(schema.since_version)
    for key, begins in registered().items():
        assert min(begins) <= min(known[key]), key
        assert set(begins) <= known[key] | {1}, key


def test_newest_opsets_were_reviewed() -> None:
    """A newer onnx package may have changed operators: review them, then raise the number."""
    assert defs.onnx_opset_version() <= NEWEST_OPSETS[""]


TURNED = [
    {"strides": [2, 3], "pads": [1, 0, 0, 1]},
    {"strides": [2, 2], "output_padding": [1, 0], "dilations": [2, 1]},
    {"strides": [3, 2], "output_shape": [9, 8]},
    {"strides": [2, 2], "auto_pad": "SAME_UPPER"},
    {"strides": [1, 2], "auto_pad": "SAME_LOWER"},
    {"strides": [1, 1], "pads": [2, 2, 2, 2], "group": 2},
]


@pytest.mark.parametrize("attributes", TURNED)
def test_transposed_convolution_matches_onnxruntime(attributes: dict[str, Any]) -> None:
    filter = RNG.standard_normal((4, 3, 3, 2)).astype(np.float32)
    x = RNG.standard_normal((1, 4, 3, 4)).astype(np.float32)
    node = helper.make_node("ConvTranspose", ["x", "w", "b"], ["y"], **attributes)
    outputs = 3 * attributes.get("group", 1)
    bias = RNG.standard_normal(outputs).astype(np.float32)
    dims: list[str | int | None] = ["n", "c", "h", "w"]
    stored = {"w": filter, "b": bias}
    model = graph_model([node], [info("x", x)], [info("y", x, dims)], 11, stored)
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), providers=["CPUExecutionProvider"]
    )
    (expected,) = session.run(None, {"x": x})
    (got,) = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": x})
    assert_same(got, expected, rtol=1e-4, atol=1e-5)
