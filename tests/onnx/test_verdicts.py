"""The drop-in refuses a node with the exception and the words that onnxruntime has for it."""

from __future__ import annotations

import onnx.parser
import pytest

import glowpy
import glowpy.onnxruntime as ort
from glowpy.onnxruntime.capi import onnxruntime_pybind11_state as state

FAIL, UNIMPLEMENTED, INVALID = state.Fail, state.NotImplemented, state.InvalidGraph
UNREGISTERED = "is not a registered function/op"

CASES = {
    "foreign operator": (
        "(float[2] x) => (float[2] y) { y = foo.Bar (x) }",
        FAIL,
        f"Fatal error: foo:Bar(-1) {UNREGISTERED}",
    ),
    "unknown contrib operator": (
        "(float[2] x) => (float[2] y) { y = com.microsoft.QLinearMatMul (x) }",
        FAIL,
        f"Fatal error: com.microsoft:QLinearMatMul(-1) {UNREGISTERED}",
    ),
    "foreign operator of strings": (
        "(string[2] x) => (string[2] y) { y = foo.Bar (x) }",
        FAIL,
        f"Fatal error: foo:Bar(-1) {UNREGISTERED}",
    ),
    "domain without opset": (
        "(float[2] x) => (float[2] y) { y = bar.Bar (x) }",
        INVALID,
        "No opset import for domain 'bar'",
    ),
    "no operator of ONNX": (
        "(float[2] x) => (float[2] y) { y = Bar (x) }",
        INVALID,
        "No Op registered for Bar with domain_version of 19",
    ),
    "newer operator": (
        "(float[2] x) => (float[2] y) { y = Gelu (x) }",
        INVALID,
        "No Op registered for Gelu with domain_version of 19",
    ),
    "ended operator": (
        "(float[2] x) => (float[2] y) { y = Upsample (x) }",
        INVALID,
        "Op registered for Upsample is deprecated in domain_version of 19",
    ),
    "unknown attribute": (
        "(float[2] x) => (float[2] y) { y = Relu <q = 1> (x) }",
        INVALID,
        "Unrecognized attribute: q for operator Relu",
    ),
    "missing attribute": (
        "(float[2] x) => (float[2] y) { y = Cast (x) }",
        INVALID,
        "Required attribute 'to' is missing.",
    ),
    "inputs": (
        "(float[2] x, float[2] z) => (float[2] y) { y = Relu (x, z) }",
        INVALID,
        "has input size 2 not in range [min=1, max=1].",
    ),
    "outputs": (
        "(float[2] x) => (float[2] y) { y, z = Relu (x) }",
        INVALID,
        "has output size 2 not in range [min=1, max=1].",
    ),
    "halves": (
        "(float16[2] x) => (uint8[2] y) { [n] y, s, z = DynamicQuantizeLinear (x) }",
        INVALID,
        "Type Error: Type 'tensor(float16)' of input parameter (x) of operator (DynamicQuantizeLinear) "
        "in node (n) is invalid.",
    ),
    "strings": (
        "(string[2] x) => (string[2] y) { [n] y = Relu (x) }",
        INVALID,
        "Type Error: Type 'tensor(string)' of input parameter (x) of operator (Relu) in node (n) is invalid.",
    ),
    "strings among an operator's types": (
        "(string[2] x) => (string[2] y) { [n] y = Where (x, x, x) }",
        INVALID,
        "Type Error: Type 'tensor(string)' of input parameter (x) of operator (Where) in node (n) is invalid.",
    ),
    "two types": (
        "(float[2] x, int64[2] z) => (float[2] y) { [n] y = Add (x, z) }",
        FAIL,
        "Type Error: Type parameter (T) of Optype (Add) bound to different types (tensor(float) and "
        "tensor(int64) in node (n).",
    ),
    "in a branch": (
        """(float[2] x, bool c) => (float[2] y) { y = If (c) <
            then_branch = a () => (float[2] t) { t = foo.Bar (x) },
            else_branch = b () => (float[2] e) { e = foo.Bar (x) }> }""",
        FAIL,
        f"foo:Bar(-1) {UNREGISTERED}",
    ),
}


def parsed(graph: str) -> bytes:
    model = '<ir_version: 8, opset_import: ["": 19, "com.microsoft": 1, "foo": 1]> g '
    return bytes(onnx.parser.parse_model(model + graph).SerializeToString())


@pytest.mark.parametrize(("graph", "kind", "words"), CASES.values(), ids=list(CASES))
def test_verdicts_are_onnxruntimes(graph: str, kind: type[Exception], words: str) -> None:
    real = pytest.importorskip("onnxruntime")
    with pytest.raises(kind) as caught:
        ort.InferenceSession(parsed(graph))
    assert isinstance(caught.value.__cause__, glowpy.UserError)
    assert words in str(caught.value)
    assert words not in str(caught.value.__cause__)
    with pytest.raises(Exception) as expected:  # noqa: PT011 - its name is compared below
        real.InferenceSession(parsed(graph), providers=["CPUExecutionProvider"])
    assert type(expected.value).__name__ == kind.__name__
    assert words in str(expected.value)
    status = str(expected.value).split(" : ")[:3]
    assert " : ".join(status) in str(caught.value)


def test_operator_that_onnxruntime_has_is_not_implemented() -> None:
    with pytest.raises(UNIMPLEMENTED, match=r"Could not find an implementation for SampleOp\(1\)"):
        ort.InferenceSession(
            parsed("(float[2, 3] x) => (float[2, 3] y) { y = com.microsoft.SampleOp (x) }")
        )
