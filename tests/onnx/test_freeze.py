"""Frozen sessions: they compile nothing, run all that they have code for, and lose none of it to calls they refuse."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.calls_models import model_of

FOUND = """net (float[n] x, float[n, 2] y) => (float[n, 2] z) {
    zero = Constant <value = float {0}> () positive = Greater (x, zero)
    places = NonZero (positive) axis = Constant <value_ints = [1]> ()
    index = Transpose <perm = [1, 0]> (places)
    picked = GatherND (y, index) z = Add (picked, y)
}"""
CHOICE = """net (float[n] x, int64 i) => (float y) {
    one = Constant <value_int = 1> () c = Greater (i, one)
    y = If (c) <
        then_branch = t () => (float a) { a = ReduceSum <keepdims = 0> (x) },
        else_branch = e () => (float b) {
            w = Constant <value_floats = [1.0, 2.0, 3.0]> () z = Mul (x, w) b = ReduceSum <keepdims = 0> (z)
        }
    >
}"""
RELU = "net (float[n] x) => (float[n] y) { y = Relu (x) }"


def refused(session: glowpy.InferenceSession, feed: Mapping[str, Array]) -> str:
    with pytest.raises(glowpy.UserError, match="the session is frozen") as info:
        session.run(None, feed)
    return str(info.value)


def test_what_was_compiled_for_elements_runs() -> None:
    """Extents that elements decide are not as supposed in this call, for which there is code."""
    session = glowpy.InferenceSession(model_of(FOUND), backend="interpreter")
    y = np.arange(6, dtype=np.float32).reshape(3, 2)
    all_, one, other = (
        {"x": np.array(x, np.float32), "y": y} for x in ([1, 1, 1], [0, 1, -1], [0, 0, 1])
    )
    for feed in (all_, one):
        session.run(None, feed)
    session.freeze()
    for _ in range(2):
        np.testing.assert_array_equal(session.run(None, one)[0], y + y[1])
        np.testing.assert_array_equal(session.run(None, all_)[0], y + y)
        refused(session, other)


def test_more_than_is_supposed_drops_nothing() -> None:
    text = "net (int64[1] n, float[k] x) => (float[m] y) { y = Tile (x, n) }"
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    session.prepare(k="2..6")
    session.freeze()
    x = np.ones(3, np.float32)
    assert "'y_size' = 10000" in refused(session, {"n": np.array([10_000]), "x": x})
    assert session.run(None, {"n": np.array([3]), "x": x})[0].shape == (9,)


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_many_values_of_what_chooses_drop_nothing() -> None:
    """A session that is not frozen would choose branches itself from now on."""
    session = glowpy.InferenceSession(model_of(CHOICE), backend="interpreter")
    x = np.ones(3, np.float32)
    session.run(None, {"x": np.ones(4, np.float32), "i": np.array(3)})  # the other does not fit
    for i in range(4):
        session.run(None, {"x": x, "i": np.array(i)})
    session.freeze()
    for i in range(4, 8):
        refused(session, {"x": x, "i": np.array(i)})
    assert [session.run(None, {"x": x, "i": np.array(i)})[0] for i in range(4)] == [6, 6, 3, 3]


def test_what_is_dropped_meanwhile_is_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    """As by the call of another thread, after code was found and before it is taken."""
    session = glowpy.InferenceSession(model_of(RELU), backend="interpreter", limit=1)
    for n in (3, 4):
        session.run(None, {"x": np.ones(n, np.float32)})
    find = session._fitting

    def found(shapes: Mapping[str, tuple[int, ...]], known: tuple[()]) -> object:
        plan = find(shapes, known)
        session._specialisations.clear()
        return plan

    monkeypatch.setattr(session, "_fitting", found)
    monkeypatch.setattr(session._specialisations, "at_hand", lambda *_: None)
    session.freeze()
    refused(session, {"x": np.ones(2, np.float32)})


def test_shapes_that_contradict_each_other_are_told_as_ever() -> None:
    text = "net (float[n] x, float[n] z) => (float[n] y) { y = Add (x, z) }"
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    session.prepare(n="2..9")
    session.freeze()
    with pytest.raises(glowpy.UserError) as info:
        session.run(None, {"x": np.ones(3, np.float32), "z": np.ones(4, np.float32)})
    assert "frozen" not in str(info.value)


def test_nothing_is_prepared_after_it() -> None:
    session = glowpy.InferenceSession(model_of(RELU), backend="interpreter")
    session.prepare(n="2..9")
    session.freeze()
    for ranges in ("2..9", "2..99"):
        with pytest.raises(glowpy.UserError, match="frozen, and prepares nothing any more"):
            session.prepare(n=ranges)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert session.run(None, {"x": np.ones(9, np.float32)})[0].shape == (9,)


def test_freezing_ends_a_preparation() -> None:
    """What it refuses is no extent that the model does not allow."""
    session = glowpy.InferenceSession(
        model_of(RELU), backend="interpreter", on_compile=lambda _: session.freeze()
    )
    with pytest.raises(glowpy.UserError, match="the session is frozen"):
        session.prepare(n=[2, 3])
