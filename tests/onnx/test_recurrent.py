"""Recurrent layers: every option as onnxruntime computes it, with extents that are open, and with kept states."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper

import glowpy
from glowpy import UserError
from glowpy.core.tensor import Array
from glowpy.graph.work import multiply_adds
from tests.onnx.comparison import assert_same, graph_model, info

GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}
ACTIVATIONS = {"LSTM": 3, "GRU": 2, "RNN": 1}
# onnxruntime's Softplus overflows.
FUNCTIONS = (
    "Relu", "Tanh", "Sigmoid", "Affine", "LeakyRelu", "ThresholdedRelu", "ScaledTanh", "HardSigmoid", "Elu", "Softsign",
)  # fmt: skip


@dataclass(frozen=True)
class Layer:
    """A recurrent layer with random weights: sizes are steps, sequences, width of the input and units."""

    op: str
    sizes: tuple[int, int, int, int]
    attrs: Mapping[str, Any]
    lengths: tuple[int, ...] | None = None
    state: bool = False
    bias: bool = True
    peepholes: bool = False
    opset: int = 17
    dtype: Any = np.float32

    def arrays(self) -> dict[str, Array]:
        """The inputs, by ONNX's names."""
        steps, batch, width, units = self.sizes
        rng = np.random.default_rng(steps * 1000 + units)
        count = 2 if self.attrs.get("direction") == "bidirectional" else 1
        gates, batch_first = GATES[self.op], self.attrs.get("layout") == 1
        state = (batch, count, units) if batch_first else (count, batch, units)
        shapes: dict[str, tuple[int, ...]] = {
            "X": (batch, steps, width) if batch_first else (steps, batch, width),
            "W": (count, gates * units, width),
            "R": (count, gates * units, units),
        }
        if self.bias:
            shapes["B"] = (count, 2 * gates * units)
        if self.state:
            shapes |= {"initial_h": state} | ({"initial_c": state} if self.op == "LSTM" else {})
        if self.peepholes:
            shapes["P"] = (count, 3 * units)
        arrays = {name: self._numbers(rng, shape) for name, shape in shapes.items()}
        if self.lengths is not None:
            arrays["sequence_lens"] = np.array(self.lengths, np.int32)
        return arrays

    def _numbers(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        numbers: Array = (rng.uniform(-1, 1, shape) / np.sqrt(shape[-1])).astype(self.dtype)
        return numbers

    def model(self, variable: tuple[str, ...] = ("X",), free: bool = False) -> onnx.ModelProto:
        """The layer with what is `variable` as inputs, and the rest as weights."""
        arrays = self.arrays()
        order = ["X", "W", "R", "B", "sequence_lens", "initial_h", "initial_c", "P"]
        names = [name if name in arrays else "" for name in order[: 8 if self.op == "LSTM" else 6]]
        outputs = ["Y", "Y_h", *(["Y_c"] if self.op == "LSTM" else [])]
        node = helper.make_node(self.op, names, outputs, hidden_size=self.sizes[3], **self.attrs)
        kind = helper.np_dtype_to_tensor_dtype(np.dtype(self.dtype))
        open_dims: dict[str, list[str | int | None]] = {
            "X": ["T", "B", self.sizes[2]],
            "sequence_lens": ["B"],
        }
        dims = open_dims if free else {}
        inputs = [info(name, arrays[name], dims.get(name)) for name in variable]
        return graph_model(
            [node],
            inputs,
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.opset,
            {name: array for name, array in arrays.items() if name not in variable},
        )

    def expected(self, arrays: Mapping[str, Array]) -> list[Array]:
        """What onnxruntime computes, which knows no layout but the first."""
        ort = pytest.importorskip("onnxruntime")
        plain = Layer(
            self.op, self.sizes, {**self.attrs, "layout": 0}, self.lengths, self.state, self.bias, self.peepholes,
            max(self.opset, 14), self.dtype,
        )  # fmt: skip
        model = plain.model(tuple(arrays))
        feeds = dict(arrays)
        if self.attrs.get("layout") == 1:
            for name in ("X", "initial_h", "initial_c"):
                if name in feeds:
                    feeds[name] = np.ascontiguousarray(feeds[name].swapaxes(0, 1))
        options = ort.SessionOptions()
        options.log_severity_level = 4
        session = ort.InferenceSession(
            model.SerializeToString(), options, providers=["CPUExecutionProvider"]
        )
        outputs = [np.asarray(output) for output in session.run(None, feeds)]
        if self.attrs.get("layout") == 1:
            outputs = [outputs[0].transpose(2, 0, 1, 3), *(y.swapaxes(0, 1) for y in outputs[1:])]
        return outputs


def check(layer: Layer, backend: str, tolerance: float = 2e-5) -> None:
    arrays = layer.arrays()
    session = glowpy.InferenceSession(layer.model(), backend=backend)
    for got, expected in zip(
        session.run(None, {"X": arrays["X"]}), layer.expected(arrays), strict=True
    ):
        assert_same(got, expected, tolerance, tolerance)


_BIDIRECTIONAL = {"direction": "bidirectional"}
LAYERS = [
    Layer("LSTM", (4, 2, 3, 5), {"clip": 0.75}, (4, 2), peepholes=True, state=True),
    Layer(
        "LSTM", (3, 2, 3, 5),
        {"clip": 0.125, "activations": ["Affine"] * 3, "activation_alpha": [2.0] * 3, "activation_beta": [0.5] * 3},
    ),
    Layer("LSTM", (3, 2, 3, 5), {**_BIDIRECTIONAL, "input_forget": 1, "layout": 1}, state=True),
    Layer("LSTM", (3, 1, 3, 17), {"direction": "reverse"}, (2,), bias=False, opset=7),
    Layer("GRU", (4, 3, 3, 5), {**_BIDIRECTIONAL, "clip": 0.5}, (4, 1, 3), state=True),
    Layer("GRU", (4, 3, 2, 5), {"linear_before_reset": 1, "layout": 1}),
    Layer("GRU", (3, 2, 2, 4), {"linear_before_reset": 1}, (3, 1), bias=False, opset=3),
    Layer("RNN", (4, 3, 2, 5), {**_BIDIRECTIONAL, "layout": 1}, state=True),
    Layer(
        "RNN", (4, 2, 2, 5),
        {"activations": ["ScaledTanh"], "activation_alpha": [1.5], "activation_beta": [0.5]}, opset=1,
    ),
]  # fmt: skip


@pytest.mark.parametrize("layer", LAYERS, ids=str)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_layer(layer: Layer, backend: str) -> None:
    check(layer, backend)


@st.composite
def layers(draw: st.DrawFn) -> Layer:
    op = draw(st.sampled_from(sorted(GATES)))
    steps, batch, width, units = (draw(st.integers(1, most)) for most in (5, 6, 4, 20))
    direction = draw(st.sampled_from(["forward", "reverse", "bidirectional"]))
    attrs: dict[str, Any] = {"direction": direction}
    if draw(st.booleans()):
        count = ACTIVATIONS[op] * (2 if direction == "bidirectional" else 1)
        attrs["activations"] = [draw(st.sampled_from(FUNCTIONS)) for _ in range(count)]
        attrs["activation_alpha"] = [draw(st.sampled_from([0.25, 0.75])) for _ in range(count)]
        attrs["activation_beta"] = [draw(st.sampled_from([0.125, 0.5])) for _ in range(count)]
    if draw(st.booleans()):
        attrs["clip"] = draw(st.sampled_from([0.25, 3.0]))
    if op == "GRU":
        attrs["linear_before_reset"] = draw(st.integers(0, 1))
    lengths = st.lists(st.integers(1, steps), min_size=batch, max_size=batch).map(tuple)
    return Layer(
        op, (steps, batch, width, units), attrs, draw(st.none() | lengths), draw(st.booleans()), draw(st.booleans()),
        op == "LSTM" and draw(st.booleans()),
    )  # fmt: skip


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(layer=layers())
def test_layers_are_those_of_onnxruntime(layer: Layer) -> None:
    check(layer, "interpreter", 1e-4)


@pytest.mark.parametrize("op", ["LSTM", "GRU"])
def test_open_steps_and_sequences_are_compiled_once(op: str) -> None:
    ort = pytest.importorskip("onnxruntime")
    layer = Layer(op, (4, 3, 5, 18), {"direction": "bidirectional"}, (1, 2, 3))
    model = layer.model(("X", "sequence_lens"), free=True)
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session = glowpy.InferenceSession(model)
    for steps, batch in ((4, 3), (9, 5), (2, 7), (30, 2)):
        rng = np.random.default_rng(steps)
        feeds = {
            "X": rng.standard_normal((steps, batch, 5)).astype(np.float32),
            "sequence_lens": rng.integers(1, steps + 1, batch).astype(np.int32),
        }
        for got, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            assert_same(got, expected, 1e-5, 1e-5)
    assert session.assumptions["T"] == "1..32"


@pytest.mark.parametrize("op", sorted(GATES))
def test_threads_share_sequences(op: str) -> None:
    """The bits are the same for any number of threads, and where there are more sequences than tiles of them."""
    layer = Layer(op, (6, 33, 4, 20), {"direction": "reverse"}, tuple(range(33)))
    x = layer.arrays()["X"]
    with glowpy.InferenceSession(layer.model(), threads=3) as several:
        shared = several.run(None, {"X": x})
    alone = glowpy.InferenceSession(layer.model()).run(None, {"X": x})
    for got, expected in zip(shared, alone, strict=True):
        np.testing.assert_array_equal(got, expected)


def test_the_work_of_a_layer_is_known() -> None:
    layer = Layer("LSTM", (4, 2, 3, 5), {})
    assert multiply_adds(glowpy.load(layer.model()).main) == 4 * 2 * 20 * (3 + 5)


def test_a_state_is_kept_from_step_to_step() -> None:
    """A session that gets a step at a time computes what one does that gets all of them."""
    steps = Layer("LSTM", (1, 1, 3, 9), {}, state=True)
    names = ("X", "initial_h", "initial_c")
    session = glowpy.InferenceSession(steps.model(names), state="auto")
    inputs = np.random.default_rng(0).standard_normal((5, 1, 3)).astype(np.float32)
    arrays = steps.arrays()
    arrays |= {name: np.zeros_like(arrays[name]) for name in names[1:]}
    whole = Layer("LSTM", (5, 1, 3, 9), {}, state=True)
    expected = whole.expected({**arrays, "X": inputs})[0]
    outputs = [session.run(["Y"], {"X": step[np.newaxis]})[0] for step in inputs]
    assert_same(np.concatenate(outputs), expected, 1e-5, 1e-6)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_floats(dtype: str) -> None:
    layer = Layer("GRU", (3, 2, 3, 4), {"linear_before_reset": 1}, dtype=np.dtype(dtype), opset=22)
    wide = {name: array.astype(np.float32) for name, array in layer.arrays().items()}
    expected = Layer("GRU", (3, 2, 3, 4), layer.attrs).expected(wide)
    for backend in ("interpreter", "cpu"):
        session = glowpy.InferenceSession(layer.model(), backend=backend)
        for got, outputs in zip(
            session.run(None, {"X": layer.arrays()["X"]}), expected, strict=True
        ):
            tolerance = 1e-5 if dtype == "float64" else 2**-11
            assert_same(got, outputs.astype(dtype), tolerance, tolerance)


@pytest.mark.parametrize(
    ("attrs", "change", "message"),
    [
        ({"direction": "up"}, {}, "expected forward, reverse or bidirectional, got 'up'"),
        ({"activations": ["Tanh"]}, {}, "attribute 'activations': expected 3, got 1"),
        ({"activations": ["Sin", "Tanh", "Tanh"]}, {}, "Softplus, got 'Sin'"),
        ({"activations": ["Affine", "Tanh", "Tanh"]}, {}, "'activation_alpha': expected a number for Affine"),
        ({}, {"R": (1, 20, 6)}, "expected input 1 of shape [1, 24, 3], got f32[1x20x3]"),
        ({}, {"B": (1, 20)}, "expected input 3 of shape [1, 40], got f32[1x20]"),
        ({}, {"X": (4, 3)}, "expected input 0 of rank 3, got f32[4x3]"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(
    attrs: dict[str, Any], change: dict[str, tuple[int, ...]], message: str
) -> None:
    layer = Layer("LSTM", (4, 2, 3, 5), attrs)
    arrays = {
        name: np.zeros(change.get(name, array.shape), np.float32)
        for name, array in layer.arrays().items()
    }
    node = helper.make_node("LSTM", list(arrays), ["Y"], **attrs)
    output = helper.make_tensor_value_info("Y", onnx.TensorProto.FLOAT, None)
    inputs = [info(name, array) for name, array in arrays.items()]
    with pytest.raises(UserError) as error:
        glowpy.load(graph_model([node], inputs, [output], 17))
    assert message in str(error.value)


@pytest.mark.parametrize("layer", LAYERS, ids=str)
def test_what_is_written_is_read_again(layer: Layer, tmp_path: Path) -> None:
    x = layer.arrays()["X"]
    glowpy.save(glowpy.load(layer.model()), tmp_path / "written.onnx")
    again = glowpy.InferenceSession(tmp_path / "written.onnx", backend="interpreter")
    expected = glowpy.InferenceSession(layer.model(), backend="interpreter").run(None, {"X": x})
    for got, output in zip(again.run(None, {"X": x}), expected, strict=True):
        assert_same(got, output, 1e-5, 1e-6)
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(
        str(tmp_path / "written.onnx"), providers=["CPUExecutionProvider"]
    )
    for got, output in zip(session.run(None, {"X": x}), expected, strict=True):
        assert_same(got, output, 1e-5, 1e-6)
