"""Rounds that read and append elements of sequences: at once in machine code, with what onnxruntime computes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import parser

import glowpy
from glowpy.core.tensor import Array
from glowpy.session.session import InferenceSession
from tests.onnx.comparison import assert_same

HEAD = '<ir_version: 10, opset_import: ["": 17]> '
ROUNDS = 40
SCALED = "o = Constant<value = float {1.25}>() b = Mul(a, o)"
GROWN = "o = ReduceMean<keepdims = 1>(a) b = Concat<axis = 0>(a, o)"


def appending(body: str) -> str:
    """A loop that carries a vector from x on, and a list that is empty at first."""
    return f"""agraph (float[N] x, int64 k) => (float[K] y, float[J] z, int64 n) {{
    t = Constant<value = bool {{1}}>() s0 = SequenceEmpty<dtype = 1>() z, s = Loop(k, t, x, s0)
    <body = g (int64 i, bool c, float[L] a, seq(float[L]) s1) => (bool c2, float[M] b, seq(float[L]) s2) {{
      {body} c2 = Identity(c) }}> y = ConcatFromSequence<axis = 0>(s) n = SequenceLength(s) }}"""


def reading(body: str) -> str:
    """A loop over the rows of x as a sequence, which carries a vector from the first one on."""
    return f"""agraph (float[R, N] x, int64 k) => (float[N] y) {{
    t = Constant<value = bool {{1}}>() s = SplitToSequence<axis = 0, keepdims = 0>(x)
    h = Constant<value = float {{0.5}}>() first = Constant<value = int64 {{0}}>()
    x0 = SequenceAt(s, first) y = Loop(k, t, x0)
    <body = g (int64 i, bool c, float[N] a) => (bool c2, float[N] b) {{
      {body} q = Mul(a, h) b = Add(q, e) c2 = Identity(c) }}> }}"""


LAST = """agraph (float[N] x, int64 k) => (float[N] y) { t = Constant<value = bool {1}>() s0 = SequenceConstruct(x)
    h = Constant<value = float {0.5}>() m = Constant<value = int64 {-1}>() s = Loop(k, t, s0)
    <body = g (int64 i, bool c, seq(float[N]) s1) => (bool c2, seq(float[N]) s2) {
      e = SequenceAt(s1, m) q = Mul(e, h) b = Add(q, x) s2 = SequenceInsert(s1, b) c2 = Identity(c) }>
    y = SequenceAt(s, m) }"""
UNCHANGED = """agraph (float[R, N] x, int64 k) => (float[N] y) { t = Constant<value = bool {1}>()
    s = SplitToSequence<axis = 0, keepdims = 0>(x) first = Constant<value = int64 {0}>() x0 = SequenceAt(s, first)
    y, s9 = Loop(k, t, x0, s)
    <body = g (int64 i, bool c, float[N] a, seq(float[N]) s1) => (bool c2, float[N] b, seq(float[N]) s1) {
      e = SequenceAt(s1, i) b = Add(a, e) c2 = Identity(c) }> }"""
UNTIL = """agraph (float[N] x, int64 k) => (float[K] y, float[J] z) {
    t = Constant<value = bool {1}>() s0 = SequenceEmpty<dtype = 1>() z, s = Loop( , t, x, s0)
    <body = g (int64 i, bool c, float[L] a, seq(float[L]) s1) => (bool c2, float[M] b, seq(float[L]) s2) {
      o = Constant<value = float {1.0625}>() b = Mul(a, o) s3 = SequenceInsert(s1, a) s2 = SequenceInsert(s3, b)
      n = SequenceLength(s2) c2 = Less(n, k) }> y = ConcatFromSequence<axis = 0>(s) }"""
MAPPED = """agraph (float[R, N] x, float[M] w) => (float[K] y, float[J] z) {
    s = SplitToSequence<axis = 0, keepdims = 0>(x) p, q = SequenceMap(s, w)
    <body = g (float[N] a, float[M] v) => (float[N] b, float[L] d) { b = Exp(a) d = Concat<axis = 0>(v, b) }>
    y = ConcatFromSequence<axis = 0>(p) z = ConcatFromSequence<axis = 0>(q) }"""

VECTOR, ROWS = (
    np.linspace(0.5, 2, 3, dtype=np.float32),
    np.random.default_rng(0).random((ROUNDS, 3), np.float32),
)
CASES: dict[str, tuple[str, Array]] = {
    "appended": (appending(f"{SCALED} s2 = SequenceInsert(s1, b)"), VECTOR),
    "that grow": (appending(f"{GROWN} s2 = SequenceInsert(s1, b)"), VECTOR),
    "before the round": (appending(f"{GROWN} s2 = SequenceInsert(s1, a)"), VECTOR),
    "two a round": (appending(f"{GROWN} s3 = SequenceInsert(s1, o) s2 = SequenceInsert(s3, b)"), VECTOR),
    "the last one": (LAST, VECTOR),
    "at the number": (reading("e = SequenceAt(s, i)"), ROWS),
    "of a state": (UNCHANGED, ROWS),
    "until there are enough": (UNTIL, VECTOR),
    "mapped": (MAPPED, ROWS),
}  # fmt: skip
PROGRAMS: dict[str, tuple[str, Array]] = {
    "in front": (appending(f"{SCALED} f = Constant<value = int64 {{0}}>() s2 = SequenceInsert(s1, b, f)"), VECTOR),
    "counted": (appending(f"{SCALED} s2 = SequenceInsert(s1, b) u = SequenceLength(s1) v = Identity(u)"), VECTOR),
    "at a computed place": (
        reading("m = Constant<value = int64 {39}>() j = Sub(m, i) e = SequenceAt(s, j)"), ROWS,
    ),
    "from the end": (
        reading("m = Constant<value = int64 {-1}>() j = Sub(m, i) j32 = Cast<to = 6>(j) e = SequenceAt(s, j32)"), ROWS,
    ),
    "in the middle": (
        appending(f"""{GROWN} n = SequenceLength(s1) two = Constant<value = int64 {{2}}>() h = Div(n, two)
          s2 = SequenceInsert(s1, b, h)"""), VECTOR,
    ),
    "in the middle, from the end": (
        appending(f"""{SCALED} n = SequenceLength(s1) two = Constant<value = int64 {{-2}}>() h = Div(n, two)
          s3 = SequenceInsert(s1, b) s2 = SequenceInsert(s3, a, h)"""), VECTOR,
    ),
    "a window": (
        appending(f"""{SCALED} z = Constant<value = int64 {{0}}>() s3 = SequenceInsert(s1, b) n = SequenceLength(s3)
          s4 = SequenceInsert(s3, a) w = Constant<value = int64 {{3}}>() p = Less(n, w)
          s2 = If(p) <then_branch = g1 () => (seq(float[P]) t1) {{ t1 = Identity(s4) }},
                      else_branch = g2 () => (seq(float[Q]) t2) {{
                        t3 = SequenceErase(s4, z) h = Min(n, w) hh = Sub(h, w) t2 = SequenceErase(t3, hh) }}>"""),
        VECTOR,
    ),
    "appended or not": (
        appending(f"""{SCALED} two = Constant<value = int64 {{2}}>() r = Mod(i, two) p = Cast<to = 9>(r)
          s2 = If(p) <then_branch = g1 () => (seq(float[P]) t1) {{ t1 = Identity(s1) }},
                      else_branch = g2 () => (seq(float[Q]) t2) {{ e = Exp(b) t2 = SequenceInsert(s1, e) }}>"""),
        VECTOR,
    ),
    "begun again": (
        appending(f"""{SCALED} two = Constant<value = int64 {{7}}>() r = Mod(i, two) p = Cast<to = 9>(r)
          s2 = If(p) <then_branch = g1 () => (seq(float[P]) t1) {{ t1 = SequenceInsert(s1, b) }},
                      else_branch = g2 () => (seq(float[Q]) t2) {{ t2 = SequenceConstruct(a, b, a) }}>"""),
        VECTOR,
    ),
    "states that stay or change": (
        appending("""two = Constant<value = int64 {3}>() r = Mod(i, two) r1 = Cast<to = 9>(r) p = Not(r1)
          b, s2 = If(p) <then_branch = g1 () => (float[O] b1, seq(float[P]) t1) {
                           b1 = Identity(a) t1 = SequenceInsert(s1, a) },
                         else_branch = g2 () => (float[V] b2, seq(float[Q]) t2) {
                           o = Constant<value = float {1.25}>() b2 = Mul(a, o) t2 = Identity(s1) }>"""),
        VECTOR,
    ),
    "a branch in a branch": (
        appending(f"""{SCALED} two = Constant<value = int64 {{2}}>() r = Mod(i, two) p = Cast<to = 9>(r)
          three = Constant<value = int64 {{3}}>() r3 = Mod(i, three) q = Cast<to = 9>(r3)
          s2 = If(p) <then_branch = g1 () => (seq(float[P]) t1) {{
              t1 = If(q) <then_branch = g3 () => (seq(float[P]) u) {{ u = SequenceInsert(s1, a) }},
                          else_branch = g4 () => (seq(float[P]) v) {{ y9 = Neg(b) v = SequenceInsert(s1, y9) }}> }},
            else_branch = g2 () => (seq(float[Q]) t2) {{ t2 = SequenceInsert(s1, b) }}>"""),
        VECTOR,
    ),
    "of an element": (  # what is put in is an element of the same list, and so is the state
        LAST.replace("e = SequenceAt(s1, m)", "n = SequenceLength(s1) r = Mod(i, n) e = SequenceAt(s1, r)")
        .replace("s2 = SequenceInsert(s1, b)", "s3 = SequenceInsert(s1, e, m) s2 = SequenceInsert(s3, b)"),
        VECTOR,
    ),
}  # fmt: skip


def fed(x: Array, text: str, rounds: int) -> dict[str, Array]:
    second = {"w": VECTOR} if "w)" in text.partition("=>")[0] else {"k": np.array(rounds)}
    return {"x": x, **second}


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("case", [*CASES, *PROGRAMS])
def test_elements_of_sequences_in_rounds(case: str, backend: str) -> None:
    text, x = {**CASES, **PROGRAMS}[case]
    proto = parser.parse_model(HEAD + text)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend=backend)
    for rounds in (2, 1, ROUNDS):
        feeds = fed(x, text, rounds)
        for got, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            assert_same(got, expected)


@pytest.mark.parametrize("case", [*CASES, *PROGRAMS])
def test_they_are_no_calls_of_their_own(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    text, x = {**CASES, **PROGRAMS}[case]
    session = glowpy.InferenceSession(parser.parse_model(HEAD + text), backend="cpu")
    feeds, calls = fed(x, text, ROUNDS), 0
    run = InferenceSession.run

    def counted(self: InferenceSession, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return run(self, *arguments, **options)

    session.run(None, feeds)
    monkeypatch.setattr(InferenceSession, "run", counted)
    session.run(None, feeds)
    assert calls < 8


@pytest.mark.parametrize("case", ["at the number", "of a state"])
def test_a_round_without_an_element(case: str) -> None:
    text, x = CASES[case]
    session = glowpy.InferenceSession(parser.parse_model(HEAD + text), backend="cpu")
    for _ in range(2):
        with pytest.raises(
            glowpy.UserError,
            match=f"SequenceAt: expected a position from -{ROUNDS} to {ROUNDS - 1}",
        ):
            session.run(None, fed(x, text, ROUNDS + 1))


def test_elements_belong_to_the_caller() -> None:
    text = appending(f"{SCALED} s2 = SequenceInsert(s1, b)").replace(
        "float[K] y, ", "seq(float[L]) s, "
    )
    text = text.replace("y = ConcatFromSequence<axis = 0>(s)", "")
    session = glowpy.InferenceSession(parser.parse_model(HEAD + text), backend="cpu")
    feeds = fed(VECTOR, text, 5)
    first = session.run(None, feeds)[0]
    kept = [item.copy() for item in first]
    second = session.run(None, feeds)[0]
    for item in second:
        item[:] = 7
    for item, copy in zip(first, kept, strict=True):
        assert_same(item, copy)


def test_elements_of_several_shapes() -> None:
    """What a list begins with may have another shape than what is appended, and so may what is read."""
    text = """agraph (seq(float[N]) s0, int64 k) => (seq(float[N]) s, float y) { t = Constant<value = bool {1}>()
    z = Constant<value = float {0}>() y, s = Loop(k, t, z, s0)
    <body = g (int64 i, bool c, float a, seq(float[N]) s1) => (bool c2, float b, seq(float[N]) s2) {
      e = SequenceAt(s0, i) r = ReduceSum<keepdims = 0>(e) b = Add(a, r) d = Neg(e)
      s2 = SequenceInsert(s1, d) c2 = Identity(c) }> }"""
    proto = parser.parse_model(HEAD + text)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend="cpu")
    for sizes in ((3, 1, 2), (2, 2, 2)):
        feeds = {"s0": [np.ones(size, np.float32) for size in sizes], "k": np.array(3)}
        for _ in range(2):
            got, expected = session.run(None, feeds), reference.run(None, feeds)
            assert_same(got[1], expected[1])
            for item, wanted in zip(got[0], expected[0], strict=True):
                assert_same(item, wanted)


POSITIONS = {
    "at": (reading("m = Constant<value = int64 {35}>() j = Add(m, i) e = SequenceAt(s, j)"), ROWS, 6),
    "from the end": (reading("m = Constant<value = int64 {-36}>() j = Sub(m, i) e = SequenceAt(s, j)"), ROWS, 6),
    "inserted": (
        appending(f"""{SCALED} n = SequenceLength(s1) four = Constant<value = int64 {{4}}>() m = Div(i, four)
          j = Add(n, m) s2 = SequenceInsert(s1, b, j)"""), VECTOR, 9,
    ),
    "erased": (
        appending(f"""{SCALED} s3 = SequenceInsert(s1, b) s4 = SequenceInsert(s3, a)
          six = Constant<value = int64 {{6}}>() j = Mul(i, six) s2 = SequenceErase(s4, j)"""), VECTOR, 9,
    ),
    "of none": (appending(f"{SCALED} s3 = SequenceErase(s1) s2 = SequenceInsert(s3, b)"), VECTOR, 9),
}  # fmt: skip


@pytest.mark.parametrize("case", POSITIONS)
def test_a_position_that_is_wrong_is_told_with_the_node(case: str) -> None:
    """Rounds before it, and the whole loop where none is wrong, leave nothing behind for the next run."""
    text, x, rounds = POSITIONS[case]
    proto = parser.parse_model(HEAD + text)
    told = []
    for backend in ("cpu", "interpreter"):
        session = glowpy.InferenceSession(proto, backend=backend)
        for _ in range(2):
            with pytest.raises(glowpy.UserError, match=r"Sequence\w+: expected a ") as caught:
                session.run(None, fed(x, text, rounds))
            told.append(str(caught.value))
    assert len({*told}) == 1


def test_elements_that_lists_have_no_more_take_no_memory() -> None:
    """A window over what has been appended is of few elements, however many rounds there are."""
    text, _ = PROGRAMS["a window"]
    proto = parser.parse_model(HEAD + text)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend="cpu")
    feeds = {"x": np.full(500, 1e-30, np.float32), "k": np.array(600)}
    for got, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
        assert_same(got, expected)


@pytest.mark.parametrize("rank", [8, 9, 20])
def test_elements_of_many_dimensions(rank: int) -> None:
    """Those that are stacked of elements of a list, and an array around the loop: there is room for eight."""
    text = """agraph (seq(float[]) s, float[] x, int64 k) => (float[] y, float[] z) {
    t = Constant<value = bool {1}>() h = Constant<value = float {0.5}>() l = SequenceConstruct(x)
    v, y, z = Loop(k, t, h)
    <body = g (int64 i, bool c, float a) => (bool c2, float b, float[] e, float[] d) {
      b = Mul(a, h) e = SequenceAt(s, i) o = Sub(i, i) d = SequenceAt(l, o) c2 = Identity(c) }> }"""
    proto = parser.parse_model(HEAD + text)
    shape = (1,) * (rank - 1) + (2,)
    items = [np.full(shape, number, np.float32) for number in range(6)]
    session = glowpy.InferenceSession(proto, backend="cpu")
    y, z = session.run(None, {"s": items, "x": items[3], "k": np.array(6)})
    assert np.array_equal(y, np.stack(items))
    assert np.array_equal(z, np.stack(6 * items[3:4]))


def test_lists_that_change_places() -> None:
    """Of three, two are swapped after one of them has grown, and one is kept as it was."""
    text = """agraph (float[N] x, int64 k) => (seq(float[N]) y0, seq(float[N]) y1, seq(float[N]) y2, float[R] w) {
    t = Constant<value = bool {1}>() s0 = SequenceConstruct(x) e = SequenceEmpty<dtype = 1>()
    y0, y1, y2, w = Loop(k, t, s0, e, s0)
    <body = g (int64 i, bool c, seq(float[N]) a, seq(float[N]) b, seq(float[N]) d)
       => (bool c2, seq(float[N]) b2, seq(float[N]) a2, seq(float[N]) d, float v) {
      f = CastLike(i, x) h = Add(f, x) a2 = SequenceInsert(a, h) b2 = Identity(b) n = SequenceLength(a)
      v = CastLike(n, x) c2 = Identity(c) }> }"""
    proto = parser.parse_model(HEAD + text)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    session = glowpy.InferenceSession(proto, backend="cpu")
    for rounds in (1, 2, 5, 90):
        feeds = {"x": VECTOR, "k": np.array(rounds)}
        for got, expected in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
            for item, wanted in zip(got, expected, strict=True):
                assert_same(item, wanted)


def test_loops_within_loops() -> None:
    text = """agraph (float[R, N] x, int64 k) => (float[K] y) {
    t = Constant<value = bool {1}>() s = SplitToSequence<axis = 0, keepdims = 0>(x) e = SequenceEmpty<dtype = 1>()
    l = Loop(k, t, e) <body = outer (int64 i, bool c, seq(float[N]) s1) => (bool c2, seq(float[N]) s2) {
      s2 = Loop(k, t, s1) <body = inner (int64 j, bool d, seq(float[N]) r1) => (bool d2, seq(float[N]) r2) {
        p = Mul(i, j) n = SequenceLength(s) q = Mod(p, n) a = SequenceAt(s, q) b = Exp(a)
        r2 = SequenceInsert(r1, b) d2 = Identity(d) }> c2 = Identity(c) }>
    y = ConcatFromSequence<axis = 0>(l) }"""
    proto = parser.parse_model(HEAD + text)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    for backend in ("cpu", "interpreter"):
        session = glowpy.InferenceSession(proto, backend=backend)
        for rounds in (1, 7, 3):
            feeds = {"x": ROWS[:5], "k": np.array(rounds)}
            assert_same(session.run(None, feeds)[0], reference.run(None, feeds)[0], rtol=1e-5)
