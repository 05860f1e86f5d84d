"""Sessions that keep state: each run goes on where the one before it ended."""

from __future__ import annotations

import threading
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.errors import UserError
from tests.onnx.calls_models import model_of

RNG = np.random.default_rng(0)
FLOAT = TensorProto.FLOAT
BACKENDS = ["cpu", "interpreter"]


def _model(nodes: list[onnx.NodeProto], shapes: dict[str, list[int | str]], inputs: int) -> bytes:
    """A model whose first `inputs` shapes are of inputs, the others of outputs."""
    infos = [helper.make_tensor_value_info(n, FLOAT, shape) for n, shape in shapes.items()]
    tensors = [numpy_helper.from_array(array, name) for name, array in _weights().items()]
    used = {name for node in nodes for name in node.input}
    tensors = [tensor for tensor in tensors if tensor.name in used]
    graph = helper.make_graph(nodes, "net", infos[:inputs], infos[inputs:], tensors)
    opset = [helper.make_opsetid("", 17)]
    model = helper.make_model(graph, opset_imports=opset, ir_version=8)
    return bytes(model.SerializeToString())


@cache
def _weights() -> dict[str, Array]:
    shapes = {"w": (8, 8), "wi": (4, 6), "wh": (6, 6)}
    return {
        name: RNG.standard_normal(shape).astype(np.float32) / np.float32(3)
        for name, shape in shapes.items()
    }


