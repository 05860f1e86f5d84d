"""Weights of ONNX files that become variables, are trained, and become constants again."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import glowpy
from glowpy.training.freeze import freeze
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

    frozen = freeze(f, state)
    assert not frozen.variables
    expected = glowpy.compile(f, "interpreter")(inputs, state=state)
    actual = glowpy.compile(frozen, "cpu")(inputs)
    np.testing.assert_allclose(actual["y"], expected["y"], rtol=1e-5, atol=1e-5)
    glowpy.save(freeze(f, state), tmp_path / "trained.onnx")
    again = glowpy.InferenceSession(tmp_path / "trained.onnx").run(None, inputs)
    np.testing.assert_allclose(again[1], expected["y"], rtol=1e-5, atol=1e-5)


def test_a_state_without_the_weights(path: Path) -> None:
    f = glowpy.load(path, trainable=["head_*"]).main
    other = glowpy.load(path, trainable=["conv_weight"]).main
    state = glowpy.compile(other, "interpreter").state()
    with pytest.raises(glowpy.UserError, match=r"expected a state with the variable 'head_weight'"):
        freeze(f, state)


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


def test_running_averages_are_moved_and_frozen(path: Path, tmp_path: Path) -> None:
    """The network that infers has the averages of the one that was trained, by their names."""
    model = onnx.load(path)
    norm = next(node for node in model.graph.node if node.op_type == "BatchNormalization")
    norm.attribute.append(onnx.helper.make_attribute("training_mode", 1))
    norm.output.extend(["norm_mean_after", "norm_variance_after"])
    onnx.save(model, tmp_path / "training.onnx")
    f = glowpy.load(tmp_path / "training.onnx", trainable="all").main
    outputs = [output.original for output in f.outputs]
    assert outputs == ["loss", "y"]
    step = glowpy.compile(glowpy.differentiate(f, "loss", optimizer=SGD(0.0)), "interpreter")
    state = step.state()
    rng = np.random.default_rng(4)
    before = np.array(state["norm_mean"])
    weights, bias = np.array(state["conv_weight"]), np.array(state["conv_bias"])
    x = rng.normal(size=(4, 3, 6, 6)).astype(np.float32)
    step({"x": x, "labels": np.zeros((4, 2), np.float32)}, state=state)
    windows = np.lib.stride_tricks.sliding_window_view(x, (3, 3), axis=(2, 3))[:, :, ::2, ::2]
    sums = np.einsum("nchwij,ocij->nohw", windows, weights) + bias[:, None, None]
    np.testing.assert_allclose(
        state["norm_mean"], 0.9 * before + 0.1 * sums.mean((0, 2, 3)), rtol=1e-5, atol=1e-6
    )

    infers = glowpy.load(path, trainable=[variable.original for variable in f.variables]).main
    frozen = freeze(infers, state)
    assert not frozen.variables
    normal = (sums - state["norm_mean"][:, None, None]) / np.sqrt(
        state["norm_variance"][:, None, None] + 1e-5
    ) * state["norm_scale"][:, None, None] + state["norm_bias"][:, None, None]
    flat = np.maximum(normal, 0).reshape(4, -1)
    expected = flat @ state["head_weight"].T + state["head_bias"]
    actual = glowpy.compile(frozen)({"x": x, "labels": np.zeros((4, 2), np.float32)})
    np.testing.assert_allclose(actual["y"], expected, rtol=1e-4, atol=1e-4)


IN_BODY = """<ir_version: 10, opset_import: ["" : 22]>
g (float[2,3] x, int64 n) => (float loss) {
  yes = Constant <value = bool {1}> ()
  five = Constant <value = int64 {5}> ()
  limit = Min (n, five)
  last = Loop (limit, yes, x) <
    body = b (int64 i, bool k, float[2,3] h) => (bool ko, float[2,3] ho) {
      p = MatMul (h, weight)
      ho = Tanh (p)
      ko = Identity (k)
    }
  >
  loss = ReduceSum <keepdims = 0> (last)
}"""


def test_weights_that_only_a_body_reads() -> None:
    model = onnx.parser.parse_model(IN_BODY)
    array = np.random.default_rng(1).normal(size=(3, 3)).astype(np.float32)
    model.graph.initializer.append(numpy_helper.from_array(array, "weight"))
    f = glowpy.load(model, trainable="all").main
    assert [variable.original for variable in f.variables] == ["weight"]
    step = glowpy.compile(glowpy.differentiate(f, "loss", optimizer=SGD(0.1)))
    state = step.state()
    inputs = {"x": np.full((2, 3), 0.5, np.float32), "n": np.array(3)}
    losses = [step(inputs, state=state)["loss"].item() for _ in range(5)]
    assert losses == sorted(losses, reverse=True)
    assert losses[-1] < losses[0] - 0.1


WRONG: list[tuple[Callable[[Any, Any], object], str]] = [
    (lambda m, _: glowpy.differentiate(m, "loss"), "function: expected a function of a module"),
    (
        lambda m, _: glowpy.differentiate(m.main, "loss", optimizer=_any(SGD)),
        "expected an Optimizer",
    ),
    (lambda m, _: freeze(m.main, _any({})), "state: expected a state, as network.state"),
    (lambda _, __: SGD(_any("fast")), "learning_rate: expected a number, got 'fast'"),
    (lambda _, path: glowpy.load(path, trainable=_any(True)), "trainable: expected names"),
]


def _any(value: object) -> Any:
    return value


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_arguments_of_other_types(
    path: Path, call: Callable[[Any, Any], object], message: str
) -> None:
    with pytest.raises(glowpy.UserError, match=message):
        call(glowpy.load(path, trainable="all"), path)
