"""Sessions of models whose extents elements decide: compiled once for all elements, on what is supposed of them."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence

import numpy as np
import pytest

import glowpy
from glowpy import UserError
from glowpy.core.tensor import Array
from glowpy.support.errors import NoRoomError, ResourceError
from tests.onnx.calls_models import model_of
from tests.onnx.session_models import programs_of

BACKENDS = pytest.mark.parametrize("backend", ["interpreter", "cpu"])


def check(
    text: str, feeds: Sequence[Mapping[str, Array]], backend: str, compiled: int = 1
) -> glowpy.InferenceSession:
    """The same as onnxruntime gives, with no more code than that, and without a warning."""
    ort = pytest.importorskip("onnxruntime")
    model = model_of(text)
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session = glowpy.InferenceSession(model, backend=backend)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for feed in feeds:
            expected = reference.run(None, feed)
            for actual, array in zip(session.run(None, feed), expected, strict=True):
                assert actual.dtype == array.dtype
                assert actual.shape == array.shape
                np.testing.assert_allclose(actual, array, rtol=1e-5, atol=1e-6)
    assert not programs_of(session).values
    assert len(programs_of(session).specialisations.keys) == compiled
    return session


def ids(*rows: Sequence[int]) -> list[dict[str, Array]]:
    return [{"ids": np.array(row)} for row in rows]


@BACKENDS
def test_elements_within_bounds_decide_how_many_rows_there_are(backend: str) -> None:
    """Floats between 0 and 1, whose multiples become indices."""
    text = """net (int64[n] ids, float[20, 4] table) => (float[m, 4] y, float s) {
        e = Gather (table, ids) r = ReduceSum <keepdims = 0> (e) p = Sigmoid (r)
        nine = Constant <value_float = 9.0> () long = Mul (p, nine) up = Ceil (long) k = Cast <to = 7> (up)
        zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        t = Range (zero, k, one) y = Gather <axis = 0> (table, t) s = ReduceSum <keepdims = 0> (y)
    }"""
    table = np.random.default_rng(0).standard_normal((20, 4)).astype(np.float32)
    feeds = [feed | {"table": table} for feed in ids([1, 2, 3], [4, 5, 6], [7, 8, 9, 11], [19, 3])]
    session = check(text, feeds, backend)
    assert session.assumptions == {"n": "1..64"}


@BACKENDS
def test_durations_decide_how_long_all_is(backend: str) -> None:
    """As in VITS: nothing bounds an exponential function."""
    text = """net (float[n] x) => (bool[k, n] path, float[k] y, float[m, 2] windows) {
        long = Exp (x) up = Ceil (long) ends = CumSum (up, last)
        total = ReduceMax <keepdims = 0> (ends) one = Constant <value_float = 1.0> ()
        most = Max (total, one) k = Cast <to = 7> (most)
        zero = Constant <value_int = 0> () step = Constant <value_int = 1> ()
        t = Range (zero, k, step) f = Cast <to = 1> (t) axis = Constant <value_ints = [1]> ()
        column = Unsqueeze (f, axis) path = Less (column, ends)
        last = Constant <value = int64 {0}> () y = Sqrt (f)
        shape = Constant <value_ints = [1, 1, -1]> () row = Reshape (y, shape)
        filter = Constant <value = float[2, 1, 1] {1, 2}> () conv = Conv (row, filter)
        flat = Squeeze (conv, first) windows = Transpose <perm = [1, 0]> (flat)
        first = Constant <value_ints = [0]> ()
    }"""
    rng = np.random.default_rng(0)
    sizes = (3, 5, 4, 5, 2)
    feeds = [{"x": rng.standard_normal(size).astype(np.float32)} for size in sizes]
    session = check(text, feeds, backend)
    assert session.assumptions["n"] == "1..64"


@BACKENDS
def test_a_limit_that_is_exceeded_grows(backend: str) -> None:
    text = """net (int64[2] ids) => (int64[k] y, float[m] z) {
        zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        k = ReduceSum <keepdims = 0> (ids) t = Range (zero, k, one) y = Mul (t, t)
        most = ReduceMax <keepdims = 1> (ids) z = ConstantOfShape (most)
    }"""
    session = check(text, ids([1, 2], [500, 400], [1000, 800], [0, 0], [700, 3]), backend)
    assert session.assumptions["t_count"] == "0..8192"
    with pytest.raises(UserError, match="expected an extent 't_count' of at most"):
        session.run(None, {"ids": np.array([1 << 40, 1])})
    assert session.run(["y"], {"ids": np.array([1, 1])})[0].tolist() == [0, 1]


@BACKENDS
def test_what_is_found_is_split_among_those_it_is_for(backend: str) -> None:
    """As in Mixtral: each of three experts has words, or the model is wrong."""
    text = """net (int64[n] ids, float[3, 2] table) => (float[1, 2] a, float[1, 2] b, float[1, 2] c) {
        three = Constant <value = int64 {3}> () hot = OneHot <axis = 0> (ids, three, values)
        values = Constant <value_ints = [0, 1]> () axis = Constant <value_ints = [1]> ()
        hits = ReduceSum <keepdims = 0> (hot, axis) places = NonZero (hits)
        flat = Constant <value_ints = [-1]> () experts = Reshape (places, flat)
        rows = Gather (table, experts) sizes = Constant <value_ints = [1, 1, 1]> ()
        a, b, c = Split (rows, sizes)
    }"""
    table = np.arange(6, dtype=np.float32).reshape(3, 2)
    feeds = [feed | {"table": table} for feed in ids([0, 1, 2], [2, 1, 0, 0], [1, 0, 2, 2, 1])]
    session = check(text, feeds, backend)
    assert session.assumptions["places_count"] == "3"
    with pytest.raises(UserError, match="expected 3 sizes with the sum 2"):
        session.run(None, {"ids": np.array([0, 0, 1]), "table": table})
    assert session.run(["b"], feeds[0])[0].tolist() == [[2, 3]]


@BACKENDS
def test_what_is_found_meets_an_extent(backend: str) -> None:
    """As in Longformer: a mask of ones has as many elements that are not zero as it has elements."""
    text = """net (float[n] x, float[n, 2] y) => (float[n, 2] z) {
        zero = Constant <value = float {0}> () positive = Greater (x, zero)
        places = NonZero (positive) axis = Constant <value_ints = [1]> ()
        index = Transpose <perm = [1, 0]> (places)
        picked = GatherND (y, index) z = Add (picked, y)
    }"""
    feeds = [
        {"x": np.ones(n, np.float32), "y": np.full((n, 2), n, np.float32)} for n in (4, 3, 9, 2)
    ]
    session = check(text, feeds, backend)
    assert session.assumptions["places_count"] == "n"
    one = {"x": np.array([0, 1, -1], np.float32), "y": np.arange(6, dtype=np.float32).reshape(3, 2)}
    (z,) = session.run(None, one)  # one row for all of them: compiled for these elements
    np.testing.assert_array_equal(z, one["y"] + one["y"][1])
    check(text, [feeds[0], one], backend, 2)


@BACKENDS
def test_a_branch_finds_how_many_numbers_there_are(backend: str) -> None:
    """One within a branch does, too; what is not taken finds nothing that has to be checked."""
    text = """net (int64 k, bool c, bool d) => (float s) {
        zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        s = If (c) <
            then_branch = a () => (float p) {
                p = If (d) <
                    then_branch = b () => (float q) {
                        t = Range (zero, k, one) f = Cast <to = 1> (t) r = Sqrt (f)
                        q = ReduceSum <keepdims = 0> (r)
                    }, else_branch = e () => (float q) { q = Constant <value = float {6}> () }>
            }, else_branch = g () => (float p) {
                more = Add (k, one) t = Range (zero, more, one) f = Cast <to = 1> (t)
                p = ReduceSum <keepdims = 0> (f)
            }>
    }"""
    feeds = [
        {"k": np.array(k), "c": np.array(c), "d": np.array(d)}
        for k, c, d in (
            (3, True, True),
            (9, False, True),
            (7, True, False),
            (0, False, False),
            (15, True, True),
        )
    ]
    session = check(text, feeds, backend)
    check(text, [feeds[0], feeds[1] | {"k": np.array(600)}, feeds[2]], backend)
    with pytest.raises(UserError, match="of at most"):
        session.run(None, feeds[0] | {"k": np.array(1 << 40)})


@BACKENDS
def test_what_a_branch_finds_meets_an_extent(backend: str) -> None:
    text = """net (float[n] x, float[n, 2] y, bool c) => (float[n, 2] z) {
        zero = Constant <value = float {0}> () axis = Constant <value_ints = [1]> ()
        z = If (c) <
            then_branch = a () => (float[n, 2] p) {
                positive = Greater (x, zero) places = NonZero (positive)
                index = Transpose <perm = [1, 0]> (places) picked = GatherND (y, index)
                p = Add (picked, y)
            }, else_branch = b () => (float[n, 2] p) { p = Mul (y, y) }>
    }"""
    feeds = [
        {
            "x": np.full(n, 1 if c else -1, np.float32),
            "y": np.full((n, 2), n, np.float32),
            "c": np.array(c),
        }
        for n, c in ((4, True), (3, False), (9, True), (2, False))
    ]
    session = check(text, feeds, backend)
    x, y = np.array([0, 1, -1], np.float32), np.arange(6, dtype=np.float32).reshape(3, 2)
    (z,) = session.run(None, {"x": x, "y": y, "c": np.array(True)})
    np.testing.assert_array_equal(z, y + y[1])


def test_a_run_that_is_void_writes_its_outputs_again() -> None:
    text = """net (int64[1] ids) => (int64[k] y) {
        zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        k = Squeeze (ids) y = Range (zero, k, one)
    }"""
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    y = np.zeros(700, np.int64)
    assert session.run(None, {"ids": np.array([700])}, out={"y": y})[0] is y
    np.testing.assert_array_equal(y, np.arange(700))


RESIZED = """net (float[1, 1, n] x, int64[3] sizes) => (float[1, 1, k] y) {
    y = Resize <mode = "nearest"> (x, , , sizes)
}"""


def test_code_for_each_value_is_warned_of() -> None:
    """What a table is computed of has to be known while compiling."""
    session = glowpy.InferenceSession(model_of(RESIZED), backend="interpreter")
    x = np.zeros((1, 1, 4), np.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, {"x": x, "sizes": np.array([1, 1, 6])})
        session.run(None, {"x": x, "sizes": np.array([1, 1, 6])})
    with pytest.warns(RuntimeWarning, match="each value of 'sizes': 'sizes' must be") as caught:
        session.run(None, {"x": x, "sizes": np.array([1, 1, 8])})
    assert [warning.filename for warning in caught] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.run(None, {"x": x, "sizes": np.array([1, 1, 9])})


ROWS = "int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] four = {4}"
"""Constants that the next models read."""


@pytest.mark.parametrize(
    "steps",
    [
        "e = Add (i, one) s = Slice (x, i, e, zero) o = Reshape (s, four)",
        "j = Cast <to = 6> (i) u = Cast <to = 6> (one) k = Add (j, u) z = Cast <to = 6> (zero) "
        "s = Slice (x, j, k, z) o = Reshape (s, four)",
        "b = Concat <axis = 0> (i, zero) j = Add (one, i) e = Concat <axis = 0> (j, four) "
        "s = Slice (x, b, e) o = Reshape (s, four)",
        "e = Add (i, one) p = Neg (i) q = Sub (p, one) b = Sub (i, two) m = Sub (b, q) z = Sub (m, i) "
        "k = Add (z, one) s = Slice (x, i, k, zero) o = ReduceSum <keepdims = 0> (s, zero)",
        "b = Mul (i, two) j = Add (i, one) e = Mul (two, j) m = Sub (one, two) s = Slice (x, e, b, zero, m) "
        "o = ReduceSum <keepdims = 0> (s, zero)",
    ],
)
def test_rows_that_the_number_of_a_round_chooses(steps: str) -> None:
    """How far apart the ends of a slice are is known, and so is how many rows there are, or how many at most."""
    text = f"""net (float[n, 4] x) => (float[n, 4] y) <{ROWS}, bool t = {{1}}> {{
        h = Shape <start = 0, end = 1> (x) c = Squeeze (h)
        y = Loop (c, t) < body = row (int64[1] i, bool c) => (bool d, float[4] o) {{ d = Identity (c) {steps} }} >
    }}"""
    feeds = [{"x": np.arange(4.0 * n, dtype=np.float32).reshape(n, 4)} for n in (3, 5, 4)]
    check(text, feeds, "interpreter")


def test_row_that_an_input_chooses() -> None:
    """A slice of one row at most is supposed to be one, whatever else is open; another number of rows voids that."""
    text = f"""net (float[n, m] x, int64[k] i) => (float[4] y) <{ROWS}> {{
        e = Add (i, one) s = Slice (x, i, e, zero) y = Reshape (s, four)
    }}"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    feeds = [{"x": x, "i": np.array([i])} for i in (0, 2, 1, -2)]
    check(text, feeds, "interpreter")
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    session.run(None, feeds[0])
    with pytest.raises(UserError, match="Reshape"):
        session.run(None, {"x": x, "i": np.array([3])})
    np.testing.assert_array_equal(session.run(None, feeds[1])[0], x[2])


