"""Models in f16 and bf16: operators that consist of several steps round where they end, as onnxruntime's do."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx.parser
import pytest

import glowpy
from glowpy.core.tensor import Array

RNG = np.random.default_rng(5)
BACKENDS = ["interpreter", "cpu"]

STEPS = """m = ReduceMean(x, a) d = Sub(x, m) q = Mul(d, d) v = ReduceMean(q, a) w = Add(v, f) s = Sqrt(w)
  n = Div(d, s) y = Mul(n, g)"""
OPERATORS: dict[str, tuple[str, int, float]] = {
    "l1": ("y = ReduceL1(x, a)", 18, 30),
    "l2": ("y = ReduceL2(x, a)", 18, 3000),
    "l2 of little": ("y = ReduceL2(x, a)", 18, 3e-4),
    "log of sums": ("p = Abs(x) y = ReduceLogSum(p, a)", 18, 3000),
    "log of sums of exps": ("y = ReduceLogSumExp(x, a)", 18, 300),
    "mean": ("y = ReduceMean(x, a)", 18, 10000),
    "sum of squares": ("y = ReduceSumSquare(x, a)", 18, 10),
    "lp": ("y = LpNormalization <p = 2> (x)", 22, 3000),
    "lp 1": ("y = LpNormalization <p = 1> (x)", 22, 3000),
    "layer": ("y = LayerNormalization(x, g)", 17, 3000),
    "rms": ("y = RMSNormalization(x, g)", 23, 3000),
    "mean variance": ("y = MeanVarianceNormalization <axes = [2]> (x)", 15, 3000),
    "instance": ("y = InstanceNormalization(x, c, c)", 22, 3000),
    "group": ("y = GroupNormalization <num_groups = 2> (x, c, c)", 21, 3000),
    "response": ("y = LRN <size = 3> (x)", 15, 3000),
    "softmax": ("y = Softmax(x)", 15, 3000),
    "pool": ("y = GlobalLpPool <p = 2> (x)", 22, 3000),
    "pool of windows": ("y = LpPool <p = 2, kernel_shape = [8]> (x)", 22, 3000),
    "layer, in steps": (STEPS, 18, 3000),
    "root of mean squares, in steps": (
        "q = Mul(x, x) m = ReduceMean(q, a) r = Sqrt(m) y = Div(x, r)",
        18,
        3000,
    ),
    "l2, in steps": ("q = Mul(x, x) s = ReduceSum(q, a) r = Sqrt(s) y = Div(x, r)", 18, 3000),
    "log of sums of exps, in steps": ("e = Exp(x) s = ReduceSum(e, a) y = Log(s)", 18, 4),
    "weighted": ("s = ReduceSum(x, a) t = Mul(s, f) y = Mul(t, f)", 18, 60000),
}


def model(nodes: str, opset: int, kind: str) -> onnx.ModelProto:
    """A model of nodes that read `x`, the factors `g` and `c`, a factor `f`, and the axes `a`."""
    text = f"""<ir_version: 10, opset_import: ["": {opset}]>
    agraph ({kind}[2, 4, 32] x) => ({kind}[A, B, C] y) {{
      a = Constant <value_ints = [2]> () f = CastLike(f32, x) g = CastLike(g32, x) c = CastLike(c32, x)
      {nodes} }}"""
    text = text.replace("y) {", "y) <float f32 = {0.125}, float[32] g32, float[4] c32> {")
    proto = onnx.parser.parse_model(text)
    del proto.graph.initializer[:]
    for name, count in (("f32", 0), ("g32", 32), ("c32", 4)):
        array = np.linspace(0.5, 1.5, count, dtype=np.float32) if count else np.float32(0.125)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.asarray(array), name))
    return proto


def run(proto: onnx.ModelProto, x: Array, backend: str) -> Array:
    (y,) = glowpy.InferenceSession(proto, backend=backend).run(None, {"x": x})
    return np.asarray(y).astype(np.float64)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("name", OPERATORS)
def test_operators_round_once(name: str, backend: str) -> None:
    nodes, opset, scale = OPERATORS[name]
    roundings = 4 if "in steps" in name else 2
    for kind, dtype, digits in (("float16", np.float16, 11), ("bfloat16", ml_dtypes.bfloat16, 8)):
        x = np.clip(RNG.normal(size=(2, 4, 32)) * scale, -60000, 60000).astype(dtype)
        expected = run(model(nodes, opset, "float"), x.astype(np.float32), "interpreter")
        largest = np.abs(expected).max()
        assert 0 < largest < 65504
        got = run(model(nodes, opset, kind), x, backend)
        np.testing.assert_allclose(got, expected, rtol=0, atol=largest * roundings * 2.0**-digits)
