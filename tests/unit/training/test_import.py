"""Weights of ONNX files that become variables, are trained, and become constants again."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.training.optimizers import SGD

MODEL = """<ir_version: 10, opset_import: ["" : 22]>
g (float[4,3,6,6] x, float[4,2] labels) => (float loss, float[4,2] y)
  <int64[2] shape = {4, -1}>
{
  u = Resize <mode = "nearest"> (x, , scales)
  c = Conv <kernel_shape = [3, 3], strides = [2, 2]> (u, conv_weight, conv_bias)
  n = BatchNormalization (c, norm_scale, norm_bias, norm_mean, norm_variance)
  r = Relu (n)
  f = Reshape (r, shape)
  h = Gemm <transB = 1> (f, head_weight, head_bias)
  y = Clip (h, least)
  d = Sub (y, labels)
  s = Mul (d, d)
  loss = ReduceMean <keepdims = 0> (s)
}"""

SHAPES = {
    "conv_weight": (5, 3, 3, 3), "conv_bias": (5,), "norm_scale": (5,), "norm_bias": (5,),
    "norm_mean": (5,), "norm_variance": (5,), "head_weight": (2, 20), "head_bias": (2,), "least": (), "scales": (4,),
}  # fmt: skip


@pytest.fixture
def path(tmp_path: Path) -> Path:
    rng = np.random.default_rng(3)
    model = onnx.parser.parse_model(MODEL)
    for name, shape in SHAPES.items():
        array = rng.uniform(0.1, 0.5, shape).astype(np.float32)
        array = np.array(-10, np.float32) if name == "least" else array
        array = np.ones(shape, np.float32) if name == "scales" else array
        model.graph.initializer.append(numpy_helper.from_array(array, name))
    onnx.save(model, tmp_path / "small.onnx")
    return tmp_path / "small.onnx"


def _names(path: Path, trainable: str | list[str]) -> list[str]:
    return [v.original for v in glowpy.load(path, trainable=trainable).main.variables]


def test_all_are_the_weights_that_no_operator_has_to_know(path: Path) -> None:
    """Neither are statistics of a normalization, nor numbers of rank 0, such as a bound of Clip."""
    weights = ["conv_weight", "conv_bias", "norm_scale", "norm_bias", "head_weight", "head_bias"]
    assert _names(path, "all") == weights


def test_names_and_patterns(path: Path) -> None:
    assert _names(path, ["head_*", "norm_mean"]) == ["norm_mean", "head_weight", "head_bias"]
    assert _names(path, ["least"]) == ["least"]
    with pytest.raises(glowpy.UserError, match=r"no weights of floating-point .* match .tail_\*."):
        _names(path, ["tail_*"])


def test_weights_change_and_become_constants(path: Path, tmp_path: Path) -> None:
    module = glowpy.load(path, trainable="all")
    f = module.main
    step = glowpy.compile(glowpy.differentiate(f, "loss", optimizer=SGD(0.001)), "interpreter")
    state = step.state()
    rng = np.random.default_rng(4)
    inputs = {
        "x": rng.normal(size=(4, 3, 6, 6)).astype(np.float32),
        "labels": rng.normal(size=(4, 2)).astype(np.float32),
    }
    losses = [step(inputs, state=state)["loss"].item() for _ in range(20)]
    assert losses[-1] < losses[0] / 2

    frozen = glowpy.freeze(f, state)
    assert not frozen.variables
    expected = glowpy.compile(f, "interpreter")(inputs, state=state)
    actual = glowpy.compile(frozen, "cpu")(inputs)
    np.testing.assert_allclose(actual["y"], expected["y"], rtol=1e-5, atol=1e-5)
    glowpy.save(glowpy.freeze(f, state), tmp_path / "trained.onnx")
    again = glowpy.InferenceSession(tmp_path / "trained.onnx").run(None, inputs)
    np.testing.assert_allclose(again[1], expected["y"], rtol=1e-5, atol=1e-5)


def test_a_state_without_the_weights(path: Path) -> None:
    f = glowpy.load(path, trainable=["head_*"]).main
    other = glowpy.load(path, trainable=["conv_weight"]).main
    state = glowpy.compile(other, "interpreter").state()
    with pytest.raises(glowpy.UserError, match=r"expected a state with the variable 'head_weight'"):
        glowpy.freeze(f, state)


def test_a_weight_that_has_to_be_known(path: Path) -> None:
    with pytest.raises(glowpy.UserError, match="trainable: 'scales' cannot be changed by training"):
        glowpy.load(path, trainable=["scales"])


def test_graph_text_has_no_initializers(path: Path, tmp_path: Path) -> None:
    text = tmp_path / "small.glow"
    text.write_text(str(glowpy.Module()))
    with pytest.raises(glowpy.UserError, match="expected a model in ONNX to name weights"):
        glowpy.load(text, trainable="all")


def test_gradients_are_written_as_onnx(path: Path, tmp_path: Path) -> None:
    f = glowpy.load(path, trainable="all").main
    state = glowpy.compile(f, "interpreter").state()
    g = glowpy.differentiate(f, "loss", wrt=["x", "conv_weight", "head_weight"])
    glowpy.save(g, tmp_path / "gradients.onnx")
    rng = np.random.default_rng(4)
    inputs = {
        "x": rng.normal(size=(4, 3, 6, 6)).astype(np.float32),
        "labels": rng.normal(size=(4, 2)).astype(np.float32),
    }
    expected = glowpy.compile(g, "interpreter")(inputs, state=state)
    session = glowpy.InferenceSession(tmp_path / "gradients.onnx", state="auto")
    names = [output.name for output in session.get_outputs()]
    assert {"x_grad", "conv_weight_grad", "head_weight_grad"} <= {*names}
    for name, array in zip(names, session.run(None, inputs), strict=True):
        np.testing.assert_allclose(array, expected[name], rtol=1e-4, atol=1e-4)