@cache
def attention() -> bytes:
    """Attends to all rows that it has seen."""
    nodes = [
        helper.make_node("Concat", ["past_key_0", "x"], ["present_key_0"], axis=1),
        helper.make_node("MatMul", ["x", "w"], ["query"]),
        helper.make_node("Transpose", ["present_key_0"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["query", "keys"], ["scores"]),
        helper.make_node("Softmax", ["scores"], ["chances"], axis=2),
        helper.make_node("MatMul", ["chances", "present_key_0"], ["y"]),
    ]
    shapes: dict[str, list[int | str]] = {
        "past_key_0": ["batch", "past", 8],
        "x": ["batch", "length", 8],
        "y": ["batch", "length", 8],
        "present_key_0": ["batch", "all", 8],
    }
    return _model(nodes, shapes, 2)


@cache
def recurrent() -> bytes:
    """One step of a recurrence, with its hidden state as an input and an output."""
    nodes = [
        helper.make_node("MatMul", ["x", "wi"], ["seen"]),
        helper.make_node("MatMul", ["h0", "wh"], ["remembered"]),
        helper.make_node("Add", ["seen", "remembered"], ["sum"]),
        helper.make_node("Tanh", ["sum"], ["hn"]),
        helper.make_node("Mul", ["hn", "h0"], ["y"]),
    ]
    shapes: dict[str, list[int | str]] = {
        "x": ["batch", 4],
        "h0": ["batch", 6],
        "y": ["batch", 6],
        "hn": ["batch", 6],
    }
    return _model(nodes, shapes, 2)


def _renamed(model: bytes, **dims: str) -> bytes:
    """A model whose inputs and outputs have other dimensions in some places: names, or none for an empty one."""
    proto = onnx.load_from_string(model)
    for info in (*proto.graph.input, *proto.graph.output):
        for dim in info.type.tensor_type.shape.dim if info.name != "x" else ():
            if dim.dim_param in dims:
                dim.dim_param = dims[dim.dim_param]
    return bytes(proto.SerializeToString())


def _rows(batch: int, length: int) -> Array:
    return RNG.standard_normal((batch, length, 8)).astype(np.float32)


@cache
def stateless() -> glowpy.InferenceSession:
    """The same model, which is given its past."""
    return glowpy.InferenceSession(attention(), backend="interpreter")


def _expected(past: Array, x: Array) -> list[Array]:
    return stateless().run(["y", "present_key_0"], {"past_key_0": past, "x": x})


def _same(actual: Array, expected: Array) -> None:
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_cache_grows_as_the_session_meets_more(backend: str) -> None:
    session = glowpy.InferenceSession(attention(), backend=backend, state="auto")
    assert [info.name for info in session.get_inputs()] == ["x"]
    assert [info.name for info in session.get_outputs()] == ["y"]
    assert "past" not in repr(session)
    assert session.get_state() == {}
    past = np.zeros((2, 0, 8), np.float32)
    for step in range(70):
        x = _rows(2, 3 if step == 0 else 1)
        expected, past = _expected(past, x)
        (y,) = session.run(None, {"x": x})
        _same(y, expected)
    assert session.assumptions["past"] == "0..256"
    _same(session.get_state()["past_key_0"], past)
    (present,) = session.run(["present_key_0"], {"x": x})
    _same(present, np.concatenate([past, x], axis=1))


def test_a_network_with_state_is_recalled() -> None:
    x = _rows(1, 2)
    for _ in range(2):
        session = glowpy.InferenceSession(attention(), state="auto")
        past = np.zeros((1, 0, 8), np.float32)
        for _ in range(2):
            expected, past = _expected(past, x)
            _same(session.run(None, {"x": x})[0], expected)


def test_a_session_begins_again_and_goes_on_from_what_it_is_given() -> None:
    session = glowpy.InferenceSession(
        attention(), backend="interpreter", state={"past_key_0": "present_key_0"}
    )
    x = _rows(1, 4)
    session.run(None, {"x": x})
    before = session.get_state()
    _same(before["past_key_0"], x)
    session.reset_state()
    assert session.get_state() == {}
    other = _rows(3, 2)
    _same(session.run(None, {"x": other})[0], _expected(np.zeros((3, 0, 8), np.float32), other)[0])
    session.set_state(before)
    before["past_key_0"][...] = 0  # it was copied
    word = _rows(1, 1)
    _same(session.run(None, {"x": word})[0], _expected(x, word)[0])
    with pytest.raises(UserError, match="'batch' is 1 elsewhere, got 2"):
        session.run(None, {"x": _rows(2, 1)})  # of another batch than what it keeps
    _same(session.get_state()["past_key_0"], np.concatenate([x, word], axis=1))


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_hidden_state_is_kept(backend: str) -> None:
    session = glowpy.InferenceSession(recurrent(), backend=backend, state="auto")
    weights, h = _weights(), np.zeros((2, 6), np.float32)
    for _ in range(4):
        x = RNG.standard_normal((2, 4)).astype(np.float32)
        (y,) = session.run(None, {"x": x})
        after = np.tanh(x @ weights["wi"] + h @ weights["wh"])
        _same(y, after * h)
        h = after
        _same(session.get_state()["h0"], h)


@pytest.mark.parametrize("name", ["", "other"])
@pytest.mark.parametrize("batch", [1, 2])
def test_state_begins_as_inputs_say_whatever_its_dimensions_are_called(
    name: str, batch: int
) -> None:
    model = _renamed(recurrent(), batch=name)
    session = glowpy.InferenceSession(model, backend="interpreter", state="auto")
    weights, x = _weights(), RNG.standard_normal((batch, 4)).astype(np.float32)
    (y,) = session.run(None, {"x": x})
    _same(y, np.zeros((batch, 6), np.float32))
    h = np.tanh(x @ weights["wi"])
    _same(session.get_state()["h0"], h)
    (y,) = session.run(None, {"x": x})
    _same(y, np.tanh(x @ weights["wi"] + h @ weights["wh"]) * h)

    model = _renamed(attention(), batch=name, past=name and "seen", all=name and "seen")
    session = glowpy.InferenceSession(model, backend="interpreter", state="auto")
    past = np.zeros((batch, 0, 8), np.float32)
    for length in (3, 1, 2):
        rows = _rows(batch, length)
        expected, past = _expected(past, rows)
        _same(session.run(None, {"x": rows})[0], expected)
    _same(session.get_state()["past_key_0"], past)


def test_state_that_no_input_says_anything_of_has_to_be_given() -> None:
    numbers = {"halves": [2, -1], "whole": [-1]}
    nodes = [
        helper.make_node("Constant", [], [name], value_ints=ints) for name, ints in numbers.items()
    ]
    nodes += [
        helper.make_node("Reshape", ["h0", "halves"], ["rows"]),
        helper.make_node("Add", ["rows", "x"], ["y"]),
        helper.make_node("Reshape", ["y", "whole"], ["hn"]),
    ]
    shapes: dict[str, list[int | str]] = {"x": [1], "h0": ["size"], "y": [2, "half"], "hn": ["all"]}
    session = glowpy.InferenceSession(
        _model(nodes, shapes, 2), backend="interpreter", state={"h0": "hn"}
    )
    one = np.ones(1, np.float32)
    with pytest.raises(UserError, match="state 'h0': no input says what it is along axis 0"):
        session.run(None, {"x": one})
    session.set_state({"h0": np.arange(6, dtype=np.float32)})
    _same(session.run(None, {"x": one})[0], np.arange(1, 7, dtype=np.float32).reshape(2, 3))


def test_wrong_state_is_refused() -> None:
    for pairs, message in {
        (
            "past",
            "present_key_0",
        ): r"state: expected one of the inputs 'past_key_0', 'x', got 'past'",
        (
            "past_key_0",
            "y_2",
        ): r"state: expected one of the outputs 'y', 'present_key_0', got 'y_2'",
    }.items():
        with pytest.raises(UserError, match=message):
            glowpy.InferenceSession(attention(), state=dict([pairs]))
    with pytest.raises(UserError, match="'y' is the output of 2 inputs"):
        glowpy.InferenceSession(attention(), state={"past_key_0": "y", "x": "y"})
    with pytest.raises(UserError, match=r"'x' is f32.*, which the output 'y', .*, cannot become"):
        glowpy.InferenceSession(recurrent(), state={"x": "y"})
    session = glowpy.InferenceSession(attention(), backend="interpreter", state="auto")
    x = _rows(1, 1)
    with pytest.raises(UserError, match="expected the inputs 'x', got 'past_key_0'"):
        session.run(None, {"x": x, "past_key_0": x})
    with pytest.raises(UserError, match="expected one of the variables 'past_key_0', got 'x'"):
        session.set_state({"x": x})
    with pytest.raises(UserError, match=r"'past_key_0': expected tensor\(float\)"):
        session.set_state({"past_key_0": np.zeros((1, 3, 9), np.float32)})
    with pytest.raises(UserError, match="expected the outputs 'y', got 'present_key_0'"):
        session.run(None, {"x": x}, out={"present_key_0": x})
    for state in ("past_key_0=present_key_0", True):
        with pytest.raises(UserError, match="state: expected a dict of inputs and their outputs"):
            glowpy.InferenceSession(attention(), state=state)  # type: ignore[arg-type]
    with pytest.raises(UserError, match="expected a dict of inputs and their outputs, got 'auto'"):
        glowpy.load(attention(), state="auto")  # type: ignore[arg-type]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    with pytest.raises(UserError, match="no input and output look like state"):
        glowpy.InferenceSession(_model(nodes, {"x": [1], "y": [1]}, 1), state="auto")


def test_another_batch_than_what_is_kept_has_a_remedy() -> None:
    session = glowpy.InferenceSession(attention(), backend="interpreter", state="auto")
    with pytest.raises(UserError) as fresh:
        session.run(None, {"x": np.zeros((1, 1, 9), np.float32)})
    assert "reset_state" not in str(fresh.value)
    session.run(None, {"x": _rows(1, 3)})
    message = (
        r"keeps what earlier runs left: 'past_key_0' of shape \[1x3x8\]\nnote: reset_state\(\)"
    )
    with pytest.raises(UserError, match=message):
        session.run(None, {"x": _rows(2, 1)})
    session.reset_state()
    assert session.run(None, {"x": _rows(2, 1)})[0].shape == (2, 1, 8)


def test_state_is_given_as_a_whole() -> None:
    nodes = [
        helper.make_node("Concat", [f"past_{key}", "x"], [f"present_{key}"], axis=0) for key in "kv"
    ]
    nodes += [helper.make_node("Add", ["present_k", "present_v"], ["y"])]
    inputs: dict[str, list[int | str]] = {"past_k": ["past"], "past_v": ["past"], "x": ["length"]}
    shapes = inputs | {"y": ["all"], "present_k": ["all"], "present_v": ["all"]}
    session = glowpy.InferenceSession(_model(nodes, shapes, 3), backend="interpreter", state="auto")
    two, three = np.ones(2, np.float32), np.ones(3, np.float32)
    with pytest.raises(UserError, match="expected all variables, missing 'past_k', 'past_v'"):
        session.set_state({})
    with pytest.raises(UserError, match="expected all variables, missing 'past_v'"):
        session.set_state({"past_k": two})
    with pytest.raises(UserError, match="'past_v': expected 'past' = 2 as in 'past_k', got 3"):
        session.set_state({"past_k": two, "past_v": three})
    session.set_state({"past_k": two, "past_v": two})
    assert session.run(None, {"x": three})[0].shape == (5,)


def test_what_is_kept_is_stored_in_arrays_that_are_given() -> None:
    session = glowpy.InferenceSession(attention(), backend="interpreter", state="auto")
    x, present = _rows(1, 2), np.zeros((1, 2, 8), np.float32)
    y, kept = session.run(["y", "present_key_0"], {"x": x}, out={"present_key_0": present})
    assert kept is present
    _same(present, x)
    _same(y, _expected(np.zeros((1, 0, 8), np.float32), x)[0])
    with pytest.raises(UserError, match=r"'past_key_0': expected an array of type f32\[1x4x8\]"):
        session.run(["present_key_0"], {"x": x}, out={"present_key_0": present})
    _same(session.get_state()["past_key_0"], x)
    view = np.broadcast_to(np.float32(0), (1, 4, 8))
    with pytest.raises(UserError, match="'past_key_0': expected a writeable array"):
        session.run(["present_key_0"], {"x": x}, out={"present_key_0": view})
    _same(session.get_state()["past_key_0"], x)


def test_no_names_of_outputs_are_all_names() -> None:
    """As for onnxruntime."""
    session = glowpy.InferenceSession(attention(), backend="interpreter", state="auto")
    assert len(session.run([], {"x": _rows(1, 2)})) == 1


def test_what_contradicts_what_was_learned_is_named() -> None:
    masked = onnx.load_from_string(attention())
    del masked.graph.node[:]
    masked.graph.node.append(helper.make_node("Add", ["past_key_0", "x"], ["y"]))
    masked.graph.node.append(helper.make_node("Neg", ["past_key_0"], ["present_key_0"]))
    session = glowpy.InferenceSession(masked.SerializeToString(), backend="interpreter")
    session.run(None, {"past_key_0": _rows(1, 4), "x": _rows(1, 4)})
    with pytest.raises(UserError, match=r"'(past|length)' = (length|past) = [23], as before"):
        session.run(None, {"past_key_0": _rows(1, 2), "x": _rows(1, 3)})
    fresh = glowpy.InferenceSession(masked.SerializeToString(), backend="interpreter")
    with pytest.raises(UserError) as caught:
        fresh.run(None, {"past_key_0": _rows(2, 2), "x": _rows(2, 3)})
    assert "Expr" not in str(caught.value)


def test_threads_take_turns() -> None:
    session = glowpy.InferenceSession(attention(), backend="interpreter", state="auto")
    row = _rows(1, 1)

    def work() -> None:
        for _ in range(10):
            session.run(None, {"x": row})

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _same(session.get_state()["past_key_0"], np.repeat(row, 30, axis=1))


def test_a_run_within_a_run_is_refused() -> None:
    class Again:
        def before(self, inst: object, operands: object) -> None:
            session.get_state()

        def after(self, inst: object, operands: object) -> None: ...

    session = glowpy.InferenceSession(
        attention(), backend="interpreter", state="auto", observer=Again()
    )
    with pytest.raises(UserError, match="expected a callback that does not use the session"):
        session.run(None, {"x": _rows(1, 1)})


CACHES = """
net (float[1, n, 8] x, float[1, a, 8] past_key_0, float[1, b, 8] past_value_0, float[1, c, 8] past_key_1,
     float[1, d, 8] past_value_1)
=> (float[1, n, 8] z, float[1, e, 8] present_key_0, float[1, f, 8] present_value_0, float[1, g, 8] present_key_1,
    float[1, h, 8] present_value_1) {
    present_key_0 = Concat <axis = 1> (past_key_0, x)
    present_value_0 = Concat <axis = 1> (past_value_0, x)
    keys_0 = Transpose <perm = [0, 2, 1]> (present_key_0)
    scores_0 = MatMul (x, keys_0) weights_0 = Softmax <axis = -1> (scores_0)
    y = MatMul (weights_0, present_value_0)
    present_key_1 = Concat <axis = 1> (past_key_1, y)
    present_value_1 = Concat <axis = 1> (past_value_1, y)
    keys_1 = Transpose <perm = [0, 2, 1]> (present_key_1)
    scores_1 = MatMul (y, keys_1) weights_1 = Softmax <axis = -1> (scores_1)
    z = MatMul (weights_1, present_value_1)
}
"""


@pytest.mark.parametrize("name", [None, "?", "unk__3"])
def test_caches_whose_lengths_have_different_names(name: str | None) -> None:
    """Each layer's keys and values have a length of their own, by name, or one that says nothing."""
    ort = pytest.importorskip("onnxruntime")
    model = model_of(CACHES)
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for info in (*model.graph.input, *model.graph.output):
        dim = info.type.tensor_type.shape.dim[1]
        dim.dim_param = name or dim.dim_param
    session = glowpy.InferenceSession(model, backend="interpreter", state="auto")
    names = [info.name for info in reference.get_inputs()][1:]
    past = {name: np.zeros((1, 0, 8), np.float32) for name in names}
    for length in (3, 1, 1, 2):
        x = np.random.default_rng(length).standard_normal((1, length, 8)).astype(np.float32)
        expected, *present = reference.run(None, {"x": x, **past})
        past = dict(zip(names, present, strict=True))
        (z,) = session.run(None, {"x": x})
        np.testing.assert_allclose(z, expected, rtol=1e-5, atol=1e-6)
    assert {array.shape for array in session.get_state().values()} == {(1, 7, 8)}
