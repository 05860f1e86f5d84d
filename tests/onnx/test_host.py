"""What a session computes itself: what comes between machine code, labels, maps, and how it is called."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

import glowpy
import glowpy.onnxruntime
from glowpy.cli.main import run as run_command
from glowpy.core.tensor import Array
from glowpy.importer.host_plan import Segment
from glowpy.importer.onnx.host.model import OnnxHostedModel
from glowpy.importer.onnx.host.steps import Part
from glowpy.importer.onnx.opening import open_onnx
from tests.onnx.comparison import assert_same
from tests.onnx.host_models import (
    FLOAT,
    INT64,
    ML,
    STRING,
    check,
    f32,
    model,
    one,
    run,
    sequence,
    tagger,
    tensor,
    texts,
    typed,
)

# Labels.


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_machine_code_between_strings(backend: str) -> None:
    proto, session = tagger(), glowpy.InferenceSession(tagger(), backend=backend)
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    for words in (["The", "dog", "sat"], ["cat"], ["a"] * 9):
        feeds = {"text": texts(*words)}
        expected = reference.run(None, feeds)
        for got, wanted in zip(session.run(None, feeds), expected, strict=True):
            assert_same(got, wanted, rtol=1e-4, atol=1e-5)
    assert [str(info) for info in session.get_inputs()] == ["text string[n]"]
    assert [info.type for info in session.get_outputs()] == ["tensor(string)", "tensor(float)"]
    assert "text string[n] -> tags string[n]" in repr(session)
    (logits,) = session.run(["logits"], {"text": texts("cat")})
    out = np.zeros_like(logits)
    assert session.run(["logits"], {"text": texts("cat")}, out={"logits": out})[0] is out
    np.testing.assert_array_equal(out, logits)
    session.close()


def test_few_parts_are_compiled() -> None:
    opened = open_onnx(tagger())
    assert isinstance(opened, OnnxHostedModel)
    kinds = [isinstance(step, Segment) for step in opened.plan.steps]
    assert kinds == [False, False, True, False]


def kinds(proto: onnx.ModelProto) -> list[str]:
    """What its steps are: operators of the session's, and segments with their operators."""
    opened = open_onnx(proto)
    assert isinstance(opened, OnnxHostedModel)
    return [
        "+".join(node.op_type for node in step.source.proto.graph.node)
        if isinstance(step, Part)
        else step.node.op_type
        for step in opened.graph.steps
    ]


def columns(*, labelled: bool) -> onnx.ModelProto:
    """Numbers and categories side by side, as in pipelines of tables, and perhaps a label that numbers choose."""
    nodes = [
        helper.make_node("Concat", ["x0", "x1"], ["numbers"], axis=1),
        helper.make_node("Mul", ["numbers", "numbers"], ["squares"]),
        helper.make_node("OneHotEncoder", ["x2"], ["hot"], domain=ML, cats_strings=["a", "b"]),
        helper.make_node("Reshape", ["hot", "flat"], ["category"]),
        helper.make_node("Concat", ["squares", "category"], ["y"], axis=1),
        helper.make_node("ArgMax", ["numbers"], ["best"], axis=1, keepdims=0),
        helper.make_node(
            "LabelEncoder", ["best"], ["label"], domain=ML, keys_int64s=[0, 1], values_strings=["N", "V"]
        ),
    ]  # fmt: skip
    inputs = [
        *(tensor(name, FLOAT, ["n", 1]) for name in ("x0", "x1")),
        tensor("x2", STRING, ["n", 1]),
    ]
    outputs = [tensor("y", FLOAT), *([tensor("label", STRING)] if labelled else [])]
    return model(nodes if labelled else nodes[:-2], inputs, outputs, {"flat": np.array([-1, 2])})


@pytest.mark.parametrize("labelled", [False, True])
def test_machine_code_waits_where_nothing_is_needed_before(labelled: bool) -> None:
    """One segment; a label that nothing reads is looked up after it."""
    proto = columns(labelled=labelled)
    operators = ["Concat", "Mul", "Reshape", "Concat", "OneHotEncoder", *["ArgMax"] * labelled]
    steps = kinds(proto)
    (segment,) = [step for step in steps if "+" in step]
    assert sorted(segment.split("+")) == sorted(operators)
    assert steps[-1] == ("LabelEncoder" if labelled else segment)
    for n in (1, 3):
        check(proto, f32([[1.5]] * n), f32([[2.5]] * n), texts(*"bca"[:n], shape=(n, 1)))


