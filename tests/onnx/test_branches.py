"""Branches that cannot be computed for the shapes of a call, and matter only where they are taken."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import glowpy
from glowpy import onnxruntime as drop_in
from glowpy.core.tensor import Array
from glowpy.importer.onnx.survey import read_with_problems
from glowpy.session.by_rounds import ByRounds
from tests.onnx.session_models import programs_of

BACKENDS = ["cpu", "interpreter"]
SUM = "{ s = ReduceSum <keepdims = 0> (x) }"
WEIGHED = """{
    w = Constant <value_floats = [1.0, 2.0, 3.0]> ()
    [prod] z = Mul (x, w)
    p = ReduceSum <keepdims = 0> (z)
}"""


def choosing(inputs: str, condition: str, other: str = WEIGHED, head: str = "") -> onnx.ModelProto:
    """y is the sum of x where the condition `c` holds, else the sum weighed by three weights."""
    return onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 16{head}]>
        net ({inputs}) => (float y) {{
            {condition}
            [choice] y = If (c) <
                then_branch = t () => (float s) {SUM},
                else_branch = e () => (float p) {other}
            >
        }}""")


BY_INTEGER = "k = Constant <value = int64 {16}> () c = Equal (sr, k)"
BY_DATA = "zero = Constant <value = float {0}> () s0 = ReduceSum <keepdims = 0> (x) c = Greater (s0, zero)"
BY_SHAPE = (
    "d = Shape (x) k = Constant <value_ints = [3]> () e = Equal (d, k) n = Not (e) c = Squeeze (n)"
)


def ones(count: int, **others: Any) -> dict[str, Array]:
    return {"x": np.ones(count, np.float32), **{k: np.array(v) for k, v in others.items()}}


CASES: dict[str, tuple[onnx.ModelProto, list[dict[str, Array]]]] = {
    "integer": (
        choosing("float[N] x, int64 sr", BY_INTEGER),
        [ones(3, sr=8), ones(4, sr=16), ones(9, sr=16), ones(3, sr=8), ones(3, sr=16)],
    ),
    "flag": (
        choosing("float[N] x, bool f", "c = Identity (f)"),
        [ones(4, f=True), ones(3, f=False), ones(5, f=True)],
    ),
    "data": (
        choosing("float[N] x", BY_DATA),
        [ones(4), {"x": -np.ones(3, np.float32)}, ones(7)],
    ),
    "fixed": (choosing("float[4] x, int64 sr", BY_INTEGER), [ones(4, sr=16), ones(4, sr=16)]),
    "initializer": (
        choosing("float[4] x", "c = Constant <value = bool {1}> ()"),
        [ones(4)],
    ),
    "nested": (
        choosing(
            "float[N] x, int64 sr, bool f",
            BY_INTEGER,
            f"{{ p = If (f) < then_branch = tt () => (float p1) {WEIGHED.replace(' p =', ' p1 =')},"
            " else_branch = ee () => (float q1) { q1 = ReduceMax <keepdims = 0> (x) } > }",
        ),
        [
            ones(4, sr=16, f=True),
            ones(4, sr=8, f=False),
            ones(3, sr=8, f=True),
            ones(5, sr=8, f=False),
        ],
    ),
}


def expected(name: str, feed: dict[str, Array]) -> float:
    """The sum, the sum with weights, or the largest."""
    x = feed["x"]
    chosen = {
        "flag": feed.get("f", False),
        "data": x.sum() > 0,
        "initializer": True,
    }
    if chosen.get(name, feed.get("sr") == 16):
        return float(x.sum())
    if name == "nested" and not feed["f"]:
        return float(x.max())
    return float(x @ [1, 2, 3])


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", CASES)
def test_a_branch_that_is_not_taken_does_not_have_to_fit(name: str, backend: str) -> None:
    """onnxruntime types both branches where all shapes are declared, and refuses these: what is expected is written."""
    model, feeds = CASES[name]
    session = glowpy.InferenceSession(model, backend=backend)
    for feed in feeds:
        (y,) = session.run(None, feed)
        assert y == expected(name, feed)


def test_what_one_branch_needs_is_not_assumed_for_the_other() -> None:
    """The weighed branch is for three elements, the other one for any number: it is compiled once."""
    session = glowpy.InferenceSession(CASES["integer"][0], backend="interpreter")
    session.run(None, ones(3, sr=8))
    for count in range(4, 12):
        session.run(None, ones(count, sr=16))
    assert len(programs_of(session).specialisations.keys) == 2
    assert session.assumptions == {"N": "1..64"}


def test_many_values_of_what_chooses_are_not_compiled_for() -> None:
    session = glowpy.InferenceSession(CASES["integer"][0], backend="interpreter")
    for rate in range(20):
        assert session.run(None, ones(3, sr=rate))[0] == (3 if rate == 16 else 6)
        assert session.run(None, ones(4, sr=16))[0] == 4
    assert isinstance(session._runner, ByRounds)


