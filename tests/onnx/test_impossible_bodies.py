"""Bodies of loops and scans that cannot be computed for the shapes of a call, and matter only if a round runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnxruntime as ort
import pytest

import glowpy
from glowpy.core.tensor import Array

HEAD = '<ir_version: 8, opset_import: ["": 16]>'
ROUND = """[prod] t = Mul (x, w) r = ReduceSum <keepdims = 0> (t) s2 = Add (s, r)"""
WEIGHTS = "w = Constant <value_floats = [1.0, 2.0, 3.0]> ()"
FAULT = r"'loop/body/prod' \(#2\): mul: expected shapes that broadcast, got \[4\] and \[3\]"
Feeds = dict[str, Array]


def looping(inputs: str, limit: str, keep: str, before: str = "") -> onnx.ModelProto:
    """y is a sum for each round, of products with three weights; one round runs if it is `c` that lets it."""
    goes_on = "Constant <value = bool {0}> ()" if keep and not limit else "Identity (k)"
    return onnx.parser.parse_model(f"""{HEAD} net ({inputs}) => (float y, float[R, Q] z) {{
        {before}
        zero = Constant <value_float = 0.0> ()
        [loop] y, z = Loop ({limit}, {keep}, zero) <
            body = g (int64 i, bool k, float s) => (bool k2, float s2, float[N] t) {{
                k2 = {goes_on} {WEIGHTS} {ROUND}
            }}
        >
    }}""")


def ones(count: int, **others: Any) -> Feeds:
    return {"x": np.ones(count, np.float32), **{k: np.array(v) for k, v in others.items()}}


CASES: dict[str, tuple[onnx.ModelProto, list[Feeds]]] = {
    "limit": (
        looping("float[N] x, int64 n", "n", ""),
        [ones(3, n=2), ones(4, n=0), ones(3, n=1), ones(5, n=-1), ones(3, n=0)],
    ),
    "condition": (
        looping("float[N] x, bool c", "", "c"),
        [ones(3, c=True), ones(4, c=False), ones(3, c=False), ones(5, c=False)],
    ),
    "both": (
        looping("float[N] x, int64 n, bool c", "n", "c"),
        [ones(4, n=2, c=False), ones(3, n=2, c=True), ones(4, n=0, c=True)],
    ),
    "never": (
        looping("float[N] x", "n", "", "n = Constant <value = int64 {0}> ()"),
        [ones(4), ones(3)],
    ),
    "false": (
        looping("float[N] x, int64 n", "n", "c", "c = Constant <value = bool {0}> ()"),
        [ones(4, n=3), ones(3, n=1)],
    ),
    "extent": (
        looping("float[N] x, float[M] q", "n", "", "d = Shape (q) n = Squeeze (d)"),
        [ones(3, q=np.ones(2, np.float32)), ones(4, q=np.ones(0, np.float32))],
    ),
    "elements": (
        looping("float[N] x, int64[K] q", "n", "", "n = ReduceSum <keepdims = 0> (q)"),
        [ones(3, q=[1, 1]), ones(4, q=[0, 0]), ones(3, q=[0, 1, 0])],
    ),
}


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
@pytest.mark.parametrize("name", CASES)
@pytest.mark.filterwarnings("ignore:code is compiled for each")
def test_a_body_that_runs_no_round_does_not_have_to_fit(name: str, backend: str) -> None:
    model, feeds = CASES[name]
    session = glowpy.InferenceSession(model, backend=backend)
    reference = ort.InferenceSession(model.SerializeToString())
    for feed in feeds:
        (y, z), (sums, rows) = session.run(None, feed), reference.run(None, feed)
        assert y == sums
        assert len(z) == len(rows)
        if rows.size:
            np.testing.assert_array_equal(z, rows)


@pytest.mark.parametrize(
    ("name", "feed"),
    [
        ("limit", ones(4, n=1)),
        ("condition", ones(4, c=True)),
        ("both", ones(4, n=1, c=True)),
        ("extent", ones(4, q=np.ones(1, np.float32))),
        ("elements", ones(4, q=[1])),
    ],
)
@pytest.mark.filterwarnings("ignore:code is compiled for each")
def test_a_round_that_would_run_is_told_with_its_node(name: str, feed: Feeds) -> None:
    model, feeds = CASES[name]
    session = glowpy.InferenceSession(model, backend="interpreter")
    with pytest.raises(glowpy.UserError, match=FAULT):
        session.run(None, feed)
    assert session.run(None, feeds[1])[0] == 0 or name == "both"
    with pytest.raises(glowpy.UserError, match=FAULT):
        session.run(None, feed)


@pytest.mark.filterwarnings("ignore:code is compiled for each")
def test_a_scan_of_nothing() -> None:
    """onnxruntime scans no sequence without elements, whatever the body is."""
    model = onnx.parser.parse_model(f"""{HEAD}
        net (float[N] x, float[M] q) => (float y, float[Q, R] z) {{
            zero = Constant <value_float = 0.0> ()
            [loop] y, z = Scan <
                num_scan_inputs = 1, scan_output_axes = [1],
                body = g (float s, float e) => (float s2, float[N] t) {{
                    e2 = Identity (e) {WEIGHTS} {ROUND}
                }}
            > (zero, q)
        }}""")
    session = glowpy.InferenceSession(model, backend="interpreter")
    for count, rounds, shape in ((3, 2, (3, 2)), (4, 0, (0, 0)), (3, 0, (3, 0))):
        y, z = session.run(None, ones(count, q=np.ones(rounds, np.float32)))
        assert (float(y), z.shape) == (6 * rounds, shape)
    with pytest.raises(glowpy.UserError, match=FAULT):
        session.run(None, ones(4, q=np.ones(1, np.float32)))


def test_machine_code_alone_needs_the_number_of_rounds() -> None:
    model = CASES["limit"][0]
    with pytest.raises(glowpy.UserError) as info:
        glowpy.load(model, dims={"N": 4})
    text = str(info.value)
    assert "'loop' (#1): body cannot be computed: the number of rounds must be known" in text
    assert "mul: expected shapes that broadcast, got [4] and [3]" in text
    module = glowpy.load(model, dims={"N": 4}, values={"n": np.array(0)})
    assert [f.name for f in module.functions] == ["main"]
    outputs = glowpy.compile(module, "interpreter")(ones(4, n=0))
    assert (float(outputs["y"]), outputs["z"].shape) == (0, (0, 0))


def test_what_is_around_an_impossible_body_is_computed() -> None:
    """The declared extents of what is stacked stay, and functions of the body leave nothing in the module."""
    model = onnx.parser.parse_model(f"""{HEAD}
        net (float[4] x, int64 m) => (float y, float[R, 2] z) {{
            n = Constant <value = int64 {{0}}> ()
            two = Constant <value_float = 2.0> ()
            five = ReduceSum <keepdims = 0> (x)
            a, z = Loop (n, , five) <
                body = g (int64 i, bool k, float s) => (bool k2, float s2, float[2] t) {{
                    k2 = Identity (k)
                    inner = Loop (m, , s) <
                        body = h (int64 j, bool l, float v) => (bool l2, float u) {{
                            l2 = Identity (l)
                            u = Mul (v, two)
                        }}
                    >
                    s2 = Identity (inner)
                    {WEIGHTS}
                    p = Mul (x, w)
                    b = Constant <value_ints = [0]> ()
                    e = Constant <value_ints = [2]> ()
                    t = Slice (p, b, e)
                }}
            >
            y = Mul (a, two)
        }}""")
    module = glowpy.load(model)
    assert [f.name for f in module.functions] == ["main"]
    outputs = glowpy.compile(module, "interpreter")(ones(4, m=1))
    assert (float(outputs["y"]), outputs["z"].shape) == (8, (0, 2))
