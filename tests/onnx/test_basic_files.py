"""Files that the drop-in writes with basic optimizations: operators and names of the model, and the same answers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import helper, numpy_helper, parser

import glowpy.onnxruntime as drop_in
from glowpy.core.tensor import Array

ort = pytest.importorskip("onnxruntime")

RNG = np.random.default_rng(0)
VECTOR = RNG.random(4).astype(np.float32) + 1
WEIGHTS = RNG.standard_normal((4, 3, 3, 3)).astype(np.float32)


def model(text: str, opset: int = 17, **constants: Any) -> onnx.ModelProto:
    """A model from text, with constants."""
    header = f'<ir_version: 8, opset_import: ["": {opset}]> '
    proto = parser.parse_model(header + text)
    proto.graph.initializer.extend(
        numpy_helper.from_array(np.asarray(array), name) for name, array in constants.items()
    )
    return proto


def optimized(proto: onnx.ModelProto, folder: Path, **entries: str) -> onnx.ModelProto:
    """The file for a model; both engines compute from it what onnxruntime computes of the model."""
    path = folder / "optimized.onnx"
    options = drop_in.SessionOptions()
    options.graph_optimization_level = drop_in.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    for name, value in entries.items():
        name = f"session.optimized_model_external_initializers_{name}"
        options.add_session_config_entry(name, value)
    drop_in.InferenceSession(proto.SerializeToString(), options)
    feeds = _feeds(proto)
    expected = ort.InferenceSession(proto.SerializeToString()).run(None, feeds)
    for engine in (ort, drop_in):
        results = engine.InferenceSession(str(path)).run(None, feeds)
        for result, other in zip(results, expected, strict=True):
            np.testing.assert_allclose(result, other, rtol=1e-4, atol=1e-5)
    return onnx.load(path)


def _feeds(proto: onnx.ModelProto) -> dict[str, Array]:
    feeds = {}
    stored = {tensor.name for tensor in proto.graph.initializer}
    for info in proto.graph.input:
        if info.name not in stored:
            shape = [dim.dim_value or 2 for dim in info.type.tensor_type.shape.dim]
            dtype = helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type)
            feeds[info.name] = (RNG.random(shape) * 8).astype(dtype)
    return feeds


def nodes(proto: onnx.ModelProto) -> list[tuple[str, str]]:
    return [(node.op_type, node.output[0]) for node in proto.graph.node]


def test_what_follows_from_constants_is_stored(tmp_path: Path) -> None:
    text = """g (float[N, 4] x) => (float[N, 4] y) {
        two = Constant<value_float = 2.0>()
        twice = Mul(c, two)
        row = Unsqueeze(twice, axes)
        sum = Add(x, row)
        y = Relu(sum)
        unread = Neg(c)
    }"""
    proto = optimized(model(text, c=VECTOR, axes=np.array([0])), tmp_path)
    assert nodes(proto) == [("Add", "sum"), ("Relu", "y")]
    (tensor,) = proto.graph.initializer
    assert tensor.name == "row"
    np.testing.assert_array_equal(numpy_helper.to_array(tensor), 2 * VECTOR[np.newaxis])


def test_what_takes_more_memory_is_computed(tmp_path: Path) -> None:
    text = """g (float[1] x) => (float y, float z) {
        wide = Expand(c, shape)
        negative = Neg(wide)
        low = ReduceMin<keepdims = 0>(c)
        sum = Add(x, negative)
        y = ReduceMax<keepdims = 0>(sum)
        z = Mul(low, y)
    }"""
    shape = np.array([1024, 1024])
    proto = optimized(model(text, c=VECTOR[:1], shape=shape), tmp_path)
    assert [name for _, name in nodes(proto)] == ["wide", "negative", "sum", "y", "z"]
    assert {tensor.name for tensor in proto.graph.initializer} == {"c", "shape", "low"}


def test_copies_go(tmp_path: Path) -> None:
    text = """g (float[N, 4] x, int32[2] n) => (float[N, 4] y, int32[2] m, float[N, 4] z) {
        a = Identity(x)
        b = Dropout(a, ratio)
        c = Relu(b)
        k = Cast<to = 6>(n)
        wide = Cast<to = 7>(k)
        m = Cast<to = 6>(wide)
        y = Identity(c)
        z = If (truth) <
            then_branch = t () => (float[N, 4] then) { then = Neg(shared) },
            else_branch = e () => (float[N, 4] other) { other = Neg(shared) }>
        shared = Identity(x)
    }"""
    proto = model(text, ratio=np.float32(0.5), truth=np.array(True))
    moved = proto.graph.node[-1]
    proto.graph.node.insert(0, moved)
    del proto.graph.node[-1]
    result = optimized(proto, tmp_path)
    names = [("Identity", "shared"), ("Relu", "c"), ("Cast", "wide"), ("Cast", "m")]
    assert nodes(result) == [*names, ("Identity", "y"), ("If", "z")]
    assert result.graph.node[1].input[0] == "x"
    assert result.graph.node[2].input[0] == "n"


@pytest.mark.parametrize("bias", ["", ", b"])
def test_normalizations_are_in_the_weights(bias: str, tmp_path: Path) -> None:
    text = f"""g (float[N, 3, 6, 6] x) => (float[N, 4, H, W] y, float[N, 4, H, W] z) {{
        a = Conv(x, w{bias})
        n = BatchNormalization<epsilon = 0.01>(a, s, b, m, v)
        y = Relu(n)
        c = Conv(x, w)
        o = BatchNormalization(c, s, b, m, v)
        z = Add(o, c)
    }}"""
    vectors: dict[str, Any] = {"s": VECTOR, "b": VECTOR - 2, "m": VECTOR / 3, "v": VECTOR * 2}
    proto = optimized(model(text, w=WEIGHTS, **vectors), tmp_path)
    expected = [("Conv", "n"), ("Relu", "y"), ("Conv", "c"), ("BatchNormalization", "o")]
    assert nodes(proto) == [*expected, ("Add", "z")]
    stored = {t.name: numpy_helper.to_array(t) for t in proto.graph.initializer}
    np.testing.assert_array_equal(stored["w"], WEIGHTS)
    assert stored["n_weights"].shape == WEIGHTS.shape


def test_what_calls_give_is_not_known(tmp_path: Path) -> None:
    """Initializers that a call may override, random numbers, and conversions around products."""
    text = """g (float[4] x, float[4] c) => (float[4] y) {
        d = Neg(c)
        q = QuantizeLinear(e, scale)
        f = DequantizeLinear(q, scale)
        g = Add(d, f)
        y = Add(x, g)
    }"""
    proto = model(text, c=VECTOR, e=VECTOR, scale=np.float32(0.5))
    result = optimized(proto, tmp_path)
    assert nodes(result) == nodes(proto)
    draws = model(
        "g (float[4] x) => (float[4] y) { r = RandomNormalLike(c)  y = Add(x, r) }", c=VECTOR
    )
    path = tmp_path / "random.onnx"
    options = drop_in.SessionOptions()
    options.graph_optimization_level = drop_in.GraphOptimizationLevel.ORT_ENABLE_BASIC
    options.optimized_model_filepath = str(path)
    drop_in.InferenceSession(draws.SerializeToString(), options)
    assert nodes(onnx.load(path)) == nodes(draws)


def test_constants_may_be_apart(tmp_path: Path) -> None:
    text = "g (float[N, 4] x) => (float[N, 4] y) { d = Neg(c)  y = Add(x, d) }"
    proto = optimized(model(text, c=VECTOR), tmp_path, file_name="w.bin", min_size_in_bytes="8")
    assert nodes(proto) == [("Add", "y")]
    assert (tmp_path / "w.bin").stat().st_size == VECTOR.nbytes