def test_a_branch_that_is_taken_is_named_with_its_node() -> None:
    session = glowpy.InferenceSession(CASES["integer"][0], backend="interpreter")
    session.run(None, ones(4, sr=16))
    for rate in range(6):  # compiled for the first ones, chosen by the session later
        with pytest.raises(glowpy.UserError, match=r"node 'choice/else_branch/prod' \(#1\)"):
            session.run(None, ones(4, sr=rate))
    assert session.run(None, ones(5, sr=16))[0] == 5


def test_branches_that_both_do_not_fit_are_both_told() -> None:
    text = onnx.printer.to_text(CASES["integer"][0]).replace(
        "ReduceSum <keepdims: int = 0> (x)", "Add (x, k)", 1
    )
    model = onnx.parser.parse_model(text)
    with pytest.raises(glowpy.UserError) as info:
        glowpy.load(model, dims={"N": 4})
    assert "choice/then_branch/s" in str(info.value)
    assert "choice/else_branch/prod" in str(info.value)


def test_an_operator_that_is_not_supported_may_stand_in_a_branch() -> None:
    other = "{ z = foreign.Unknown (x) p = ReduceSum <keepdims = 0> (z) }"
    model = choosing("float[N] x", BY_DATA, other, ', "foreign": 1')
    session = glowpy.InferenceSession(model, backend="interpreter")
    assert session.run(None, ones(4))[0] == 4
    with pytest.raises(glowpy.UserError, match=r"node 'choice/else_branch/z'.*foreign\.Unknown"):
        session.run(None, {"x": -np.ones(4, np.float32)})
    survey = read_with_problems(model)
    assert any("foreign.Unknown" in str(error) for error in survey.noted)


def test_machine_code_alone_needs_the_condition() -> None:
    model = CASES["integer"][0]
    with pytest.raises(glowpy.UserError) as info:
        glowpy.load(model, dims={"N": 4})
    assert "'choice' (#2): else_branch cannot be computed: the condition must be known" in str(
        info.value
    )
    assert "choice/else_branch/prod" in str(info.value)
    module = glowpy.load(model, dims={"N": 4}, values={"sr": np.array(16)})
    assert glowpy.compile(module, "interpreter")(ones(4, sr=16))["y"] == 4


def test_a_choice_inside_a_loop() -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 16]>
        net (float[N] x, int64 n) => (float y) {{
            true = Constant <value = bool {{1}}> ()
            zero = Constant <value = float {{0}}> ()
            [loop] y = Loop (n, true, zero) <
                body = b (int64 i, bool g, float v) => (bool g1, float u) {{
                    five = Constant <value = int64 {{5}}> ()
                    g1 = Identity (g)
                    c = Less (i, five)
                    [choice] a = If (c) <
                        then_branch = t () => (float s) {SUM},
                        else_branch = e () => (float p) {WEIGHED}
                    >
                    u = Add (v, a)
                }}
            >
        }}""")
    reference = ort.InferenceSession(model.SerializeToString())
    session = glowpy.InferenceSession(model, backend="interpreter")
    for count, rounds in ((3, 9), (4, 2), (4, 5), (5, 3), (3, 7)):
        feed = ones(count, n=rounds)
        np.testing.assert_allclose(session.run(None, feed), reference.run(None, feed), 1e-6)
    with pytest.raises(glowpy.UserError, match="node 'loop/body/choice/else_branch/prod'"):
        session.run(None, ones(4, n=8))


def test_the_interface_of_onnxruntime_chooses_as_well() -> None:
    model, feeds = CASES["integer"]
    session = drop_in.InferenceSession(model.SerializeToString())
    reference = ort.InferenceSession(model.SerializeToString())
    for feed in feeds:
        np.testing.assert_allclose(session.run(None, feed), reference.run(None, feed), 1e-6)


def test_a_session_with_state_knows_what_chooses() -> None:
    model = onnx.parser.parse_model(f"""<ir_version: 8, opset_import: ["": 16]>
        net (float[N] x, float past, int64 sr) => (float y, float present) {{
            {BY_INTEGER}
            [choice] a = If (c) <
                then_branch = t () => (float s) {SUM},
                else_branch = e () => (float p) {WEIGHED}
            >
            y = Add (a, past)
            present = Identity (y)
        }}""")
    session = glowpy.InferenceSession(model, backend="interpreter", state={"past": "present"})
    assert session.run(None, ones(4, sr=16))[0] == 4
    with pytest.warns(RuntimeWarning, match="code is compiled for each value of 'sr'"):
        assert session.run(None, ones(3, sr=8))[0] == 10
    assert session.run(None, ones(5, sr=16))[0] == 15


def test_a_choice_by_extents_is_made_for_each() -> None:
    session = glowpy.InferenceSession(choosing("float[N] x", BY_SHAPE), backend="interpreter")
    assert session.run(None, ones(4))[0] == 4
    with pytest.warns(RuntimeWarning, match="code is compiled for each extent of 'N'"):
        assert session.run(None, ones(3))[0] == 6
    assert session.run(None, ones(6))[0] == 6
