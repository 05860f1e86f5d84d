"""`glowpy run` of models of strings, sequences, optionals and maps: as of any other."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from glowpy.cli.main import run
from glowpy.debugging.compare import compare
from tests.onnx.host_models import FLOAT, INT64, ML, STRING, model, sequence, tagger, tensor, typed

MAPS = helper.make_map_type_proto(INT64, helper.make_tensor_type_proto(FLOAT, None))


def columns() -> onnx.ModelProto:
    """A string for each row, as converters of scikit-learn have them."""
    node = helper.make_node("StringNormalizer", ["flat"], ["y"], case_change_action="UPPER")
    flat = helper.make_node("Reshape", ["text", "all"], ["flat"])
    inputs = [tensor("text", STRING, ["rows", 1]), tensor("x", FLOAT, ["rows", 2])]
    twice = helper.make_node("Add", ["x", "x"], ["twice"])
    outputs = [tensor("y", STRING, ["n"]), tensor("twice", FLOAT, ["rows", 2])]
    return model([flat, node, twice], inputs, outputs, {"all": np.array([-1])})


def containers() -> onnx.ModelProto:
    """All kinds of inputs, and of outputs."""
    nodes = [
        helper.make_node("SequenceInsert", ["s", "x"], ["t"]),
        helper.make_node("OptionalHasElement", ["o"], ["has"]),
        helper.make_node("CastMap", ["m"], ["row"], domain=ML, cast_to="TO_FLOAT"),
        helper.make_node("ZipMap", ["x"], ["maps"], domain=ML, classlabels_int64s=[1, 2]),
    ]
    optional = helper.make_optional_type_proto(helper.make_tensor_type_proto(FLOAT, None))
    inputs = [sequence("s", FLOAT), tensor("x", FLOAT, ["n", 2]), typed("o", optional)]
    outputs = [sequence("t", FLOAT), tensor("has", TensorProto.BOOL), tensor("row", FLOAT)]
    outputs.append(typed("maps", helper.make_sequence_type_proto(MAPS)))
    return model(nodes, [*inputs, typed("m", MAPS)], outputs)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("hosted")
    onnx.save(tagger(), path / "tagger.onnx")
    onnx.save(columns(), path / "columns.onnx")
    onnx.save(containers(), path / "containers.onnx")
    (path / "words.txt").write_text("the\ncat\nsat\n", "utf-8")
    (path / "words.json").write_text('["the", "cat", "sat"]', "utf-8")
    np.savez(path / "words.npz", text=np.array(["the", "cat", "sat"]))
    np.save(path / "objects.npy", np.array(["the", "cat"], object), allow_pickle=True)
    (path / "s.json").write_text("[[1, 2.5], [[3]]]", "utf-8")
    (path / "m.json").write_text('{"7": 0.5, "3": 2}', "utf-8")
    return path


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def said(*argv: str, status: int = 0) -> str:
    out = io.StringIO()
    assert run(["run", *argv], io.StringIO(), out, out) == status, out.getvalue()
    return out.getvalue()


def figures(*argv: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(said(*argv, "--backend", "interpreter", "--json"))
    return report


@pytest.mark.parametrize("source", ["text=words.txt", "text=words.json", "words.npz"])
def test_strings_come_from_files_of_text(source: str) -> None:
    tags, logits = figures("tagger.onnx", "--input", source)["outputs"]
    assert (tags["type"], tags["min"]) == ("string[3]", None)
    assert logits["type"] == "f32[3x2]"
    assert logits["min"] <= logits["mean"] <= logits["max"]


def test_objects_are_not_read_and_what_to_do_instead_is_said() -> None:
    text = said("tagger.onnx", "--input", "text=objects.npy", status=1)
    assert "objects.npy: an array of Python objects" in text
    assert "note: save strings as array.astype('U'), or as a .txt or .json file" in text


@pytest.mark.parametrize(
    ("shape", "expected"),
    [([], "string[3]"), (["--shape", "text:3x1"], "string[3]"), (["--shape", "rows=2"], None)],
)
def test_lines_have_the_shape_of_the_input(shape: list[str], expected: str | None) -> None:
    argv = ["columns.onnx", "--input", "text=words.txt", "--shape", "x:3x2", *shape]
    if expected:
        assert figures(*argv)["outputs"][0]["type"] == expected
        return
    text = said(*argv, status=1)
    assert "words.txt: input 'text': expected lines for the shape [2x1], got 3" in text
    assert "note: --shape text:" in text


def test_sequences_and_maps_come_from_json() -> None:
    options = ["--input", "s=s.json", "--input", "m=m.json", "--shape", "n=2"]
    outputs = figures("containers.onnx", *options, "--output", "out", "--seed", "3")["outputs"]
    assert [output["type"] for output in outputs] == [
        "sequence of 3",
        "bool[]",
        "f32[1x2]",
        "sequence of 2",
    ]
    assert np.load("out/row.npy").tolist() == [[2, 0.5]]
    assert [item.tolist() for item in np.load("out/t.npz").values()][:2] == [[1, 2.5], [[3]]]
    assert [[*item] for item in json.loads(Path("out/maps.json").read_text())] == [["1", "2"]] * 2


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "s",
            "[[1, 2], [[3], 4]]",
            "'s'[1]: expected numbers for tensor(float), in lists of equal",
        ),
        ("s", '["a"]', "'s'[0]: expected numbers for tensor(float)"),
        ("s", '{"a": 1}', "'s': expected a list for seq(tensor(float)), got dict"),
        ("m", '{"a": 1}', "'m': expected keys that are integers for map(int64,tensor(float))"),
        ("m", "[1]", "'m': expected an object for map(int64,tensor(float)), got list"),
        ("m", '{"1": "a"}', "'m'[1]: expected a value of tensor(float), got str"),
        ("x", "[[1, 2, 3]]", "'x': expected the shape [n x 2], got [1x3]"),
        ("x", "[[1, 2]", "cannot read the JSON"),
        ("x", "[" * 100_000, "cannot read the JSON"),
        ("x", "[[1, 1e999]]", ""),
    ],
)
def test_json_of_another_type_is_refused(name: str, content: str, message: str) -> None:
    Path("bad.json").write_text(content, "utf-8")
    inputs = {"s": "s.json", "m": "m.json", name: "bad.json"}
    options = [part for key, file in inputs.items() for part in ("--input", f"{key}={file}")]
    argv = ["containers.onnx", *options, "--shape", "n=2", "--backend", "interpreter"]
    text = said(*argv, status=1 if message else 0)
    assert message in text
    assert ("bad.json: " in text) == bool(message)


def test_unknown_inputs_are_refused() -> None:
    for source in ("words=words.txt", "words.npz"):
        text = said("containers.onnx", "--input", source, status=1)
        assert "--input: expected one of the inputs s, x, o, m, got '" in text


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ("q=3", "the model has no symbolic dimension 'q', expected one of: 'rows'"),
        ("q:3", "the model has no input 'q', expected one of: 'text', 'x'"),
    ],
)
def test_unknown_dimensions_are_refused(shape: str, message: str) -> None:
    text = said("columns.onnx", "--input", "text=words.txt", "--shape", shape, status=1)
    assert message in text


@pytest.mark.parametrize("checker", ["onnxruntime", "interpreter"])
def test_strings_are_checked(checker: str) -> None:
    report = figures("tagger.onnx", "--input", "text=words.txt", "--check-with", checker)
    assert [(d["name"], d["within"]) for d in report["differences"]] == [
        ("tags", True),
        ("logits", True),
    ]


def test_containers_are_checked() -> None:
    options = ["--input", "s=s.json", "--input", "m=m.json", "--shape", "n=2"]
    text = said("containers.onnx", *options, "--check-with", "interpreter")
    assert "compared with interpreter" in text
    assert text.count(" yes ") == 4
    assert "a part of it in Python" in text


WORDS = np.array(["a", "b"], object)
ONES = np.ones(2, np.float32)


@pytest.mark.parametrize(
    ("got", "want", "absolute"),
    [
        (WORDS, WORDS.astype("U"), 0),
        (WORDS, WORDS[::-1], np.inf),
        (WORDS, WORDS[:1], np.inf),
        (WORDS, ONES, np.inf),
        ([ONES, WORDS], [ONES * 1.5, WORDS], 0.5),
        ([ONES], [ONES, ONES], np.inf),
        ([{"a": 1.0}, {"a": 2.0}], [{"a": 1.0}, {"a": 4.0}], 2),
        ({"a": 1.0}, {"b": 1.0}, np.inf),
        ({1: "x"}, {1: "x"}, 0),
        (None, None, 0),
        (None, ONES, np.inf),
        (ONES, None, np.inf),
        (ONES, [ONES], np.inf),
    ],
)
def test_values_of_all_forms_are_compared(got: Any, want: Any, absolute: float) -> None:
    (difference,) = compare({"y": got}, {"y": want}, 0, 0)
    assert difference.absolute == absolute
    assert difference.within == (absolute == 0)


def test_instructions_between_strings_are_shown() -> None:
    argv = ["tagger.onnx", "--input", "text=words.txt", "--instrument-ir"]
    assert "logits: result [" in said(*argv)


def test_what_a_model_takes_is_said() -> None:
    text = said("columns.onnx", "--help-model")
    lines = [line.split() for line in text.splitlines()]
    assert ["input", "text", "string[rows", "x", "1]"] in lines
    assert ["input", "x", "f32[rows", "x", "2]"] in lines
    assert "  --shape rows=1\n" in text
    assert "  --input text=FILE\n" in text
    report = json.loads(said("containers.onnx", "--help-model", "--json"))
    assert report["inputs"]["m"] == "map(int64,tensor(float))"
    assert report["outputs"]["maps"] == "seq(map(int64,tensor(float)))"
    assert (report["dimensions"], report["state"]) == (["n"], {})


def test_what_such_models_do_not_take_has_a_remedy() -> None:
    text = said("tagger.onnx", "--state", "auto", status=1)
    assert "--state: a model of strings, sequences, optionals or maps keeps nothing" in text
    assert "note: give what a run before it wrote by --output: --input NAME=FILE" in text
