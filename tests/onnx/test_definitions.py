"""Operators that ONNX defines by others: what stands for them, and what is said when that is impossible."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy.graph.nodes_gen import ReciprocalNode
from glowpy.importer.onnx import definition
from glowpy.importer.onnx import model as importer
from tests.onnx.comparison import assert_same

LAYERS = """<ir_version: 8, opset_import: ["": 17]>
g (float[2,4] x) => (float[2,4] y) <float[4] s = {1, 2, 3, 4}, float[4] b = {0, 1, 0, 1}>
{ r = Relu(x)  y = LayerNormalization(r, s, b) }"""


def loaded(text: str) -> glowpy.Module:
    return glowpy.load(onnx.parser.parse_model(text))


def error_of(text: str) -> str:
    with pytest.raises(glowpy.UserError) as caught:
        loaded(text)
    return str(caught.value)


def test_initializers_need_no_declared_types() -> None:
    """The exporters of PyTorch declare none."""
    x = np.random.default_rng(0).standard_normal((2, 4)).astype(np.float32)
    r = np.maximum(x, 0).astype(np.float64)
    normal = (r - r.mean(1, keepdims=True)) / np.sqrt(r.var(1, keepdims=True) + 1e-5)
    session = glowpy.InferenceSession(onnx.parser.parse_model(LAYERS), backend="interpreter")
    (y,) = session.run(None, {"x": x})
    assert_same(y, (normal * [1, 2, 3, 4] + [0, 1, 0, 1]).astype(np.float32), rtol=1e-5, atol=1e-6)


def test_names_of_the_model_and_of_a_definition_are_kept_apart() -> None:
    """A definition has an `Epsilon` of its own."""
    text = LAYERS.replace("float[4] s", "float[4] y_Epsilon").replace(
        "(r, s, b)", "(r, y_Epsilon, b)"
    )
    x = np.arange(8, dtype=np.float32).reshape(2, 4)
    results = [
        glowpy.InferenceSession(onnx.parser.parse_model(model), backend="interpreter").run(
            None, {"x": x}
        )
        for model in (LAYERS, text)
    ]
    np.testing.assert_array_equal(results[0][0], results[1][0])


def test_what_outputs_do_not_need_is_left_out() -> None:
    """The reciprocal of the deviation is an output of its own."""
    wide = LAYERS.replace("(float[2,4] y)", "(float[2,4] y, float[2,1] d)").replace(
        "y = L", "y, m, d = L"
    )
    for text, count in ((LAYERS, 0), (wide, 1)):
        nodes = loaded(text).main.nodes
        assert sum(isinstance(node, ReciprocalNode) for node in nodes) == count


@pytest.mark.parametrize(
    ("node", "opset", "message"),
    [
        ("y = Bernoulli(x)", 22, "'y' (#0): Bernoulli: RandomUniformLike (opset 22) is not supported"),
        ("y = LayerNormalization(x, c)", 17, "#0): mul: expected shapes that broadcast, got [2, 4] and [1, 5]"),
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
        [onnx.helper.make_node("LayerNormalization", ["", "x"], ["y"])],
        "g",
        [onnx.helper.make_tensor_value_info("x", 1, [4])],
        [onnx.helper.make_tensor_value_info("y", 1, [4])],
    )
    opsets = [onnx.helper.make_opsetid("", 17)]
    model = onnx.helper.make_model(graph, opset_imports=opsets, ir_version=8)
    with pytest.raises(glowpy.UserError, match="LayerNormalization: expected a value as input 0"):
        glowpy.load(model)


def test_what_the_onnx_package_says_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> bytes:
        raise RuntimeError("GetType: Type unknown for Scale")

    monkeypatch.setattr(definition, "_content", fail)
    said = error_of(LAYERS)
    assert "node 'y' (#1): LayerNormalization: ONNX gives no definition for this node" in said
    assert "Type unknown for Scale" in said


def test_definition_with_subgraphs_is_refused_at_once() -> None:
    """AffineGrid is defined with If."""
    model = onnx.parser.parse_model("""<ir_version: 9, opset_import: ["": 20]>
        g (float[1,2,3] theta, int64[4] size) => (float[1,2,2,2] grid) { grid = AffineGrid(theta, size) }""")
    with pytest.raises(glowpy.UnsupportedError) as caught:
        importer.read_model(model)
    assert len(caught.value.diagnostics) == 1
    assert "AffineGrid (opset 20) is not supported" in str(caught.value)


def test_name_that_a_definition_does_not_compute_is_no_missing_input(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An optional input would be left out."""
    function = onnx.helper.make_function(
        "", "LayerNormalization", ["X", "Scale", "B"], ["Y"],
        [onnx.helper.make_node("Clip", ["X", "", "unknown"], ["Y"])], [onnx.helper.make_opsetid("", 17)],
    )  # fmt: skip
    monkeypatch.setattr(definition, "_content", lambda *_: function.SerializeToString())
    with pytest.raises(KeyError, match="unknown"):
        loaded(LAYERS)


def test_definitions_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importer, "MAX_NODES", 10)
    assert "LayerNormalization: expected at most 10 nodes" in error_of(LAYERS)
