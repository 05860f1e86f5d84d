"""What onnxruntime's quantizers write of every operator that they know, as they write it: read, and computed alike."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper, shape_inference

import glowpy
from glowpy.core.tensor import Array

ort = pytest.importorskip("onnxruntime")
quantization = pytest.importorskip("onnxruntime.quantization")

F32 = np.float32
Type, Format = quantization.QuantType, quantization.QuantFormat
IMAGE, ROWS = (2, 4, 9, 8), (2, 5, 8)


def normal(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(F32)


def model(
    nodes: list[onnx.NodeProto], shape: tuple[int, ...], stored: dict[str, Array], **kinds: int
) -> onnx.ModelProto:
    """Nodes on x; what the last one gives are the outputs, of f32 unless `kinds` say otherwise."""
    value = helper.make_tensor_value_info
    outputs = [value(n, kinds.get(n, TensorProto.FLOAT), None) for n in nodes[-1].output]
    tensors = [numpy_helper.from_array(array, name) for name, array in stored.items()]
    graph = helper.make_graph(nodes, "g", [value("x", TensorProto.FLOAT, shape)], outputs, tensors)
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return shape_inference.infer_shapes(
        helper.make_model(graph, opset_imports=opsets, ir_version=8)
    )


CONV = helper.make_node("Conv", ["x", "w", "b"], ["c"], pads=[1, 1, 1, 1])
FILTER = {"w": normal(6, 4, 3, 3), "b": normal(6)}


def after(op_type: str, outputs: int = 1, **rest: Any) -> onnx.ModelProto:
    """An operator on what a convolution gives; arrays are further inputs."""
    stored = {name: value for name, value in rest.items() if isinstance(value, np.ndarray)}
    attributes = {name: value for name, value in rest.items() if name not in stored}
    node = helper.make_node(
        op_type, ["c", *stored], [f"y{i}" for i in range(outputs)], **attributes
    )
    return model([CONV, node], IMAGE, FILTER | stored)


def i64(*values: int) -> Array:
    return np.array(values, np.int64)


def lstm(direction: str) -> onnx.ModelProto:
    count = 2 if direction == "bidirectional" else 1
    stored = {"w": normal(count, 24, 8), "r": normal(count, 24, 6), "b": normal(count, 48)}
    stored = {name: array * F32(0.3) for name, array in stored.items()}
    node = helper.make_node(
        "LSTM", ["x", "w", "r", "b"], ["y", "h", "c"], hidden_size=6, direction=direction
    )
    return model([node], ROWS, stored)


def attention() -> onnx.ModelProto:
    node = helper.make_node(
        "Attention", ["x", "w", "b"], ["y"], num_heads=2, domain="com.microsoft"
    )
    return model([node], ROWS, {"w": normal(8, 24), "b": normal(24)})


def product(*weights: int) -> onnx.ModelProto:
    return model([helper.make_node("MatMul", ["x", "w"], ["y"])], ROWS, {"w": normal(*weights)})


DYNAMIC: dict[str, onnx.ModelProto] = {
    "Conv": model([CONV], IMAGE, FILTER),
    "MatMul": product(8, 6),
    "MatMul3": product(2, 8, 6),
    "Attention": attention(),
    "Lstm": lstm("forward"),
    "LstmBoth": lstm("bidirectional"),
}
STATIC: dict[str, onnx.ModelProto] = {
    "MatMul": product(8, 6),
    "MatMul3": product(2, 8, 6),
    "MaxPool": after("MaxPool", kernel_shape=[2, 2]),
    "AveragePool": after("AveragePool", kernel_shape=[2, 2], pads=[1, 1, 0, 0]),
    "GlobalAveragePool": after("GlobalAveragePool"),
    "Split": after("Split", 2, axis=1, sizes=i64(2, 4)),
    "Pad": after("Pad", pads=i64(0, 0, 1, 1, 0, 0, 2, 0)),
    "Reshape": after("Reshape", shape=i64(2, -1)),
    "Softmax": after("Softmax", axis=1),
    "LeakyRelu": after("LeakyRelu", alpha=0.2),
    "Sigmoid": after("Sigmoid"),
    "InstanceNormalization": after("InstanceNormalization", s=normal(6), t=normal(6)),
    "Slice": after("Slice", starts=i64(0, 1), ends=i64(2, 5), axes=i64(0, 2)),
    "Gather": after("Gather", axis=1, places=i64(0, 2)),
}


REFUSED = {("MatMul3", True), ("MatMul3", "operators")}
"""What the quantizer writes with a scale for each column of several matrices, and onnxruntime does not run."""


class _Samples(quantization.CalibrationDataReader):  # type: ignore[misc, name-defined]
    def __init__(self, proto: onnx.ModelProto) -> None:
        self._samples: Iterator[dict[str, Array]] = (sample(proto, seed) for seed in range(4))

    def get_next(self) -> dict[str, Array] | None:
        return next(self._samples, None)


def sample(proto: onnx.ModelProto, seed: int) -> dict[str, Array]:
    (x,) = proto.graph.input
    return {"x": normal(*(d.dim_value for d in x.type.tensor_type.shape.dim), seed=seed)}


def check(path: Path, feed: dict[str, Array], share: float, backend: str) -> None:
    """That outputs are as far from those of onnxruntime as one integer more or less makes them, at most."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    expected = ort.InferenceSession(path, options).run(None, feed)
    for got, want in zip(
        glowpy.InferenceSession(path, backend=backend).run(None, feed), expected, strict=True
    ):
        assert (got.dtype, got.shape) == (want.dtype, want.shape)
        np.testing.assert_allclose(got, want, atol=share * np.abs(want).max(), rtol=0)


