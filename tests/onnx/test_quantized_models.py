"""Files that onnxruntime's quantizer writes: they become integer, and compute what onnxruntime does."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.backends.interpreter.evaluate import evaluate
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Trait
from glowpy.core.tensor import Array
from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import DequantizeNode, QuantizeNode, SaveNode
from glowpy.opt.pipelines import GRAPH_DEFAULT
from glowpy.passes import PassContext, Pipeline

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

SHAPE = (1, 3, 11, 9)
KINDS = {
    "u8": quantization.QuantType.QUInt8,
    "i8": quantization.QuantType.QInt8,
    "u16": quantization.QuantType.QUInt16,
    "i16": quantization.QuantType.QInt16,
}


@cache
def network() -> onnx.ModelProto:
    """Convolutions of every sort, a residual sum, a concatenation, pools, and a fully connected layer."""
    rng = np.random.default_rng(9)

    def weight(name: str, *shape: int) -> TensorProto:
        scale = 1 / np.sqrt(np.prod(shape[1:]) or 1)
        return numpy_helper.from_array((rng.normal(0, scale, shape)).astype(np.float32), name)

    def conv(data: str, result: str, w: str, b: str, **attributes: Any) -> onnx.NodeProto:
        return helper.make_node("Conv", [data, w, b], [result], name=result, **attributes)

    weights = [
        weight("w1", 8, 3, 3, 3), weight("b1", 8), weight("w2", 8, 1, 3, 3), weight("b2", 8),
        weight("w3", 8, 8, 1, 1), weight("b3", 8), weight("w4", 6, 16, 3, 3), weight("b4", 6),
        weight("w5", 10, 6), weight("b5", 10),
    ]  # fmt: skip
    nodes = [
        conv("x", "c1", "w1", "b1", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c1"], ["r1"], name="r1"),
        helper.make_node("MaxPool", ["r1"], ["p1"], name="p1", kernel_shape=[2, 2], strides=[2, 2]),
        conv("p1", "c2", "w2", "b2", pads=[1, 1, 1, 1], group=8),
        conv("c2", "c3", "w3", "b3"),
        helper.make_node("Add", ["c3", "p1"], ["s"], name="s"),
        helper.make_node("Relu", ["s"], ["r2"], name="r2"),
        helper.make_node("Concat", ["r2", "c2"], ["k"], name="k", axis=1),
        conv("k", "c4", "w4", "b4", strides=[2, 2], pads=[0, 1, 1, 0]),
        helper.make_node("GlobalAveragePool", ["c4"], ["g"], name="g"),
        helper.make_node("Flatten", ["g"], ["f"], name="f"),
        helper.make_node("Gemm", ["f", "w5", "b5"], ["y"], name="y", transB=1),
    ]
    graph = helper.make_graph(
        nodes, "quantized",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, SHAPE)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, (1, 10))],
        weights,
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def inputs(count: int) -> Iterator[Array]:
    rng = np.random.default_rng(10)
    for _ in range(count):
        yield rng.normal(0, 1, SHAPE).astype(np.float32)


class Reader(quantization.CalibrationDataReader):  # type: ignore[misc,name-defined]
    def __init__(self) -> None:
        self._inputs = iter([{"x": array} for array in inputs(8)])

    def get_next(self) -> dict[str, Array] | None:
        return next(self._inputs, None)


def written(path: Path, form: str, activations: str, weights: str, *, per_channel: bool) -> Path:
    source, target = path / "float.onnx", path / "quantized.onnx"
    onnx.save(network(), source)
    quantization.quantize_static(
        source, target, Reader(), quant_format=quantization.QuantFormat[form],
        per_channel=per_channel, activation_type=KINDS[activations], weight_type=KINDS[weights],
    )  # fmt: skip
    return target


def floats_left(f: Function) -> list[str]:
    """The operators that compute on floats, but for the conversions at the ends."""
    work = f.module.clone().function(f.name)
    Pipeline("optimize", GRAPH_DEFAULT, fixpoint=True).run(work, PassContext(evaluate))
    return [
        node.SCHEMA.mnemonic
        for node in work.topological()
        if not isinstance(node, QuantizeNode | DequantizeNode | SaveNode)
        and not node.has(Trait.SHAPE_ONLY)
        and node.result.type.kind is ElemKind.F32
    ]


@pytest.mark.parametrize("form", ["QDQ", "QOperator"])
@pytest.mark.parametrize(
    ("activations", "weights", "per_channel"),
    [("u8", "i8", True), ("i8", "i8", True), ("u8", "u8", False), ("i8", "i8", False)],
)
def test_file_becomes_integer(
    tmp_path: Path, form: str, activations: str, weights: str, per_channel: bool
) -> None:
    path = written(tmp_path, form, activations, weights, per_channel=per_channel)
    assert floats_left(glowpy.load(str(path)).main) == []
    assert_within_a_step(path)


def assert_within_a_step(path: Path) -> None:
    """Of the last layer, from what onnxruntime computes."""
    reference = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    session = glowpy.InferenceSession(str(path), backend="interpreter")
    step = max(
        float(numpy_helper.to_array(tensor))
        for tensor in onnx.load(path).graph.initializer
        if tensor.name == "y_scale"
    )
    for array in inputs(4):
        (expected,) = reference.run(None, {"x": array})
        (got,) = session.run(None, {"x": array})
        assert np.abs(got - expected).max() <= 1.01 * step


@pytest.mark.parametrize("activations", ["u16", "i16"])
def test_wide_activations(tmp_path: Path, activations: str) -> None:
    """Products of 16 bits are computed as floats between the conversions: their sums do not fit."""
    path = written(tmp_path, "QDQ", activations, "i8", per_channel=False)
    assert_within_a_step(path)


def layers(nodes: list[onnx.NodeProto], stored: dict[str, Array]) -> onnx.ModelProto:
    """A network of [batch, 6] without convolutions."""
    graph = helper.make_graph(
        nodes, "layers",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, (4, 6))],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [numpy_helper.from_array(array, name) for name, array in stored.items()],
    )  # fmt: skip
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)


def assert_same_numbers(model: onnx.ModelProto | Path, atol: float) -> None:
    content = model.read_bytes() if isinstance(model, Path) else model.SerializeToString()
    options = (
        ort.SessionOptions()
    )  # its optimizer rounds biases to i32, and writes operators it has no kernels for
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    reference = ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    x = np.random.default_rng(11).normal(0, 1, (4, 6)).astype(np.float32)
    (expected,) = reference.run(None, {"x": x})
    assert len(np.unique(expected)) > 8
    for backend in ("interpreter", "cpu"):
        (got,) = glowpy.InferenceSession(content, backend=backend).run(None, {"x": x})
        np.testing.assert_allclose(got, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("weights", ["i8", "u8"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_ranges_of_run_time(tmp_path: Path, weights: str, per_channel: bool) -> None:
    """Dynamic quantization of a layer with a bias, an activation, and a product with softmax in between."""
    rng = np.random.default_rng(12)
    shapes = {"w1": (6, 16), "b1": (16,), "w2": (16, 9), "w3": (9, 5)}
    stored = {name: rng.normal(0, 0.4, shape).astype(np.float32) for name, shape in shapes.items()}
    nodes = [
        helper.make_node("Gemm", ["x", "w1", "b1"], ["h"], name="h"),
        helper.make_node("Tanh", ["h"], ["t"], name="t"),
        helper.make_node("MatMul", ["t", "w2"], ["m"], name="m"),
        helper.make_node("Softmax", ["m"], ["s"], name="s"),
        helper.make_node("MatMul", ["s", "w3"], ["y"], name="y"),
    ]
    source, target = tmp_path / "float.onnx", tmp_path / "dynamic.onnx"
    onnx.save(layers(nodes, stored), source)
    quantization.quantize_dynamic(
        source, target, weight_type=KINDS[weights], per_channel=per_channel
    )
    assert [node.op_type for node in onnx.load(target).graph.node].count("MatMulInteger") == 3
    assert_same_numbers(target, 2e-3)


def test_clipped_integers_and_shared_weights() -> None:
    """What quantization-aware training exports: integers of 4 bits, limited after they are stored in 8."""
    rng = np.random.default_rng(13)
    stored: dict[str, Array] = {
        "s": np.array(0.25, np.float32), "z": np.array(0, np.int8),
        "low": np.array(-8, np.int8), "high": np.array(7, np.int8),
        "w": rng.integers(-7, 8, (6, 6)).astype(np.int8),
        "ws": rng.uniform(0.01, 0.1, 6).astype(np.float32), "wz": np.zeros(6, np.int8),
    }  # fmt: skip

    def narrowed(name: str) -> list[onnx.NodeProto]:
        return [
            helper.make_node("QuantizeLinear", [name, "s", "z"], [f"{name}_q"]),
            helper.make_node("Clip", [f"{name}_q", "low", "high"], [f"{name}_c"]),
            helper.make_node("DequantizeLinear", [f"{name}_c", "s", "z"], [f"{name}_d"]),
        ]

    nodes = [
        *narrowed("x"),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=1),
        helper.make_node("MatMul", ["x_d", "v"], ["h"]),
        helper.make_node("Relu", ["h"], ["r"]),
        *narrowed("r"),
        helper.make_node("MatMul", ["r_d", "v"], ["m"]),
        *narrowed("m"),
        helper.make_node("Identity", ["m_d"], ["y"]),
    ]
    model = layers(nodes, stored)
    assert floats_left(glowpy.load(model).main) == []
    assert_same_numbers(model, 0.2501)


@pytest.mark.parametrize("own_scale", [False, True])
def test_bias_that_i32_does_not_hold(own_scale: bool) -> None:
    """Channels of weights that are nearly zero have steps so small that i32 holds no bias in them."""
    rng = np.random.default_rng(14)
    stored: dict[str, Array] = {
        "s": np.array(0.02, np.float32), "z": np.array(128, np.uint8),
        "w": rng.integers(-127, 128, (3, 6)).astype(np.int8),
        "ws": np.array([0.01, 1e-12, 1e-10], np.float32), "wz": np.zeros(3, np.int8),
    }  # fmt: skip
    bias = [helper.make_node("Identity", ["b"], ["bias"])]
    if own_scale:
        stored |= {"b": np.array([10, 20, -30], np.int32), "bs": np.array(0.1, np.float32)}
        bias = [helper.make_node("DequantizeLinear", ["b", "bs"], ["bias"])]
    else:
        stored["b"] = np.array([1, 2, -3], np.float32)
    nodes = [
        helper.make_node("QuantizeLinear", ["x", "s", "z"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "s", "z"], ["x_d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"], axis=0),
        *bias,
        helper.make_node("Gemm", ["x_d", "v", "bias"], ["h"], transB=1),
        helper.make_node("QuantizeLinear", ["h", "s", "z"], ["h_q"]),
        helper.make_node("DequantizeLinear", ["h_q", "s", "z"], ["h_d"]),
        helper.make_node("Concat", ["h_d", "x_d"], ["y"], axis=1),
    ]
    assert_same_numbers(layers(nodes, stored), 0.0201)


def test_largest_of_sums() -> None:
    """There is no pool of 32 bits: floats are chosen from, or what the sums are rescaled to."""
    rng = np.random.default_rng(15)
    stored: dict[str, Array] = {
        "s": np.array(0.02, np.float32), "z": np.array(128, np.uint8), "ws": np.array(0.01, np.float32),
        "wz": np.array(0, np.int8), "w": rng.integers(-127, 128, (3, 1, 2)).astype(np.int8),
        "image": np.array([4, 1, 6]),
    }  # fmt: skip
    nodes = [
        helper.make_node("Reshape", ["x", "image"], ["x_i"]),
        helper.make_node("QuantizeLinear", ["x_i", "s", "z"], ["x_q"]),
        helper.make_node("DequantizeLinear", ["x_q", "s", "z"], ["x_d"]),
        helper.make_node("DequantizeLinear", ["w", "ws", "wz"], ["v"]),
        helper.make_node("Conv", ["x_d", "v"], ["h"]),
        helper.make_node("MaxPool", ["h"], ["m"], kernel_shape=[2]),
        helper.make_node("QuantizeLinear", ["m", "s", "z"], ["m_q"]),
        helper.make_node("DequantizeLinear", ["m_q", "s", "z"], ["m_d"]),
    ]
    rounded = helper.make_node("Identity", ["m_d"], ["y"])
    assert_same_numbers(layers([*nodes, rounded], stored), 0.0201)
    assert_same_numbers(layers([*nodes[:6], helper.make_node("Relu", ["m"], ["y"])], stored), 1e-5)


def test_limits_are_rounded_to_several_scales() -> None:
    stored: dict[str, Array] = {
        "c": np.array([0.01, 0.02, 0.03, 0.04, 0.05, 0.06], np.float32),
        "z": np.array([0, 3, 128, 255, 9, 0], np.uint8),
    }
    nodes = [
        helper.make_node("Relu", ["x"], ["r"]),
        helper.make_node("QuantizeLinear", ["r", "c", "z"], ["q"], axis=1),
        helper.make_node("DequantizeLinear", ["q", "c", "z"], ["y"], axis=1),
    ]
    assert_same_numbers(layers(nodes, stored), 1e-6)


def computed(op_type: str, inputs: list[Array], known: list[Array]) -> list[Array]:
    """What a node gives on both backends, whose last operands are known."""
    names = [f"i{index}" for index in range(len(inputs) + len(known))]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, ["y"])], "node",
        [
            helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
            for name, array in zip(names, inputs, strict=False)
        ],
        [helper.make_tensor_value_info("y", TensorProto.UNDEFINED, None)],
        [numpy_helper.from_array(a, n) for n, a in zip(names[len(inputs) :], known, strict=True)],
    )  # fmt: skip
    opset = [helper.make_opsetid("", 21)]
    module = glowpy.load(helper.make_model(graph, opset_imports=opset, ir_version=9))
    feeds = dict(zip(names, inputs, strict=False))
    return [glowpy.compile(module, backend)(feeds)["y"] for backend in ("interpreter", "cpu")]


@pytest.mark.parametrize(
    ("left_zero", "right_zero"), [((), (2, 1, 4)), ((3,), (1, 1, 4)), ((2, 3, 1), (4,))]
)
@pytest.mark.parametrize("known", [True, False])
def test_zero_points_of_matrices(
    left_zero: tuple[int, ...], right_zero: tuple[int, ...], known: bool
) -> None:
    """By row and by column, for each matrix or for all: onnxruntime has no kernel for these."""
    rng = np.random.default_rng(15)
    left, right = rng.integers(0, 256, (2, 3, 5), "u1"), rng.integers(-128, 128, (2, 5, 4), "i1")
    rows, columns = rng.integers(0, 99, left_zero, "u1"), rng.integers(-9, 99, right_zero, "i1")
    operands: list[Array] = [left, right, np.asarray(rows), np.asarray(columns)]
    split = 1 if known else 4
    outputs = computed("MatMulInteger", operands[:split], operands[split:])
    row = rows[:, np.newaxis] if rows.ndim == 1 else rows
    expected = (left.astype(int) - row) @ (right.astype(int) - columns)
    for output in outputs:
        np.testing.assert_array_equal(output, expected)


@pytest.mark.parametrize("shapes", [((5,), (5, 4)), ((2, 3, 5), (5,)), ((5,), (5,))])
def test_integer_products_of_vectors(shapes: tuple[tuple[int, ...], ...]) -> None:
    rng = np.random.default_rng(16)
    left, right = rng.integers(0, 256, shapes[0], "u1"), rng.integers(0, 256, shapes[1], "u1")
    for output in computed("MatMulInteger", [left, right], []):
        np.testing.assert_array_equal(output, left.astype(int) @ right)


def test_one_zero_point_for_all_channels() -> None:
    rng = np.random.default_rng(17)
    image, filter = rng.integers(0, 256, (1, 4, 6), "u1"), rng.integers(-128, 128, (3, 4, 2), "i1")
    scales = np.array([0.5, 0.25, 2], np.float32)
    one, zero = np.array(1, np.float32), np.array(7, np.uint8)

    def convolved(zero_of_filter: Array) -> list[Array]:
        step = np.array(64, np.float32)
        known: list[Array] = [one, zero, filter, scales, zero_of_filter, step, zero]
        return computed("QLinearConv", [image], known)

    outputs = convolved(np.array(3, np.int8))
    for output, expected in zip(outputs, convolved(np.full(3, 3, np.int8)), strict=True):
        np.testing.assert_array_equal(output, expected)
    assert len(np.unique(outputs[0])) > 4


def test_scales_of_rows_and_columns() -> None:
    """Each row and column of a product is that of one scale; all matrices are square, so that no shape tells which."""
    rng = np.random.default_rng(18)
    left, right = rng.integers(0, 256, (4, 4), "u1"), rng.integers(-128, 128, (4, 4), "i1")
    rows, columns = (rng.uniform(0.1, 1, 4).astype(np.float32) for _ in range(2))
    zero, step = np.array(9, np.uint8), np.array(32, np.float32)

    def multiplied(row: Array, column: Array) -> list[Array]:
        zeros = np.full(row.shape, 3, np.uint8), np.full(column.shape, -2, np.int8)
        known: list[Array] = [row, zeros[0], right, column, zeros[1], step, zero]
        return computed("QLinearMatMul", [left], known)

    together = multiplied(rows, columns)
    assert len(np.unique(together[0])) > 4
    for i, j in ((0, 0), (1, 3), (3, 2)):
        alone = multiplied(np.asarray(rows[i]), np.asarray(columns[j]))
        for output, expected in zip(together, alone, strict=True):
            assert output[i, j] == expected[i, j]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_convolutions_of_integers_are_exact_however_many_are_summed(backend: str) -> None:
    """The sum of the largest products would not fit i32, and f32 would be off by some ten."""
    channels, rng = 3700, np.random.default_rng(0)
    x = rng.integers(128, 256, (1, channels, 3, 3)).astype(np.uint8)
    weights = rng.integers(0, 128, (2, channels, 3, 3)).astype(np.int8)
    names = ["x", "w", "zx"]
    graph = helper.make_graph(
        [helper.make_node("ConvInteger", names, ["y"])],
        "deep",
        [helper.make_tensor_value_info("x", TensorProto.UINT8, x.shape)],
        [helper.make_tensor_value_info("y", TensorProto.INT32, [1, 2, 1, 1])],
        [
            numpy_helper.from_array(weights, "w"),
            numpy_helper.from_array(np.array(1, np.uint8), "zx"),
        ],
    )
    opset = [helper.make_opsetid("", 13)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    got = glowpy.compile(glowpy.load(model), backend)({"x": x})["y"]
    exact = ((x.astype(np.int64) - 1) * weights).sum((1, 2, 3))
    assert got.reshape(-1).tolist() == exact.tolist()
