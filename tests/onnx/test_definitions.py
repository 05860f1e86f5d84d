"""Operators that ONNX defines by others: what stands for them, and what is said when that is impossible."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy.core.tensor import Array, Tensor
from glowpy.importer.onnx import build as importer
from glowpy.importer.onnx import definition
from glowpy.importer.onnx.order import names_read, subgraphs
from tests.onnx.comparison import assert_same, node_cases

LOSS = """<ir_version: 8, opset_import: ["": 13]>
g (float[2,4] x) => (float y) <int64[2] l = {1, 3}, float[4] w = {1, 2, 3, 4}>
{ r = Relu(x)  y = SoftmaxCrossEntropyLoss(r, l, w) }"""


def loaded(text: str) -> glowpy.Module:
    return glowpy.load(onnx.parser.parse_model(text))


def error_of(text: str) -> str:
    with pytest.raises(glowpy.UserError) as caught:
        loaded(text)
    return str(caught.value)


def loss_of(text: str, x: Array) -> Array:
    session = glowpy.InferenceSession(onnx.parser.parse_model(text), backend="interpreter")
    (y,) = session.run(None, {"x": x})
    return y


def test_initializers_need_no_declared_types() -> None:
    """The exporters of PyTorch declare none."""
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    r = np.maximum(x, 0).astype(np.float64)
    logarithms = r - np.log(np.exp(r).sum(1, keepdims=True))
    expected = -(2 * logarithms[0, 1] + 4 * logarithms[1, 3]) / 6
    assert_same(loss_of(LOSS, x), np.array(expected, np.float32), rtol=1e-5, atol=1e-6)


def test_names_of_the_model_and_of_a_definition_are_kept_apart() -> None:
    """A definition has an `X_Log` of its own."""
    text = LOSS.replace("float[4] w", "float[4] y_X_Log").replace("(r, l, w)", "(r, l, y_X_Log)")
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    np.testing.assert_array_equal(loss_of(LOSS, x), loss_of(text, x))


def test_what_outputs_do_not_need_is_left_out() -> None:
    """The logarithms are an output of their own."""
    inputs = [Tensor.of(np.zeros((2, 4), np.float32)), Tensor.of(np.zeros(2, np.int64))]
    for names, count in ((["y"], 0), (["y", "p"], 1)):
        node = onnx.helper.make_node("SoftmaxCrossEntropyLoss", ["x", "l"], names)
        nodes = definition.definition_of(node, 13, inputs).nodes
        assert sum("p" in inner.output for inner in nodes) == count
        assert sum("y" in inner.output for inner in nodes) == 1


@pytest.mark.parametrize(
    ("node", "opset", "message"),
    [
        ("y = Attention(x, x, x)", 23, "#0): Attention: Expand: expected shapes that broadcast, got [2, 4, 1] and"),
        ("y = CenterCropPad(x, i)", 18, "must be known while compiling, but depends on the input 'i'"),
    ],
)  # fmt: skip
def test_error_names_the_node_and_both_operators(node: str, opset: int, message: str) -> None:
    head = f'<ir_version: 8, opset_import: ["": {opset}]>'
    inputs = "float[2,4] x, float[5] c, int64[2] i"
    assert message in error_of(f"{head} g ({inputs}) => (float[2,4] y) {{ {node} }}")


def test_input_that_a_definition_needs_is_missing() -> None:
    graph = onnx.helper.make_graph(
        [onnx.helper.make_node("SoftmaxCrossEntropyLoss", ["", "x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 7, [4])],
        [onnx.helper.make_tensor_value_info("y", 1, [4])],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(
        glowpy.UserError, match="SoftmaxCrossEntropyLoss: expected a value as input 0"
    ):
        glowpy.load(model)


def test_what_the_onnx_package_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("GetType: Type unknown for Scale")

    monkeypatch.setattr(definition, "_content", fail)
    said = error_of(LOSS)
    assert "node 'y' (#1): SoftmaxCrossEntropyLoss: ONNX gives no definition for this node" in said
    assert "Type unknown for Scale" in said


def test_subgraphs_of_definitions_get_names_of_their_own() -> None:
    """Range is defined with a Loop, whose body reads what is around it."""
    node = onnx.helper.make_node("Range", ["start", "limit", "step"], ["y"], name="range")
    number = Tensor.of(np.array(1.0, np.float32))
    nodes = definition.definition_of(node, 20, [number] * 3).nodes
    (loop,) = (inner for inner in nodes if inner.op_type == "Loop")
    (body,) = subgraphs(loop)
    own = {name for inner in body.node for name in inner.output} | {i.name for i in body.input}
    assert all(name.startswith("range_") or "inside" in name for name in own)
    assert {"step"} <= set(names_read(loop))
    assert {name for inner in body.node for name in inner.input} <= own | set(names_read(loop))


def test_name_that_a_definition_does_not_compute_is_no_missing_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An optional input would be left out."""
    function = onnx.helper.make_function(
        "", "SoftmaxCrossEntropyLoss", ["X", "labels", "weights"], ["Y"],
        [onnx.helper.make_node("Clip", ["X", "", "unknown"], ["Y"])], [onnx.helper.make_opsetid("", 13)],
    )  # fmt: skip
    monkeypatch.setattr(definition, "_content", lambda *_: function.SerializeToString())
    with pytest.raises(glowpy.UserError, match="reads 'unknown' in Clip, which nothing defines"):
        loaded(LOSS)


def test_a_graph_of_a_node_reads_only_what_is_defined() -> None:
    model = onnx.ModelProto()
    case = node_cases()["test_flexattention_score_mod"]
    assert case.model is not None
    model.CopyFrom(case.model)
    (graph,) = (a.g for a in model.graph.node[0].attribute if a.name == "score_mod")
    graph.node[0].input[0] = "nowhere"
    with pytest.raises(
        glowpy.UserError, match="FlexAttention: input 'nowhere' is computed by no node"
    ):
        glowpy.load(model)


def test_definitions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MAX_NODES", 5)
    assert "SoftmaxCrossEntropyLoss: expected at most 5 nodes" in error_of(LOSS)