def test_identities_of_what_the_session_has() -> None:
    """They are the session's, unless machine code reads them, and outputs are arrays of their own."""
    lookup = helper.make_node(
        "LabelEncoder", ["x0"], ["number"], domain=ML, keys_strings=["a", "b"], values_int64s=[3, 4]
    )
    nodes = [
        lookup,
        helper.make_node("Identity", ["number"], ["same"]),
        helper.make_node("Identity", ["same"], ["again"]),
        helper.make_node("Identity", ["x0"], ["text"]),
        helper.make_node("Identity", ["number"], ["read"]),
        helper.make_node("Neg", ["read"], ["y"]),
    ]
    outputs = [
        *(tensor(name, INT64) for name in ("number", "same", "again", "y")),
        tensor("text", STRING),
    ]
    proto = model(nodes, [tensor("x0", STRING, [None])], outputs, opset=13)
    assert sorted(kinds(proto)) == sorted(["LabelEncoder", *["Identity"] * 3, "Identity+Neg"])
    x = texts("b", "a", "q")
    check(proto, x)
    arrays = run(proto, x0=x)
    for index, array in enumerate(arrays):
        assert not any(np.shares_memory(array, other) for other in [x, *arrays[:index]])


@pytest.mark.parametrize(
    ("attributes", "given", "expected"),
    [
        ({"classes_strings": ["a", "b"]}, texts("b", "c"), np.array([1, -1])),
        ({"classes_strings": ["a", "b"], "default_string": "?"}, np.array([1, 5]), texts("b", "?")),
    ],
)
def test_first_label_encoder(attributes: dict[str, Any], given: Array, expected: Array) -> None:
    elem_type, out = (STRING, INT64) if given.dtype == object else (INT64, STRING)
    node = helper.make_node("LabelEncoder", ["x"], ["y"], domain=ML, **attributes)
    proto = model([node], [tensor("x", elem_type, [2])], [tensor("y", out)])
    proto.opset_import[1].version = 1
    assert_same(run(proto, x=given)[0], expected)


def test_label_encoder_of_numbers_that_are_none() -> None:
    node = helper.make_node(
        "LabelEncoder", ["x"], ["y"], domain=ML, keys_floats=[1.0, np.nan], values_strings=["one", "none"]
    )  # fmt: skip
    proto = model([node], [tensor("x", FLOAT, [3])], [tensor("y", STRING)])
    (y,) = run(proto, x=f32([np.nan, 1, 2]))
    assert y.tolist() == ["none", "one", "_Unused"]


def test_category_mapper() -> None:
    for labels, out in ((texts("b", "z", "a"), INT64), (np.array([4, 9], np.int64), STRING)):
        attributes: Any = {"cats_strings": ["a", "b"], "cats_int64s": [9, 4]}
        elem_type = INT64 if out == STRING else STRING
        node = helper.make_node("CategoryMapper", ["x0"], ["y"], domain=ML, **attributes)
        proto = model([node], [tensor("x0", elem_type, [None])], [tensor("y", out)])
        check(proto, labels)


# Maps.