@pytest.mark.parametrize("weights", [Type.QInt8, Type.QUInt8], ids=["i8", "u8"])
@pytest.mark.parametrize(
    ("name", "per_channel"),
    [(name, kind) for name in DYNAMIC for kind in (False, True) if (name, kind) not in REFUSED],
)
def test_dynamic(name: str, weights: Any, per_channel: bool, tmp_path: Path) -> None:
    """Of an LSTM's state onnxruntime quantizes at once what one of its threads has: here it has one."""
    proto, path = DYNAMIC[name], tmp_path / "q.onnx"
    onnx.save(proto, tmp_path / "f.onnx")
    quantization.quantize_dynamic(
        tmp_path / "f.onnx", path, weight_type=weights, per_channel=per_channel
    )
    if name.startswith("Lstm"):
        operators = [node.op_type for node in onnx.load(path).graph.node]
        assert operators == ["DynamicQuantizeLSTM"]
    share = 1e-4 if name.startswith("Lstm") else 0.01
    check(path, sample(proto, 9), share, "interpreter" if per_channel else "cpu")


VARIANTS: dict[str, dict[str, Any]] = {
    "operators": {"quant_format": Format.QOperator, "per_channel": True},
    "signed": {"activation_type": Type.QInt8, "reduce_range": True},
    "wide": {
        "activation_type": Type.QUInt16,
        "weight_type": Type.QInt16,
        "extra_options": {"UseQDQContribOps": True},
    },
    "narrow": {
        "weight_type": Type.QInt4,
        "per_channel": True,
        "extra_options": {"UseQDQContribOps": True},
    },
}


@pytest.mark.parametrize(
    ("name", "variant"),
    [(name, kind) for name in STATIC for kind in VARIANTS if (name, kind) not in REFUSED],
)
def test_static(name: str, variant: str, tmp_path: Path) -> None:
    proto, path = STATIC[name], tmp_path / "q.onnx"
    onnx.save(proto, tmp_path / "f.onnx")
    quantization.quantize_static(tmp_path / "f.onnx", path, _Samples(proto), **VARIANTS[variant])
    check(path, sample(proto, 9), 0.01, "interpreter")


@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_a_quantized_lstm_with_everything(backend: str, batch: int, tmp_path: Path) -> None:
    """Peepholes, lengths, states, other activations, in reverse; weights that are stored without a sign."""
    value = helper.make_tensor_value_info
    names = ["x", "w", "r", "b", "lengths", "h", "c", "p"]
    node = helper.make_node(
        "LSTM", names, ["y", "last_h", "last_c"], hidden_size=6, direction="reverse", clip=2.0,
        activations=["Sigmoid", "Softsign", "Tanh"],
    )  # fmt: skip
    stored = {"w": (1, 24, 8), "r": (1, 24, 6), "b": (1, 48), "p": (1, 18)}
    state = [1, batch, 6]
    graph = helper.make_graph(
        [node],
        "g",
        [
            value("x", TensorProto.FLOAT, [7, batch, 8]),
            value("lengths", TensorProto.INT32, [batch]),
            value("h", TensorProto.FLOAT, state),
            value("c", TensorProto.FLOAT, state),
        ],
        [value(name, TensorProto.FLOAT, None) for name in node.output],
        [numpy_helper.from_array(normal(*s) * F32(0.3), name) for name, s in stored.items()],
    )
    opset = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opset, ir_version=8), tmp_path / "f.onnx")
    path = tmp_path / "q.onnx"
    quantization.quantize_dynamic(tmp_path / "f.onnx", path, weight_type=Type.QUInt8)
    feed = {
        "x": normal(7, batch, 8),
        "lengths": np.arange(7, 7 - batch, -1, dtype=np.int32),
        "h": normal(*state, seed=1),
        "c": normal(*state, seed=2),
    }
    check(
        path, feed, 1e-4 if batch == 1 else 0.01, backend
    )  # of sequences that end, the state counts here


def test_what_does_not_fit_a_quantized_lstm_is_told(tmp_path: Path) -> None:
    onnx.save(DYNAMIC["Lstm"], tmp_path / "f.onnx")
    path = tmp_path / "q.onnx"
    quantization.quantize_dynamic(tmp_path / "f.onnx", path)
    proto = onnx.load(path)
    for tensor in proto.graph.initializer:
        if tensor.name == "w_scale":
            tensor.CopyFrom(numpy_helper.from_array(normal(3), "w_scale"))
    with pytest.raises(glowpy.UserError, match=r"expected input 8 of shape \[1\] or \[1, 24\]"):
        glowpy.load(proto)
