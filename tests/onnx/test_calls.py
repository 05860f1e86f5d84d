"""If and Loop against onnxruntime: branches, trip counts that are computed, nested loops, greedy decoding."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.engine import BACKENDS
from glowpy.importer.onnx import build as importer
from tests.onnx.calls_models import COUNTING, check, decoder, model_of

ort = pytest.importorskip("onnxruntime")


BRANCHES = """
net (bool c, float[2, 3] x, float[3] w) => (float[2, 3] y, float[2] z)
{
    half = Constant <value = float {0.5}> ()
    y, z = If (c) <
        then_branch = grow () => (float[2, 3] y1, float[2] z1) {
            e = Exp (x)
            y1 = Mul (e, w)
            z1 = ReduceSum <keepdims = 0> (y1, axes1)
        },
        else_branch = shrink () => (float[2, 3] y2, float[2] z2)
        <int64[1] axes2 = {1}> {
            s = Sub (x, half)
            y2 = Mul (s, half)
            z2 = ReduceMax <axes = [1], keepdims = 0> (s)
        }
    >
}
"""


def test_branches_read_what_is_around_them() -> None:
    text = BRANCHES.replace("half = ", "axes1 = Constant <value_ints = [1]> ()\n    half = ", 1)
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((2, 3), np.float32), rng.standard_normal(3, np.float32)
    check(model_of(text), *({"c": np.array(c), "x": x, "w": w} for c in (True, False)))


def test_a_known_condition_leaves_one_branch() -> None:
    """The branches have different shapes, of which only one is asked for."""
    text = """
    net (bool c, float[2] x) => (float[n] y) {
        y = If (c) <
            then_branch = a () => (float[2] y1) { y1 = Neg (x) },
            else_branch = b () => (float[4] y2) { y2 = Concat <axis = 0> (x, x) }
        >
    }
    """
    x = np.array([1, 2], np.float32)
    for c in (True, False):
        check(model_of(text), {"c": np.array(c), "x": x}, values=("c",))
    session = glowpy.InferenceSession(model_of(text))
    assert [len(session.run(None, {"c": np.array(c), "x": x})[0]) for c in (True, False)] == [2, 4]
    with pytest.raises(glowpy.UserError, match=r"one branch gives f32\[2\].*the other f32\[4\]"):
        glowpy.load(model_of(text))


@pytest.mark.parametrize("most", [1e9, 12.0])
def test_a_loop_runs_as_often_as_it_is_told(most: float) -> None:
    x = np.array([1, -2, 0.5], np.float32)
    feeds = [{"n": np.array(n), "x": x, "most": np.array(most, np.float32)} for n in (0, 1, 5, 9)]
    check(model_of(COUNTING), *feeds)


def test_what_is_stacked_needs_a_bound() -> None:
    unbounded = model_of(COUNTING.replace("Min (n, eight)", "Add (n, eight)"))
    with pytest.raises(
        glowpy.UserError, match="the number of rounds must be known while compiling"
    ):
        glowpy.load(unbounded)
    feed = {"n": np.array(2), "x": np.ones(3, np.float32), "most": np.array(99, np.float32)}
    assert glowpy.InferenceSession(unbounded).run(["all"], feed)[0].shape == (10, 3)


def test_a_while_loop_has_no_limit() -> None:
    text = """
    net (float x) => (float y) {
        zero = Constant <value = float {0.0}> ()
        start = Greater (x, zero)
        y = Loop (, start, x) <
            body = halve (int64 i, bool c, float v) => (bool more, float next) {
                half = Constant <value = float {0.5}> ()
                one = Constant <value = float {1.0}> ()
                next = Mul (v, half)
                more = Greater (next, one)
            }
        >
    }
    """
    check(model_of(text), *({"x": np.array(x, np.float32)} for x in (100, 1.5, -3)))


def test_values_are_carried_crosswise() -> None:
    """Both values of a round are read before one is written."""
    text = """
    net (int64 n) => (int64 a, int64 b) {
        zero = Constant <value = int64 {0}> ()
        one = Constant <value = int64 {1}> ()
        true = Constant <value = bool {1}> ()
        a, b = Loop (n, true, zero, one) <
            body = fibonacci (int64 i, bool c, int64 p, int64 q) => (bool c2, int64 q2, int64 s) {
                c2 = Identity (c)
                q2 = Identity (q)
                s = Add (p, q)
            }
        >
    }
    """
    check(model_of(text), *({"n": np.array(n)} for n in (0, 1, 2, 10, 30)))


def test_a_loop_in_a_branch_in_a_loop() -> None:
    text = """
    net (int64 n, float[2, 2] x) => (float[2, 2] y) {
        true = Constant <value = bool {1}> ()
        two = Constant <value = int64 {2}> ()
        three = Constant <value = int64 {200}> ()
        y = Loop (n, true, x) <
            body = outer (int64 i, bool c, float[2, 2] v) => (bool c1, float[2, 2] w) {
                c1 = Identity (c)
                part = Mod (i, two)
                odd = Cast <to = 9> (part)
                rounds = Min (i, three)
                w = If (odd) <
                    then_branch = many () => (float[2, 2] t) {
                        t = Loop (rounds, true, v) <
                            body = inner (int64 j, bool d, float[2, 2] u) => (bool d1, float[2, 2] next) {
                                d1 = Identity (d)
                                next = MatMul (u, x)
                            }
                        >
                    },
                    else_branch = one () => (float[2, 2] e) { e = Add (v, x) }
                >
            }
        >
    }
    """
    x = np.array([[0.5, 0.25], [-0.5, 1]], np.float32)
    check(model_of(text), *({"n": np.array(n), "x": x} for n in (0, 1, 2, 5)))


def test_few_rounds_are_written_out() -> None:
    text = COUNTING.replace("limit = Min (n, eight)", "limit = Identity (two)").replace(
        "eight = Constant <value = int64 {8}> ()", "two = Constant <value = int64 {2}> ()"
    )
    steady = text.replace("more = Less (top, most)", "more = Identity (c)")
    assert len(glowpy.load(model_of(steady)).functions) == 1
    assert len(glowpy.load(model_of(text)).functions) == 2
    feed = {"n": np.array(2), "x": np.ones(3, np.float32), "most": np.array(2.5, np.float32)}
    check(model_of(text), feed)
    check(model_of(steady), feed)


def test_branches_in_few_rounds() -> None:
    """Written out: the rounds share the branches, of which one is not asked for where the round says which."""
    for condition in ("Equal (i, zero)", "Less (k, most)"):
        text = f"""
        net (float[4] x, int64 most) => (float[4] y, float[2, 4] rows) {{
            two = Constant <value = int64 {{2}}> ()
            zero = Constant <value = int64 {{0}}> ()
            y, last, rows = Loop (two, , x, zero) <
                body = b (int64 i, bool c, float[4] v, int64 k)
                    => (bool d, float[4] w, int64 k1, float[4] row) {{
                    d = Identity (c)
                    is_first = {condition}
                    w = If (is_first) <
                        then_branch = grow () => (float[4] e) {{ e = Exp (v) }},
                        else_branch = turn () => (float[4] p) {{ p = Mul (v, x) }}
                    >
                    k1 = Add (k, two)
                    row = Neg (w)
                }}
            >
        }}
        """
        assert len(glowpy.load(model_of(text)).functions) == 3
        x = np.array([0.1, 0.2, -0.3, 0.4], np.float32)
        check(model_of(text), *({"x": x, "most": np.array(n)} for n in (0, 1, 9)))


def test_a_loop_of_constants_computes_a_shape() -> None:
    text = """
    net (float[12] x) => (float[a, b] y) {
        two = Constant <value = int64 {2}> ()
        one = Constant <value_ints = [1]> ()
        rest = Constant <value_ints = [-1]> ()
        rows = Loop (two, , one) <
            body = twice (int64 i, bool c, int64[1] v) => (bool d, int64[1] w) {
                d = Identity (c)
                w = Add (v, v)
            }
        >
        shape = Concat <axis = 0> (rows, rest)
        y = Reshape (x, shape)
    }
    """
    assert [p.type.shape for p in glowpy.load(model_of(text)).main.outputs] == [(4, 3)]


GROWING = """
    net (int64 n, float[1] x) => (float[m] y) {
        true = Constant <value = bool {1}> ()
        y = Loop (n, true, x) <
            body = grow (int64 i, bool c, float[k] v) => (bool c1, float[l] w) {
                c1 = Identity (c)
                w = Concat <axis = 0> (v, x)
            }
        >
    }