def test_maps_go_in_and_come_out() -> None:
    node = helper.make_node("ZipMap", ["x0"], ["y"], domain=ML, classlabels_strings=["a", "b"])
    x = f32([[1, 2], [3, 4], [0.5, -1]])
    values = helper.make_tensor_type_proto(FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(STRING, values))
    proto = model([node], [tensor("x0", FLOAT, [None, 2])], [typed("y", maps)])
    (rows,) = run(proto, x0=x)
    assert rows == [{"a": 1.0, "b": 2.0}, {"a": 3.0, "b": 4.0}, {"a": 0.5, "b": -1.0}]
    reference = onnxruntime.InferenceSession(proto.SerializeToString())
    assert rows == reference.run(None, {"x0": x})[0]

    node = helper.make_node(
        "DictVectorizer", ["x"], ["y"], domain=ML, string_vocabulary=["c", "a", "b"]
    )
    back = model([node], [typed("x", maps.sequence_type.elem_type)], [tensor("y", FLOAT)])
    assert_same(run(back, x=rows[2])[0], f32([[0, 0.5, -1]]))
    assert_same(run(back, x={})[0], np.zeros((1, 3), np.float32))
    with pytest.raises(glowpy.UserError, match="expected keys of the vocabulary, got 'z'"):
        run(back, x={"z": 1.0})
    with pytest.raises(
        glowpy.UserError, match=r"'x': expected a dict for map\(string,tensor\(float\)\), got list"
    ):
        run(back, x=[1.0])


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, f32([[2, 1]])),
        ({"map_form": "SPARSE", "max_map": 4}, f32([[0, 2, 0, 1]])),
        ({"cast_to": "TO_INT64"}, np.array([[2, 1]])),
        ({"cast_to": "TO_STRING"}, texts("2", "1", shape=(1, 2))),
    ],
)
def test_cast_map(attributes: dict[str, Any], expected: Array) -> None:
    type = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))
    node = helper.make_node("CastMap", ["x"], ["y"], domain=ML, **attributes)
    out = STRING if expected.dtype == object else helper.np_dtype_to_tensor_dtype(expected.dtype)
    proto = model([node], [typed("x", type)], [tensor("y", out)])
    assert_same(run(proto, x={3: 1.0, 1: 2.0})[0], expected)


@pytest.mark.parametrize(
    ("attributes", "value", "message"),
    [
        ({"cast_to": "TO_INT64"}, float("nan"), "expected values that TO_INT64 can have, got nan"),
        ({"cast_to": "TO_INT64"}, 1e30, "expected values that TO_INT64 can have, got 1"),
        ({"map_form": "SPARSE", "max_map": 1 << 50}, 1.0, "expected max_map from 1 to 16777216"),
        ({"map_form": "SPARSE", "max_map": -5}, 1.0, "expected max_map from 1 to 16777216, got -5"),
    ],
)
def test_cast_map_of_what_no_row_can_have(
    attributes: dict[str, Any], value: float, message: str
) -> None:
    type = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))
    node = helper.make_node("CastMap", ["x"], ["y"], domain=ML, **attributes)
    out = INT64 if "cast_to" in attributes else FLOAT
    proto = model([node], [typed("x", type)], [tensor("y", out)])
    with pytest.raises(glowpy.UserError, match=message):
        run(proto, x={1: value})


# Refusals.


def test_everything_that_is_not_supported_is_listed() -> None:
    nodes = [
        helper.make_node("Foo", ["x"], ["m"], name="first", domain="com.example"),
        helper.make_node("StringConcat", ["t", "t"], ["c"], name="second", nothing=1),
        helper.make_node("Resize", ["t", "", "scales"], ["r"], name="third"),
    ]
    inputs = [tensor("x", FLOAT, [2, 2]), tensor("t", STRING, [2])]
    outputs = [tensor("m", TensorProto.INT32), tensor("c", STRING), tensor("r", STRING)]
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.InferenceSession(model(nodes, inputs, outputs, {"scales": f32([2])}))
    message = str(caught.value)
    assert "node 'first' (#0): Foo: the model imports no opset" in message
    assert "node 'second' (#1): StringConcat: attribute 'nothing' is not supported" in message
    assert "node 'third' (#2): Resize (opset 21) of strings" in message


def test_what_machine_code_alone_cannot_do(tmp_path: Path) -> None:
    path = tmp_path / "tagger.onnx"
    onnx.save(tagger(), path)
    with pytest.raises(glowpy.UnsupportedError) as caught:
        glowpy.load(path)
    message = str(caught.value)
    assert "StringNormalizer (opset 21) is not supported by machine code: only a session" in message
    assert "note: glowpy.InferenceSession and glowpy run take strings" in message
    code, _, errors = command("bundle", str(path), "-o", str(tmp_path / "out"))
    assert code == 1
    assert "node 'lower' (#0): StringNormalizer" in errors


def command(*argv: str) -> tuple[int, str, str]:
    output, errors = io.StringIO(), io.StringIO()
    code = run_command(argv, io.StringIO(), output, errors)
    return code, output.getvalue(), errors.getvalue()


