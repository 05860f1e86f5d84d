"""What is no ONNX by the letter, and what onnxruntime makes of it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx
import pytest
from onnx import AttributeProto, TensorProto, helper

import glowpy
from glowpy import UserError
from glowpy.core.tensor import Array

FLOAT = TensorProto.FLOAT
X = np.array([1.0, 2.0], np.float32)


def model_with(
    nodes: Sequence[onnx.NodeProto], initializers: Sequence[onnx.TensorProto] = ()
) -> onnx.ModelProto:
    """A model of a vector of two."""
    infos = [helper.make_tensor_value_info(name, FLOAT, [2]) for name in "xy"]
    graph = helper.make_graph(nodes, "net", infos[:1], infos[1:], initializers)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)


def outputs_of(model: onnx.ModelProto) -> list[Array]:
    """The same as onnxruntime gives."""
    ort = pytest.importorskip("onnxruntime")
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    outputs = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": X})
    for actual, expected in zip(outputs, reference.run(None, {"x": X}), strict=True):
        assert actual.dtype == expected.dtype
        np.testing.assert_array_equal(actual, expected)
    return outputs


def constant(*elements: float, name: str = "c") -> onnx.NodeProto:
    tensor = helper.make_tensor("", FLOAT, [len(elements)], elements)
    return helper.make_node("Constant", [], [name], value=tensor)


def add(left: str, right: str, name: str) -> onnx.NodeProto:
    return helper.make_node("Add", [left, right], [name])


@pytest.mark.parametrize("indices", [[1], [[1]], []])
@pytest.mark.parametrize("name", ["value", "sparse_value"])
def test_constant_is_sparse(name: str, indices: list[int] | list[list[int]]) -> None:
    """Indices count elements, or are one for each dimension; onnxruntime reads them under either name."""
    array = np.array(indices, np.int64)
    values = helper.make_tensor("", FLOAT, [len(indices)], [3.0] * len(indices))
    places = helper.make_tensor("", TensorProto.INT64, array.shape, array.reshape(-1))
    attribute = AttributeProto(name=name, type=AttributeProto.SPARSE_TENSOR)
    attribute.sparse_tensor.CopyFrom(helper.make_sparse_tensor(values, places, [2]))
    node = helper.make_node("Constant", [], ["c"])
    node.attribute.append(attribute)
    (y,) = outputs_of(model_with([node, add("x", "c", "y")]))
    assert y.tolist() == [1, 5 if indices else 2]


def test_last_of_constants_with_one_name_and_type_holds() -> None:
    nodes = [constant(1.0), add("x", "c", "z"), constant(2.0), add("z", "c", "y")]
    (y,) = outputs_of(model_with(nodes))
    assert y.tolist() == [5, 6]


def test_constant_holds_beside_an_initializer_of_its_name_and_type() -> None:
    stored = helper.make_tensor("c", FLOAT, [1], [5.0])
    (y,) = outputs_of(model_with([constant(1.0), add("x", "c", "y")], [stored]))
    assert y.tolist() == [2, 3]


@pytest.mark.parametrize("other", [constant(3.0, 4.0), add("x", "x", "c")])
def test_names_of_what_differs_are_computed_once(other: onnx.NodeProto) -> None:
    model = model_with([constant(1.0), other, add("x", "c", "y")])
    with pytest.raises(UserError, match=r"\(#1\): .*: output 'c' exists already"):
        glowpy.load(model)


@pytest.mark.parametrize("operator", ["If", "Exp", "Unheard"])
def test_node_that_reads_and_computes_nothing_is_none(operator: str) -> None:
    """Whatever its operator and its graphs are; what comes after it keeps its position."""
    empty = helper.make_graph([], "empty", [], [])
    node = helper.make_node(
        operator, [], [], **dict.fromkeys(("then_branch", "else_branch"), empty)
    )
    outputs_of(model_with([node, helper.make_node("Neg", ["x"], ["y"])]))
    with pytest.raises(UserError, match=r"'y' \(#1\)"):
        glowpy.load(model_with([node, helper.make_node("Neg", ["x", "x"], ["y"])]))


@pytest.mark.parametrize("inputs", [["x"], []])
def test_node_that_reads_or_is_a_constant_computes_something(inputs: list[str]) -> None:
    node = helper.make_node("Exp" if inputs else "Constant", inputs, [])
    with pytest.raises(UserError, match="expected 1 outputs, got 0"):
        glowpy.load(model_with([node, helper.make_node("Neg", ["x"], ["y"])]))


@pytest.mark.parametrize("operator", ["LayerNormalization", "SimplifiedLayerNormalization"])
@pytest.mark.parametrize(("kind", "own"), [(np.float16, np.float32), (np.float32, np.float16)])
def test_norm_is_of_the_kind_of_its_scale(operator: str, kind: type, own: type) -> None:
    """Where onnxruntime defined it, before opset 17; and so the bias is, while moments are f32."""
    ort = pytest.importorskip("onnxruntime")
    kinds = [helper.np_dtype_to_tensor_dtype(np.dtype(one)) for one in (kind, own)]
    names = ["x", "scale", "bias"] if operator == "LayerNormalization" else ["x", "scale"]
    infos = [
        helper.make_tensor_value_info(name, kinds[name != "x"], [3, 4] if name == "x" else [4])
        for name in names
    ]
    result = helper.make_tensor_value_info("y", kinds[1], [3, 4])
    node = helper.make_node(operator, names, ["y"], axis=-1)
    graph = helper.make_graph([node], "net", infos, [result])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 12)], ir_version=8)
    rng = np.random.default_rng(0)
    feed: dict[str, Array] = {"x": rng.standard_normal((3, 4)).astype(kind)}
    feed |= {name: rng.standard_normal(4).astype(own) for name in names[1:]}
    reference = ort.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = reference.run(None, feed)
    for backend in ("interpreter", "cpu"):
        (actual,) = glowpy.InferenceSession(model, backend=backend).run(None, feed)
        assert actual.dtype == expected.dtype == own
        np.testing.assert_allclose(actual, expected, rtol=2e-3, atol=2e-3)
