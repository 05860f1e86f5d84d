"""Files that onnxruntime's optimizers write compute what the model did that they were made from."""

from __future__ import annotations

import platform
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnxruntime.transformers import fusion_options, optimizer

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same
from tests.onnx.contrib_cases import reference
from tests.onnx.optimized_models import (
    BATCH,
    HEADS,
    LENGTH,
    LEVELS,
    WIDTH,
    WORDS,
    bert,
    cnn,
    gpt,
    saved,
)

MODELS: dict[str, Callable[[], onnx.ModelProto]] = {"cnn": cnn, "bert": bert, "gpt": gpt}
TYPES = {"bert": "bert", "gpt": "gpt2"}
"""How the transformer tool calls models."""


def feeds(name: str) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    if name == "cnn":
        return {"x": rng.standard_normal((2, 3, 33, 33)).astype(np.float32)}
    inputs = {"input_ids": rng.integers(0, WORDS, (BATCH, LENGTH))}
    if name == "bert":
        inputs["segment_ids"] = rng.integers(0, 2, (BATCH, LENGTH))
        inputs["mask"] = np.array([[1] * LENGTH, [1] * 5 + [0] * (LENGTH - 5)])
    return inputs


@pytest.fixture(scope="module")
def expected() -> dict[str, Array]:
    """What onnxruntime computes of the models as they are."""
    return {name: reference(make(), feeds(name))[0] for name, make in MODELS.items()}


def operators(path: Path) -> Counter[str]:
    nodes = onnx.load(path).graph.node
    return Counter(f"{node.domain}.{node.op_type}".lstrip(".") for node in nodes)


def is_written(operator: str) -> bool:
    """Whether onnxruntime has kernels on this machine, without which it does not write an operator."""
    return ".nchwc." not in operator or platform.machine() in ("x86_64", "AMD64")


def check(path: Path, name: str, expected: dict[str, Array]) -> None:
    for backend in ("interpreter", "cpu"):
        (result,) = glowpy.InferenceSession(path, backend=backend).run(None, feeds(name))
        assert_same(result, expected[name], 1e-4, 2e-5, backend)


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("name", MODELS)
def test_saved_at_a_level(
    name: str, level: str, expected: dict[str, Array], tmp_path: Path
) -> None:
    check(saved(MODELS[name](), level, tmp_path / "saved.onnx"), name, expected)


def test_levels_write_what_this_is_about(tmp_path: Path) -> None:
    """Otherwise the tests above would say little."""
    written = Counter[str]()
    for name, make in MODELS.items():
        for level in ("ENABLE_EXTENDED", "ENABLE_ALL"):
            written += operators(saved(make(), level, tmp_path / f"{name}_{level}.onnx"))
    blocked = ["Conv", "MaxPool", "AveragePool", "GlobalAveragePool", "Upsample"]
    moved = ["ReorderInput", "ReorderOutput"]
    own = [
        "FusedConv",
        "FusedGemm",
        "FusedMatMul",
        "BiasGelu",
        "FastGelu",
        "SkipLayerNormalization",
    ]
    expected = [f"com.microsoft.nchwc.{name}" for name in blocked + moved]
    expected += [f"com.microsoft.{name}" for name in own]
    assert [name for name in expected if not written[name] and is_written(name)] == []


IMAGE, LAST = "float[1,16,8,8]", "float[1,8,8,16]"
CONV = "Conv<pads = [1,1,1,1]>"
PATTERNS = {
    "SimplifiedLayerNormalization": "(float[2,5,8] x) => (float[2,5,8] y) "
    "{ p = Pow(x, two) m = ReduceMean<axes = [-1]>(p) a = Add(m, half) s = Sqrt(a) d = Div(x, s) y = Mul(d, v) }",
    "com.microsoft.QuickGelu": "(float[2,5,8] x) => (float[2,5,8] y) { s = Sigmoid(x) y = Mul(x, s) }",
    "com.microsoft.FusedMatMul": "(float[4,3,2,8] x) => (float[3,2,4,4] y) "
    "{ q = Transpose<perm = [1,2,0,3]>(x) k = Transpose<perm = [1,2,3,0]>(x) c = MatMul(q, k) y = Mul(c, half) }",
    "com.microsoft.nchwc.ReorderInput": f"({LAST} x) => ({LAST} y) "
    f"{{ t = Transpose<perm = [0,3,1,2]>(x) c = {CONV}(t, w, b) r = Relu(c) y = Transpose<perm = [0,2,3,1]>(r) }}",
    "com.microsoft.nchwc.Conv": f"({IMAGE} x) => ({IMAGE} y) "
    f"{{ c = {CONV}(x, w, b) d = {CONV}(c, w, b) e = Sum(c, d) y = Relu(e) }}",
    "com.microsoft.nchwc.ReorderOutput": f"({IMAGE} x) => ({IMAGE} y) "
    f"{{ c = {CONV}(x, w, b) s = Sigmoid(c) m = Mul(c, s) t = Tanh(m) y = {CONV}(t, w, b) }}",
}
"""An operator that the level `all` writes, and a graph that it writes it for."""


@pytest.mark.parametrize("operator", PATTERNS)
def test_pattern(operator: str, tmp_path: Path) -> None:
    head = '<ir_version: 8, opset_import: ["": 17]> g '
    model = onnx.parser.parse_model(head + PATTERNS[operator])
    rng = np.random.default_rng(0)
    stored = {
        "two": np.array(2, np.float32),
        "half": np.array(0.5, np.float32),
        "v": rng.standard_normal(8).astype(np.float32),
        "w": (rng.standard_normal((16, 16, 3, 3)) / 12).astype(np.float32),
        "b": rng.standard_normal(16).astype(np.float32),
    }
    used = {name for node in model.graph.node for name in node.input}
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(array, name) for name, array in stored.items() if name in used
    )
    shape = [dim.dim_value for dim in model.graph.input[0].type.tensor_type.shape.dim]
    inputs = {"x": rng.standard_normal(shape).astype(np.float32)}
    path = saved(model, "ENABLE_ALL", tmp_path / "saved.onnx")
    assert operators(path)[operator] or not is_written(operator)
    (result,) = glowpy.InferenceSession(path, backend="interpreter").run(None, inputs)
    assert_same(result, reference(model, inputs)[0], 1e-4, 1e-5)


@pytest.mark.parametrize("name", TYPES)
def test_fused_by_the_transformer_tool(
    name: str, expected: dict[str, Array], tmp_path: Path
) -> None:
    onnx.save(MODELS[name](), tmp_path / "plain.onnx")
    options = fusion_options.FusionOptions(TYPES[name])
    options.enable_shape_inference = False  # it needs another package
    fused = optimizer.optimize_model(
        str(tmp_path / "plain.onnx"),
        model_type=TYPES[name],
        num_heads=HEADS,
        hidden_size=WIDTH,
        optimization_options=options,
        opt_level=0,
    )
    path = tmp_path / "fused.onnx"
    fused.save_model_to_file(str(path))
    counts = operators(path)
    assert counts["com.microsoft.Attention"] == 2
    assert counts["com.microsoft.EmbedLayerNormalization"] == (name == "bert")
    check(path, name, expected)