def test_the_command_line_takes_strings(tmp_path: Path) -> None:
    path, results = tmp_path / "tagger.onnx", tmp_path / "results"
    onnx.save(tagger(), path)
    lines, array, proto = (tmp_path / name for name in ("text.txt", "text.npy", "text.pb"))
    words = texts("The", "dog", "sat")
    lines.write_text("The\ndog\nsat\n", "utf-8")
    np.save(array, words.astype(np.str_))
    stored = helper.make_tensor("text", STRING, [3], [word.encode() for word in words])
    proto.write_bytes(stored.SerializeToString())
    expected = run(tagger(), text=words)
    for file in (lines, array, proto):
        options = ["--input", f"text={file}", "--output", str(results), "--backend", "interpreter"]
        code, output, errors = command("run", str(path), *options)
        assert code == 0, errors
        assert "string[3]" in output
        assert np.load(results / "tags.npy").tolist() == expected[0].tolist()
        np.testing.assert_array_equal(np.load(results / "logits.npy"), expected[1])
    code, _, errors = command("run", str(path))
    assert code == 1
    assert "input 'text' is of tensor(string), which must be given" in errors


def test_the_command_line_takes_sequences(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("ZipMap", ["x"], ["maps"], domain=ML, classlabels_int64s=[1, 2]),
    ]
    number = helper.make_tensor_type_proto(FLOAT, None)
    maps = helper.make_sequence_type_proto(helper.make_map_type_proto(INT64, number))
    inputs = [sequence("s", FLOAT), tensor("x", FLOAT, ["n", 2])]
    inputs.append(typed("o", helper.make_optional_type_proto(number)))
    outputs = [sequence("t", FLOAT), tensor("has", TensorProto.BOOL), typed("maps", maps)]
    path, file, results = tmp_path / "m.onnx", tmp_path / "s.npz", tmp_path / "results"
    onnx.save(model(nodes, inputs, outputs), path)
    np.savez(file, f32([1]), f32([[2, 3]]))
    options = ["--input", f"s={file}", "--output", str(results), "--backend", "interpreter"]
    code, output, errors = command("run", str(path), *options)
    assert (code, errors.count("note: 'n' is taken to be 1; --shape says otherwise")) == (0, 1)
    code, output, errors = command("run", str(path), *options, "--shape", "n=3", "--json")
    assert code == 0, errors
    figures = json.loads(output)["outputs"]
    assert [f["type"] for f in figures] == ["sequence of 3", "bool[]", "sequence of 3"]
    assert [array.shape for array in np.load(results / "t.npz").values()] == [(1,), (1, 2), (3, 2)]
    assert [[*row] for row in json.loads((results / "maps.json").read_text())] == [["1", "2"]] * 3


@pytest.mark.parametrize("classes", [1, 2, 3, 4])
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_maps_of_as_many_classes(classes: int, rows: int) -> None:
    names = [f"class {index}" for index in range(classes)]
    node = helper.make_node("ZipMap", ["x0"], ["y"], domain=ML, classlabels_strings=names)
    result = helper.make_map_type_proto(STRING, helper.make_tensor_type_proto(FLOAT, []))
    proto = model(
        [node], [tensor("x0", FLOAT, [None, None])], [typed("y", helper.make_sequence_type_proto(result))]
    )  # fmt: skip
    x = np.arange(rows * classes, dtype=np.float32).reshape(rows, classes)
    assert run(proto, x0=x) == [[dict(zip(names, row, strict=True)) for row in x.tolist()]]
    with pytest.raises(glowpy.UserError, match=f"ZipMap: expected {classes} columns, got"):
        run(proto, x0=np.zeros((2, classes + 1), np.float32))


@pytest.mark.parametrize("classes", [1, 2, 3])
def test_classes_that_are_strings(classes: int) -> None:
    """A classifier gives the label's number, which becomes the label after it."""
    rng = np.random.default_rng(classes)
    names = [f"class {index}" for index in range(max(classes, 2))]
    nodes = [
        helper.make_node(
            "LinearClassifier", ["x0"], ["label", "scores"], domain=ML, classlabels_strings=names,
            coefficients=rng.normal(size=3 * classes).tolist(), post_transform="LOGISTIC",
            intercepts=rng.normal(size=classes).tolist(),
        ),
    ]  # fmt: skip
    outputs = [tensor("label", STRING), tensor("scores", FLOAT)]
    x = rng.normal(size=(8, 3)).astype(np.float32)
    proto = model(nodes, [tensor("x0", FLOAT, [None, 3])], outputs)
    expected = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x0": x})
    label, scores = run(proto, x0=x)
    assert_same(label, expected[0])
    assert_same(scores, expected[1], rtol=1e-4)


