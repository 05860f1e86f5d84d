"""What a session compiles before it is called, what it tells of that, and that nothing is compiled after it."""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy import onnxruntime as drop_in
from glowpy.backend import Backend, CompileOptions
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.importer import OnnxModel
from glowpy.session.compiled import Compiled
from glowpy.session.kept_needs import KeptNeed
from glowpy.session.preparation import MOST_PROGRAMS, CompileEvent

F32 = np.float32


def parsed(text: str, unnamed: str = "") -> onnx.ModelProto:
    """A model; dimensions whose names begin with `unnamed` have none."""
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> {text}')
    for info in (*model.graph.input, *model.graph.output):
        for dim in info.type.tensor_type.shape.dim:
            if unnamed and dim.dim_param.startswith(unnamed):
                dim.ClearField("dim_param")
    return model


ATTENTION = """net (float[batch, seq, 8] x) => (float[batch, seq, 8] y) {
    k = Transpose <perm = [0, 2, 1]> (x)
    s = MatMul (x, k)
    p = Softmax <axis = -1> (s)
    y = MatMul (p, x)
}"""
CACHE = """net (float[1, past, 8] p, float[1, seq, 8] x, float[total] m) => (float[1, t, 8] y) {
    all = Concat <axis = 1> (p, x)
    a = Constant <value_ints = [0, 2]> ()
    mask = Unsqueeze (m, a)
    y = Mul (all, mask)
}"""
HALVED = """net (float[1, 2, h, w] x) => (float[1, 2, h, w] y) {
    a = MaxPool <kernel_shape = [2, 2], strides = [2, 2]> (x)
    s = Constant <value_floats = [1.0, 1.0, 2.0, 2.0]> ()
    u = Resize <mode = "nearest"> (a, , s)
    y = Add (u, x)
}"""
CHANNELS = "net (float[1, c, 8] x, float[4, k, 3] w) => (float[1, 4, 6] y) { y = Conv (x, w) }"
PAIR = "net (int64[b1, s1] x, int64[b2, s2] z) => (int64[b3, s3] y) { y = Add (x, z) }"


def ones(**shapes: tuple[int, ...]) -> dict[str, Array]:
    return {name: np.ones(shape, F32) for name, shape in shapes.items()}


