"""Models that are wrong: each gives one clear UserError that names the file and the node, and nothing else happens."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import glowpy
from glowpy.core.tensor import Array
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from tests.onnx.comparison import graph_model, info

X = np.zeros((2, 3), np.float32)


def one_node(op_type: str, *inputs: str, opset: int = 13, **attributes: Any) -> onnx.ModelProto:
    """x -> node called `bad` -> y."""
    node = helper.make_node(op_type, list(inputs or ("x",)), ["y"], name="bad", **attributes)
    return graph_model([node], [info("x", X)], [info("y", X)], opset)


def error_of(model: Any, **arguments: Any) -> glowpy.UserError:
    with pytest.raises(glowpy.UserError) as caught:
        glowpy.load(model, **arguments)
    return caught.value


# Files.


def test_load_missing_file(tmp_path: Path) -> None:
    with pytest.raises(glowpy.LoadError, match=r"nothing\.onnx.*no such file"):
        glowpy.load(tmp_path / "nothing.onnx")


def test_load_folder(tmp_path: Path) -> None:
    with pytest.raises(glowpy.LoadError, match="it is no file"):
        glowpy.load(tmp_path)


@pytest.mark.parametrize("size", [0, 1, 10, 60, 100])
def test_load_truncated_file(tmp_path: Path, size: int) -> None:
    path = tmp_path / "cut.onnx"
    path.write_bytes(one_node("Relu").SerializeToString()[:size])
    with pytest.raises(glowpy.LoadError, match=r"cut\.onnx"):
        glowpy.load(path)


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04 not a model", b"\x7fELF\x02\x01", b"hello, world\n", bytes(range(256))]
)
def test_load_something_else(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.onnx"
    path.write_bytes(content)
    with pytest.raises(glowpy.LoadError, match=r"other\.onnx"):
        glowpy.load(path)


def test_load_newer_versions() -> None:
    model = one_node("Relu", opset=999)
    assert "expected an opset of 'ai.onnx' from 1 to" in str(error_of(model))
    model = one_node("Relu")
    model.ir_version = 999
    assert "expected an IR version" in str(error_of(model))


# Everything unsupported at once.


def test_unsupported_operators_are_listed_together(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Foo", ["x"], ["a"], name="first"),
        helper.make_node("Relu", ["a"], ["b"], name="fine"),
        helper.make_node("Bar", ["b"], ["c"], name="second", domain="com.example"),
        helper.make_node("Relu", ["c"], ["d"], name="third", slope=1.0),
        helper.make_node("ImageDecoder", ["x"], ["e"], name="fourth"),
        helper.make_node("Pad", ["x", "p"], ["y"], name="fifth", mode="wild"),
    ]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 13, {"p": np.zeros(4, np.int64)})
    model.opset_import.append(helper.make_opsetid("com.example", 1))
    path = tmp_path / "model.onnx"
    onnx.save(model, path)
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.load(path)
    assert [str(d).splitlines()[0] for d in caught.value.diagnostics] == [
        "model.onnx: node 'first' (#0): Foo (opset 13) is not supported",
        "model.onnx: node 'second' (#2): com.example.Bar (opset 1) is not supported",
        "model.onnx: node 'third' (#3): Relu (opset 13): attribute 'slope' is not supported",
        "model.onnx: node 'fourth' (#4): ImageDecoder (opset 13) is not supported",
    ]


def test_unsupported_uses_are_listed_together() -> None:
    nodes = [
        helper.make_node("Pad", ["x", "p"], ["a"], name="first", mode="wild"),
        helper.make_node("Relu", ["a"], ["b"], name="after"),
        helper.make_node("Cast", ["x"], ["c"], name="second", to=TensorProto.STRING),
    ]
    model = graph_model(nodes, [info("x", X)], [info("b", X)], 13, {"p": np.zeros(4, np.int64)})
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.load(model)
    assert [d.loc.node for d in caught.value.diagnostics] == ["first", "second"]
    assert "mode 'wild' is not supported" in str(caught.value)
    assert "element type STRING is not supported" in str(caught.value)


@pytest.mark.parametrize(
    ("elem_type", "name"),
    [(TensorProto.STRING, "STRING"), (TensorProto.COMPLEX64, "COMPLEX64"), (99, "99")],
)
def test_unsupported_element_type(elem_type: int, name: str) -> None:
    model = one_node("Identity")
    model.graph.input[0].type.tensor_type.elem_type = elem_type
    error = error_of(model)
    assert isinstance(error, glowpy.UnsupportedError)
    assert f"'x': element type {name} is not supported" in str(error)


def test_unsupported_sequence_as_input() -> None:
    model = one_node("Identity")
    model.graph.input[0].CopyFrom(
        helper.make_tensor_sequence_value_info("x", TensorProto.FLOAT, [2])
    )
    assert "'x': expected a dense tensor, got sequence" in str(error_of(model))


def test_operator_ended_before_opset() -> None:
    model = one_node("Upsample", "x", "x", opset=10)
    assert "Upsample (opset 10) is not supported" in str(error_of(model))


# Nodes that are wrong in themselves.

WRONG: list[tuple[str, onnx.ModelProto, str]] = [
    ("too few inputs", one_node("Add"), "expected 2 inputs, got 1"),
    ("too many inputs", one_node("Relu", "x", "x"), "expected 1 inputs, got 2"),
    ("missing attribute", one_node("Concat"), "attribute 'axis' is required"),
    ("attribute kind", one_node("Concat", axis=1.5), "expected INT, got FLOAT"),
    ("axis", one_node("Concat", axis=7), "expected an axis between -2 and 1, got 7"),
    ("permutation", one_node("Transpose", perm=[0, 0]), "expected a permutation"),
    ("unknown input", one_node("Relu", "nowhere"), "input 'nowhere' is computed by no node"),
    ("element type", one_node("Not"), "expected bool as input 0 ('x'), got float"),
    ("rank", one_node("Conv", "x", "x"), "expected an input and a filter of one rank from 3 to 5"),
    ("gemm", one_node("Gemm", "x", "x"), "expected matrices that fit"),
    ("cycle", one_node("Add", "x", "y"), "the graph has a cycle"),
    ("optional input", one_node("Relu", ""), "expected a tensor as input 0, got none"),
]


@pytest.mark.parametrize(
    ("model", "message"), [row[1:] for row in WRONG], ids=[row[0] for row in WRONG]
)
def test_wrong_node(model: onnx.ModelProto, message: str) -> None:
    error = error_of(model)
    assert "g: node 'bad' (#0): " in str(error)
    assert message in str(error)
    assert len(error.diagnostics) == 1


def test_mixed_element_types() -> None:
    model = graph_model(
        [helper.make_node("Add", ["x", "k"], ["y"], name="bad")],
        [info("x", X)],
        [info("y", X)],
        13,
        {"k": np.zeros(3, np.int64)},
    )
    message = str(error_of(model))
    assert message.startswith(
        "g: node 'bad' (#0): Add: expected inputs 0 and 1 of one element type"
    )
    assert message.endswith("got float and int64")


def test_cycle_of_two_nodes() -> None:
    nodes = [
        helper.make_node("Add", ["x", "b"], ["a"], name="one"),
        helper.make_node("Relu", ["a"], ["b"], name="two"),
    ]
    model = graph_model(nodes, [info("x", X)], [info("b", X)], 13)
    assert "cycle" in str(error_of(model))


def test_unsorted_nodes_are_sorted() -> None:
    nodes = [
        helper.make_node("Neg", ["a"], ["y"]),
        helper.make_node("Relu", ["x"], ["a"]),
    ]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 13)
    (got,) = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": X + 2})
    assert (got == -2).all()


def test_duplicate_output() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"], name=name) for name in ("one", "two")]
    model = graph_model(nodes, [info("x", X)], [info("y", X)], 13)
    assert "node 'two' (#1): Relu: output 'y' exists already" in str(error_of(model))


def test_output_nobody_computes() -> None:
    model = one_node("Relu")
    model.graph.output[0].name = "z"
    assert "output 'z' is computed by no node" in str(error_of(model))


def test_output_of_another_element_type() -> None:
    model = one_node("Relu")
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.INT64
    assert "output 'y' is declared as i64, but computed as f32" in str(error_of(model))


# Sizes.


def with_constant(tensor: onnx.TensorProto) -> onnx.ModelProto:
    model = one_node("Add", "x", "k")
    tensor.name = "k"
    model.graph.initializer.append(tensor)
    return model


def test_dimensions_that_overflow() -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[1 << 40, 1 << 40], raw_data=b"")
    assert "initializer 'k': shape overflows" in str(error_of(with_constant(tensor)))


def test_negative_dimension() -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[-1], raw_data=b"")
    assert "initializer 'k': expected dimensions of at least 0" in str(
        error_of(with_constant(tensor))
    )


@pytest.mark.parametrize("length", [0, 11, 13, 400])
def test_elements_that_do_not_match_dimensions(length: int) -> None:
    tensor = TensorProto(data_type=TensorProto.FLOAT, dims=[3], raw_data=bytes(length))
    message = str(error_of(with_constant(tensor)))
    assert f"tensor 'k': expected 12 bytes for f32[3], got {length}" in message


def test_typed_elements_that_do_not_match_dimensions() -> None:
    tensor = TensorProto(data_type=TensorProto.INT64, dims=[3], int64_data=[1])
    assert "expected 3 elements for i64[3], got 1" in str(error_of(with_constant(tensor)))


def test_huge_constant_of_shape() -> None:
    node = helper.make_node("ConstantOfShape", ["s"], ["y"], name="bad")
    shape = np.array([1 << 30, 1 << 30], np.int64)
    model = graph_model([node], [], [info("y", X)], 13, {"s": shape})
    assert "node 'bad' (#0): ConstantOfShape: shape overflows" in str(error_of(model))


def test_large_splats_are_not_folded() -> None:
    """4 GiB of ones plus one: not computed while importing."""
    nodes = [
        helper.make_node("ConstantOfShape", ["s"], ["k"]),
        helper.make_node("Add", ["k", "one"], ["y"]),
    ]
    stored: dict[str, Array] = {"s": np.array([1 << 30], np.int64), "one": np.ones(1, np.float32)}
    model = graph_model(nodes, [], [info("y", X, [1 << 30])], 13, stored)
    module = glowpy.load(model)
    assert [type(node).__name__ for node in module.main.nodes] == ["AddNode", "SaveNode"]


@pytest.mark.parametrize("limit", [np.inf, np.nan])
def test_range_without_end(limit: float) -> None:
    scalars = {
        "a": np.array(0, np.float32),
        "b": np.array(limit, np.float32),
        "c": np.array(1, np.float32),
    }
    node = helper.make_node("Range", ["a", "b", "c"], ["y"], name="bad")
    model = graph_model([node], [], [info("y", X, [None])], 13, scalars)
    assert "node 'bad' (#0): Range: expected finite numbers" in str(error_of(model))


# Symbolic dimensions.


def symbolic() -> onnx.ModelProto:
    dims: list[str | int | None] = ["n", 3]
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    return graph_model(nodes, [info("x", X, dims)], [info("y", X, dims)], 13)


def test_symbolic_dimension_without_size() -> None:
    error = error_of(symbolic())
    assert "input 'x' has the symbolic dimension 'n', which must be bound" in str(error)
    assert "note: give it a size: --shape n=1" in str(error)


def test_a_dimension_whose_name_is_a_sum_needs_no_size() -> None:
    inputs = [info("x", X, ["past", 3]), info("z", X, ["past + seq", 3])]
    nodes = [helper.make_node("Concat", ["x", "z"], ["y"], axis=0)]
    model = graph_model(nodes, inputs, [info("y", X, ["n", 3])], 13)
    dims = {"past": symbol("past", 0, 9), "seq": symbol("seq", 1, 4)}
    with pytest.raises(UserError, match="no symbolic dimension 'seq'"):
        glowpy.load(model, dims=dims)
    model.graph.input.append(info("s", X, ["seq"]))
    module = glowpy.load(model, dims=dims)
    assert str(module.main.outputs[0].type) == "f32[2*past+seq x 3]"
    with pytest.raises(UserError, match=r"--shape past=1 --shape 'past \+ seq=1'"):
        glowpy.load(model, dims={"seq": 4})


def test_the_remedy_for_symbolic_dimensions_names_them_all() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    inputs = [info("w", X, ["n"]), info("x", X, ["n", "m"]), info("z", X, ["k", "m"])]
    model = graph_model(nodes, inputs, [info("y", X, ["n", "m"])], 13)
    assert "note: give each a size: --shape n=1 --shape m=1 --shape k=1" in str(error_of(model))
    given = str(error_of(model, shapes={"w": (2,)}))
    assert given.endswith(
        "note: give each a size: --shape m=1 --shape k=1; 1..64 in place of 1 leaves it open; "
        "in Python, dims={'m': 1, 'k': 1}; --help-model says which follow from others"
    )


def test_the_remedy_for_dimensions_without_names_has_all_inputs() -> None:
    nodes = [helper.make_node("Add", ["x", "z"], ["y"])]
    inputs = [info("x", X, [None, 3]), info("z", X, [None, 3])]
    model = graph_model(nodes, inputs, [info("y", X, [None, 3])], 13)
    assert str(error_of(model)).endswith(
        "note: give each a shape: --shape x:1x3 --shape z:1x3; 1..64 in place of 1 leaves a dimension open; "
        "in Python, shapes={'x': (1, 3), 'z': (1, 3)}"
    )
    text = str(error_of(model, shapes={"x": (symbol("x_0", 1, 8),)}))
    assert "expected the shape [? x 3], got [x_0]" in text
    assert "--shape x:1x3; 1..64 in place of 1" in text


def test_the_remedy_for_dimensions_that_follow_from_others_says_how() -> None:
    inputs = [info("x", X, ["past", 3]), info("z", X, ["seq", 3]), info("all", X, ["total", 3])]
    nodes = [
        helper.make_node("Concat", ["x", "z"], ["both"], axis=0),
        helper.make_node("Add", ["both", "all"], ["y"]),
    ]
    model = graph_model(nodes, inputs, [info("y", X, ["total", 3])], 13)
    dims = {
        "past": symbol("past", 0, 9),
        "seq": symbol("seq", 1, 4),
        "total": symbol("total", 1, 9),
    }
    text = str(error_of(model, dims=dims))
    assert text.endswith("note: say what 'total' may be: --shape total=past+seq")
    model = graph_model(
        [helper.make_node("Reshape", ["x", "s"], ["y"])],
        [info("x", X, ["n", 4])],
        [info("y", X, [None, 2])],
        13,
    )
    model.graph.initializer.append(numpy_helper.from_array(np.array([-1, 8]), "s"))
    text = str(error_of(model, dims={"n": symbol("n", 1, 9)}))
    assert text.endswith("note: say what 'n' may be: --shape 'n=2*n_2' --shape n_2=1..4")


def test_the_remedy_for_a_symbolic_dimension_is_quoted_for_a_shell() -> None:
    nodes = [helper.make_node("Relu", ["x"], ["y"])]
    model = graph_model(nodes, [info("x", X, ["past + n"])], [info("y", X, ["past + n"])], 13)
    assert "note: give it a size: --shape 'past + n=1'" in str(error_of(model))


def test_symbolic_dimension_with_size() -> None:
    assert glowpy.load(symbolic(), dims={"n": 5}).main.inputs[0].type.shape == (5, 3)
    assert glowpy.load(symbolic(), shapes={"x": (4, 3)}).main.inputs[0].type.shape == (4, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"dims": {"m": 1}}, "no symbolic dimension 'm', expected one of: 'n'"),
        ({"shapes": {"z": (1,)}}, "no input 'z', expected one of: 'x'"),
        ({"shapes": {"x": (1, 4, 1)}}, "expected the shape [n x 3], got [1x4x1]"),
        ({"shapes": {"x": (1,)}}, "expected the shape [n x 3], got [1]"),
        ({"shapes": {"x": (1, 3)}, "dims": {"n": 2}}, "symbolic dimension 'n' is 2 elsewhere"),
        ({"dims": {"n": -1}}, "expected dimensions of at least 0"),
        ({"dims": {"n": 1 << 50}}, "shape overflows"),
    ],
)
def test_wrong_sizes(arguments: dict[str, Any], message: str) -> None:
    assert message in str(error_of(symbolic(), **arguments))


def test_input_without_shape() -> None:
    model = symbolic()
    model.graph.input[0].type.tensor_type.ClearField("shape")
    assert "input 'x' has no declared shape" in str(error_of(model))


# External data.


def external(folder: Path, location: str, **fields: int) -> Path:
    tensor = numpy_helper.from_array(np.ones(3, np.float32), "k")
    tensor.ClearField("raw_data")
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, **fields}.items():
        tensor.external_data.add(key=key, value=str(value))
    path = folder / "model.onnx"
    path.write_bytes(with_constant(tensor).SerializeToString())
    return path


def test_external_data_in_folder(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "w.bin").write_bytes(b"junk" + np.full(3, 2.0, np.float32).tobytes())
    path = external(tmp_path, "sub/w.bin", offset=4, length=12)
    (got,) = glowpy.InferenceSession(path, backend="interpreter").run(None, {"x": X})
    assert (got == 2).all()


def outside(folder: Path) -> Path:
    """A folder with a model folder and, beside that, a secret."""
    (folder / "secret.bin").write_bytes(bytes(12))
    model_folder = folder / "model"
    model_folder.mkdir()
    return model_folder


def climb(folder: Path) -> str:
    del folder
    return "../secret.bin"


def climb_within(folder: Path) -> str:
    (folder / "sub").mkdir()
    return "sub/../../secret.bin"


def absolute(folder: Path) -> str:
    return str(folder.parent / "secret.bin")


def link(folder: Path) -> str:
    (folder / "w.bin").symlink_to(folder.parent / "secret.bin")
    return "w.bin"


def link_to_folder(folder: Path) -> str:
    (folder / "sub").symlink_to(folder.parent)
    return "sub/secret.bin"


def hard_link(folder: Path) -> str:
    os.link(folder.parent / "secret.bin", folder / "w.bin")
    return "w.bin"


def pipe(folder: Path) -> str:
    os.mkfifo(folder / "w.bin")
    return "w.bin"


def missing(folder: Path) -> str:
    del folder
    return "w.bin"


def empty(folder: Path) -> str:
    del folder
    return ""


@pytest.mark.parametrize(
    "place", [climb, climb_within, absolute, link, link_to_folder, hard_link, pipe, missing, empty]
)
def test_external_data_elsewhere(tmp_path: Path, place: Callable[[Path], str]) -> None:
    folder = outside(tmp_path)
    error = error_of(external(folder, place(folder)))
    assert "model.onnx: initializer 'k': tensor 'k': expected external data in a plain file" in str(
        error
    )


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"offset": 1}, "expected external data up to byte 13, but 'w.bin' has 12"),
        ({"offset": 1 << 60}, "but 'w.bin' has 12"),
        ({"length": 8}, "expected 12 bytes of external data for f32[3], got 8"),
        ({"offset": -1}, "expected a number for the offset of its external data, got '-1'"),
    ],
)
def test_external_data_out_of_range(tmp_path: Path, fields: dict[str, int], message: str) -> None:
    (tmp_path / "w.bin").write_bytes(bytes(12))
    assert message in str(error_of(external(tmp_path, "w.bin", **fields)))


def test_external_data_of_a_model_without_folder(tmp_path: Path) -> None:
    content = external(tmp_path, "w.bin").read_bytes()
    assert "only a model read from a file can have" in str(error_of(content))


# Functions.


def with_functions(bodies: Sequence[tuple[str, str, int]]) -> onnx.ModelProto:
    """Functions by name, what each calls, and how often."""
    model = one_node("Relu")
    model.opset_import.append(helper.make_opsetid("local", 1))
    for name, callee, count in bodies:
        domain = "local" if callee != "Relu" else ""
        names = ["a", *(f"a{index}" for index in range(1, count)), "b"]
        nodes = [
            helper.make_node(callee, [names[index]], [names[index + 1]], domain=domain)
            for index in range(count)
        ]
        opsets = [helper.make_opsetid("", 13), helper.make_opsetid("local", 1)]
        function = helper.make_function("local", name, ["a"], ["b"], nodes, opsets)
        model.functions.append(function)
    node = model.graph.node[0]
    node.op_type, node.domain = bodies[0][0], "local"
    return model


def test_functions_are_inlined() -> None:
    f = glowpy.load(with_functions([("F", "G", 2), ("G", "Relu", 3)])).main
    assert [type(node).__name__ for node in f.nodes] == ["ReluNode"] * 6 + ["SaveNode"]


def test_function_at_an_opset_that_there_is_not() -> None:
    model = with_functions([("F", "Relu", 1)])
    for version in (0, 1 << 20, 1 << 40):
        model.functions[0].opset_import[0].version = version
        assert "cannot inline the model's functions" in str(error_of(model))


def test_function_that_calls_itself() -> None:
    assert "calls itself" in str(error_of(with_functions([("F", "G", 1), ("G", "F", 1)])))


def test_functions_that_explode() -> None:
    bodies = [(f"F{i}", f"F{i + 1}", 10) for i in range(12)]
    assert "functions expand to more than" in str(
        error_of(with_functions([*bodies, ("F12", "Relu", 10)]))
    )


def test_the_model_of_the_caller_is_not_changed() -> None:
    """Not even where a definition stands for an operator, which gets its default attributes for that."""
    model = one_node("SwiGLU", "x", "x", opset=28)
    before = model.SerializeToString()
    glowpy.load(model)
    assert model.SerializeToString() == before


def test_an_opset_that_no_number_of_onnx_holds() -> None:
    graph = onnx.parser.parse_graph(
        "g (float[2] x) => (float[2] y) { y = ai.onnx.preview.Nonsense (x) }"
    )
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.preview", 2**63 - 1)]
    with pytest.raises(glowpy.UserError, match="Nonsense"):
        glowpy.load(helper.make_model(graph, opset_imports=opsets))


def test_a_tree_without_an_input() -> None:
    """ONNX's inference of types follows a null pointer."""
    attributes: dict[str, Any] = {
        "nodes_splits": numpy_helper.from_array(np.ones(1)),
        "nodes_modes": numpy_helper.from_array(np.zeros(1, np.uint8)),
        "leaf_weights": numpy_helper.from_array(np.ones(1)),
        "n_targets": 1,
    }
    for name in ("featureids", "falsenodeids", "truenodeids", "falseleafs", "trueleafs"):
        attributes[f"nodes_{name}"] = [int(name.endswith("leafs"))]
    attributes |= {"leaf_targetids": [0], "tree_roots": [0]}
    node = helper.make_node("TreeEnsemble", [""], ["y"], domain="ai.onnx.ml", **attributes)
    output = onnx.ValueInfoProto(name="y")
    graph = helper.make_graph([node], "g", [], [output])
    opsets = [helper.make_opsetid("ai.onnx.ml", 5), helper.make_opsetid("", 20)]
    with pytest.raises(glowpy.UserError, match="y"):
        glowpy.load(helper.make_model(graph, opset_imports=opsets, ir_version=10))


def test_words_of_an_n_gram_that_lie_too_far_apart() -> None:
    node = helper.make_node(
        "TfIdfVectorizer", ["x"], ["y"], mode="TF", min_gram_length=1, max_gram_length=2,
        max_skip_count=2**63 - 1, ngram_counts=[0, 1], ngram_indexes=[0, 1], pool_int64s=[5, 5, 6],
    )  # fmt: skip
    x = helper.make_tensor_value_info("x", TensorProto.INT64, [2, 1 << 20])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    model = helper.make_model(
        helper.make_graph([node], "g", [x], [y]), opset_imports=[helper.make_opsetid("", 20)]
    )
    with pytest.raises(glowpy.UserError, match="max_skip_count: expected less than 1000, got 9"):
        glowpy.load(model)
