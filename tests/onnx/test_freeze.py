"""Frozen sessions: they compile nothing, run all that they have code for, and lose none of it to calls they refuse."""

from __future__ import annotations

import warnings
from collections.abc import Mapping

import numpy as np
import onnx
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.session.preparation import CompileEvent
from glowpy.support.errors import FrozenError, ResourceError
from tests.onnx.calls_models import model_of
from tests.onnx.session_models import programs_of

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
    find = programs_of(session)._fitting

    def found(shapes: Mapping[str, tuple[int, ...]], known: tuple[()]) -> object:
        plan = find(shapes, known)
        programs_of(session).specialisations.clear()
        return plan

    monkeypatch.setattr(programs_of(session), "_fitting", found)
    monkeypatch.setattr(programs_of(session).specialisations, "at_hand", lambda *_: None)
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


PAIR = "net (float[unnamed_a, long, 2] x, float[unnamed_b, long, 2] z) => (float[m, long, 2] y) { y = Add (x, z) }"


def unnamed() -> onnx.ModelProto:
    """Two dimensions that have to be equal and have no name, and one whose name is no word of a type's text."""
    model = model_of(PAIR)
    for info in (*model.graph.input, *model.graph.output):
        first, second = info.type.tensor_type.shape.dim[:2]
        first.ClearField("dim_param")
        second.dim_param = "seq len"
    return model


def test_dimensions_are_spelled_as_the_user_spells_them() -> None:
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(unnamed(), backend="interpreter", on_compile=events.append)
    session.prepare({"x[0]": "2..4", "seq len": "2..9", "z[0]": "x[0]"})
    dims = {"x[0]": "2..4", "seq len": "2..9", "z[0]": "2..4"}
    assert [dict(event.dims) for event in events] == [dims]
    session.freeze()
    said = refused(session, {name: np.ones((5, 3, 2), np.float32) for name in "xz"})
    assert "'x[0]' = 5, 'z[0]' = 5, where code is for x[0] = 2..4, seq len = 2..9, z[0]" in said
    session = glowpy.InferenceSession(unnamed(), backend="interpreter")
    session.run(None, {name: np.ones((5, 3, 2), np.float32) for name in "xz"})
    with pytest.raises(glowpy.UserError) as info:
        session.run(None, {n: np.ones((3 + (n == "z"), 3, 2), np.float32) for n in "xz"})
    assert "expected 'x[0]' = z[0] = 4, as before, got 3" in str(info.value)


def test_extents_that_are_compiled_for_each_are_spelled_too() -> None:
    model = model_of(
        "net (float[1, c, 8] x, float[4, k, 3] w) => (float[1, 4, 6] y) { y = Conv (x, w) }"
    )
    for info in model.graph.input:
        info.type.tensor_type.shape.dim[1].ClearField("dim_param")
    session = glowpy.InferenceSession(model, backend="interpreter")
    with pytest.raises(glowpy.UserError, match=r"at most 64 extents of '(x|w)\[1\]', got 99"):
        session.prepare({"x[1]": "1..99", "w[1]": "1..99"})
    for c in (2, 3):
        feed = {"x": np.ones((1, c, 8), np.float32), "w": np.ones((4, c, 3), np.float32)}
        if c == 2:
            session.run(None, feed)
            continue
        with pytest.warns(RuntimeWarning, match=r"for each extent of '(x|w)\[1\]', now 3"):
            session.run(None, feed)


@pytest.mark.parametrize("kind", [FrozenError, ResourceError])
def test_what_a_session_or_a_machine_refuses_stays_what_it_is(kind: type[glowpy.UserError]) -> None:
    """Although the call is at odds with what was learned, or asked for elements, before."""
    session = glowpy.InferenceSession(unnamed(), backend="interpreter")
    session.run(None, {name: np.ones((5, 3, 2), np.float32) for name in "xz"})

    def admit(why: str = "") -> None:
        raise kind(why)

    session._compiling.gate.admit = admit  # type: ignore[method-assign]
    with pytest.raises(kind):
        session.run(None, {n: np.ones((3 + (n == "z"), 3, 2), np.float32) for n in "xz"})
