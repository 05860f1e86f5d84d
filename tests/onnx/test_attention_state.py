"""What attention keeps: linear attention by steps, caches that are written to, and sequences that are turned around."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy import UserError
from glowpy.core.tensor import Array
from tests.onnx.comparison import assert_same, graph_model, info

BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])


def one(
    op: str, arrays: dict[str, Array], opset: int, dims: dict[str, Any] | None = None, outputs: int = 1,
    **attrs: Any,
) -> onnx.ModelProto:  # fmt: skip
    """A model of one node, whose inputs are all variable."""
    names = [f"y{index}" for index in range(outputs)]
    node = helper.make_node(op, list(arrays), names, **attrs)
    kind = helper.np_dtype_to_tensor_dtype(next(iter(arrays.values())).dtype)
    infos = [info(name, array, (dims or {}).get(name)) for name, array in arrays.items()]
    results = [helper.make_tensor_value_info(name, kind, None) for name in names]
    return graph_model([node], infos, results, opset)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_sequences_are_reversed(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=4)))
    time = data.draw(st.integers(0, 1))
    dtype = data.draw(st.sampled_from(["float32", "int8", "float64", "bool", "float16", "uint16"]))
    x = np.arange(np.prod(shape)).reshape(shape).astype(dtype)
    batch = shape[1 - time]
    lengths = data.draw(st.lists(st.integers(1, shape[time]), min_size=batch, max_size=batch))
    arrays: dict[str, Array] = {"x": x, "lengths": np.array(lengths, np.int64)}
    model = one("ReverseSequence", arrays, 10, time_axis=time, batch_axis=1 - time)
    expected = np.array(x)
    for row, length in enumerate(lengths):
        to, of = (np.swapaxes(array, 0, time) for array in (expected, x))
        to[:length, row] = of[:length, row][::-1]
    session = glowpy.InferenceSession(model, backend="interpreter")
    assert_same(session.run(None, arrays)[0], expected)


def test_open_sequences_are_reversed_by_one_compilation() -> None:
    ort = pytest.importorskip("onnxruntime")
    arrays: dict[str, Array] = {
        "x": np.zeros((2, 3, 4), np.float32),
        "lengths": np.zeros(3, np.int64),
    }
    dims = {"x": ["T", "B", 4], "lengths": ["B"]}
    model = one("ReverseSequence", arrays, 10, dims)
    session = glowpy.InferenceSession(model)
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    for steps, batch in ((2, 3), (7, 5), (4, 2)):
        rng = np.random.default_rng(steps)
        feeds = {
            "x": rng.standard_normal((steps, batch, 4)).astype(np.float32),
            "lengths": rng.integers(1, steps + 1, batch),
        }
        (got,), (expected,) = session.run(None, feeds), reference.run(None, feeds)
        assert_same(got, np.asarray(expected))
    assert session.assumptions == {"T": "1..16", "B": "1..32"}


@pytest.mark.parametrize(
    ("attrs", "lengths", "message"),
    [
        ({"time_axis": 1}, 3, "got 1 and 1"),
        ({"time_axis": 2, "batch_axis": 0}, 3, "got 2 and 0"),
        ({}, 2, "expected a length for each of 3 sequences, got i64[2]"),
    ],
)
def test_reversals_that_are_refused(attrs: dict[str, int], lengths: int, message: str) -> None:
    arrays: dict[str, Array] = {
        "x": np.zeros((2, 3, 4), np.float32),
        "lengths": np.zeros(lengths, np.int64),
    }
    with pytest.raises(UserError) as error:
        glowpy.load(one("ReverseSequence", arrays, 10, None, 1, **attrs))
    assert message in str(error.value)


@given(st.data())
@settings(max_examples=40, deadline=None)
def test_caches_are_written_to(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 4), min_size=2, max_size=4)))
    axis = data.draw(st.integers(1, len(shape) - 1))
    mode = data.draw(st.sampled_from(["linear", "circular"]))
    steps = data.draw(st.integers(1, shape[axis]))
    last = shape[axis] - (steps if mode == "linear" else 1)
    places = data.draw(st.lists(st.integers(0, last), min_size=shape[0], max_size=shape[0]))
    dtype = data.draw(st.sampled_from(["float32", "float16", "int8", "bool"]))
    update = (*shape[:axis], steps, *shape[axis + 1 :])
    arrays: dict[str, Array] = {
        "cache": np.arange(np.prod(shape)).reshape(shape).astype(dtype),
        "update": (-1 - np.arange(np.prod(update)).reshape(update)).astype(dtype),
    }
    if data.draw(st.booleans()):
        arrays["places"] = np.array(places, np.int64)
    spelled = data.draw(st.sampled_from([axis, axis - len(shape)]))
    model = one("TensorScatter", arrays, 24, axis=spelled, mode=mode)
    (expected,) = ReferenceEvaluator(model).run(None, arrays)
    session = glowpy.InferenceSession(model, backend="interpreter")
    assert_same(session.run(None, arrays)[0], np.asarray(expected))


@BACKENDS
def test_a_cache_is_kept(backend: str) -> None:
    """Two steps of a decoder whose sequences have different lengths."""
    arrays: dict[str, Array] = {
        "past_cache": np.zeros((2, 2, 5, 3), np.float32),
        "update": np.zeros((2, 2, 1, 3), np.float32),
        "places": np.zeros(2, np.int64),
    }
    model = one("TensorScatter", arrays, 24)
    session = glowpy.InferenceSession(model, backend=backend, state={"past_cache": "y0"})
    expected = arrays["past_cache"].copy()
    for step in range(2):
        update = np.random.default_rng(step).standard_normal((2, 2, 1, 3)).astype(np.float32)
        places = np.array([step, step + 2])
        session.run([], {"update": update, "places": places})
        for row in range(2):
            expected[row, :, places[row]] = update[row, :, 0]
    np.testing.assert_array_equal(session.get_state()["past_cache"], expected)


@pytest.mark.parametrize(
    ("change", "attrs", "message"),
    [
        ({}, {"mode": "round"}, "attribute 'mode': expected linear or circular, got 'round'"),
        ({}, {"axis": 0}, "expected an update that fits f32[2x5x3] along an axis after 0"),
        ({"update": (2, 6, 3)}, {}, "expected an update that fits f32[2x5x3]"),
        ({"update": (2, 2, 4)}, {}, "expected an update that fits f32[2x5x3]"),
        ({"places": (3,)}, {}, "expected a place for each sequence, 2, got i64[3]"),
    ],
)
def test_caches_that_are_refused(
    change: dict[str, tuple[int, ...]], attrs: dict[str, Any], message: str
) -> None:
    shapes = {"cache": (2, 5, 3), "update": (2, 2, 3), "places": (2,), **change}
    arrays: dict[str, Array] = {
        name: np.zeros(shape, np.int64 if name == "places" else np.float32)
        for name, shape in shapes.items()
    }
    with pytest.raises(UserError) as error:
        glowpy.load(one("TensorScatter", arrays, 24, **attrs))
    assert message in str(error.value)


def _attention(steps: int) -> dict[str, Array]:
    rng = np.random.default_rng(steps)
    shapes: dict[str, tuple[int, ...]] = {
        "query": (2, steps, 4 * 3),
        "key": (2, steps, 2 * 3),
        "value": (2, steps, 2 * 5),
        "past_state": (2, 2, 3, 5),
        "decay": (2, steps, 2),
        "beta": (2, steps, 2),
    }
    return {
        name: (rng.standard_normal(shape) / 4).astype(np.float32) for name, shape in shapes.items()
    }


@BACKENDS
def test_steps_and_sequences_of_linear_attention_are_open(backend: str) -> None:
    """One compilation serves all lengths, and gives what onnx's reference gives."""
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    dims: dict[str, Any] = {"query": ["B", "T", 12], "key": ["B", "T", 6], "value": ["B", "T", 10]}
    dims |= {"past_state": ["B", 2, 3, 5], "decay": ["B", "T", 2], "beta": ["B", "T", 2]}
    model = one("LinearAttention", _attention(1), 27, dims, 2, **heads)
    session = glowpy.InferenceSession(model, backend=backend)
    for steps in (3, 1, 6):
        arrays = _attention(steps)
        for got, expected in zip(
            session.run(None, arrays), ReferenceEvaluator(model).run(None, arrays), strict=True
        ):
            assert_same(got, np.asarray(expected), 1e-5, 1e-6)