def test_categories_that_are_strings() -> None:
    node = helper.make_node("OneHotEncoder", ["x0"], ["y"], domain=ML, cats_strings=["a", "b", "z"])
    x = texts("z", "q", "a")
    check(model([node], [tensor("x0", STRING, [3])], [tensor("y", FLOAT)]), x)
    node = helper.make_node("ArrayFeatureExtractor", ["x0", "x1"], ["y"], domain=ML)
    x, at = texts(*"abcdef", shape=(2, 3)), np.array([2, 0])
    inputs = [tensor("x0", STRING, [2, 3]), tensor("x1", INT64, [2])]
    check(model([node], inputs, [tensor("y", STRING)]), x, at)


@pytest.mark.parametrize("mode", ["TF", "IDF", "TFIDF"])
@pytest.mark.parametrize("shortest", [1, 2])
def test_tf_idf_of_strings(mode: str, shortest: int) -> None:
    pool = ["a", "c", "a b", "c", "a", "c", "a b", "a b"]
    attributes: Any = {"max_gram_length": 2, "min_gram_length": shortest, "max_skip_count": 2}
    x = texts("a", "c", "a b", "a", "d", "a b", "c", "c", "c", "", "a", "a b", shape=(2, 6))
    proto = one(
        "TfIdfVectorizer", x, out=FLOAT, mode=mode, ngram_counts=[0, 2], ngram_indexes=[3, 0, 1, 2, 4],
        pool_strings=pool, weights=[0.5, 2.0, 3.0, 0.25, 7.0], **attributes,
    )  # fmt: skip
    check(proto, x)


def test_inputs_that_are_missing_or_unknown() -> None:
    session = glowpy.InferenceSession(tagger(), backend="interpreter")
    for feeds in ({}, {"text": texts("a"), "more": texts("a")}):
        with pytest.raises(glowpy.UserError, match="expected the inputs 'text', got"):
            session.run(None, feeds)
    with pytest.raises(glowpy.UserError, match="expected a model of numbers alone"):
        glowpy.InferenceSession(tagger(), state="auto")
    session.reset_state()
    assert session.get_state() == {}
    with pytest.raises(glowpy.UserError, match="expected none of the inputs, got 'h'"):
        session.set_state({"h": np.zeros(1)})


def test_the_interface_of_onnxruntime_takes_strings() -> None:
    """Also lists and dicts, as onnxruntime does."""
    content = tagger().SerializeToString()
    session = glowpy.onnxruntime.InferenceSession(content)
    reference = onnxruntime.InferenceSession(content)
    for ours, theirs in zip(session.get_inputs(), reference.get_inputs(), strict=True):
        assert (ours.name, ours.type, ours.shape) == (theirs.name, theirs.type, theirs.shape)
    assert [arg.type for arg in session.get_outputs()] == ["tensor(string)", "tensor(float)"]
    feeds = {"text": texts("The", "cat")}
    for got, wanted in zip(session.run(None, feeds), reference.run(None, feeds), strict=True):
        assert_same(got, wanted, rtol=1e-4, atol=1e-5)
    (tags,) = session.run(["tags"], {"text": ["The", "cat"]})
    assert_same(tags, session.run(["tags"], feeds)[0])
    assert session.get_overridable_initializers() == []
    nodes = [helper.make_node("ConcatFromSequence", ["s"], ["y"], axis=0)]
    proto = model(nodes, [sequence("s", FLOAT)], [tensor("y", FLOAT)])
    parts = [f32([1, 2]), f32([3])]
    for runtime in (glowpy.onnxruntime, onnxruntime):
        other = runtime.InferenceSession(proto.SerializeToString())
        assert other.get_inputs()[0].type == "seq(tensor(float))"
        assert other.run(None, {"s": parts})[0].tolist() == [1, 2, 3]
