"""What users get wrong: one clear message, exit code 1, no traceback, nothing half-written."""

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.debugging.compare import Interpret, expected_outputs
from glowpy.graph.function import Module

Arrays = dict[str, Array]


def saved(path: Path, nodes: list[onnx.NodeProto], **changes: object) -> str:
    """A model x -> y of f32[4] with these nodes; its file."""
    x, y = (helper.make_tensor_value_info(n, TensorProto.FLOAT, [4]) for n in "xy")
    initializers = changes.pop("initializers", [])
    assert isinstance(initializers, list)
    graph = helper.make_graph(nodes, "g", [x], [y], initializers)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    path.write_bytes(model.SerializeToString())
    return str(path)


@pytest.fixture
def good(tmp_path: Path) -> str:
    return saved(tmp_path / "good.onnx", [helper.make_node("Relu", ["x"], ["y"], name="r")])


def failure(*argv: str) -> str:
    """The diagnostics of a command that must fail for the user's fault, with nothing on standard output."""
    out, err = io.StringIO(), io.StringIO()
    status = run(argv, io.StringIO(), out, err)
    text = err.getvalue()
    assert status == 1, (status, text)
    assert out.getvalue() == ""
    assert text.startswith("error: ")
    assert "Traceback" not in text
    return text


def test_missing_file() -> None:
    assert "nowhere.onnx" in failure("run", "nowhere.onnx")


def test_empty_file(tmp_path: Path) -> None:
    (tmp_path / "empty.onnx").write_bytes(b"")
    assert "empty file" in failure("run", str(tmp_path / "empty.onnx"))


@pytest.mark.parametrize("kept", [0.25, 0.5, 0.95])
def test_truncated_file(good: str, tmp_path: Path, kept: float) -> None:
    path = tmp_path / "cut.onnx"
    content = Path(good).read_bytes()
    path.write_bytes(content[: int(kept * len(content))])
    assert "cut.onnx" in failure("run", str(path))


def test_a_file_that_is_no_model(tmp_path: Path) -> None:
    path = tmp_path / "text.onnx"
    path.write_text("this is not a model\n" * 20)
    assert "text.onnx: " in failure("run", str(path))


def test_unknown_operators_are_all_named(tmp_path: Path) -> None:
    nodes = [
        helper.make_node("Frobnicate", ["x"], ["a"], name="first"),
        helper.make_node("Defrobnicate", ["a"], ["y"], name="second"),
    ]
    text = failure("run", saved(tmp_path / "m.onnx", nodes))
    for word in ("Frobnicate", "first", "Defrobnicate", "second", "m.onnx"):
        assert word in text


def test_wrong_dtype(good: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4))
    text = failure("run", good, "--input", f"x={tmp_path / 'x.npy'}")
    assert "input 'x': expected f32[4], got float64[4]" in text
    assert "note: convert it with array.astype('float32')" in text


def test_wrong_dtype_for_bf16(tmp_path: Path) -> None:
    """numpy knows the name of that kind only where another package is imported."""
    path = tmp_path / "x.glow"
    module = Module()
    x, y = (module.create_placeholder(name, parse_type("bf16[4]")) for name in "xy")
    f = module.create_function("main")
    f.create_save("save", f.create_neg("neg", x), y)
    path.write_text(str(module))
    np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
    text = failure("run", str(path), "--input", f"x={tmp_path / 'x.npy'}")
    assert "note: convert it with array.astype(ml_dtypes.bfloat16)" in text


def test_wrong_shape(good: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(5, np.float32))
    text = failure("run", good, "--input", f"x={tmp_path / 'x.npy'}")
    assert "input 'x': expected f32[4], got float32[5]" in text


def test_pickled_input(good: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([object()]), allow_pickle=True)
    assert "x.npy: " in failure("run", good, "--input", f"x={tmp_path / 'x.npy'}")


def test_unknown_input(good: str, tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(4, np.float32))
    text = failure("run", good, "--input", f"z={tmp_path / 'x.npy'}")
    assert "expected one of the inputs x, got 'z'" in text


def test_missing_input_file(good: str) -> None:
    assert "nothing.npy" in failure("run", good, "--input", "x=nothing.npy")