CASES: dict[str, tuple[onnx.ModelProto, Mapping[str, Any], int, Iterable[dict[str, Array]]]] = {
    "range": (
        parsed(ATTENTION),
        {"batch": "1..4", "seq": "1..64"},
        1,
        [ones(x=(b, s, 8)) for b in (1, 2, 4) for s in (1, 2, 33, 64)],
    ),
    "list": (
        parsed(ATTENTION),
        {"batch": [1, "2..4"], "seq": range(1, 65)},
        2,
        [ones(x=(b, s, 8)) for b in (1, 2, 4) for s in (1, 64)],
    ),
    "single": (
        parsed(ATTENTION),
        {"batch": 3, "seq": "7,9"},
        2,
        [ones(x=(3, s, 8)) for s in (7, 9)],
    ),
    "computed": (
        parsed(CACHE),
        {"past": "0..64", "seq": "1..8", "total": "past+seq"},
        1,
        [ones(p=(1, p, 8), x=(1, s, 8), m=(p + s,)) for p, s in ((0, 1), (0, 8), (64, 1), (5, 2))],
    ),
    "multiples": (
        parsed(HALVED),
        {"h": "2..33", "w": "2..32"},
        1,
        [ones(x=(1, 2, h, w)) for h, w in ((2, 2), (32, 30), (4, 32))],
    ),
    "constants": (
        parsed(CHANNELS),
        {"c": "1..5", "k": "1..5"},
        5,
        [ones(x=(1, c, 8), w=(4, c, 3)) for c in range(1, 6)],
    ),
    "unnamed": (
        parsed(PAIR, "b"),
        {"x[0]": "1..4", "s1": "1..9", "z_0": "x_0", "s2": "s1"},
        1,
        [{n: np.ones((b, s), np.int64) for n in "xz"} for b, s in ((1, 1), (1, 9), (4, 1), (3, 5))],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_what_is_prepared_is_not_compiled_later(name: str) -> None:
    model, ranges, programs, feeds = CASES[name]
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(model, backend="interpreter", on_compile=events.append)
    session.prepare(ranges)
    assert len(events) == programs
    assert {event.why for event in events} == {"prepare"}
    session.freeze()
    reference = ort.InferenceSession(model.SerializeToString())
    for feed in feeds:
        (actual,), (expected,) = session.run(None, feed), reference.run(None, feed)
        np.testing.assert_allclose(actual, expected, 1e-5)
    assert len(events) == programs


def test_machine_code_is_prepared_once() -> None:
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(parsed(ATTENTION), on_compile=events.append)
    for _ in range(2):
        session.prepare(batch="1..4", seq="1..16")
    assert [dict(event.dims) for event in events] == [{"batch": "1..4", "seq": "1..16"}]
    assert session.assumptions == {"batch": "1..4", "seq": "1..16"}
    x = np.random.default_rng(0).random((3, 5, 8), F32)
    scores = np.exp(x @ x.transpose(0, 2, 1))
    expected = (scores / scores.sum(-1, keepdims=True)) @ x
    np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, 1e-5)


def test_a_call_beyond_is_compiled_for_or_refused() -> None:
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(
        parsed(ATTENTION), backend="interpreter", limit=1, on_compile=events.append
    )
    session.prepare(batch=[1, "2..4"], seq="1..16")
    session.run(None, ones(x=(5, 20, 8)))
    beyond = events[-1].why
    assert beyond == (
        "'batch' = 5, 'seq' = 20, where code is for batch = 1, seq = 1..16; batch = 2..4, seq = 1..16"
    )
    session.run(None, ones(x=(5, 90, 8)))
    session.freeze()
    for batch in (1, 2, 4):  # stays, whatever came since, although one more is kept
        session.run(None, ones(x=(batch, 16, 8)))
    with pytest.raises(
        glowpy.UserError, match=r"frozen.*'batch' = 99, where code is for batch = 1"
    ):
        session.run(None, ones(x=(99, 16, 8)))


@pytest.mark.parametrize("runs_before", [False, True])
def test_what_replaces_code_that_is_prepared_stays(runs_before: bool) -> None:
    """Wider bounds take the place of the prepared ones, and code for repetition would push them out."""
    text = "net (float[n] x, float[m] z) => (float[k] y) { y = Add (x, z) }"
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(
        parsed(text), backend="interpreter", limit=1, on_compile=events.append
    )
    if runs_before:
        session.run(None, ones(x=(9,), z=(9,)))
    session.prepare({"n": "2..32", "m": "n"})
    for n, m in ((100, 100), (7, 1), (1, 7)):
        session.run(None, ones(x=(n,), z=(m,)))
    count = len(events)
    for n in (5, 32, 2, 100):
        session.run(None, ones(x=(n,), z=(n,)))
    assert len(events) == count


RESHAPED = """net (float[n] x) => (float[a, 48] y) {
    s = Constant <value_ints = [-1, 48]> () y = Reshape (x, s)
}"""
CONVOLVED = "net (float[1, 1, n] x, float[1, 1, 20] w) => (float[1, 1, m] y) { y = Conv (x, w) }"
BOTH = """net (float[1, 1, n] x, float[1, 1, 20] w) => (float[a, 3] y) {
    c = Conv (x, w) s = Constant <value_ints = [-1, 3]> () y = Reshape (c, s)
}"""
PLANE = (
    "net (float[1, 1, h, n] x, float[1, 1, 20, 20] w) => (float[1, 1, a, b] y) { y = Conv (x, w) }"
)


@pytest.mark.parametrize(
    ("text", "ranges", "allowed"),
    [
        (RESHAPED, {"n": "1..4096"}, range(48, 4097, 48)),
        (CONVOLVED, {"n": "1..200"}, range(20, 201)),
        (BOTH, {"n": "1..200"}, range(22, 200, 3)),
        (PLANE, {"h": "1..60", "n": "1..60"}, range(20, 61, 5)),
        ("net (float[n] x) => (float[n] y) { y = Relu (x) }", {"n": "1..100000"}, [1, 70_000]),
    ],
    ids=["multiples", "not few", "both", "two", "many"],
)
def test_extents_that_the_model_allows_are_found(
    text: str, ranges: Mapping[str, str], allowed: Iterable[int]
) -> None:
    model = parsed(text)
    session = glowpy.InferenceSession(model, backend="interpreter")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        session.prepare(ranges)
    session.freeze()
    dims = {info.name: info.type.tensor_type.shape.dim for info in model.graph.input}
    for n in allowed:
        session.run(None, ones(**{x: tuple(d.dim_value or n for d in dims[x]) for x in dims}))


def test_combinations_beside_those_of_equal_extents_are_found() -> None:
    """A window fits into both parts together, which is seen where neither is at its end and they differ."""
    text = """net (float[1, 1, n] x, float[1, 1, m] w) => (float[1, 1, k] y) {
        c = Concat <axis = 2> (x, w) y = MaxPool <kernel_shape = [9]> (c)
    }"""
    session = glowpy.InferenceSession(parsed(text), backend="interpreter")
    session.prepare(n="0..30", m="0..30")
    session.freeze()
    for n in range(10):
        session.run(None, ones(x=(1, 1, n), w=(1, 1, 9 - n)))


def test_extents_without_code_that_were_not_tried_are_warned_of() -> None:
    text = "net (float[1, 1, n] x, float[1, 1, 200] w) => (float[1, 1, m] y) { y = Conv (x, w) }"
    session = glowpy.InferenceSession(parsed(text), backend="interpreter")
    said = r"no code is prepared for n = 65 to n = 199 \(135 in all\), which was not tried"
    with pytest.warns(RuntimeWarning, match=said) as caught:
        session.prepare(n="1..400")
    assert [warning.filename for warning in caught] == [__file__]
    session.freeze()
    assert session.run(None, ones(x=(1, 1, 200), w=(1, 1, 200)))[0].shape == (1, 1, 1)


def test_ranges_of_which_the_model_allows_nothing() -> None:
    text = "net (float[n] x) => (float[4800] y) { s = Constant <value_ints = [4800]> () y = Reshape (x, s) }"
    session = glowpy.InferenceSession(parsed(text), backend="interpreter")
    with pytest.raises(glowpy.UserError, match="expected a shape of n elements") as info:
        session.prepare(n="4..5")
    assert "expected ranges" not in str(info.value)
    with pytest.raises(glowpy.UserError, match=r"expected ranges with extents .* [0-9]+ are not"):
        session.prepare(n="1..9000")


def test_state_is_prepared() -> None:
    text = "net (float[1, past, 8] p, float[1, seq, 8] x) => (float[1, t, 8] q) { q = Concat <axis = 1> (p, x) }"
    session = glowpy.InferenceSession(parsed(text), backend="interpreter", state={"p": "q"})
    session.prepare(past="0..64", seq="1..8")
    session.freeze()
    for length in (3, 1, 8, 1):
        session.run(None, ones(x=(1, length, 8)))
    assert session.get_state()["p"].shape == (1, 13, 8)


def test_elements_that_compiling_has_to_know_are_given() -> None:
    text = """net (float[1, n] x, int64[2] s) => (float[a, b] y) {
        y = Resize <mode = "nearest"> (x, , , s)
    }"""
    session = glowpy.InferenceSession(parsed(text), backend="interpreter")
    with pytest.raises(glowpy.UserError, match="expected the elements of 's' to prepare for"):
        session.prepare(n="6")
    for rows in (2, 3):
        session.prepare(n="6", values={"s": np.array([rows, 6])})
    session.freeze()
    for rows in (2, 3):
        (y,) = session.run(None, {**ones(x=(1, 6)), "s": np.array([rows, 6])})
        assert y.shape == (rows, 6)
    with pytest.raises(glowpy.UserError, match="other elements of 's'"):
        session.run(None, {**ones(x=(1, 6)), "s": np.array([4, 6])})


def test_what_elements_decide_is_prepared_for_all_of_them() -> None:
    text = "net (float[n] x, int64[2] s) => (float[a, b] y) { y = Expand (x, s) }"
    session = glowpy.InferenceSession(parsed(text), backend="interpreter")
    session.prepare(n="2..6")
    session.freeze()
    for rows, columns in ((2, 6), (30, 3)):
        (y,) = session.run(None, {**ones(x=(columns,)), "s": np.array([rows, columns])})
        assert y.shape == (rows, columns)


def test_a_branch_that_the_session_chooses_is_frozen_as_well() -> None:
    model = parsed("""net (float[n] x, int64[n] i) => (float y) {
        zero = Constant <value = int64 {0}> ()
        s = ReduceSum <keepdims = 0> (i)
        c = Greater (s, zero)
        y = If (c) <
            then_branch = t () => (float a) { a = ReduceSum <keepdims = 0> (x) },
            else_branch = e () => (float b) {
                w = Constant <value_floats = [1.0, 2.0]> ()
                z = Mul (x, w)
                b = ReduceSum <keepdims = 0> (z)
            }
        >
    }""")
    session = glowpy.InferenceSession(model, backend="interpreter")
    with pytest.raises(glowpy.UserError, match="expected a model that is compiled as a whole"):
        session.prepare(n="9..20")
    feed = {**ones(x=(9,)), "i": np.ones(9, np.int64)}
    assert session.run(None, feed)[0] == 9
    with pytest.raises(
        glowpy.UserError, match="parts of this one are compiled when they first run"
    ):
        session.prepare(n="9..20")
    session.freeze()
    assert session.run(None, feed)[0] == 9
    with pytest.raises(glowpy.UserError, match="frozen"):
        session.run(None, {**ones(x=(2,)), "i": -np.ones(2, np.int64)})


@pytest.mark.parametrize(
    ("ranges", "message"),
    [
        ({"batch": "1..4"}, "expected a range of 'seq' as well"),
        ({"batch": 1, "length": 1}, "dimensions 'batch', 'seq', got 'length'"),
        ({"batch": "1-8", "seq": 1}, "'batch': expected extents such as .* got '1-8'"),
        ({"batch": "4..1", "seq": 1}, "'batch': expected extents such as .* got '4..1'"),
        ({"batch": True, "seq": 1}, "'batch': expected extents .* got True"),
        ({"batch": -1, "seq": 1}, "'batch': expected extents"),
        ({"batch": [], "seq": 1}, "'batch': expected extents"),
        ({"batch": 1.5, "seq": 1}, "'batch': expected extents"),
        ({"batch": 1, "seq": "past+1"}, "'seq': the symbol 'past' is not declared"),
        ({"batch": [*range(9)], "seq": [*range(9)]}, "at most 64 parts, got 81"),
    ],
)
def test_what_is_no_range(ranges: Mapping[str, Any], message: str) -> None:
    session = glowpy.InferenceSession(parsed(ATTENTION), backend="interpreter")
    with pytest.raises(glowpy.UserError, match=message):
        session.prepare(ranges)


def test_extents_that_are_all_constants_are_too_many() -> None:
    session = glowpy.InferenceSession(parsed(CHANNELS), backend="interpreter")
    with pytest.raises(
        glowpy.UserError,
        match=f"at most {MOST_PROGRAMS} extents of 'k', got 600: code is compiled for each: Conv",
    ):
        session.prepare(c="1..600", k="1..600")
    assert session.run(None, ones(x=(1, 3, 8), w=(4, 3, 3)))[0].shape == (1, 4, 6)


def test_a_model_without_open_dimensions_is_told_of() -> None:
    events: list[CompileEvent] = []
    text = "net (float[3] x) => (float[3] y) { y = Relu (x) }"
    session = glowpy.InferenceSession(parsed(text), on_compile=events.append)
    assert [(event.model, dict(event.dims)) for event in events] == [("net", {})]
    with pytest.raises(
        glowpy.UserError, match=r"^expected no ranges: no dimension is open, got 'N'$"
    ):
        session.prepare(N=1)
    session.prepare()
    session.freeze()
    assert session.run(None, ones(x=(3,)))[0].tolist() == [1, 1, 1]
    assert len(events) == 1


def test_the_options_of_onnxruntime_prepare() -> None:
    options = drop_in.SessionOptions()
    options.add_session_config_entry("glowpy.prepare", "batch=1..2 seq=1..4")
    options.add_session_config_entry("glowpy.frozen", "1")
    content = parsed(ATTENTION).SerializeToString()
    session = drop_in.InferenceSession(content, options)
    assert session.run(None, ones(x=(2, 4, 8)))[0].shape == (2, 4, 8)
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.InvalidArgument, match="frozen"):
        session.run(None, ones(x=(2, 5, 8)))
    options.add_session_config_entry("glowpy.prepare", "batch=1..2")
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.InvalidArgument, match="'seq'"):
        drop_in.InferenceSession(content, options)
    options.add_session_config_entry("glowpy.frozen", "yes")
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.InvalidArgument):
        drop_in.InferenceSession(content, options)


