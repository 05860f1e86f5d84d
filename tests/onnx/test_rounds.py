"""Loops whose values change their shapes: rounds are run at once where each is one network, and one by one else.

Machine code and the interpreter compute what numpy computes.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from onnx import parser

import glowpy
from glowpy.backends.cpu import round_layout
from glowpy.backends.cpu.round_call import RoundsCall
from glowpy.backends.cpu.rounds import RunRounds
from glowpy.core.tensor import Array
from glowpy.session.by_rounds import ByRounds
from glowpy.session.preparation import CompileEvent
from glowpy.session.session import InferenceSession
from glowpy.support.errors import FrozenError, UserError

HEAD = '<ir_version: 10, opset_import: ["": 17]> '
F32 = np.float32
BACKENDS = pytest.mark.parametrize("backend", ["cpu", "interpreter"])


def opened(text: str, backend: str = "cpu", **options: Any) -> InferenceSession:
    return glowpy.InferenceSession(parser.parse_model(HEAD + text), backend=backend, **options)


def loop(body: str, takes: str = "float[L] a", gives: str = "float[M] b", out: str = "y") -> str:
    """A model with a loop of r rounds from x on; what the graph around it has is w."""
    names = ", ".join(f"float[{name}a, {name}b] {name}" for name in out.split(", ")[1:])
    state = ", ".join(["x"] * len(takes.split(", ")))
    return f"""agraph (float r, float[N] x, float[J] w) => (float[K] y{names and ", " + names}) {{
    zero = Constant<value = float {{0}}>() t = Less(zero, r) {out} = Loop( , t, {state})
    <body = g (int64 i, bool c, {takes}) => (bool k, {gives}) {{
      one = Constant<value = int64 {{1}}>() j = Add(i, one) jf = Cast<to = 1>(j) k = Less(jf, r) {body} }}> }}"""


def growing(r: int, x: Array, w: Array) -> Array:
    for _ in range(r):
        x = np.concatenate([x, [x.mean(dtype=np.float64)]]).astype(F32)
    return x


def cut(r: int, x: Array, w: Array) -> Array:
    for i in range(r):
        x = np.concatenate([x * w[0], w]).astype(F32)[: 2 * i + 3]
    return x


def halved(r: int, x: Array, w: Array) -> Array:
    for _ in range(r):
        x = x[::2] + F32(1)
    return x


def doubled(r: int, x: Array, w: Array) -> Array:
    return np.tile(x, 2**r)


def found(r: int, x: Array, w: Array) -> Array:
    for _ in range(r):
        x = np.concatenate([x[x > F32(0.5)] - F32(0.25), w]).astype(F32)
    return x


CASES: dict[Callable[[int, Array, Array], Array], str] = {
    growing: "m = ReduceMean<keepdims = 1>(a) b = Concat<axis = 0>(a, m)",
    cut: """z = Constant<value_ints = [0]>() f = Gather(w, z) q = Mul(a, f) p = Concat<axis = 0>(q, w)
      two = Constant<value = int64[1] {2}>() three = Constant<value = int64[1] {3}>() u = Mul(i, two)
      e = Add(u, three) b = Slice(p, z, e)""",
    halved: """z = Constant<value_ints = [0]>() e = Constant<value_ints = [1000000]>()
      two = Constant<value_ints = [2]>() p = Slice(a, z, e, z, two) o = Constant<value_float = 1.0>() b = Add(p, o)""",
    doubled: "b = Concat<axis = 0>(a, a)",
    found: """h = Constant<value_float = 0.5>() d = Constant<value_float = 0.25>() g2 = Greater(a, h)
      q = Compress<axis = 0>(a, g2) s = Sub(q, d) b = Concat<axis = 0>(s, w)""",
}


@BACKENDS
@pytest.mark.parametrize("expected", CASES, ids=lambda case: case.__name__)
def test_shapes_that_change(expected: Callable[[int, Array, Array], Array], backend: str) -> None:
    """Extents go from few to more than code is for at first, and back."""
    session = opened(loop(CASES[expected]), backend)
    for r, size in ((6, 3), (0, 2), (1, 40), (9, 33), (11, 5), (3, 1)):
        x, w = np.linspace(0.1, 3, size, dtype=F32), np.array([0.5, 0.75], F32)
        (y,) = session.run(None, {"r": np.array(r, F32), "x": x, "w": w})
        np.testing.assert_allclose(y, expected(r, x, w), rtol=1e-5, err_msg=f"{r} rounds of {size}")


def test_rounds_are_no_calls_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    session, calls = opened(loop(CASES[growing])), 0
    run = InferenceSession.run

    def counted(self: InferenceSession, *arguments: Any, **options: Any) -> Any:
        nonlocal calls
        calls += 1
        return run(self, *arguments, **options)

    feeds = {"r": np.array(3000, F32), "x": np.ones(2, F32), "w": np.ones(1, F32)}
    monkeypatch.setattr(InferenceSession, "run", counted)
    assert session.run(None, feeds)[0].shape == (3002,)
    assert calls < 20  # one for each range of extents with code of its own, and what is around
    calls = 0
    session.run(None, {**feeds, "r": np.array(500, F32)})
    assert calls < 5


@BACKENDS
def test_states_that_change_places(backend: str) -> None:
    """Of four, one stays, two are swapped, one grows; a state is stacked as well, in every round in another row."""
    body = """s = Size(a) sf = Cast<to = 1>(s) b = Concat<axis = 0>(a, w) q = Identity(p) p2 = Identity(q0)
      z = Constant<value_ints = [-1]>() big = ReduceMax<keepdims = 1>(b) v = Sub(p2, big)
      row = Identity(v) m = Identity(sf)"""
    takes = "float[L] a, float[A] p, float[B] q0, float[C] d"
    gives = "float[M] b, float[D] v, float[E] q, float[C] d, float[F] row, float m"
    text = loop(body, takes, gives, "y, p9, q9, d9, rows, sizes").replace("[sizesa, sizesb]", "[R]")
    for name in ("p9", "q9", "d9"):
        text = text.replace(f"[{name}a, {name}b]", f"[{name}a]")
    session = opened(text, backend)
    x, w = np.array([1, 2, 4], F32), np.array([9, 16], F32)
    for rounds in (1, 2, 40):
        y, p, q, d, rows, sizes = session.run(None, {"r": np.array(rounds, F32), "x": x, "w": w})
        left, right, all_rows = x, x, []
        for _ in range(rounds):
            left, right = right - F32(16), left
            all_rows.append(left)
        np.testing.assert_array_equal(y, np.concatenate([x, *[w] * rounds]))
        for got, expected in ((p, left), (q, right), (d, x), (rows, np.stack(all_rows))):
            np.testing.assert_array_equal(got, expected)
        np.testing.assert_array_equal(sizes, 3 + 2 * np.arange(rounds, dtype=F32))


@BACKENDS
def test_outputs_belong_to_the_caller(backend: str) -> None:
    session = opened(loop(CASES[doubled]), backend)
    feeds = {"r": np.array(3, F32), "x": np.ones(2, F32), "w": np.ones(1, F32)}
    first = session.run(None, feeds)[0]
    first[:] = 5
    assert session.run(None, feeds)[0].tolist() == [1] * 16
    assert first.tolist() == [5] * 16
    assert feeds["x"].tolist() == [1, 1]


@BACKENDS
@pytest.mark.parametrize("kind", [1, 6, 7, 9, 10, 11])
def test_kinds_and_no_elements(kind: int, backend: str) -> None:
    body = f"w2 = Cast<to = {kind}>(w) b = Concat<axis = 0>(a, w2)"
    name = {1: "float", 6: "int32", 7: "int64", 9: "bool", 10: "float16", 11: "double"}[kind]
    text = loop(body, f"{name}[L] a", f"{name}[M] b")
    text = text.replace("float[N] x", f"{name}[N] x").replace("float[K] y", f"{name}[K] y")
    session = opened(text, backend)
    dtype = np.dtype({"float": "float32", "double": "float64"}.get(name, name))
    for size, own in ((0, 2), (3, 0), (0, 0), (1, 1)):
        x, w = np.arange(size).astype(dtype), np.arange(1, own + 1, dtype=F32)
        (y,) = session.run(None, {"r": np.array(4, F32), "x": x, "w": w})
        assert y.dtype == dtype
        assert y.tolist() == np.concatenate([x, *[w.astype(dtype)] * 4]).tolist()


@BACKENDS
def test_rows_of_other_shapes(backend: str) -> None:
    body = "b = Concat<axis = 0>(a, w) row = Identity(b)"
    session = opened(loop(body, gives="float[M] b, float[O] row", out="y, rows"), backend)
    feeds = {"r": np.array(5, F32), "x": np.ones(2, F32), "w": np.ones(1, F32)}
    with pytest.raises(UserError, match="expected outputs of one shape in all rounds"):
        session.run(None, feeds)
    y, rows = session.run(None, {**feeds, "w": np.ones(0, F32)})
    assert (y.shape, rows.shape) == ((2,), (5, 2))


@BACKENDS
def test_an_index_that_leads_out_of_range_in_a_later_round(backend: str) -> None:
    body = "e = Gather(w, i) z = Constant<value_ints = [0]>() e1 = Unsqueeze(e, z) b = Concat<axis = 0>(a, e1)"
    session = opened(loop(body), backend, check_indices=True)
    feeds = {"x": np.ones(1, F32), "w": np.arange(50, dtype=F32)}
    assert session.run(None, {**feeds, "r": np.array(50, F32)})[0][1:].tolist() == [*range(50)]
    with pytest.raises(UserError, match="50"):
        session.run(None, {**feeds, "r": np.array(51, F32)})
    assert session.run(None, {**feeds, "r": np.array(3, F32)})[0][1:].tolist() == [0, 1, 2]


@BACKENDS
def test_counters_of_one_element(backend: str) -> None:
    """Exporters write vectors. What a round gives as the condition is what it takes: the loop never ends itself."""
    text = """agraph (float[N] x, int64 n) => (int64[K] y) { t = Constant<value=bool {1}>() m = NonZero(x)
    z = Constant<value_ints = [0]>() f = Squeeze(m, z) s = Size(f) u = Add(s, n)
    y = Loop(u, t, f) <body = g (int64[1] i, bool[1] c, int64[L] a) => (bool[1] c, int64[M] b) {
      b = Concat<axis = 0>(a, i) }> }"""
    session = opened(text, backend)
    (y,) = session.run(None, {"x": np.array([0, 1, 1, 0, 3], F32), "n": np.array(4)})
    assert y.tolist() == [1, 2, 4, *range(7)]


@BACKENDS
@pytest.mark.parametrize("back", [0, 1])
@pytest.mark.parametrize("axis", [0, 1])
def test_scans(axis: int, back: int, backend: str) -> None:
    """The state grows by each element, and what is stacked goes along an axis, perhaps backwards."""
    text = f"""agraph (float[N] a, float[P, Q] x) => (float[K] y, float[R, S] z) {{
    y, z = Scan<num_scan_inputs = 1, scan_input_axes = [{axis}], scan_input_directions = [{back}],
      scan_output_axes = [{axis}], scan_output_directions = [{back}],
      body = g (float[L] s, float[E] e) => (float[M] s2, float[E] e2) {{
        s2 = Concat<axis = 0>(s, e) m = ReduceMax<keepdims = 1>(s) e2 = Add(e, m) }}>(a, x) }}"""
    session = opened(text, backend)
    for shape in ((2, 3), (30, 4), (3, 50)):
        x, state = np.arange(np.prod(shape), dtype=F32).reshape(shape), np.array([7], F32)
        y, z = session.run(None, {"a": state, "x": x})
        rows = []
        for element in np.moveaxis(x, axis, 0)[::-1] if back else np.moveaxis(x, axis, 0):
            rows.append(element + state.max())
            state = np.concatenate([state, element])
        stacked = np.stack(rows[::-1] if back else rows, axis)
        np.testing.assert_array_equal(y, state)
        np.testing.assert_array_equal(z, stacked)


@BACKENDS
def test_rounds_of_several_parts(backend: str) -> None:
    """A branch with another shape, and a sequence, are computed between two networks in every round."""
    body = """e = Constant<value = float {{4}}>() sm = ReduceMax<keepdims = 0>(a) less = Less(sm, e)
      b = If(less) <then_branch = h1 () => (float[T] o) {{ o = Concat<axis = 0>(a, w) }},
                    else_branch = h2 () => (float[U] o) {{ mm = ReduceMean<keepdims = 1>(a) o = Identity(mm) }}>"""
    session = opened(loop(body.replace("{{", "{").replace("}}", "}")), backend)
    x, w = np.array([1, 3], F32), np.array([3.5, 8], F32)
    (y,) = session.run(None, {"r": np.array(2, F32), "x": x, "w": w})
    np.testing.assert_allclose(y, [x.sum() / 4 + w.sum() / 4])


def test_threads_that_share_a_session() -> None:
    session = opened(loop(CASES[growing]), threads=2)
    x, w = np.linspace(0.1, 3, 5, dtype=F32), np.ones(1, F32)

    def run(r: int) -> Array:
        return session.run(None, {"r": np.array(r, F32), "x": x, "w": w})[0]

    with ThreadPoolExecutor(4) as pool:
        sizes = [*range(1, 200, 3)]
        for r, y in zip(sizes, pool.map(run, sizes), strict=True):
            np.testing.assert_allclose(y, growing(r, x, w), rtol=1e-5)


COUNTED = """agraph (float[{rows}] x, int64 r) => (float[K] y) {{ t = Constant<value = bool {{1}}>() y = Loop(r, t, x)
  <body = g (int64 i, bool c, float[L] a) => (bool k, float[M] b) {{ k = Identity(c)
    m = ReduceMean<keepdims = 1>(a) b = Concat<axis = 0>(a, m) }}> }}"""
"""A loop whose number of rounds is an input, on so many rows."""


@BACKENDS
@pytest.mark.parametrize("rows", ["3", "N"])
def test_no_number_of_rounds_is_compiled_for(rows: str, backend: str) -> None:
    events: list[CompileEvent] = []
    session = opened(COUNTED.format(rows=rows), backend, on_compile=events.append)
    x = np.array([1, 2, 4], F32)
    for r in (5, 7, 0, 9, 40):
        (y,) = session.run(None, {"x": x, "r": np.array(r)})
        np.testing.assert_allclose(y, growing(r, x, x), 1e-5)
    assert (
        len(events) <= 3
    )  # a round of the shapes it begins with, of any, and the rest of the graph
    assert isinstance(session._runner, ByRounds)


@pytest.mark.parametrize("rows", ["3", "N"])
def test_a_number_of_rounds_that_is_prepared_for_is_compiled_for(rows: str) -> None:
    events: list[CompileEvent] = []
    session = opened(COUNTED.format(rows=rows), "interpreter", on_compile=events.append)
    dims = {"N": "1..8"} if rows == "N" else {}
    session.prepare(dims, values={"r": np.array(5)})
    session.freeze()
    count, x = len(events), np.array([1, 2, 4], F32)
    (y,) = session.run(None, {"x": x, "r": np.array(5)})
    np.testing.assert_allclose(y, growing(5, x, x), 1e-5)
    assert len(events) == count > 0
    with pytest.raises(FrozenError, match="frozen"):
        session.run(None, {"x": x, "r": np.array(6)})


SLOW = """agraph (float[512, 512] p, float[512, 512] w, int64 r) => (float[512, 512] q, float[K] y) {
  t = Constant<value = bool {1}>() x = Constant<value = float[2] {1, 2}>() q, y = Loop(r, t, p, x)
  <body = g (int64 i, bool c, float[512, 512] s, float[L] a) => (bool c, float[512, 512] u, float[M] b) {
    u = MatMul(s, w) m = ReduceMean<keepdims = 1>(a) b = Concat<axis = 0>(a, m) }> }"""


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="there are no such signals")
def test_ctrl_c_comes_between_slow_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    session, repeat = opened(SLOW, threads=1), RoundsCall.repeat
    ends: list[tuple[int, int]] = []

    def timed(self: RoundsCall, run: RunRounds) -> bool:
        signal.setitimer(signal.ITIMER_REAL, 0.02)
        try:
            return repeat(self, run)
        except KeyboardInterrupt:
            ends.append((self._said("round"), self._rounds.most))
            raise
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    matrix = np.eye(512, dtype=F32)
    feeds = {"p": matrix, "w": matrix, "r": np.array(60)}
    q, y = session.run(None, feeds)
    assert (q == matrix).all()
    assert y.shape == (62,)
    monkeypatch.setattr(RoundsCall, "repeat", timed)
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            session.run(None, feeds)
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert len(ends) == 1
    assert ends[0][0] < ends[0][1] == 60
    monkeypatch.undo()
    assert session.run(None, feeds)[1].shape == (62,)


def test_machine_code_has_the_layouts_of_python() -> None:
    """The C file asserts the sizes of its types, and names its words as Python does."""
    path = Path(__file__).parents[2] / "libjit" / "src" / "rounds.c"
    text = re.sub("///.*", "", path.read_text(encoding="utf-8"))
    asserted = r'_Static_assert\(sizeof\(\w+_t\) == (\d+) \* sizeof\(dim_t\), "(.*)"\)'
    sizes = {
        name: int(size) for size, names in re.findall(asserted, text) for name in names.split(", ")
    }
    words = {f"{name} words": len(fields) for name, fields in round_layout.WORDS.items()}
    assert sizes == {**round_layout.TABLES, **words}
    for name, fields in round_layout.WORDS.items():
        lines = text[: text.index(f"}} {name}_t;")].splitlines()
        last = [*takewhile(lambda line: line != "typedef struct {", reversed(lines))][::-1]
        assert tuple(re.findall(r"(\w+)[,;]", "\n".join(last))) == fields