def test_places_that_are_sliced_themselves() -> None:
    """How many numbers a slice starts from is supposed to be as many as the axes that it is told."""
    text = f"""net (float[n, 4] x, int64[k] places, int64[1] i) => (float[m, 4] y) <{ROWS}> {{
        j = Add (i, one) b = Slice (places, i, j) e = Add (b, two) y = Slice (x, b, e, zero)
    }}"""
    x = np.arange(20, dtype=np.float32).reshape(5, 4)
    places = np.array([3, 0, 4])
    check(text, [{"x": x, "places": places, "i": np.array([i])} for i in (0, 1, 2)], "interpreter")


def test_round_of_a_session_takes_a_row() -> None:
    """What runs by rounds, as nothing says how many there are, has code for all of them."""
    text = f"""net (float[n, m] x, int64 c) => (float[r, 4] y) <{ROWS}, bool t = {{1}}> {{
        y = Loop (c, t) < body = row (int64[1] i, bool c) => (bool d, float[4] o) {{
            d = Identity (c) e = Add (i, one) s = Slice (x, i, e, zero) o = Reshape (s, four) }} >
    }}"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    session = glowpy.InferenceSession(model_of(text), backend="interpreter")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for count in (1, 3, 2):
            (y,) = session.run(None, {"x": x, "c": np.array(count)})
            np.testing.assert_array_equal(y, x[:count])


@pytest.mark.parametrize("mode", ["linear", "nearest", "cubic"])
@BACKENDS
def test_regions_that_are_computed(mode: str, backend: str) -> None:
    """Each box of a loop is cropped by the same code; a region is partly known, beyond an image, or backwards."""
    text = f"""net (float[1, 2, 6, 5] x, float[n, 4] boxes) => (float[n, 2, 4, 7] y) <{ROWS}, bool t = {{1}},
        float[2] o = {{0.0, 0.0}}, float[2] l = {{1.0, 1.0}}, float[0] q = {{}}, int64[4] sizes = {{1, 2, 4, 7}}> {{
        h = Shape <start = 0, end = 1> (boxes) c = Squeeze (h)
        y = Loop (c, t) < body = crop (int64[1] i, bool c) => (bool d, float[2, 4, 7] p) {{
            d = Identity (c) e = Add (i, one) s = Slice (boxes, i, e, zero) b = Reshape (s, four)
            begin = Slice (b, zero, two) end = Slice (b, two, four) r = Concat <axis = 0> (o, begin, l, end)
            z = Resize <mode = "{mode}", coordinate_transformation_mode = "tf_crop_and_resize",
                        extrapolation_value = 9.0> (x, r, q, sizes)
            p = Squeeze (z, zero)
        }} >
    }}"""
    boxes = [
        [0.1, 0.2, 0.8, 0.9],
        [0.0, 0.0, 1.0, 1.0],
        [-0.3, 0.5, 0.4, 1.3],
        [0.9, 0.8, 0.2, 0.1],
    ]
    rows = np.array(boxes, np.float32)
    x = np.random.default_rng(0).standard_normal((1, 2, 6, 5)).astype(np.float32)
    check(text, [{"x": x, "boxes": rows}, {"x": x, "boxes": rows[1:]}], backend)


@pytest.mark.parametrize("step", [1, -1])
@pytest.mark.parametrize(("first", "last"), [(0, 1), (-2, 0), (-1, 2), (0, -1), (-2, -4), (2, 0)])
def test_slices_that_begin_or_end_outside(first: int, last: int, step: int) -> None:
    """How far apart their ends are says how many rows there are at most: some count from the end, or are clamped."""
    text = f"""net (float[n, 4] x) => (float[5] y) <{ROWS}, bool t = {{1}}, int64 five = {{5}},
        int64[1] first = {{{first}}}, int64[1] last = {{{last}}}, int64[1] step = {{{step}}}> {{
        y = Loop (five, t) < body = row (int64[1] i, bool c) => (bool d, float o) {{
            d = Identity (c) b = Add (i, first) e = Add (i, last) s = Slice (x, b, e, zero, step)
            o = ReduceSum <keepdims = 0> (s) }} >
    }}"""
    feeds = [{"x": np.arange(1, 4.0 * n + 1, dtype=np.float32).reshape(n, 4)} for n in (3, 7)]
    check(text, feeds, "interpreter")


def test_row_of_a_loop_around() -> None:
    """What a graph of a node reads of those around it is the number of a round as well."""
    text = f"""net (float[n, 4] x, float[4] w) => (float[n, 4] y) <{ROWS}, bool t = {{1}}> {{
        h = Shape <start = 0, end = 1> (x) c = Squeeze (h)
        y = Loop (c, t) < body = row (int64[1] i, bool c) => (bool d, float[4] o) {{
            d = Identity (c) r = Mod (i, two) odd = Cast <to = 9> (r) g = Squeeze (odd) e = Add (i, one)
            o = If (g) <
                then_branch = plain () => (float[4] p) {{ a = Slice (x, i, e, zero) p = Reshape (a, four) }},
                else_branch = scaled () => (float[4] q) {{
                    j = Add (i, one) b = Slice (x, i, j, zero) u = Reshape (b, four) q = Mul (u, w) }}
            > }} >
    }}"""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    check(text, [{"x": x, "w": np.full(4, 2, np.float32)}], "interpreter")


NUMBERS = [
    {"x": np.array(row, np.float32)}
    for row in ([0, 1, 2, 3, 0, 4], [1, 2, 3, 4, 5, 6], [0, 1, 0, 2, 5, 0])
]


@BACKENDS
@pytest.mark.parametrize(
    "found",
    [
        "n = NonZero (x) q = Squeeze (n, zero)",
        "q, i, j, k = Unique (x)",
        "n = NonZero (x) s = Squeeze (n, zero) q = Gather (x, s)",
    ],
)
@pytest.mark.parametrize(
    "steps",
    [
        "two = Constant <value_ints = [2]> () y, z = TopK (c, two)",
        "r = Constant <value_ints = [1, 1, -1]> () u = Reshape (c, r) y = Conv (u, w)",
        "r = Constant <value_ints = [1, 1, -1]> () u = Reshape (c, r) y = MaxPool <kernel_shape = [2]> (u)",
        "one = Constant <value_ints = [1]> () three = Constant <value_ints = [3]> () y = Slice (c, one, three)",
    ],
)
def test_operators_that_need_some_of_what_is_found(found: str, steps: str, backend: str) -> None:
    """Of six numbers no more than six are found, which is what nothing may be supposed beyond."""
    rank = "float[1, 1, p] y" if "(u" in steps else "float[p] y"
    outputs = "float[k] y, int64[2] z" if "TopK" in steps else rank
    text = f"""net (float[6] x) => ({outputs})
    <int64[1] zero = {{0}}, float[1, 1, 3] w = {{1, 2, 3}}> {{
        {found} c = Cast <to = 1> (q) {steps}
    }}"""
    check(text, NUMBERS, backend)


@pytest.mark.parametrize("error", [MemoryError(), NoRoomError("there is no memory for 9 bytes")])
def test_only_want_of_room_for_what_may_be_found_compiles_again(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    """A machine that is short of memory is told of."""
    text = """net (int64[1] ids) => (int64[k] y) {
        zero = Constant <value_int = 0> () one = Constant <value_int = 1> ()
        k = Squeeze (ids) y = Range (zero, k, one)
    }"""
    session = check(text, ids([3]), "interpreter")
    (function,) = programs_of(session).specialisations.functions

    def short(*given: object) -> None:
        raise error

    monkeypatch.setattr(function, "execute", short)
    if isinstance(error, NoRoomError):
        assert session.run(None, ids([4])[0])[0].tolist() == [0, 1, 2, 3]
    else:
        with pytest.raises(ResourceError, match="not enough memory"):
            session.run(None, ids([4])[0])
    assert len(programs_of(session).specialisations.keys) == 1 + isinstance(error, NoRoomError)