@pytest.mark.parametrize("location", ["../secret.bin", "/etc/passwd", "a/../../secret.bin", ""])
def test_external_data_outside_of_the_folder(tmp_path: Path, location: str) -> None:
    (tmp_path / "secret.bin").write_bytes(bytes(16))
    folder = tmp_path / "model"
    folder.mkdir()
    w = numpy_helper.from_array(np.zeros(4, np.float32), "w")
    w.ClearField("raw_data")
    w.data_location = TensorProto.EXTERNAL
    w.external_data.add(key="location", value=location)
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    text = failure("run", saved(folder / "m.onnx", nodes, initializers=[w]))
    assert "external data" in text
    assert "'w'" in text


@pytest.mark.parametrize("dims", [[2**31, 2**31, 2**31], [2**62, 4], [-1, 4]])
def test_overflowing_shape(tmp_path: Path, dims: list[int]) -> None:
    w = TensorProto(name="w", data_type=TensorProto.FLOAT, dims=dims, raw_data=bytes(16))
    nodes = [helper.make_node("Add", ["x", "w"], ["y"])]
    text = failure("run", saved(tmp_path / "m.onnx", nodes, initializers=[w]))
    assert "'w'" in text


@pytest.mark.parametrize("text", ["x", "x=", "x=1xx2", "x=-1", "=3", "x=1.5"])
def test_shape_syntax(good: str, text: str) -> None:
    message = failure("run", good, "--shape", text)
    assert (
        f"--shape: expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got '{text}'"
        in message
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("x=a+1", "--shape x=a+1: the symbol 'a' is not declared"),
        ("x=b b", "--shape x=b b: unexpected 'b' after the dimension"),
        ("b=b", "--shape: 'b' is given twice"),
    ],
)
def test_a_dimension_that_is_computed(good: str, text: str, message: str) -> None:
    assert message in failure("run", good, "--shape", "b=1..3", "--shape", text)


def test_shape_of_an_unknown_input(good: str) -> None:
    assert "'z'" in failure("run", good, "--shape", "z=1x2")


def test_shape_that_contradicts_the_model(good: str) -> None:
    assert "'x'" in failure("run", good, "--shape", "x=5x2x2x2")


@pytest.mark.parametrize(
    ("argv", "word"),
    [
        (["dump", "--stage", "soup"], "'soup' is not one of 'graph'"),
        (["dump", "--format", "gif"], "'gif' is not one of"),
        (["dump", "--stage", "ir", "--format", "dot"], "expected a stage that is a graph"),
        (["dump", "--stage", "asm", "--target", "pdp11-unknown-unix"], "pdp11"),
        (["dump", "--stage", "asm", "--backend", "interpreter"], "makes no machine code"),
        (["run", "--backend", "tpu"], "expected one of the backends cpu, interpreter"),
        (["run", "--repeat", "0"], "0 is not in the range"),
        (["run", "--frobnicate"], "No such option"),
        (["dump", "--function", "other"], "'other'"),
    ],
)
def test_wrong_options(good: str, argv: list[str], word: str) -> None:
    assert word in failure(argv[0], good, *argv[1:])


def test_unknown_verb() -> None:
    assert "fly" in failure("fly")


def test_malformed_text_has_line_and_caret(tmp_path: Path) -> None:
    path = tmp_path / "bad.glow"
    path.write_text("module {\n  placeholder %x : f32[4\n}\n")
    text = failure("dump", str(path))
    assert "bad.glow:3:1" in text
    assert "^" in text


@pytest.mark.parametrize(("offset", "status", "verdict"), [(0, 0, "yes"), (1, 1, "no")])
def test_a_failed_check_is_exit_code_1(
    good: str, monkeypatch: pytest.MonkeyPatch, offset: int, status: int, verdict: str
) -> None:
    def shifted(checker: str, model: str, interpret: Interpret, inputs: Arrays) -> Arrays:
        right = expected_outputs(checker, model, interpret, inputs)
        return {name: array + np.float32(offset) for name, array in right.items()}

    monkeypatch.setattr("glowpy.cli.run.expected_outputs", shifted)
    out = io.StringIO()
    assert run(["run", good, "--check-with", "onnxruntime"], io.StringIO(), out) == status
    assert verdict in out.getvalue().split()


def test_output_folder_that_cannot_be_made(good: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    out = io.StringIO()
    assert run(["run", good, "--output", str(tmp_path / "file" / "x")], io.StringIO(), out) == 1
    assert "expected a folder to write to" in out.getvalue()
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "good.onnx"]