"""


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_a_loop_that_grows_what_it_carries_is_written_out() -> None:
    text = GROWING
    x = np.array([2], np.float32)
    check(model_of(text), {"n": np.array(4), "x": x}, values=("n",))
    session = glowpy.InferenceSession(model_of(text))
    assert [len(session.run(None, {"n": np.array(n), "x": x})[0]) for n in (3, 5)] == [4, 6]
    with pytest.raises(
        glowpy.UserError, match=r"'w' is f32\[1\] before a round and f32\[2\] after"
    ):
        glowpy.load(model_of(text))


def test_greedy_decoding() -> None:
    feeds: list[dict[str, Any]] = [
        {"first": np.array(first), "most": np.array(most)}
        for first in (1, 7)
        for most in (0, 4, 99)
    ]
    check(decoder(), *feeds)


@pytest.mark.parametrize("optimize", [False, True])
@pytest.mark.parametrize("name", ["decoder", "rounds", "branches"])
def test_an_exported_network_does_the_same(name: str, optimize: bool, tmp_path: Path) -> None:
    text = BRANCHES.replace("half = ", "axes1 = Constant <value_ints = [1]> ()\n    half = ", 1)
    models = {"decoder": decoder(), "rounds": model_of(COUNTING), "branches": model_of(text)}
    module = glowpy.load(models[name])
    glowpy.save(module, tmp_path / "net.onnx", optimize=optimize)
    exported = ort.InferenceSession(tmp_path / "net.onnx")
    again = glowpy.compile(glowpy.load(tmp_path / "net.onnx"), "interpreter")
    compiled = glowpy.compile(module, "interpreter")
    rng = np.random.default_rng(0)
    for number in (0, 1, 5, 9):
        feed: dict[str, Any] = {
            port: rng.standard_normal(type.extents).astype(np.float32)
            if type.kind.is_float
            else np.full(type.extents, number % 4 if port == "c" else number, type.kind.dtype)
            for port, type in compiled.inputs.items()
        }
        expected, back = compiled(feed), again(feed)
        for info, actual in zip(exported.get_outputs(), exported.run(None, feed), strict=True):
            assert actual.shape == expected[info.name].shape
            np.testing.assert_allclose(actual, expected[info.name], 1e-5, 1e-6)
            np.testing.assert_allclose(back[info.name], expected[info.name], 1e-5, 1e-6)


OPEN = """
    net (int64 n, float[s, 4] x, float[4, 4] w) => (float[s, 4] y) {
        true = Constant <value = bool {1}> ()
        y = Loop (n, true, x) <
            body = b (int64 i, bool c, float[s, 4] v) => (bool c1, float[s, 4] u) {
                c1 = Identity (c)
                t = MatMul (v, w)
                p = Softmax (t)
                u = Add (p, x)
            }
        >
    }
