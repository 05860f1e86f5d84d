"""Branches inside of loops whose results have other extents: the extent is found, and rounds stay machine code."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import glowpy
from glowpy.core.tensor import Array
from glowpy.session.by_rounds import ByRounds
from glowpy.session.compiled import Compiled
from glowpy.session.session import InferenceSession
from tests.onnx.comparison import assert_same

HEAD = '<ir_version: 10, opset_import: ["": 17]> '
EVEN = (
    "two = Constant<value = int64 {2}>() r = Mod(i, two) zero = Constant<value = int64 {0}>() "
    "q = Equal(r, zero)"
)
CASES = {
    "one more or not": (
        "then_branch = t () => (float[M] p) { m = ReduceMean<keepdims = 1>(a) p = Concat<axis = 0>(a, m) }",
        "else_branch = e () => (float[J] o) { o = Neg(a) }",
    ),
    "one more or less": (
        "then_branch = t () => (float[M] p) { m = ReduceMean<keepdims = 1>(a) p = Concat<axis = 0>(a, m, m) }",
        """else_branch = e () => (float[J] o) { f = Constant<value_ints = [0]>() l = Constant<value_ints = [-1]>()
           o = Slice(a, f, l) }""",
    ),
    "another dimension": (
        "then_branch = t () => (float[M] p) { p = Concat<axis = 0>(a, w) }",
        "else_branch = e () => (float[J] o) { o = Exp(w) }",
    ),
    "what one finds": (
        """then_branch = t () => (float[M] p) { h = Constant<value = float {0.5}>() g1 = Greater(a, h)
           p = Compress<axis = 0>(a, g1) }""",
        "else_branch = e () => (float[J] o) { o = Concat<axis = 0>(a, w) }",
    ),
    "two numbers": (
        "then_branch = t () => (float[M] p) { p = Constant<value = float[2] {1.0, 2.0}>() }",
        "else_branch = e () => (float[J] o) { o = Constant<value = float[3] {3.0, 4.0, 5.0}>() }",
    ),
    "nothing": (
        "then_branch = t () => (float[M] p) { f = Constant<value_ints = [0]>() p = Slice(a, f, f) }",
        "else_branch = e () => (float[J] o) { o = Concat<axis = 0>(a, w) }",
    ),
}


def looped(branches: tuple[str, str], state: str = "b = Identity(v)") -> str:
    """A loop of as many rounds as k says, at most 300, whose rounds choose by their number."""
    return f"""agraph (float[N] x, float[J] w, int64 k) => (float[K] y) {{
    t = Constant<value = bool {{1}}>() y = Loop(k, t, x)
    <body = g (int64 i, bool c, float[L] a) => (bool c2, float[M] b) {{
      {EVEN} v = If(q) <{branches[0]}, {branches[1]}> {state} c2 = Identity(c) }}> }}"""


def fed(rounds: int, size: int = 3) -> dict[str, Array]:
    x = np.linspace(0.25, 2, size, dtype=np.float32)
    return {"x": x, "w": np.array([0.125, 0.75], np.float32), "k": np.array(rounds)}


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("case", CASES)
def test_results_of_other_extents(case: str, backend: str) -> None:
    proto = parser.parse_model(HEAD + looped(CASES[case]))
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend=backend)
    for rounds, size in ((3, 3), (1, 1), (2, 5), (9, 2)):
        feeds = fed(rounds, size)
        assert_same(session.run(None, feeds)[0], reference.run(None, feeds)[0])


def calls_of(session: InferenceSession, feeds: dict[str, Array], patch: pytest.MonkeyPatch) -> int:
    calls, run = 0, InferenceSession.run

    def counted(self: InferenceSession, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return run(self, *arguments, **options)

    session.run(None, feeds)
    patch.setattr(InferenceSession, "run", counted)
    session.run(None, feeds)
    return calls


@pytest.mark.parametrize("case", ["one more or not", "one more or less"])
def test_rounds_with_branches_are_no_calls_of_their_own(
    case: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = glowpy.InferenceSession(parser.parse_model(HEAD + looped(CASES[case])), backend="cpu")
    assert calls_of(session, fed(100), monkeypatch) < 8


def test_a_loop_that_keeps_its_types_is_compiled_as_a_whole() -> None:
    """What differs between branches may be summed up in the round."""
    text = looped(CASES["another dimension"], "s = ReduceSum<keepdims = 0>(v) b = Add(a, s)")
    proto = parser.parse_model(HEAD + text)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend="cpu")
    for rounds in (4, 1):
        assert_same(
            session.run(None, fed(rounds))[0], reference.run(None, fed(rounds))[0], rtol=1e-5
        )
    assert isinstance(session._runner, Compiled)


def test_long_loops_of_sessions_are_not_written_out() -> None:
    """Three hundred rounds took ten seconds to compile; who prepares them asks for that."""
    proto = parser.parse_model(HEAD + looped(CASES["one more or not"]))
    values = {"k": np.array(300)}
    session = glowpy.InferenceSession(proto, backend="interpreter")
    assert session.run(None, fed(300))[0].shape == (153,)
    assert isinstance(session._runner, ByRounds)
    short = glowpy.load(proto, shapes={"x": (3,), "w": (2,)}, values=values)
    assert short.main.num_nodes > 256
