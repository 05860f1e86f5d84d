"""Gradients through branches, loops and calls, against forward mode."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

import glowpy
from tests.forward import check_adjoint

HEAD = '<ir_version: 10, opset_import: ["" : 22]>\n'


def _loaded(text: str, folder: Path) -> glowpy.Function:
    onnx.save(onnx.parser.parse_model(HEAD + text), folder / "model.onnx")
    return glowpy.load(folder / "model.onnx").main


BRANCHES = """
g (double[3] x, double[3] y, bool c) => (double loss) {
  a, b = If (c) <
    then_branch = t () => (ta, tb) { ta = Mul (x, y)  tb = Exp (x) },
    else_branch = e () => (ea, eb) { ea = Sin (y)  eb = Identity (x) }
  >
  s = Mul (a, b)
  z = Add (s, b)
  loss = ReduceSum <keepdims = 0> (z)
}"""


@pytest.mark.parametrize("condition", [True, False])
def test_branches(tmp_path: Path, condition: bool) -> None:
    f = _loaded(BRANCHES, tmp_path)
    x, y = np.array([0.5, -1, 2]), np.array([1.5, 0.25, -0.5])
    check_adjoint(f, {"x": x, "y": y, "c": np.array(condition)})


def test_only_a_later_result_of_a_branch(tmp_path: Path) -> None:
    text = BRANCHES.replace("z = Add (s, b)", "z = Mul (b, b)")
    check_adjoint(
        _loaded(text, tmp_path),
        {"x": np.array([0.5, -1, 2]), "y": np.ones(3), "c": np.array(True)},
    )


ROUNDS = """
g (double[2,3] x, double[3,3] w, double[5,2,3] rows, int64 n) => (double loss)
{
  yes = Constant <value = bool {1}> ()
  five = Constant <value = int64 {5}> ()
  limit = Min (n, five)
  last, all = Loop (limit, yes, x) <
    body = b (int64 i, bool k, double[2,3] h) => (ko, ho, stacked) {
      row = Gather <axis = 0> (rows, i)
      p = MatMul (h, w)
      q = Add (p, row)
      ho = Tanh (q)
      stacked = Mul (q, h)
      ko = Identity (k)
    }
  >
  s1 = ReduceSum <keepdims = 0> (last)
  s2 = ReduceSum <keepdims = 0> (all)
  s3 = Mul (s1, s2)
  loss = Add (s3, s1)
}"""


@pytest.mark.parametrize("rounds", [0, 1, 4])
def test_rounds_that_carry_and_stack(tmp_path: Path, rounds: int) -> None:
    f = _loaded(ROUNDS, tmp_path)
    rng = np.random.default_rng(3)
    check_adjoint(
        f,
        {
            "x": rng.normal(size=(2, 3)),
            "w": rng.normal(size=(3, 3)) / 2,
            "rows": rng.normal(size=(5, 2, 3)),
            "n": np.array(rounds),
        },
    )


def test_rounds_in_machine_code(tmp_path: Path) -> None:
    f = _loaded(ROUNDS, tmp_path)
    rng = np.random.default_rng(3)
    shapes = {"x": (2, 3), "w": (3, 3), "rows": (5, 2, 3)}
    inputs = {name: rng.normal(size=shape) for name, shape in shapes.items()} | {"n": np.array(3)}
    g = glowpy.differentiate(f, "loss", wrt=["x", "w", "rows"])
    expected, actual = (glowpy.compile(g, name)(inputs) for name in ("interpreter", "cpu"))
    for name, array in expected.items():
        np.testing.assert_allclose(actual[name], array, rtol=1e-12, atol=1e-12)


F64X2 = glowpy.Type(glowpy.ElemKind.F64, (2,))


def test_calls() -> None:
    """What one operand of a call has from another is not counted twice."""
    module = glowpy.Module()
    x, y = (module.create_placeholder(name, F64X2) for name in "xy")
    p, q, r = (module.create_placeholder(name, F64X2) for name in "pqr")
    callee = module.create_function("product", [p, q], [r])
    callee.create_save("r", callee.create_tanh("t", callee.create_mul("m", p, q)), r)
    f = module.create_function("main")
    first = f.create_call("first", [x, y], "product").results[0]
    second = f.create_call("second", [first, x], "product").results[0]
    third = f.create_call("third", [second, first], "product").results[0]
    loss = f.create_reduce_add("loss", third, (0,))
    f.create_save("loss", loss, module.create_placeholder("loss", loss.type))
    check_adjoint(f, {"x": np.array([0.5, -1.5]), "y": np.array([2.0, 0.25])})


def test_a_loop_without_a_bound(tmp_path: Path) -> None:
    text = ROUNDS.replace("limit = Min (n, five)", "limit = Identity (n)").replace(
        "s2 = ReduceSum <keepdims = 0> (all)", "s2 = Identity (s1)"
    )
    text = text.replace("last, all = Loop", "last = Loop").replace("(ko, ho, stacked)", "(ko, ho)")
    f = _loaded(text.replace("stacked = Mul (q, h)\n", ""), tmp_path)
    message = "loop %.* has no derivative: nothing bounds the number of its rounds"
    with pytest.raises(glowpy.UnsupportedError, match=message):
        glowpy.differentiate(f, "loss", wrt=["w"])
