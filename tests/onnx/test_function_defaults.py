"""Functions of a model whose attributes have defaults, which calls leave out."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

import glowpy
from glowpy.core.tensor import Array
from glowpy.importer.onnx.defaults import complete_calls
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

X = np.arange(-3, 3, dtype=np.float32).reshape(2, 3)


def model(graph: str, *functions: str) -> onnx.ModelProto:
    imports = 'opset_import: ["": 17, "local": 1]'
    texts = [f'<{imports}, domain: "local"> {function}' for function in functions]
    text = f"<ir_version: 10, {imports}> agraph (float[2, 3] x) => (float[2, 3] y) {{ {graph} }}"
    return parser.parse_model("\n".join((text, *texts)))


LEAKY = "f <alpha: float = 0.25> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"
PLAIN = "f <alpha> (x) => (y) { y = LeakyRelu <alpha: float = @alpha> (x) }"
OUTER = "g <alpha> (x) => (y) { y = local.f <alpha: float = @alpha> (x) }"
SOFT = "g <ax: int = 1> (x) => (y) { y = Softmax <axis: int = @ax> (x) }"
BRANCHES = """h (x) => (y) { t = Constant <value_float = 0.0> () s = ReduceSum <keepdims = 0> (x) c = Less(s, t)
  y = If (c) <then_branch = a () => (o) { o = local.f (x) }, else_branch = b () => (o) { o = Identity(x) }> }"""


@pytest.mark.parametrize(
    ("proto", "alpha"),
    [
        (model("y = local.f (x)", LEAKY), 0.25),
        (model("y = local.f <alpha = 0.5> (x)", LEAKY), 0.5),
        (model("y = local.f (x)", PLAIN), 0.01),
        (model("y = local.g (x)", LEAKY, OUTER), 0.25),
        (model("y = local.g <alpha = 0.5> (x)", LEAKY, OUTER), 0.5),
        (model("z = local.g <alpha = 1.0> (x) y = local.g (z)", LEAKY, OUTER), 0.25),
        (model("y = local.h (x)", LEAKY, BRANCHES), 0.25),
        (model("y = local.g (x)", PLAIN, OUTER), 0.01),
    ],
    ids=[
        "default",
        "given",
        "operator's",
        "not handed on",
        "handed on",
        "both",
        "in a graph",
        "two",
    ],
)
def test_what_a_call_leaves_out(proto: onnx.ModelProto, alpha: float) -> None:
    before = proto.SerializeToString()
    (y,) = glowpy.InferenceSession(proto, backend="interpreter").run(None, {"x": X})
    np.testing.assert_allclose(y, np.where(X < 0, alpha * X, X), rtol=1e-6)
    assert proto.SerializeToString() == before


def test_an_attribute_that_stands_for_another() -> None:
    f = "f <ax: int = 0> (x) => (y) { y = local.g <ax: int = @ax> (x) }"
    proto = model("y = local.f (x)", f, SOFT)
    (y,) = glowpy.InferenceSession(proto, backend="interpreter").run(None, {"x": X})
    (expected,) = ReferenceEvaluator(model("y = Softmax <axis = 0> (x)")).run(None, {"x": X})
    np.testing.assert_allclose(y, np.asarray(expected), rtol=1e-6)


def levels(count: int) -> list[str]:
    """Functions that each call the next one twice, and leave out an attribute the second time."""
    names = [f"a{n}" for n in range(count)]
    attributes = ", ".join(names)
    handed = [f"{name}: float = @{name}" for name in names]
    texts = []
    for n in range(count):
        rest = ", ".join(handed[:n] + handed[n + 1 :])
        calls = f"local.f{n + 1} <{', '.join(handed)}> (x) v = local.f{n + 1} <{rest}> (x)"
        texts.append(f"f{n} <{attributes}> (x) => (y) {{ u = {calls} y = Add (u, v) }}")
    last = " ".join(
        f"y{n + 1} = LeakyRelu <alpha: float = @{name}> (y{n})" for n, name in enumerate(names)
    )
    result = f"y{count}"
    return [*texts, f"f{count} <{attributes}> (y0) => ({result}) {{ {last} }}"]


def test_copies_are_of_what_the_graph_reaches() -> None:
    proto = model("y = Neg (x)", *levels(6))
    complete_calls(proto, 1, Loc("a"))
    assert len(proto.functions) == 7
    given = ", ".join(f"a{n} = 1.0" for n in range(6))
    proto = model(f"y = local.f0 <{given}> (x)", *levels(6))
    with pytest.raises(UserError, match="functions expand to more than 100 nodes"):
        complete_calls(proto, 100, Loc("a"))


def test_every_way_to_leave_out_attributes_is_a_copy() -> None:
    proto = model("y = local.f0 <a0 = 1.0, a1 = 0.5> (x)", *levels(2))
    (y,) = glowpy.InferenceSession(proto, backend="interpreter").run(None, {"x": X})
    wanted = sum(np.where(X < 0, a * b * X, X) for a in (1.0, 0.01) for b in (0.5, 0.01))
    np.testing.assert_allclose(y, wanted, rtol=1e-6)


@pytest.mark.parametrize(
    ("gives", "graph", "expected"),
    [
        ("a, c", "p, q = local.f (x, z) y = Sub (q, p)", X + 1),
        ("b, a", "p, q = local.f (x, z) y = Sub (p, q)", np.ones_like(X)),
        ("b, c", "p, q = local.f (x, z) r, s = local.f (p, q) y = Sub (s, r)", X + 1),
        ("a, c", "p, q = local.f (x, x) y = Sub (q, p)", X),
        ("a, c", "y, q = local.f (x, z)", X),
    ],
)
@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_outputs_of_functions_may_be_inputs(
    gives: str, graph: str, expected: Array, backend: str
) -> None:
    """onnxruntime refuses them; onnx's own checks and its reference do not."""
    one = "o = Constant <value_float = 1.0> () z = Add (x, o)"
    proto = model(f"{one} {graph}", f"f (a, b) => ({gives}) {{ c = Add (a, b) }}")
    onnx.checker.check_model(proto)
    (y,) = glowpy.InferenceSession(proto, backend=backend).run(None, {"x": X})
    np.testing.assert_array_equal(y, expected)
    reference: Any = ReferenceEvaluator(proto).run(None, {"x": X})
    np.testing.assert_array_equal(reference[0], expected)
