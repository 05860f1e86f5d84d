"""Models that use a domain and do not import it: they mean its newest opset, as in onnxruntime."""

from __future__ import annotations

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import glowpy
import glowpy.onnxruntime as ort
from tests.onnx.comparison import assert_same

FLOAT, INT64 = TensorProto.FLOAT, TensorProto.INT64
X = np.array([[-1.5, 0.5, 2.0]], np.float32)
ONNX, CONTRIB, ML = (
    helper.make_opsetid(domain, v)
    for domain, v in [("", 18), ("com.microsoft", 1), ("ai.onnx.ml", 3)]
)


def branch(op_type: str, domain: str) -> onnx.GraphProto:
    out = helper.make_tensor_value_info("b", FLOAT, [1, 3])
    return helper.make_graph(
        [helper.make_node(op_type, ["x"], ["b"], domain=domain)], op_type, [], [out]
    )


def model(
    nodes: list[onnx.NodeProto], imports: list[onnx.OperatorSetIdProto], **fields: object
) -> onnx.ModelProto:
    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info("x", FLOAT, [1, 3])],
        [helper.make_tensor_value_info("y", FLOAT, [1, 3])],
    )
    return helper.make_model(graph, opset_imports=imports, ir_version=9, **fields)


GELU = helper.make_node("Gelu", ["x"], ["y"], domain="com.microsoft")
SCALER = helper.make_node(
    "Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.5, 0.5, 0.5], scale=[2.0, 2.0, 2.0]
)
CHOICE = [
    helper.make_node(
        "Constant", [], ["yes"], value=helper.make_tensor("t", TensorProto.BOOL, [], [1])
    ),
    helper.make_node(
        "If",
        ["yes"],
        ["y"],
        then_branch=branch("QuickGelu", "com.microsoft"),
        else_branch=branch("Relu", ""),
    ),
]
CALL = helper.make_node("Twice", ["x"], ["y"], domain="own")
TWICE = helper.make_function(
    "own",
    "Twice",
    ["a"],
    ["b"],
    [helper.make_node("Gelu", ["a"], ["b"], domain="com.microsoft")],
    [ONNX],
)
OWN = helper.make_opsetid("own", 1)

MODELS = {
    "contrib": model([GELU], [ONNX]),
    "ml": model([SCALER], [ONNX]),
    "onnx": model([helper.make_node("Relu", ["x"], ["y"])], [CONTRIB]),
    "onnx beside ml": model([helper.make_node("Relu", ["x"], ["y"])], [ML]),
    "branch": model(CHOICE, [ONNX]),
    "function": model([CALL], [ONNX, OWN], functions=[TWICE]),
}


@pytest.mark.parametrize("name", MODELS)
def test_newest_opset_is_meant(name: str) -> None:
    proto = MODELS[name]
    content = proto.SerializeToString()
    peer = MODELS["contrib"] if name == "function" else proto  # onnxruntime wants a function's
    expected = onnxruntime.InferenceSession(peer.SerializeToString()).run(None, {"x": X})
    assert_same(glowpy.InferenceSession(proto).run(None, {"x": X}), expected, rtol=1e-5)
    assert_same(ort.InferenceSession(content).run(None, {"x": X}), expected, rtol=1e-5)
    assert glowpy.load(proto).main.nodes
    assert proto.SerializeToString() == content


def test_labels_of_a_model_without_ml() -> None:
    """Strings are computed by the session, from the same opsets."""
    node = helper.make_node(
        "LabelEncoder",
        ["x"],
        ["y"],
        domain="ai.onnx.ml",
        keys_int64s=[1, 2],
        values_strings=["a", "b"],
    )
    graph = helper.make_graph(
        [node],
        "g",
        [helper.make_tensor_value_info("x", INT64, [2])],
        [helper.make_tensor_value_info("y", TensorProto.STRING, [2])],
    )
    proto = helper.make_model(graph, opset_imports=[ONNX], ir_version=9)
    (labels,) = glowpy.InferenceSession(proto).run(None, {"x": np.array([2, 1])})
    assert labels.tolist() == ["b", "a"]
