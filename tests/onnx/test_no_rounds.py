"""Loops and scans that a session runs, and that run no round: what they stack has the shape that a round would give."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import parser

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.errors import ResourceError

HEAD = '<ir_version: 10, opset_import: ["": 17]> '
STEP = """one = Constant <value_float = 1.0> () q = Add(p, one) m = ReduceMax <keepdims = 0> (q)
  e = Constant <value_float = 3.5> () k2 = Less(m, e)"""
LOOP = (
    HEAD
    + """agraph (int64 n, bool c, float[N] a) => (float[N] b, float[R, N] s, float[R, 2, M] t) {
  b, s, t = Loop (n, c, a) <body = g (int64 i, bool k, float[N] p) => (bool k2, float[N] q, sc, tc) {"""
    + STEP
    + """ sc = Identity(p) d = Concat <axis = 0> (p, p) z = Constant <value_ints = [2, -1]> ()
  tc = Reshape(d, z) }> }"""
)
A = np.array([1, 2], np.float32)


def run(text: str, **feeds: Any) -> list[Array]:
    text = text.replace("sc, tc)", "float[X] sc, float[2, Y] tc)")
    session = glowpy.InferenceSession(parser.parse_model(text), backend="interpreter")
    return [np.asarray(array) for array in session.run(None, feeds)]


@pytest.mark.parametrize(("n", "c"), [(0, True), (5, False), (-3, True)])
def test_loops_without_rounds(n: int, c: bool) -> None:
    b, s, t = run(LOOP, n=np.array(n), c=np.array(c), a=A)
    assert b.tolist() == [1, 2]
    assert s.shape == (0, 2)
    assert t.shape == (0, 2, 2)
    assert s.dtype == t.dtype == np.float32


def test_what_follows_fits_whatever_the_rounds() -> None:
    text = LOOP.replace(
        "float[R, N] s, float[R, 2, M] t) {", "float[R, N] s, float[R, 2, M] t, float[J, N] z) {"
    )
    text = (
        text[:-1]
        + "x = Constant <value_ints = [0]> () u = Unsqueeze(a, x) z = Concat <axis = 0> (u, s) }"
    )
    for n, rows in ((0, 1), (1, 2), (9, 3)):
        *_, z = run(text, n=np.array(n), c=np.array(True), a=A)
        assert z.shape == (rows, 2)


def test_loops_in_loops() -> None:
    """The outer one runs rounds in which the inner one runs none."""
    inner = """r, s = Loop (n, , p) <body = h (int64 j, bool l, float[N] v) => (bool l2, float[N] w, float[Z] o) {
      two = Constant <value_float = 2.0> () w = Mul(v, two) mx = ReduceMax <keepdims = 0> (w)
      big = Constant <value_float = 100.0> () l2 = Less(mx, big) o = Identity(v) }>"""
    text = (
        HEAD
        + "agraph (int64 n, float[N] a) => (float[N] b, float[R, Q, N] t) { most = Constant <value_int = 2> () "
        + "b, t = Loop (most, , a) <body = g (int64 i, bool k, float[N] p) => (bool k2, float[N] q, float[Q, N] s) { "
        + STEP
        + inner
        + " }> }"
    )
    assert run(text, n=np.array(0), a=A)[1].shape == (2, 0, 2)
    assert run(text, n=np.array(3), a=A)[1].shape == (2, 3, 2)


@pytest.mark.parametrize("axis", [0, 1])
def test_scans_of_nothing(axis: int) -> None:
    text = (
        HEAD
        + f"""agraph (string[K] w, float[L, N] x) => (string[K] w2, float[L, O, N] y) {{
      w2, y = Scan <num_scan_inputs = 1, scan_output_axes = [{axis}],
        body = g (string[K] u, float[N] p) => (string[K] u2, float[O, N] q) {{
          u2 = Identity(u) z = Constant <value_ints = [0]> () f = Unsqueeze(p, z) q = Concat <axis = 0> (f, f) }}>
      (w, x) }}"""
    )
    w, y = run(text, w=np.array(["a"], object), x=np.zeros((0, 3), np.float32))
    assert list(w) == ["a"]
    assert y.shape == ((0, 2, 3) if axis == 0 else (2, 0, 3))


def test_a_round_that_could_not_run() -> None:
    """Nothing says how many columns there would be: as in onnxruntime there are none."""
    text = (
        HEAD
        + """agraph (seq(float[S]) x, int64 n, bool c) => (float[R, S] s) {
      s = Loop (n, c) <body = g (int64 i, bool k) => (bool k2, float[S] t) {
        k2 = Identity(k) t = SequenceAt(x, i) }> }"""
    )
    rows = [np.array(row, np.float32) for row in ([1, 2], [3, 4])]
    for count in (0, 2):
        (s,) = run(text, x=rows[:count], n=np.array(count), c=np.array(True))
        assert s.shape == (count, count)


@pytest.mark.parametrize(("n", "c"), [(0, 1), (5, 0), (1, 1)])
def test_loops_that_are_written_out(n: int, c: int) -> None:
    """What they carry grows, and the number of rounds is known; an index that no round reads is not checked."""
    text = (
        HEAD
        + f"""agraph (float[N] a, int64 far) => (float[X] b, float[R, Y] s) {{
      n = Constant <value_int = {n}> () c = Constant <value = bool {{{c}}}> ()
      b, s = Loop (n, c, a) <body = g (int64 i, bool k, float[P] p) => (bool k2, float[Q] q, float[T] t) {{
        k2 = Identity(k) q = Concat <axis = 0> (p, p) at = Add(i, far) e = Gather(a, at)
        z = Constant <value_ints = [1]> () f = Reshape(e, z) t = Concat <axis = 0> (a, f) }}> }}"""
    )
    proto, feeds, count = parser.parse_model(text), {"a": A, "far": np.array(2)}, n * c
    b, s = glowpy.InferenceSession(proto, backend="interpreter").run(None, feeds)
    assert (b.shape, s.shape) == ((2 << count,), (count, 3))
    checked = glowpy.InferenceSession(proto, backend="interpreter", check_indices=True)
    if count:
        with pytest.raises(glowpy.UserError, match="from -2 to 1, got 2"):
            checked.run(None, feeds)
    else:
        assert checked.run(None, feeds)[1].shape == (0, 3)


STRINGS = (
    HEAD
    + """agraph (int64 n, string[N] w, float[M] a) => (string[N] v, float[R, P] s) {
  v, s = Loop (n, , w) <body = g (int64 i, bool k, string[N] p) => (bool k2, string[N] q, float[P] t) {
    k2 = Identity(k) q = Identity(p) t = Concat <axis = 0> (a, a) }> }"""
)


@pytest.mark.parametrize("count", [0, 1])
def test_a_frozen_session_says_so_also_of_a_round_that_is_tried(count: int) -> None:
    session = glowpy.InferenceSession(parser.parse_model(STRINGS), backend="interpreter")
    feeds = {"n": np.array(0), "w": np.array(["a", "b"], object), "a": A}
    assert session.run(None, feeds)[1].shape == (0, 4)
    session.freeze()
    assert session.run(None, feeds)[1].shape == (0, 4)
    with pytest.raises(glowpy.UserError, match="the session is frozen, and has no code"):
        session.run(None, feeds | {"n": np.array(count), "a": np.ones(70, np.float32)})


def test_want_of_memory_in_a_round_that_is_tried_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    session = glowpy.InferenceSession(parser.parse_model(STRINGS), backend="interpreter")
    feeds = {"n": np.array(0), "w": np.array(["a", "b"], object), "a": A}

    def short(*given: object, **named: object) -> None:
        raise MemoryError

    monkeypatch.setattr(glowpy.CompiledFunction, "__call__", short)
    with pytest.raises(ResourceError, match="not enough memory"):
        session.run(None, feeds)