def test_the_state_of_linear_attention_is_kept() -> None:
    heads = {"q_num_heads": 4, "kv_num_heads": 2}
    arrays = _attention(4)
    model = one("LinearAttention", arrays, 27, None, 2, **heads)
    expected, last = ReferenceEvaluator(model).run(
        None, {**arrays, "past_state": np.zeros_like(arrays["past_state"])}
    )
    step = {name: array[:, :1] for name, array in arrays.items() if name != "past_state"}
    step["past_state"] = arrays["past_state"]
    order = {name: step[name] for name in arrays}
    session = glowpy.InferenceSession(
        one("LinearAttention", order, 27, None, 2, **heads), state={"past_state": "y1"}
    )
    outputs = [
        session.run(["y0"], {name: arrays[name][:, index : index + 1] for name in arrays if name != "past_state"})[0]
        for index in range(4)
    ]  # fmt: skip
    assert_same(np.concatenate(outputs, 1), np.asarray(expected), 1e-5, 1e-6)
    assert_same(session.get_state()["past_state"], np.asarray(last), 1e-5, 1e-6)


@pytest.mark.parametrize(
    ("attrs", "message"),
    [
        (
            {"update_rule": "other"},
            "expected one of linear, gated, delta, gated_delta, got 'other'",
        ),
        ({"update_rule": "delta"}, "update_rule 'delta': expected no decay"),
        ({"update_rule": "gated"}, "update_rule 'gated': expected no beta"),
        (
            {"q_num_heads": 3},
            "expected q_num_heads that is a multiple of kv_num_heads, got 3 and 2",
        ),
        ({"q_num_heads": 10}, "expected input 0 of rank 3, with 10 heads, got f32[2x2x12]"),
    ],
)
def test_attention_that_is_refused(attrs: dict[str, Any], message: str) -> None:
    heads: dict[str, Any] = {"q_num_heads": 4, "kv_num_heads": 2, **attrs}
    with pytest.raises(UserError) as error:
        glowpy.load(one("LinearAttention", _attention(2), 27, None, 2, **heads))
    assert message in str(error.value)


def test_linear_attention_over_nothing_gives_zeros() -> None:
    """Queries and keys of no width have no scale."""
    arrays = {
        **_attention(3),
        "query": np.zeros((2, 3, 0), np.float32),
        "key": np.zeros((2, 3, 0), np.float32),
    }
    arrays["past_state"] = np.zeros((2, 2, 0, 5), np.float32)
    model = one("LinearAttention", arrays, 27, None, 2, q_num_heads=4, kv_num_heads=2)
    result, state = glowpy.InferenceSession(model, backend="interpreter").run(None, arrays)
    assert result.shape == (2, 3, 4 * 5)
    assert not result.any()
    assert state.shape == (2, 2, 0, 5)
