"""Indices out of range: an error in the drop-in, as in onnxruntime, and in sessions that ask for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, parser

import glowpy
import glowpy.onnxruntime as ort
from glowpy.core.tensor import Array
from glowpy.importer.onnx.opening import open_onnx
from glowpy.onnxruntime.capi.onnxruntime_pybind11_state import InvalidArgument

BACKENDS = ["interpreter", "cpu"]
F = np.arange(6, dtype=np.float32).reshape(3, 2)
IMAGE = np.arange(16, dtype=np.float32).reshape(1, 1, 4, 4)


def i64(*values: Any) -> Array:
    return np.array(values, np.int64)


def one(
    op: str, feeds: Mapping[str, Array | None], domain: str = "", opset: int = 18, **attributes: Any
) -> tuple[onnx.ModelProto, dict[str, Array]]:
    """A model of one node, called `lookup`, and what to run it with."""
    given = {name: array for name, array in feeds.items() if array is not None}
    inputs = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(a.dtype), a.shape)
        for name, a in given.items()
    ]
    names = [name if array is not None else "" for name, array in feeds.items()]
    outputs = ["y", "mask"] if op == "EmbedLayerNormalization" else ["y"]
    node = helper.make_node(op, names, outputs, "lookup", domain=domain, **attributes)
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    opsets = {"": opset, "com.microsoft": 1, "ai.onnx.ml": 3}
    graph = helper.make_graph([node], "g", inputs, [y])
    imports = [helper.make_opsetid(*entry) for entry in opsets.items()]
    return helper.make_model(graph, opset_imports=imports, ir_version=9), given


ROTARY = {"x": np.ones((1, 1, 2, 4), np.float32), "p": i64([0, 9])}
TABLES = {"c": np.ones((4, 2), np.float32), "s": np.ones((4, 2), np.float32)}
WORDS = {"i": np.array([[0, 9]], np.int32), "seg": None, "w": np.ones((4, 8), np.float32)}
WORDS |= {"p": np.ones((2, 8), np.float32), "t": None, "g": np.ones(8, np.float32)}
WORDS |= {"b": np.ones(8, np.float32)}
WRONG = {
    "gather": (one("Gather", {"x": F, "i": i64(0, 3)}), "from -3 to 2, got 3"),
    "gather below": (one("Gather", {"x": F, "i": i64(-3, -4)}), "from -3 to 2, got -4"),
    "gather axis": (one("Gather", {"x": F, "i": i64([[2]])}, axis=1), "from -2 to 1, got 2"),
    "elements": (one("GatherElements", {"x": F, "i": i64([0, 7])}), "from -3 to 2, got 7"),
    "vectors": (one("GatherND", {"x": F, "i": i64([0, 7])}), "from -2 to 1, got 7"),
    "vectors of batches": (one("GatherND", {"x": F, "i": i64([0], [1], [-3])}, batch_dims=1), "-3"),
    "scatter": (
        one("ScatterElements", {"x": F, "i": i64([0, -7]), "u": F[:1]}),
        "from -3 to 2, got -7",
    ),
    "scatter before": (one("Scatter", {"x": F, "i": i64([0, 3]), "u": F[:1]}, opset=10), "got 3"),
    "scatter vectors": (
        one("ScatterND", {"x": F, "i": i64([3]), "u": F[:1]}),
        "from -3 to 2, got 3",
    ),
    "sums": (
        one("ScatterND", {"x": F, "i": i64([0, 2]), "u": F[:1, 0].copy()}, reduction="add"),
        "from -2 to 1, got 2",
    ),
    "lengths": (one("ReverseSequence", {"x": F, "l": i64(1, 4)}), "from 0 to 3, got 4"),
    "unpool": (
        one("MaxUnpool", {"x": IMAGE, "i": np.full_like(IMAGE, 77, np.int64)}, kernel_shape=[2, 2]),
        "got 77",
    ),
    "features": (one("ArrayFeatureExtractor", {"x": F, "i": i64(-1)}, "ai.onnx.ml"), "got -1"),
    "regions": (
        one("RoiAlign", {"x": IMAGE, "r": np.ones((1, 4), np.float32), "b": i64(1)}),
        "from 0 to 0, got 1",
    ),
    "classes": (
        one("NegativeLogLikelihoodLoss", {"x": F, "t": i64(0, 1, 2)}),
        "from -2 to 1, got 2",
    ),
    "angles": (one("RotaryEmbedding", ROTARY | TABLES, "com.microsoft"), "from 0 to 3, got 9"),
    "words": (one("EmbedLayerNormalization", WORDS, "com.microsoft"), "from 0 to 3, got 9"),
    "cache": (
        one(
            "TensorScatter",
            {"x": IMAGE, "u": IMAGE[:, :, :2], "i": i64(3)},
            opset=24,
        ),
        "from 0 to 2, got 3",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_every_operator_with_indices(name: str) -> None:
    (model, feeds), message = WRONG[name]
    content = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    if name != "scatter before":  # onnxruntime dropped that opset's Scatter
        with pytest.raises(Exception, match="ONNXRuntimeError"):
            onnxruntime.InferenceSession(content, options).run(None, feeds)
    with pytest.raises(InvalidArgument, match=message) as raised:
        ort.InferenceSession(content).run(None, feeds)
    assert "node 'lookup'" in str(raised.value)
    for backend in BACKENDS:
        with pytest.raises(glowpy.UserError, match=message):
            glowpy.InferenceSession(model, backend=backend, check_indices=True).run(None, feeds)
    glowpy.InferenceSession(model, backend="interpreter").run(None, feeds)


def test_what_is_in_range_runs_as_before() -> None:
    model, feeds = one("GatherND", {"x": F, "i": i64([0, 1], [-3, -2], [2, 0])})
    for backend in BACKENDS:
        session = glowpy.InferenceSession(model, backend=backend, check_indices=True)
        assert session.run(None, feeds)[0].tolist() == [1, 0, 4]
        with pytest.raises(glowpy.UserError):
            session.run(None, feeds | {"i": i64([0, 1], [0, 2], [0, 0])})
        assert session.run(None, feeds)[0].tolist() == [1, 0, 4]


def test_one_hot_has_no_class_for_them() -> None:
    model, feeds = one(
        "OneHot", {"i": i64(0, 7, -4), "d": i64(3), "v": np.array([0, 1], np.float32)}
    )
    (y,) = ort.InferenceSession(model.SerializeToString()).run(None, feeds)
    assert y.tolist() == [[1, 0, 0], [0, 0, 0], [0, 0, 0]]


HEAD = '<ir_version: 10, opset_import: ["": 17]> '


def session(text: str, backend: str, **options: Any) -> glowpy.InferenceSession:
    proto = parser.parse_model(HEAD + text)
    return glowpy.InferenceSession(proto, backend=backend, check_indices=True, **options)


@pytest.mark.parametrize("backend", BACKENDS)
def test_indices_that_the_network_computes(backend: str) -> None:
    """Of open extents, and named by the node that reads them."""
    computed = session(
        """agraph (float[N, M] x, float[K] w) => (float[K, M] y, float[A, B] z) {
          r = Floor(w) i = Cast <to = 7> (r) y = Gather(x, i) two = Constant <value_int = 2> () j = Mul(i, two)
          [second] z = Gather <axis = 1> (x, j) }""",
        backend,
    )
    w = np.array([0.5, 1.5], np.float32)
    y, z = computed.run(None, {"x": np.ones((2, 3), np.float32), "w": w})
    assert (y.shape, z.shape) == ((2, 3), (2, 2))
    with pytest.raises(glowpy.UserError, match="from -2 to 1, got 2") as raised:
        computed.run(None, {"x": np.ones((2, 9), np.float32), "w": w + 1})
    assert "second" not in str(raised.value)
    with pytest.raises(glowpy.UserError, match=r"'second'.*from -2 to 1, got 2"):
        computed.run(None, {"x": np.ones((2, 2), np.float32), "w": w})
    with pytest.raises(glowpy.UserError) as raised:
        computed.run(None, {"x": np.ones((2, 3), np.float32), "w": w + 1})
    assert len(raised.value.diagnostics) == 2


def test_no_indices_are_in_range() -> None:
    empty = session("agraph (float[N] x, int64[K] i) => (float[K] y) { y = Gather(x, i) }", "cpu")
    (y,) = empty.run(None, {"x": F[:, 0].copy(), "i": i64()})
    assert y.shape == (0,)


@pytest.mark.parametrize("backend", BACKENDS)
def test_branches(backend: str) -> None:
    """Only the one that is taken."""
    branches = session(
        """agraph (bool c, float[3] x, int64[1] i, int64[1] j) => (float[1] y) {
          y = If (c) <then_branch = a () => (float[1] t) { [one] t = Gather(x, i) },
                      else_branch = b () => (float[1] e) { [other] e = Gather(x, j) }> }""",
        backend,
    )
    for c, i, j, wrong in ((1, 2, 9, ""), (0, 9, 2, ""), (1, 9, 0, "one"), (0, 0, -9, "other")):
        feeds = {"c": np.array(bool(c)), "x": F[:, 0].copy(), "i": i64(i), "j": i64(j)}
        if wrong:
            with pytest.raises(glowpy.UserError, match=f"/{wrong}'"):
                branches.run(None, feeds)
        else:
            assert branches.run(None, feeds)[0].tolist() == [4]


@pytest.mark.filterwarnings("ignore:code is compiled for each value")
@pytest.mark.parametrize("backend", BACKENDS)
def test_rounds(backend: str) -> None:
    """The first that is wrong, in loops within loops, and in scans."""
    loop = session(
        """agraph (int64 n, float[3] x) => (float s, float[R] rows) {
          c = Constant <value = bool {1}> () zero = Constant <value_float = 0.0> () m = Constant <value_int = 2> ()
          s, rows = Loop (n, c, zero) <body = g (int64 i, bool k, float a) => (bool k2, float a2, float b) {
            k2 = Identity(k)
            b = Loop (m, k, a) <body = h (int64 j, bool l, float p) => (bool l2, float q) {
              l2 = Identity(l) at = Add(i, j) [inner] e = Gather(x, at) q = Add(p, e) }>
            a2 = Identity(b) }> }""",
        backend,
    )
    x = F[:, 0].copy()
    total, rows = loop.run(None, {"n": np.array(2), "x": x})
    assert (total.tolist(), rows.tolist()) == (8, [2, 8])
    with pytest.raises(glowpy.UserError, match=r"inner'.*from -3 to 2, got 3"):
        loop.run(None, {"n": np.array(4), "x": x})
    scan = session(
        """agraph (int64[L, 1] i, float[3] x) => (float[L, 1] y) {
          y = Scan <num_scan_inputs = 1, body = g (int64[1] at) => (float[1] e) { [row] e = Gather(x, at) }> (i) }""",
        backend,
    )
    assert scan.run(None, {"i": i64([0], [2]), "x": x})[0].tolist() == [[0], [4]]
    with pytest.raises(glowpy.UserError, match=r"row'.*from -3 to 2, got 8"):
        scan.run(None, {"i": i64([0], [8], [9]), "x": x})


def test_parts_that_the_session_does_not_compute() -> None:
    mixed = session(
        """agraph (string[K] w, int64[K] i, float[N] x) => (string[K] v, float[K] y) {
          v = StringNormalizer <case_change_action = "UPPER"> (w) y = Gather(x, i) }""",
        "interpreter",
    )
    feeds = {"w": np.array(["a"], object), "i": i64(1), "x": F[:, 0].copy()}
    assert mixed.run(None, feeds)[1].tolist() == [2]
    with pytest.raises(glowpy.UserError, match="from -3 to 2, got 3"):
        mixed.run(None, feeds | {"i": i64(3)})


def test_state_goes_on() -> None:
    kept = session(
        """agraph (int64[1] i, float[1] past) => (float[1] y, float[1] present) {
          t = Constant <value_floats = [1.0, 2.0]> () y = Gather(t, i) present = Add(past, y) }""",
        "cpu",
        state={"past": "present"},
    )
    assert kept.run(None, {"i": i64(1)})[0].tolist() == [2]
    with pytest.raises(glowpy.UserError, match="from -2 to 1, got 2"):
        kept.run(None, {"i": i64(2)})


def test_known_indices_are_wrong_at_once() -> None:
    text = """agraph (float[3, 2] x) => (float[1, 2] y) {
      i = Constant <value = int64[1, 2] {0, 5}> () y = GatherElements(x, i) }"""
    with pytest.raises(
        glowpy.UserError, match="GatherElements: expected indices from -3 to 2, got 5"
    ):
        glowpy.load(parser.parse_model(HEAD + text))


def test_a_session_that_checks_has_code_of_its_own() -> None:
    """Both from one model, whose code is kept for other sessions."""
    opened = open_onnx(one("Gather", {"x": F, "i": i64(0, 3)})[0])
    feeds = {"x": F, "i": i64(0, 3)}
    for checks in (False, True, False):
        own = glowpy.InferenceSession(opened, check_indices=checks)
        if checks:
            with pytest.raises(glowpy.UserError):
                own.run(None, feeds)
        else:
            assert own.run(None, feeds)[0].tolist() == [[0, 1], [4, 5]]


def test_repeated_indices_are_looked_at_once() -> None:
    text = """agraph (float[N, 4] x, int64[K] i) => (float[A, B] y) {
      s = Constant <value_ints = [1, -1]> () r = Reshape(i, s) t = Transpose(r) m = Constant <value_ints = [3, 4]> ()
      e = Expand(t, m) y = GatherElements(x, e) }"""
    model = open_onnx(parser.parse_model(HEAD + text))
    assert isinstance(model, glowpy.importer.OnnxModel)
    model.checked = True
    module = model.build(shapes={"x": (5, 4), "i": (3,)})
    (least,) = [node for node in module.main.nodes if node.SCHEMA.mnemonic == "reduce_min"]
    assert least.inputs[0].type.count == 3
    own = session(text, "interpreter")
    feeds = {"x": np.ones((5, 4), np.float32)}
    assert own.run(None, feeds | {"i": i64(0, -5, 4)})[0].shape == (3, 4)
    with pytest.raises(glowpy.UserError, match="from -5 to 4, got 5"):
        own.run(None, feeds | {"i": i64(0, 5, 4)})


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("grown", [False, True])
def test_state_is_what_it_was_before_a_run_with_wrong_indices(backend: str, grown: bool) -> None:
    """In memory that a run overwrites, and in such that it adds to; at first, later, and after `set_state`."""
    joined = "next = Concat <axis = 0> (past, e)" if grown else "next = Add (past, e)"
    sizes = ("P", "Q") if grown else ("1", "1")
    kept = session(
        f"""agraph (float[{sizes[0]}] past, int64[1] i) => (float[{sizes[1]}] next, float[1] y)
        <float[4] table = {{1, 2, 3, 4}}> {{ e = Gather(table, i) {joined} y = Identity(e) }}""",
        backend,
        state={"past": "next"},
    )

    def step(place: int) -> list[float]:
        (present,) = kept.run(["next"], {"i": i64(place)})
        return [*map(float, present)]

    def refused() -> None:
        with pytest.raises(glowpy.UserError, match="from -4 to 3, got 9"):
            step(9)

    refused()
    assert step(0) == [1]
    refused()
    assert step(2) == ([1, 3] if grown else [4])
    refused()
    kept.set_state({"past": np.array([5], np.float32)})
    refused()
    assert step(1) == ([5, 2] if grown else [7])
    refused()
    refused()
    assert kept.get_state()["past"].tolist() == ([5, 2] if grown else [7])
