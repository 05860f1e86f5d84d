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
KINDS = {"u8": quantization.QuantType.QUInt8, "i8": quantization.QuantType.QInt8}


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
