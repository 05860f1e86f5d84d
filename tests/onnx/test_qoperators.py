"""Products of integers as ONNX's operators on integers: in files that the drop-in optimized, and by `save`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
import glowpy.onnxruntime as drop_in
from glowpy import quantization
from glowpy.core.tensor import Array
from glowpy.quantization import Options
from tests.onnx.test_export import interpreted, on_onnxruntime, operators
from tests.onnx.test_export_quantized import COUNT, last_step, network, profiled

ort = pytest.importorskip("onnxruntime")

STEP, WEIGHT_STEP = np.float32(0.05), np.float32(0.02)


def _conversion(
    name: str, array: Any, scale: Any, zero: Any, tensors: dict[str, Any], axis: int
) -> onnx.NodeProto:
    """A constant as integers, and what makes numbers of them."""
    tensors |= {f"{name}_q": array, f"{name}_s": scale, f"{name}_z": zero}
    attributes: dict[str, Any] = {"axis": axis} if np.ndim(scale) else {}
    inputs = [f"{name}_q", f"{name}_s", f"{name}_z"]
    return helper.make_node("DequantizeLinear", inputs, [name], **attributes)


def network_of(
    product: str,
    shape: Sequence[int],
    weights: Sequence[int],
    *,
    scales: Any = WEIGHT_STEP,
    bias: tuple[Any, int] | None = None,
    relu: bool = False,
    kind: Any = np.uint8,
    zero: int = 128,
) -> onnx.ModelProto:
    """A product of integers between conversions; the bias has steps, and an offset."""
    rng = np.random.default_rng(3)
    channels, axis = (weights[0], 0) if product == "Conv" else (weights[-1], 1)
    rank = np.ndim(scales)
    tensors: dict[str, Any] = {"x_s": STEP, "x_z": kind(zero), "y_s": STEP}
    tensors["y_z"] = kind(np.iinfo(kind).min if relu else zero)
    nodes = [helper.make_node("DequantizeLinear", ["x", "x_s", "x_z"], ["a"])]
    integers = rng.integers(-9, 10, weights).astype(np.int8)
    zeros = np.zeros(channels if rank else (), np.int8)
    nodes.append(_conversion("w", integers, scales, zeros, tensors, axis))
    if bias is not None:
        steps, offset = np.asarray(bias[0], np.float32), bias[1]
        sums = rng.integers(-2000, 2000, channels).astype(np.int32)
        offsets = np.full(steps.shape, offset, np.int32)
        nodes.append(_conversion("b", sums, steps, offsets, tensors, 0))
    inputs = ["a", "w", *["b"] * (bias is not None)]
    nodes.append(helper.make_node(product, inputs, ["c"]))
    last = "c"
    if relu:
        nodes.append(helper.make_node("Relu", ["c"], ["r"]))
        last = "r"
    nodes.append(helper.make_node("QuantizeLinear", [last, "y_s", "y_z"], ["y"]))
    elem_type = helper.np_dtype_to_tensor_dtype(np.dtype(kind))
    graph = helper.make_graph(
        nodes,
        "net",
        [helper.make_tensor_value_info("x", elem_type, shape)],
        [helper.make_tensor_value_info("y", elem_type, None)],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in tensors.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


SCALES = np.linspace(0.01, 0.03, 4).astype(np.float32)
CONV = {"product": "Conv", "shape": [2, 3, 8, 8], "weights": [4, 3, 3, 3]}
MATRIX = {"product": "MatMul", "shape": [3, 5], "weights": [5, 4]}
FUSED: dict[str, dict[str, Any]] = {
    "convolution": CONV,
    "bias": {**CONV, "bias": (STEP * WEIGHT_STEP, 0)},
    "a scale for each channel": {**CONV, "scales": SCALES, "bias": (STEP * SCALES, 0)},
    "limit": {**CONV, "relu": True},
    "signed": {**CONV, "kind": np.int8, "zero": -3},
    "one channel": {**CONV, "shape": [1, 1, 4, 4], "weights": [1, 1, 1, 1]},
    "matrices": MATRIX,
    "a scale for each column": {**MATRIX, "scales": SCALES},
}
APART: dict[str, dict[str, Any]] = {
    "bias in other steps": {**CONV, "bias": (np.float32(0.1), 0)},
    "bias with an offset": {**CONV, "bias": (STEP * WEIGHT_STEP, 3)},
}


def optimized(model: onnx.ModelProto, folder: Path) -> Path:
    options = drop_in.SessionOptions()
    options.optimized_model_filepath = str(folder / "optimized.onnx")
    drop_in.InferenceSession(model.SerializeToString(), options)
    return folder / "optimized.onnx"


def integers(model: onnx.ModelProto) -> dict[str, Array]:
    tensor = model.graph.input[0].type.tensor_type
    dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
    low, high = np.iinfo(dtype).min, np.iinfo(dtype).max
    shape = [dim.dim_value for dim in tensor.shape.dim]
    return {"x": np.random.default_rng(1).integers(low, high + 1, shape).astype(dtype)}


@pytest.mark.parametrize("form", FUSED.values(), ids=list(FUSED))
def test_optimized_files_have_operators_on_integers(form: dict[str, Any], tmp_path: Path) -> None:
    """As onnxruntime writes them; both engines compute from the file what the model says."""
    model = network_of(**form)
    path, feeds = optimized(model, tmp_path), integers(model)
    counts = operators(path)
    assert counts[f"QLinear{form['product']}"] == 1
    assert not {form["product"], "DequantizeLinear", "QuantizeLinear", "Relu"} & counts.keys()
    expected = interpreted(glowpy.load(model), feeds)["y"]
    for result in (on_onnxruntime(path, feeds)["y"], interpreted(glowpy.load(path), feeds)["y"]):
        assert result.dtype == expected.dtype
        assert np.abs(result.astype(int) - expected).max() <= 1
        assert (result != expected).mean() < 0.01


@pytest.mark.parametrize("form", APART.values(), ids=list(APART))
def test_products_stay_between_conversions(form: dict[str, Any], tmp_path: Path) -> None:
    """Where onnxruntime leaves them there."""
    counts = operators(optimized(network_of(**form), tmp_path))
    assert counts["Conv"] == 1
    assert "QLinearConv" not in counts


def test_quantized_networks_are_operators_on_integers(tmp_path: Path) -> None:
    """Of the same network as conversions around products in floats."""
    module = quantization.quantize(network("cnn"), profiled("cnn"), Options())
    path, plain = tmp_path / "integers.onnx", tmp_path / "conversions.onnx"
    glowpy.save(module, path, qoperators=True)
    glowpy.save(module, plain)
    assert not [op for op in operators(plain) if op.startswith("QLinear")]
    assert operators(path)["QLinearConv"] == operators(plain)["Conv"] == 2
    feeds = {"x": np.random.default_rng(1).random((COUNT, 8, 8, 1)).astype(np.float32)}
    got, expected = on_onnxruntime(path, feeds)["y"], interpreted(module, feeds)["y"]
    assert np.abs(got - expected).max() <= 2 * last_step(module)
    assert TensorProto.INT8 in {t.data_type for t in onnx.load(path).graph.initializer}