"""

FINDING = """
    net (int64 n, float[6] x) => (float y, float[k] z) {
        true = Constant <value = bool {1}> ()
        zero = Constant <value = float {0.0}> ()
        one = Constant <value = float {1.0}> ()
        kept = Greater (x, zero)
        e = Compress <axis = 0> (x, kept)
        y, z = Loop (n, true, zero, e) <
            body = b (int64 i, bool c, float v, float[k] a) => (bool c1, float u, float[k] b1) {
                c1 = Identity (c)
                f = Cast <to = 1> (i)
                d = Sub (x, f)
                big = Greater (d, zero)
                few = Compress <axis = 0> (x, big)
                sum = ReduceSum <keepdims = 0> (few)
                u = Add (v, sum)
                shape = Shape (a)
                zeros = ConstantOfShape (shape)
                ones = Add (zeros, one)
                b1 = Add (a, ones)
            }
        >
    }
"""

KINDS = """
    net (int64 n, double[2] d, int32[2] k, bool[2] b, float16[0, 3] e, float16[3] h)
        => (double[2] d2, int32[2] k2, bool[2] b2, float16[0, 3] e2, float16[3] h2, double[m, 2] s) {
        true = Constant <value = bool {1}> ()
        five = Constant <value = int64 {5}> ()
        m = Min (n, five)
        d2, k2, b2, e2, h2, s = Loop (m, true, d, k, b, e, h) <
            body = z (int64 i, bool c, double[2] p, int32[2] q, bool[2] r, float16[0, 3] x, float16[3] v)
                => (bool c1, double[2] p1, int32[2] q1, bool[2] r1, float16[0, 3] x1, float16[3] v1, double[2] o) {
                c1 = Identity (c)
                p1 = Mul (p, d)
                q1 = Add (q, k)
                r1 = Not (r)
                x1 = Neg (x)
                v1 = Add (v, h)
                o = Identity (p)
            }
        >
    }
