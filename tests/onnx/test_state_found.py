"""Sessions that keep state and find extents: a run that was made for others leaves the state as it was."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnx.parser
import onnxruntime as ort
import pytest

import glowpy
from glowpy.core.tensor import Array
from tests.onnx.session_models import programs_of

HEAD = '<ir_version: 8, opset_import: ["": 16]>'
RANGE = "z = Constant <value = int64 {0}> () o = Constant <value = int64 {1}> ()"
F = "f = Cast <to = 1> (r)"
MODELS: dict[str, tuple[str, dict[str, str], dict[str, Array]]] = {
    "sum": (
        f"""net (int64 n, float past) => (float y, float present) {{
            {RANGE} r = Range (z, n, o) {F}
            s = ReduceSum <keepdims = 0> (f) present = Add (s, past) y = Identity (present)
        }}""",
        {"past": "present"},
        {"past": np.array(0, np.float32)},
    ),
    "growing": (
        f"""net (int64 n, float[P] past, float[2] sums) => (float y, float[T] present, float[2] sums2) {{
            {RANGE} r = Range (z, n, o) {F} present = Concat <axis = 0> (past, f)
            y = ReduceSum <keepdims = 0> (present) sums2 = Add (sums, y)
        }}""",
        {"past": "present", "sums": "sums2"},
        {"past": np.zeros(0, np.float32), "sums": np.zeros(2, np.float32)},
    ),
    "equal": (
        f"""net (float[N] x, int64 n, float[2] past) => (float[M] y, float[2] present) {{
            {RANGE} r = Range (z, n, o) {F} y = Add (x, f)
            s = ReduceSum <keepdims = 1> (y) present = Add (past, s)
        }}""",
        {"past": "present"},
        {"past": np.zeros(2, np.float32)},
    ),
    "counter": (
        f"""net (int64 n, int64 past) => (int64[R] r, int64 present) {{
            {RANGE} present = Add (past, n) r = Range (z, present, o)
        }}""",
        {"past": "present"},
        {"past": np.array(0)},
    ),
    "kept": (
        """net (float[N] x, float[P] past) => (float y, float[T] present) {
            zero = Constant <value = float {0}> () c = Greater (x, zero)
            k = Compress <axis = 0> (x, c) present = Concat <axis = 0> (past, k)
            y = ReduceSum <keepdims = 0> (present)
        }""",
        {"past": "present"},
        {"past": np.zeros(0, np.float32)},
    ),
}


def count(n: int) -> dict[str, Array]:
    return {"n": np.array(n)}


def rows(n: int, elements: int | None = None) -> dict[str, Array]:
    number = n if elements is None else elements
    return {"x": np.arange(n, dtype=np.float32) - 1, "n": np.array(number)}


CALLS: dict[str, tuple[Callable[..., dict[str, Array]], Sequence[Any], int]] = {
    "sum": (count, [(3,), (5,), (0,), (600,), (4,)], 1),
    "growing": (count, [(3,), (2,), (5,), (600,), (1,)], 2),
    "equal": (rows, [(3,), (5,), (1, 2), (7,), (4,)], 2),
    "counter": (count, [(3,), (2,), (600,), (1,)], 1),
    "kept": (lambda n: {"x": rows(n)["x"]}, [(3,), (2,), (5,), (60,), (1,)], 2),
}
"""Inputs of calls, and how many programs there are in the end at most."""


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", MODELS)
@pytest.mark.filterwarnings("error")
def test_one_program_serves_what_elements_decide(name: str, backend: str) -> None:
    text, pairs, kept = MODELS[name]
    make, calls, programs = CALLS[name]
    model = onnx.parser.parse_model(HEAD + text)
    reference = ort.InferenceSession(model.SerializeToString())
    session = glowpy.InferenceSession(model, backend=backend, state=pairs, check_indices=True)
    for call in calls:
        feeds = make(*call)
        outputs = [output.name for output in reference.get_outputs()]
        expected = dict(zip(outputs, reference.run(None, feeds | kept), strict=True))
        kept = {name: np.asarray(expected.pop(output)) for name, output in pairs.items()}
        results = session.run([*expected], feeds)
        for result, array in zip(results, expected.values(), strict=True):
            np.testing.assert_allclose(result, array, 1e-5)
        for variable, content in session.get_state().items():
            np.testing.assert_allclose(content, kept[variable], 1e-5)
    assert len(programs_of(session).specialisations.keys) <= programs


def test_outputs_are_stored_once_they_are_right() -> None:
    """Also what the session keeps: the first run of a call that is beyond the limit is void."""
    text, pairs, _ = MODELS["growing"]
    model = onnx.parser.parse_model(HEAD + text)
    session = glowpy.InferenceSession(model, backend="interpreter", state=pairs)
    session.run(["y"], count(3))
    out = {"y": np.zeros((), np.float32), "present": np.zeros(703, np.float32)}
    y, present = session.run(["y", "present"], count(700), out=out)
    assert y is out["y"]
    assert present is out["present"]
    np.testing.assert_array_equal(present, np.concatenate([np.arange(3), np.arange(700)]))
    assert y == present.sum()
    with pytest.raises(glowpy.UserError, match="'present': expected"):
        session.run(["present"], count(1), out={"present": np.zeros(9, np.float32)})
    np.testing.assert_array_equal(session.get_state()["past"], present)


def test_state_stays_where_a_call_cannot_be_computed() -> None:
    """A variable decides the extent, which is none of those that it could have: nothing is known in advance."""
    model = onnx.parser.parse_model(f"""{HEAD}
        net (float[N] x, int64 past) => (float[N] y, int64 present) {{
            {RANGE} present = Add (past, o) r = Range (z, present, o) {F} y = Add (x, f)
        }}""")
    session = glowpy.InferenceSession(model, backend="interpreter", state={"past": "present"})
    for n in (1, 2, 3):
        (y,) = session.run(None, {"x": np.ones(n, np.float32)})
        np.testing.assert_array_equal(y, np.arange(n) + 1)
    with pytest.raises(glowpy.UserError, match="'r_count'"):
        session.run(None, {"x": np.ones(7, np.float32)})
    assert session.get_state()["past"] == 3
    assert session.run(None, {"x": np.ones(4, np.float32)})[0].shape == (4,)


def test_what_is_prepared_supposes_as_well() -> None:
    text, pairs, _ = MODELS["growing"]
    model = onnx.parser.parse_model(HEAD + text)
    session = glowpy.InferenceSession(model, backend="interpreter", state=pairs)
    session.prepare(P="0..100")
    session.freeze()
    for n in (3, 5, 40):
        session.run(None, count(n))
    with pytest.raises(glowpy.UserError, match="frozen"):
        session.run(None, count(900))
    assert session.get_state()["past"].shape == (48,)
