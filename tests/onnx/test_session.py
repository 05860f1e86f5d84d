"""Sessions: what goes in and comes out, of which types, and who owns it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper
from onnx.reference import ReferenceEvaluator

import glowpy
import glowpy.onnxruntime as face
from glowpy.core.tensor import Array
from tests.onnx.calls_models import model_of
from tests.onnx.comparison import graph_model, info
from tests.onnx.session_models import F32, X, make, symbolic


def test_inputs_and_outputs_are_described() -> None:
    session = make(symbolic())
    (argument,) = session.get_inputs()
    assert (argument.name, argument.type, argument.shape) == ("x", "tensor(float)", ["n", 3])
    assert [output.name for output in session.get_outputs()] == ["y", "z"]


def test_run_gives_the_outputs_asked_for() -> None:
    session = make(symbolic())
    y, z = session.run(None, {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    np.testing.assert_array_equal(z, X + X)
    results = session.run(["z", "y", "z"], {"x": X})
    assert [np.array_equal(a, b) for a, b in zip(results, [z, y, z], strict=True)] == [True] * 3


def test_run_stores_outputs_where_the_caller_wants_them() -> None:
    memory = np.empty_like(X)
    (z,) = make(symbolic()).run(["z"], {"x": X}, out={"z": memory})
    assert z is memory
    np.testing.assert_array_equal(memory, X + X)


def test_what_is_no_list_of_outputs_and_no_dict_of_inputs() -> None:
    session = make(symbolic())
    with pytest.raises(glowpy.UserError, match="expected a list of outputs, got the text 'y'"):
        session.run("y", {"x": X})
    for feed in (None, [X], X):
        with pytest.raises(glowpy.UserError, match="expected a dict of inputs, got "):
            session.run(None, feed)  # type: ignore[arg-type]


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_outputs_belong_to_the_caller(backend: str) -> None:
    session = glowpy.InferenceSession(symbolic(), backend=backend)
    y, z = session.run(None, {"x": X})
    kept = [y.copy(), z.copy()]
    again = session.run(None, {"x": X * 7})
    np.testing.assert_array_equal(y, kept[0])
    np.testing.assert_array_equal(z, kept[1])
    assert not any(np.shares_memory(a, b) for a in (y, z) for b in (*again, X))
    y[...] = 99
    np.testing.assert_array_equal(session.run(["y"], {"x": X})[0], kept[0])


def test_constant_outputs_belong_to_the_caller() -> None:
    weights = np.ones(3, F32)
    nodes = [helper.make_node("Identity", ["w"], ["y"])]
    session = make(graph_model(nodes, [], [info("y", weights)], 13, {"w": weights}))
    session.run(None, {})[0][...] = 5
    assert (session.run(None, {})[0] == 1).all()


def test_input_is_an_output() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    session = make(graph_model(nodes, [info("x", X)], [info("x", X), info("y", X)], 13))
    x, y = session.run(None, {"x": X})
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_initializer_that_is_an_input_is_none() -> None:
    """Below IR version 4 initializers were listed as inputs."""
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    weights = np.ones(3, F32)
    inputs = [info("w", weights), info("x", X)]
    session = make(graph_model(nodes, inputs, [info("y", X)], 13, {"w": weights}))
    assert [argument.name for argument in session.get_inputs()] == ["x"]
    np.testing.assert_array_equal(session.run(None, {"x": X})[0], X + 1)


def test_sparse_initializer_and_constant() -> None:
    values = helper.make_tensor("w", TensorProto.FLOAT, [2], [7.0, 8.0])
    indices = helper.make_tensor("i", TensorProto.INT64, [2], [1, 5])
    sparse = helper.make_sparse_tensor(values, indices, [2, 3])
    nodes = [
        helper.make_node("Constant", [], ["c"], sparse_value=sparse),
        helper.make_node("Sub", ["x", "c"], ["d"]),
        helper.make_node("Mul", ["d", "w"], ["y"]),
    ]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 13)
    model.graph.sparse_initializer.append(sparse)
    dense = np.array([[0, 7, 0], [0, 0, 8]], F32)
    np.testing.assert_array_equal(make(model).run(None, {"x": X})[0], (X - dense) * dense)


@pytest.mark.parametrize("split", [None, 1, 2, 3, [1, 2], [0, 3]], ids=str)
@pytest.mark.parametrize("keepdims", [0, 1])
def test_parts_of_a_sequence(split: int | list[int] | None, keepdims: int) -> None:
    """The last of equal parts may be smaller; `keepdims` is about a split into slices, where none is given."""
    stored = {} if split is None else {"split": np.array(split, np.int64)}
    split_node = helper.make_node(
        "SplitToSequence", ["x", *stored], ["parts"], axis=1, keepdims=keepdims
    )
    last = np.array(-1, np.int64)
    nodes = [split_node, helper.make_node("SequenceAt", ["parts", "last"], ["y"])]
    model = graph_model(nodes, [info("x", X)], [info("y", X, None)], 13, {**stored, "last": last})
    (expected,) = ReferenceEvaluator(model).run(None, {"x": X})
    (result,) = make(model).run(None, {"x": X})
    np.testing.assert_array_equal(result, np.asarray(expected))


def test_unused_input_is_accepted() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    session = make(graph_model(nodes, [info("u", X), info("x", X)], [info("y", X)], 13))
    assert session.run(None, {"x": X, "u": X})[0].shape == X.shape


# Misuse.

MISUSE: list[tuple[dict[str, Array], list[str] | None, str]] = [
    ({}, None, r"missing input 'x' \(tensor\(float\)\)"),
    ({"x": X, "q": X}, None, "expected the inputs 'x', got 'q'"),
    ({"x": X.astype(np.float64)}, None, "'x': expected float32, got float64"),
    ({"x": X[0]}, None, r"expected the shape \[n x 3\], got \[3\]$"),
    ({"x": X}, ["q"], "expected one of the outputs 'y', 'z', got 'q'"),
]


@pytest.mark.parametrize(("feeds", "names", "message"), MISUSE)
def test_misuse(feeds: dict[str, Array], names: list[str] | None, message: str) -> None:
    with pytest.raises(glowpy.UserError, match=message):
        make(symbolic()).run(names, feeds)


def test_unknown_backend() -> None:
    with pytest.raises(glowpy.UserError, match="expected one of the backends"):
        glowpy.InferenceSession(symbolic(), backend="abacus")


def test_backend_may_have_options(tmp_path: Path) -> None:
    backend = glowpy.CpuBackend(glowpy.CpuOptions(debug=str(tmp_path)))
    session = glowpy.InferenceSession(symbolic(), backend=backend)
    np.testing.assert_array_equal(session.run(["z"], {"x": X})[0], X + X)
    assert list(tmp_path.glob("*.ir"))


# What exporters leave out of outputs.


def untyped(text: str) -> onnx.ModelProto:
    return onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["": 17]> g {text}')


def test_type_of_an_output_is_inferred() -> None:
    """Also where it is an input, and where no shape can be inferred."""
    text = "(float[n,3] x, int64[k] s) => (y, z, i, x) <int64[2] w = {2, -1}>"
    model = untyped(text + "{ y = Relu(x) t = Reshape(x, s) i = Cast<to=7>(t) z = Reshape(i, w) }")
    session = make(model)
    types = [(info.type, info.shape) for info in session.get_outputs()]
    assert types[0] == ("tensor(float)", ["n", 3])
    assert [kind for kind, _ in types[1:3]] == ["tensor(int64)"] * 2
    y, z, i, x = session.run(None, {"x": X, "s": np.array([3, 2])})
    np.testing.assert_array_equal(y, np.maximum(X, 0))
    np.testing.assert_array_equal(z, X.astype(np.int64))
    np.testing.assert_array_equal(i, X.astype(np.int64).reshape(3, 2))
    np.testing.assert_array_equal(x, X)


def test_type_of_an_output_is_that_of_an_input() -> None:
    """ONNX infers nothing for GroupNormalization, nor for what comes after it."""
    text = "(float[1,4,2] x) => (y, n) <float[4] s = {1, 1, 1, 1}>"
    body = "{ y = GroupNormalization<num_groups=2>(x, s, s) z = Relu(y) n = Shape(z) }"
    model = untyped(text + body)
    model.opset_import[0].version = 21
    assert [info.type for info in make(model).get_outputs()] == ["tensor(float)", "tensor(int64)"]


def test_types_are_inferred_in_an_order_that_fits() -> None:
    """Which need not be the file's; ONNX infers nothing for operators of onnxruntime's."""
    model = untyped("(float[2,3] x) => (y) { y = Relu(t) t = com.microsoft.Gelu(x) }")
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    assert [info.type for info in make(model).get_outputs()] == ["tensor(float)"]


def test_output_without_an_element_type_or_a_shape() -> None:
    model = untyped("(float[2,3] x) => (float[2,3] y) { y = Relu(x) }")
    model.graph.output[0].type.tensor_type.ClearField("shape")
    assert make(model).get_outputs()[0].shape is None
    model.graph.output[0].type.tensor_type.elem_type = 0
    (y,) = make(model).run(None, {"x": X})
    np.testing.assert_array_equal(y, np.maximum(X, 0))


def test_output_of_an_unknown_type_is_refused() -> None:
    """An operator of no known domain says what is missing; the type is not mentioned beside it."""
    text = '<ir_version: 10, opset_import: ["": 17, "c": 1]> g (float[2] x) => (y) { y = c.Foo(x) }'
    with pytest.raises(glowpy.UnsupportedError) as caught:
        make(onnx.parser.parse_model(text))
    assert len(caught.value.diagnostics) == 1
    with pytest.raises(glowpy.UserError, match="g: output 'y' is computed by no node"):
        make(untyped("(float[2] x) => (y) { z = Relu(x) }"))
    text = "(float[2] x) => (y) <int64 i = {0}>"
    body = "{ g = com.microsoft.Gelu(x) s = SequenceConstruct(g) y = SequenceAt(s, i) }"
    model = untyped(text + body)
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    with pytest.raises(glowpy.UserError, match="g: output 'y' has no type, and ONNX infers none"):
        make(model)


def test_output_listed_twice() -> None:
    model = untyped("(float[2,3] x) => (float[2,3] y, float[2,3] x, float[2,3] y) { y = Relu(x) }")
    session = make(model)
    assert [info.name for info in session.get_outputs()] == ["y", "x", "y"]
    for y, x, again in (session.run(None, {"x": X}), session.run(["y", "x", "y"], {"x": X})):
        np.testing.assert_array_equal(y, np.maximum(X, 0))
        np.testing.assert_array_equal(x, X)
        np.testing.assert_array_equal(again, y)


def test_input_listed_twice() -> None:
    model = untyped("(float[2] x, float[2] x) => (float[2] y) { y = Relu(x) }")
    with pytest.raises(glowpy.UserError, match="g: 'x' is declared twice"):
        make(model)


NAMES = [("?", "?"), ("unk__7", "unk__7"), ("", "?"), ("None", "None"), (" ", " ")]


@pytest.mark.parametrize("names", NAMES)
def test_dimensions_whose_names_say_nothing_may_differ(names: tuple[str, str]) -> None:
    """PaddlePaddle calls all of them by one name."""
    model = model_of("""net (float[1, h, w] x, float[h, 2] y) => (float[1, h, w] z, float[h, 2] v) {
        z = Relu (x) v = Neg (y)
    }""")
    for value in (*model.graph.input, *model.graph.output):
        dims = [dim for dim in value.type.tensor_type.shape.dim if dim.dim_param]
        for dim, name in zip(dims, names, strict=False):
            dim.dim_param = name
    session = glowpy.InferenceSession(model, backend="interpreter")
    for h, w, rows in ((2, 3, 4), (5, 4, 1), (7, 7, 7)):
        feeds = {"x": np.ones((1, h, w), np.float32), "y": np.ones((rows, 2), np.float32)}
        assert [array.shape for array in session.run(None, feeds)] == [(1, h, w), (rows, 2)]
    assert session.get_inputs()[0].shape == [1, None, None]
    outputs = glowpy.load(model, shapes={"x": (1, 2, 3), "y": (4, 2)}).main.outputs
    assert [str(output.type) for output in outputs] == ["f32[1x2x3]", "f32[4x2]"]
    drop_in = face.InferenceSession(model.SerializeToString())
    assert drop_in.get_inputs()[0].shape == [1, *(name or None for name in names)]
    assert drop_in.run(None, feeds)[1].shape == (7, 2)
