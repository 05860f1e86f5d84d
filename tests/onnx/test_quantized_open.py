"""A small transformer of open batch and length, quantized in each way: its numbers are near those in floats."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.quantization import AtRunTime, ByProfile, Method, WeightsOnly, profile
from glowpy.support.symbolic import symbol
from tests.bundles.networks import glow
from tests.onnx.test_export import on_onnxruntime

WORDS, WIDTH, MOST = 24, 16, 6

TEXT = f"""<ir_version: 9, opset_import: ["": 17]>
transformer (int64[b, t] ids) => (float[b, t, {WIDTH}] y)
<int64 zero = {{0}}, int64 one = {{1}}, int64[4] heads = {{0, 0, 2, {WIDTH // 2}}}, int64[3] joined = {{0, 0, {WIDTH}}}>
{{
  shape = Shape(ids)
  length = Gather(shape, one)
  places = Range(zero, length, one)
  word = Gather(words, ids)
  place = Gather(positions, places)
  x = Add(word, place)
  norm = LayerNormalization(x, gamma)
  q_flat = MatMul(norm, wq)
  k_flat = MatMul(norm, wk)
  v_flat = MatMul(norm, wv)
  q_heads = Reshape(q_flat, heads)
  k_heads = Reshape(k_flat, heads)
  v_heads = Reshape(v_flat, heads)
  q = Transpose<perm = [0, 2, 1, 3]>(q_heads)
  k = Transpose<perm = [0, 2, 3, 1]>(k_heads)
  v = Transpose<perm = [0, 2, 1, 3]>(v_heads)
  scores = MatMul(q, k)
  parts = Softmax(scores)
  sums = MatMul(parts, v)
  sums_last = Transpose<perm = [0, 2, 1, 3]>(sums)
  sums_flat = Reshape(sums_last, joined)
  attention = MatMul(sums_flat, wo)
  middle = Add(x, attention)
  wide = MatMul(middle, w1)
  limited = Relu(wide)
  narrow = MatMul(limited, w2)
  y = Add(middle, narrow)
}}"""

DIMS = {"b": symbol("b", 1, 3), "t": symbol("t", 1, MOST)}
EXTENTS = [(1, 1), (2, 4), (3, MOST)]


@pytest.fixture(scope="module")
def floats(tmp_path_factory: pytest.TempPathFactory) -> glowpy.Module:
    rng = np.random.default_rng(0)
    shapes = {"words": (WORDS, WIDTH), "positions": (MOST, WIDTH), "gamma": (WIDTH,)}
    shapes |= dict.fromkeys(("wq", "wk", "wv", "wo"), (WIDTH, WIDTH))
    shapes |= {"w1": (WIDTH, 2 * WIDTH), "w2": (2 * WIDTH, WIDTH)}
    model = onnx.parser.parse_model(TEXT)
    for name, shape in shapes.items():
        array = rng.normal(scale=0.4, size=shape).astype(np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    path = tmp_path_factory.mktemp("open") / "transformer.onnx"
    onnx.save(model, path)
    return glowpy.load(path, dims=DIMS)


def ids(batch: int, length: int) -> dict[str, Array]:
    rng = np.random.default_rng(length)
    return {"ids": rng.integers(0, WORDS, (batch, length))}


def way(name: str, module: glowpy.Module) -> Method:
    if name == "profile":
        return ByProfile(profile(module, [ids(*extents) for extents in EXTENTS]))
    return AtRunTime() if name == "dynamic" else WeightsOnly(bits=8)


@pytest.mark.parametrize("name", ["profile", "dynamic", "weights"])
def test_quantized_transformer(name: str, floats: glowpy.Module, tmp_path: Path) -> None:
    conversion = way(name, floats).convert(floats)
    assert len(conversion.nodes) > len(conversion.floats)
    path = tmp_path / "quantized.onnx"
    glowpy.save(conversion.module, path)
    expected = glowpy.compile(floats)
    networks = [glowpy.compile(conversion.module, backend) for backend in ("cpu", "interpreter")]
    again = glowpy.compile(glowpy.load(path, dims=DIMS))
    for extents in EXTENTS:
        sample = ids(*extents)
        right = expected(sample)["y"]
        answers = [network(sample)["y"] for network in (*networks, again)]
        answers.append(on_onnxruntime(path, sample)["y"])
        for answer in answers:
            assert answer.shape == (*extents, WIDTH)
            assert 0 < np.linalg.norm(answer - right) < 0.05 * np.linalg.norm(right)


def test_estimate_is_of_likely_extents(tmp_path: Path) -> None:
    """Of a layer that is known by a sum of two dimensions alone, too."""
    symbols = {"past": symbol("past", 0, 4), "length": symbol("length", 1, 4)}
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[length x 64]", symbols))
    cache = module.create_placeholder("cache", parse_type("f32[past x 64]", symbols))
    weights = np.random.default_rng(0).normal(size=(64, 48)).astype(np.float32)
    whole = f.create_concat("whole", [cache, x], 0)
    y = f.create_mat_mul("product", whole, module.create_constant("w", weights)).result
    f.create_save("save", y, module.create_placeholder("y", y.type))
    path = tmp_path / "net.onnx"
    glowpy.save(module, path)
    argv = ["quantize", str(path), "--estimate", "--json"]
    argv += ["--shape", "past=0..4", "--shape", "length=1..4"]
    for options in (["--weight-only", "8"], []):
        status, out, err = glow(*argv, *options)
        assert (status, err) == (0, "")
        (layer,) = json.loads(out)["layers"]
        assert layer["integers"] > 0