"""

ENDING = """
    net (float[n] x) => (float y, float[k] z) {
        true = Constant <value = bool {1}> ()
        zero = Constant <value = float {0.0}> ()
        three = Constant <value = float {3.0}> ()
        most = Size (x)
        y, z = Loop (most, true, zero) <
            body = b (int64 i, bool c, float v) => (bool c1, float u, float o) {
                e = Gather (x, i)
                u = Add (v, e)
                c1 = Less (u, three)
                o = Neg (u)
            }
        >
    }
"""


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", ["open", "finding", "kinds", "ending"])
def test_sessions(name: str, backend: str) -> None:
    """Open extents, those that a round finds, ends before an open limit, every width of element, empty tensors."""
    rng = np.random.default_rng(1)
    feeds: list[dict[str, Any]]
    match name:
        case "open":
            text, sizes = OPEN, ((1, 2), (3, 5), (2, 1))
            feeds = [
                {"n": np.array(n), "x": rng.standard_normal((s, 4), np.float32)} for n, s in sizes
            ]
            for feed in feeds:
                feed["w"] = rng.standard_normal((4, 4), np.float32)
        case "ending":
            text, feeds = ENDING, [{"x": np.ones(n, np.float32)} for n in (2, 7, 1, 3)]
        case "finding":
            x = np.array([1, 2, 3, 4, -1, 0.5], np.float32)
            text, feeds = FINDING, [{"n": np.array(n), "x": x} for n in (0, 2, 6)]
        case _:
            common = {
                "d": np.array([1.5, 2]),
                "k": np.array([1, 2], np.int32),
                "b": np.array([True, False]),
                "e": np.zeros((0, 3), np.float16),
                "h": np.array([0.25, 1, -2], np.float16),
            }
            text, feeds = KINDS, [{"n": np.array(n), **common} for n in (0, 3, 9)]
    reference = ort.InferenceSession(model_of(text).SerializeToString())
    session = glowpy.InferenceSession(model_of(text), backend=backend)
    for feed in feeds:
        for actual, expected in zip(
            session.run(None, feed), reference.run(None, feed), strict=True
        ):
            assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
            np.testing.assert_allclose(actual, expected, 1e-5, 1e-6)


def nested(depth: int, rounds: int) -> onnx.ModelProto:
    """Loops in loops, each of which runs a known number of rounds."""
    info = helper.make_tensor_value_info
    floats, integers, truths = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
    node = helper.make_node("Neg", [f"v{depth}"], [f"w{depth}"])
    for level in range(depth, 0, -1):
        takes = [info(f"i{level}", integers, []), info(f"c{level}", truths, [])]
        takes.append(info(f"v{level}", floats, [1]))
        gives = [info(f"c{level}", truths, []), info(f"w{level}", floats, [1])]
        body = helper.make_graph([node], f"body{level}", takes, gives)
        inputs = ["rounds", "", f"v{level - 1}"]
        node = helper.make_node("Loop", inputs, [f"w{level - 1}"], body=body)
    known = numpy_helper.from_array(np.array(rounds), "rounds")
    ports = [info("v0", floats, [1])], [info("w0", floats, [1])]
    graph = helper.make_graph([node], "nested", *ports, [known])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def test_loops_in_loops_do_not_multiply() -> None:
    """Inner ones are written out if they are small, and what is around them is not, however few nodes it has."""
    check(nested(4, 3), {"v0": np.array([2], np.float32)})
    module = glowpy.load(nested(18, 14))
    assert len(module.functions) == 18
    assert sum(f.num_nodes for f in module.functions) < 100


def test_loops_that_grow_are_written_out_only_so_far(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MAX_NODES", 2000)
    many = model_of(GROWING.replace("true =", "n = Constant <value = int64 {1500}> ()\n true =", 1))
    del many.graph.input[0]
    with pytest.raises(glowpy.UserError, match="expected at most 2000 nodes"):
        glowpy.load(many)


def test_a_body_without_nodes_is_no_loop_for_the_importer() -> None:
    text = """
    net (float[2] x) => (float[2] y) {
        many = Constant <value = int64 {1000000000000}> ()
        y = Loop (many, , x) <
            body = same (int64 i, bool c, float[2] v) => (bool c, float[2] v) { }
        >
    }
    """
    assert len(glowpy.load(model_of(text)).functions) == 2


MISFITS = {
    "at least 1 values, got one that takes 0 and gives 1": """<ir_version: 8, opset_import: ["": 8]>
        g (float[1,2] s) => (float y)
        { y = Scan <num_scan_inputs: int = 1,
            body: graph = b () => (float y) { y = Constant <value = float {1}> ()}> (, s) }""",
    "expected num_scan_inputs from 1 to 1, got 3": """<ir_version: 8, opset_import: ["": 16]>
        g (float[2] s) => (float y)
        { y = Scan <num_scan_inputs: int = 3, body: graph = b (float x) => (float z) { z = Relu(x) }> (s) }""",
    "expected branches that give the same, got 1 and 2 outputs": """<ir_version: 8, opset_import: ["": 16]>
        g (bool c, float[2] x) => (float[2] y)
        { y = If <then_branch: graph = t () => (float[2] a) { a = Relu(x) },
            else_branch: graph = e () => (float[2] a, float[2] b) { a = Abs(x) b = Neg(x) }> (c) }""",
    "expected 1 outputs with these attributes, got 3": """<ir_version: 8, opset_import: ["": 15]>
        g (float[1,2] x, float[2] s) => (float[1,2] y)
        { y, m, v = BatchNormalization(x, s, s, s, s) }""",
}


@pytest.mark.parametrize("message", MISFITS)
def test_what_fuzzing_found_is_refused(message: str) -> None:
    model = onnx.parser.parse_model(MISFITS[message])
    with pytest.raises(glowpy.UserError, match=message):
        glowpy.load(model)


@pytest.mark.timeout(60)
def test_branches_in_branches_take_no_more_than_their_number() -> None:
    """As deep as a file can hold them; time was exponential in the depth."""
    info, floats = helper.make_tensor_value_info, TensorProto.FLOAT
    inner = [helper.make_node("Neg", ["x"], ["o30"])]
    for level in range(29, -1, -1):
        other = helper.make_node("Exp", ["x"], [f"e{level}"])
        graphs = {
            "then_branch": helper.make_graph(inner, "t", [], [info(f"o{level + 1}", floats, [1])]),
            "else_branch": helper.make_graph([other], "e", [], [info(f"e{level}", floats, [1])]),
        }
        inner = [helper.make_node("If", ["c"], [f"o{level}"], **graphs)]
    ports = [info("c", TensorProto.BOOL, []), info("x", floats, [1])], [info("o0", floats, [1])]
    graph = helper.make_graph(inner, "net", *ports)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    compiled = glowpy.compile(glowpy.load(model), "interpreter")
    outputs = compiled({"c": np.array(True), "x": np.array([2], np.float32)})
    assert outputs["o0"].tolist() == [-2]


NO_ROUNDS = """<ir_version: 8, opset_import: ["": 16]>
    g (float[2] x, int64 m) => (float[2] y, float[?,2] z)
    { y, z = Loop <body: graph = b (int64 i, bool c, float[2] v) => (bool d, float[2] w, float[2] s)
        { d = Identity(c) w = Add(v, v) s = Neg(v) }> (m, , x) }"""


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_loop_without_rounds_stacks_nothing(backend: str) -> None:
    model = onnx.parser.parse_model(NO_ROUNDS)
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    session = glowpy.InferenceSession(model, backend=backend)
    for rounds in (3, 0, -1):
        feed = {"x": np.array([1, 2], np.float32), "m": np.array(rounds)}
        for got, expected in zip(session.run(None, feed), reference.run(None, feed), strict=True):
            assert got.shape == expected.shape
            np.testing.assert_array_equal(got, expected)


def test_a_number_of_rounds_is_one_number() -> None:
    for text in (
        NO_ROUNDS.replace("int64 m", "int64[0] m"),
        NO_ROUNDS.replace("int64 m", "int64[2] m"),
    ):
        model = onnx.parser.parse_model(text)
        with pytest.raises(glowpy.UserError, match="expected one integer as the number of rounds"):
            glowpy.load(model, values={"m": np.ones(0 if "[0]" in text else 2, np.int64)})


ROW_BY_ROW = """
net (float[3, 4] x) => (float[3, 4] y)
<bool t = {1}, int64 n = {3}, int64[1] one = {1}, int64[1] zero = {0}, int64[1] four = {4}>
{
    y = Loop (n, t) <
        body = row (int64[1] i, bool c) => (bool d, float[4] o) {
            d = Identity (c)
            e = Add (i, one)
            s = Slice (x, i, e, zero)
            o = Reshape (s, four)
        }
    >
}
"""


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
def test_rows_of_a_loop_are_taken_one_by_one() -> None:
    """That Slice(x, i, i + 1) has one row follows from how many rounds there are; their number may be a vector."""
    x = np.arange(12, dtype=np.float32).reshape(3, 4)
    (y,) = glowpy.InferenceSession(model_of(ROW_BY_ROW)).run(None, {"x": x})
    np.testing.assert_array_equal(y, x)