def test_sessions_with_little_memory() -> None:
    """Winograd's algorithm has larger weights, which none of these takes."""
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((64, 64, 3, 3)).astype(np.float32)
    text = "net (float[1, 64, 28, 28] x) => (float[1, 64, 26, 26] y) { y = Conv (x, w) }"
    model = parsed(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    options = drop_in.SessionOptions()
    options.add_session_config_entry("glowpy.low_memory", "1")
    feeds = {"x": rng.standard_normal((1, 64, 28, 28)).astype(np.float32)}
    sessions = (
        glowpy.InferenceSession(model, backend=CpuBackend(CpuOptions(exact=True))),
        glowpy.InferenceSession(model, low_memory=True),
        drop_in.InferenceSession(model.SerializeToString(), options),
    )
    direct, *others = (session.run(None, feeds)[0].tobytes() for session in sessions)
    assert others == [direct, direct]
    with pytest.raises(glowpy.UserError, match="no option 'low_memory'"):
        glowpy.InferenceSession(model, backend="interpreter", low_memory=True)
    with pytest.raises(glowpy.UserError, match="expected low_memory among the options"):
        glowpy.InferenceSession(model, backend=CpuBackend(), low_memory=True)
    options.add_session_config_entry("glowpy.low_memory", "yes")
    with pytest.raises(drop_in.capi.onnxruntime_pybind11_state.InvalidArgument, match="0 or 1"):
        drop_in.InferenceSession(model.SerializeToString(), options)


def test_the_command_line_fills_the_cache(tmp_path: Path, cache_folder: Path) -> None:
    del cache_folder
    path = tmp_path / "net.onnx"
    onnx.save(parsed(ATTENTION), path)
    ranges = ["--prepare", "batch=1,2..4", "--prepare", "seq=1..16"]
    status, said = _run(str(path), *ranges)
    assert status == 0, said
    assert "compiled in" in said
    assert "for batch = 2..4, seq = 1..16: prepare" in said
    events: list[CompileEvent] = []
    session = glowpy.InferenceSession(path, threads=1, on_compile=events.append)
    session.prepare(batch=[1, "2..4"], seq="1..16")
    assert [event.recalled for event in events] == [True, True]
    status, said = _run(str(path), *ranges, "--json")
    assert status == 0
    assert [(e["recalled"], e["dims"]["batch"]) for e in json.loads(said)] == [
        (True, "1"),
        (True, "2..4"),
    ]
    for option in (
        "--shape batch=1",
        "--input x=x.npy",
        "--check-with interpreter",
        "--sanitize",
        "--seed 1",
    ):
        status, said = _run(str(path), *ranges, *option.split())
        assert status == 1
        assert f"{option.split()[0]}: --prepare and --check-indices only compile" in said
    for option in ("--debug code", "--jitdump dumps", "--perf-map"):
        status, said = _run(str(path), *ranges, *option.split())
        assert status == 1
        assert f"{option.split()[0]}: --prepare and --check-indices fill the cache" in said
    status, said = _run(str(path), "--prepare", "batch")
    assert (status, "--prepare: expected DIMENSION=LOW..HIGH, got 'batch'" in said) == (1, True)


def test_the_command_line_fills_the_cache_for_sessions_that_check_indices(
    tmp_path: Path, cache_folder: Path
) -> None:
    del cache_folder
    pick = "net (float[9] x, int64[N] i) => (float[N] y) { y = Gather (x, i) }"
    for size, ranges in (("n", ["--prepare", "n=2..6"]), ("3", [])):
        path = tmp_path / f"{size}.onnx"
        onnx.save(parsed(pick.replace("N", size)), path)
        status, said = _run(str(path), *ranges, "--check-indices", "--threads", "2")
        assert (status, "compiled in" in said) == (0, True), said
        events: list[CompileEvent] = []
        session = glowpy.InferenceSession(
            path, threads=2, check_indices=True, on_compile=events.append
        )
        if ranges:
            session.prepare(n="2..6")
        assert [event.recalled for event in events] == [True]
        with pytest.raises(glowpy.UserError, match="expected indices from -9 to 8, got 9"):
            session.run(None, {**ones(x=(9,)), "i": np.array([0, 9, 1])})


def test_the_drop_in_finds_in_the_cache_what_the_command_line_prepared(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    del cache_folder
    path = tmp_path / "net.onnx"
    onnx.save(parsed("net (float[9] x, int64[n] i) => (float[n] y) { y = Gather (x, i) }"), path)
    assert _run(str(path), "--prepare", "n=2..6", "--check-indices", "--threads", "2")[0] == 0
    options = drop_in.SessionOptions()
    options.intra_op_num_threads = 2
    options.add_session_config_entry("glowpy.prepare", "n=2..6")
    monkeypatch.setattr(OnnxModel, "build", None)
    for model in (path, path.read_bytes()):
        session = drop_in.InferenceSession(model, options)
        feed = {"x": np.arange(9, dtype=F32), "i": np.array([8, -9, 3])}
        assert session.run(None, feed)[0].tolist() == [8, 0, 3]


GROUPS = """
<ir_version: 8, opset_import: ["": 17, "com.microsoft": 1]>
net (float[1, 1, 16] q, float[1, 1, 16] k, float[1, 1, 16] v, float[1, 2, room, 8] pk, float[1, 2, room, 8] pv,
     int64[1, total] mask) => (float[1, 1, 16] y, float[1, 2, r, 8] ck, float[1, 2, r, 8] cv) {
    ones = ReduceSum <keepdims = 0> (mask) one = Constant <value = int32 {1}> ()
    sum = Cast <to = 6> (ones) last = Sub (sum, one) axes = Constant <value_ints = [0]> ()
    n = Unsqueeze (last, axes)
    shape = Shape <start = 1> (mask) all = Squeeze (shape) total = Cast <to = 6> (all)
    y, ck, cv = com.microsoft.GroupQueryAttention <num_heads = 2, kv_num_heads = 2> (q, k, v, pk, pv, n, total)
}"""


def test_both_programs_for_caches_are_prepared(
    tmp_path: Path, cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The drop-in has one whose caches are in the memory of their past, and one whose caches are not."""
    del cache_folder
    path = tmp_path / "net.onnx"
    onnx.save(onnx.parser.parse_model(GROUPS), path)
    ranges = ["--prepare", "room=8", "--prepare", "total=5", "--threads", "1"]
    status, said = _run(str(path), *ranges, "--check-indices", "--json")
    assert status == 0, said
    assert [event["recalled"] for event in json.loads(said)] == [False, False]
    options = drop_in.SessionOptions()
    options.intra_op_num_threads = 1
    options.add_session_config_entry("glowpy.prepare", "room=8 total=5")
    monkeypatch.setattr(OnnxModel, "build", None)
    drop_in.InferenceSession(path, options)


def _run(*argv: str) -> tuple[int, str]:
    out = io.StringIO()
    return run(["run", *argv], io.StringIO(), out), out.getvalue()


REPEATED = """net (float[n] x) => (float[m] y) {
    r = Constant <value_int = 200> ()
    t = Constant <value = bool {1}> ()
    y = Loop (r, t, x) <body = b (int64 i, bool c, float[k] a) => (bool c2, float[l] z) {
        c2 = Identity (c)
        z = Concat <axis = 0> (a, x)
    }>
}"""


def test_a_loop_that_a_session_has_run_by_rounds_is_prepared(
    cache_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that is long if it is written out: what a run needs is kept, and says nothing of what is prepared.

    It is kept as for the cpu, which is what keeps needs, and takes seconds to compile 200 rounds.
    """
    del cache_folder

    def kept_as_for_cpu(network: str, backend: Backend, options: CompileOptions) -> KeptNeed:
        del backend
        return KeptNeed(network, CpuBackend(), options)

    monkeypatch.setattr("glowpy.session.programs.KeptNeed", kept_as_for_cpu)
    for _ in range(2):
        with glowpy.InferenceSession(parsed(REPEATED), backend="interpreter") as session:
            assert session.run(None, ones(x=(1,)))[0].shape == (201,)
        with glowpy.InferenceSession(parsed(REPEATED), backend="interpreter") as session:
            session.prepare(n=1)
            runner = session._runner
            assert session.run(None, ones(x=(2,)))[0].shape == (402,)
            assert session._runner is runner  # with what is prepared
            session.freeze()
            assert session.run(None, ones(x=(1,)))[0].shape == (201,)


def test_a_refusal_to_prepare_leaves_the_rounds_to_the_session() -> None:
    text = REPEATED.replace("200", "200000")
    session = glowpy.InferenceSession(parsed(text), backend="interpreter")
    with pytest.raises(glowpy.UserError, match="expected a model that is compiled as a whole"):
        session.prepare(n=1)
    assert isinstance(session._runner, Compiled)
    assert session._runner.programs._model.runs_rounds
