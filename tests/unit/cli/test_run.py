"""`glowpy run`: what it reads, prints and writes."""

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from glowpy.cli.main import run

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x, float[3] c) => (float[N, 3] y) { s = Add(x, c)  y = Relu(s) }
"""
TEXT = """
module {
  placeholder %x : f32[2]
  placeholder %y : f32[2]
  function @half { %c = splat() {value=0.5} : f32[]  %h = mul(%x, %c) : f32[2]  save(%h, %y) }
  function @twice { %t = add(%x, %x) : f32[2]  save(%t, %y) }
}
"""


@pytest.fixture
def model(tmp_path: Path) -> str:
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(MODEL), str(path))
    return str(path)


def figures(*argv: str, stdin: str = "") -> dict[str, Any]:
    out = io.StringIO()
    status = run(["run", *argv, "--json"], io.StringIO(stdin), out)
    assert status == 0, out.getvalue()
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


@pytest.mark.parametrize("shape", ["N=2", "x=2x3", "x:2x3", "N=1..2", "x=1..2x3", "x:1..2x3"])
@pytest.mark.parametrize("checker", ["onnxruntime", "reference", "interpreter"])
def test_checks(model: str, shape: str, checker: str) -> None:
    report = figures(model, "--shape", shape, "--check-with", checker)
    assert report["checked_with"] == checker
    (difference,) = report["differences"]
    exact = {"name": "y", "absolute": 0.0, "relative": 0.0, "within": True, "decibels": None}
    assert difference == exact


def test_inputs_and_outputs_are_files(model: str, tmp_path: Path) -> None:
    x, c = np.array([[1, 2, 3]], np.float32), np.array([0, -5, 1], np.float32)
    np.save(tmp_path / "x.npy", x)
    (tmp_path / "c.pb").write_bytes(numpy_helper.from_array(c).SerializeToString())
    report = figures(
        *(model, "--shape", "N=1", "--output", str(tmp_path / "out")),
        *("--input", f"x={tmp_path / 'x.npy'}", "--input", f"c={tmp_path / 'c.pb'}"),
    )
    (output,) = report["outputs"]
    assert output["file"] == str(tmp_path / "out" / "y.npy")
    assert np.load(tmp_path / "out" / "y.npy").tolist() == [[1, 0, 4]]
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["y.npy"]


def test_an_archive_gives_every_input(model: str, tmp_path: Path) -> None:
    np.savez(
        tmp_path / "all.npz", x=np.array([[1, 2, 3]], np.float32), c=np.array([1, 1, 1], np.float32)
    )
    report = figures(model, "--shape", "N=1", "--input", str(tmp_path / "all.npz"))
    (output,) = report["outputs"]
    assert (output["min"], output["max"], output["mean"]) == (2, 4, 3)


STATEFUL = """
module {
  placeholder %state : f32[2]
  function @main { %t = add(%state, %state) : f32[2]  save(%t, %state) }
}
"""


def test_every_run_begins_with_the_same_inputs() -> None:
    report = figures("-", "--repeat", "3", "--check-with", "interpreter", stdin=STATEFUL)
    assert [difference["within"] for difference in report["differences"]] == [True]


def test_outputs_with_like_names_have_files_of_their_own(tmp_path: Path) -> None:
    text = """
    <ir_version: 8, opset_import: ["": 17]>
    g (float[2] x) => (float[2] a, float[2] b) { a = Relu(x)  b = Neg(x) }
    """
    net = parser.parse_model(text)
    for node, output, name in zip(net.graph.node, net.graph.output, ("y/1", "y:1"), strict=True):
        node.output[0] = output.name = name
    onnx.save(net, str(tmp_path / "net.onnx"))
    report = figures(str(tmp_path / "net.onnx"), "--output", str(tmp_path / "out"))
    first, second = (np.load(output["file"]) for output in report["outputs"])
    assert (first > 0).all()
    assert np.array_equal(first, -second)


def test_json_has_no_infinities() -> None:
    text = """module {
      placeholder %y : f32[2]  placeholder %e : f32[0]
      constant %c : f32[2] = [inf, nan]  constant %n : f32[0] = []
      function @main { save(%c, %y)  save(%n, %e) }
    }"""
    for output in figures("-", stdin=text)["outputs"]:
        assert (output["min"], output["max"], output["mean"]) == (None, None, None)


@pytest.mark.parametrize(
    ("declared", "array", "remedy"),
    [
        ("float[N, 3]", (2, 3), "--shape x:2x3"),
        ("float[]", (), "--shape x:"),
        ("float[1, 3]", (2, 3), "--shape x:2x3"),
        ("float[N, 3]", (2, 4), "--shape x:2x4"),
        ("float[N, 3]", (3,), ""),
    ],
)
def test_the_remedy_for_a_shape_is_one(
    declared: str, array: tuple[int, ...], remedy: str, tmp_path: Path
) -> None:
    """It is followed here. One of another rank has none but another array."""
    text = (
        f'<ir_version: 8, opset_import: ["": 17]> g ({declared} x) => (float[] y) {{ y = Relu(x) }}'
    )
    onnx.save(parser.parse_model(text), str(tmp_path / "net.onnx"))
    np.save(tmp_path / "x.npy", np.ones(array, np.float32))
    argv = ["run", str(tmp_path / "net.onnx"), "--input", f"x={tmp_path / 'x.npy'}"]
    out = io.StringIO()
    assert run([*argv, "--shape", "x:1x3"], io.StringIO(), out) == 1
    note = out.getvalue().split("note: ")[1].strip()
    if remedy:
        is_declared = declared == "float[]" or (declared, array) == ("float[N, 3]", (2, 3))
        what = (
            "compiles for this shape" if is_declared else "changes the sizes that the file declares"
        )
        assert note == f"{remedy} {what}"
        assert run([*argv, *remedy.split()], io.StringIO(), out) == 0, out.getvalue()
    else:
        assert note == "the model has no other shape for 'x': give it a 1x3 array"


@pytest.mark.parametrize("damage", ["truncated.npz", "garbled.npz", "huge.npy"])
def test_a_damaged_input_file_is_the_users(model: str, tmp_path: Path, damage: str) -> None:
    path = tmp_path / damage
    if damage == "huge.npy":
        header = b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000,), }"
        path.write_bytes(b"\x93NUMPY\x01\x00\x76\x00" + header.ljust(117) + b"\n")
        argument = f"x={path}"
    else:
        np.savez_compressed(path, x=np.arange(100, dtype=np.float32))
        data = bytearray(path.read_bytes())
        data[80:90] = b"\xff" * 10
        path.write_bytes(data[:200] if damage == "truncated.npz" else data)
        argument = str(path)
    out = io.StringIO()
    assert run(["run", model, "--shape", "N=1", "--input", argument], io.StringIO(), out) == 1
    assert f"{damage}: not a file of numbers" in out.getvalue()


def test_a_seed_is_not_negative(model: str) -> None:
    out = io.StringIO()
    assert run(["run", model, "--shape", "N=1", "--seed", "-1"], io.StringIO(), out) == 1
    assert "'--seed': -1 is not in the range" in out.getvalue()


def test_random_inputs_are_the_same_until_the_seed_changes(model: str) -> None:
    first, second = (figures(model, "--shape", "N=2")["outputs"] for _ in range(2))
    other = figures(model, "--shape", "N=2", "--seed", "1")["outputs"]
    assert first == second != other


def test_repeat(model: str) -> None:
    report = figures(model, "--shape", "N=2", "--repeat", "3", "--backend", "interpreter")
    assert len(report["run_seconds"]) == 3
    assert report["backend"] == "interpreter"


@pytest.mark.parametrize(("function", "mean"), [("half", 0.5), ("twice", 2)])
def test_text_on_standard_input(tmp_path: Path, function: str, mean: float) -> None:
    np.save(tmp_path / "x.npy", np.ones(2, np.float32))
    argv = ["-", "--function", function, "--input", f"x={tmp_path / 'x.npy'}"]
    (output,) = figures(*argv, stdin=TEXT)["outputs"]
    assert output["mean"] == mean


def test_several_functions_need_a_name() -> None:
    out = io.StringIO()
    assert run(["run", "-"], io.StringIO(TEXT), out) == 1
    assert "the model has 2 functions: half, twice" in out.getvalue()


def test_tables_are_for_people(model: str) -> None:
    out = io.StringIO()
    argv = [
        "run",
        model,
        "--shape",
        "N=2",
        "--check-with",
        "interpreter",
        "--repeat",
        "2",
        "--threads",
        "2",
    ]
    assert run(argv, io.StringIO(), out) == 0
    for word in ("f32[2x3]", "compared with interpreter", "median of 2"):
        assert word in out.getvalue()
    assert "\x1b" not in out.getvalue()


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_instruments_every_instruction(model: str, tmp_path: Path, backend: str) -> None:
    folder = tmp_path / "operands"
    out = io.StringIO()
    flags = ["--instrument-ir", "--instrument-debug", str(folder), "--backend", backend]
    assert run(["run", model, "--shape", "N=1", *flags], io.StringIO(), out) == 0
    assert "add s: result [" in out.getvalue()
    added = np.load(folder / "0000.add.s.result.after.npy")
    relu = np.load(next(folder.glob("0001.max.*.result.after.npy")))
    np.testing.assert_array_equal(relu, np.maximum(added, 0))
    assert (folder / "0000.add.s.lhs.before.npy").exists()


def test_debug_information_comes_with_the_ir(model: str, tmp_path: Path) -> None:
    figures(model, "--shape", "N=1", "--debug", str(tmp_path / "ir"))
    assert "add @out" in (tmp_path / "ir" / "glowpy_main.ir").read_text()


UNUSED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2] x, float[2] dead, float[2] nobody) => (float[2] y) { d = Neg(dead)  y = Relu(x) }
"""


@pytest.mark.parametrize("checker", ["onnxruntime", "reference", "interpreter"])
def test_inputs_that_nothing_needs_are_inputs(tmp_path: Path, checker: str) -> None:
    onnx.save(parser.parse_model(UNUSED), str(tmp_path / "net.onnx"))
    arguments = []
    for name in ("dead", "nobody"):
        np.save(tmp_path / f"{name}.npy", np.ones(2, np.float32))
        arguments += ["--input", f"{name}={tmp_path / name}.npy"]
    report = figures(str(tmp_path / "net.onnx"), *arguments, "--check-with", checker)
    assert [difference["within"] for difference in report["differences"]] == [True]


TWO_OUTPUTS = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2] x) => (float[2] a, float[2] b) { a = Relu(x)  b = Neg(x) }
"""


@pytest.mark.parametrize(
    ("factors", "status"),
    [((1, 1), 0), ((1, 2), 1), ((2, 1), 1), ((2, 2), 1), ((1 + 1e-6, 1), 0)],
    ids=["both", "first", "second", "neither", "nearly"],
)
def test_every_output_must_be_right(
    factors: tuple[float, float],
    status: int,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    onnx.save(parser.parse_model(TWO_OUTPUTS), str(tmp_path / "net.onnx"))
    np.save(tmp_path / "x.npy", np.array([3, -5], np.float32))

    def reference(_: Path, inputs: dict[str, Any]) -> dict[str, Any]:
        right = {"a": np.maximum(inputs["x"], 0), "b": -inputs["x"]}
        scaled = zip(right.items(), factors, strict=True)
        return {name: (array * factor).astype(np.float32) for (name, array), factor in scaled}

    monkeypatch.setattr("glowpy.debugging.compare.evaluate_reference", reference)
    out = io.StringIO()
    argv = ["run", str(tmp_path / "net.onnx"), "--input", f"x={tmp_path / 'x.npy'}", "--json"]
    assert run([*argv, "--check-with", "reference"], io.StringIO(), out) == status
    within = [difference["within"] for difference in json.loads(out.getvalue())["differences"]]
    assert within == [factor < 1.1 for factor in factors]


@pytest.mark.parametrize("checker", ["onnxruntime", "reference"])
def test_what_another_runtime_cannot_run_is_no_bug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, checker: str
) -> None:
    onnx.save(parser.parse_model(UNUSED), str(tmp_path / "net.onnx"))

    def fail(*_: object, **__: object) -> None:
        raise RuntimeError("the opset is too new")

    monkeypatch.setattr("onnxruntime.InferenceSession", fail)
    monkeypatch.setattr("glowpy.debugging.compare.evaluate_reference", fail)
    out = io.StringIO()
    argv = ["run", str(tmp_path / "net.onnx"), "--check-with", checker]
    assert run(argv, io.StringIO(), out) == 1
    assert f"net.onnx: {checker} cannot run the model: the opset is too new" in out.getvalue()


def test_outputs_have_the_shapes_that_a_run_finds(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
    g (float[N] x) => (int64[1, M] places, float[M] ones) {
      places = NonZero(x)  shape = Shape <start=1> (places)  ones = ConstantOfShape(shape)
    }"""
    onnx.save(parser.parse_model(text), str(tmp_path / "net.onnx"))
    np.save(tmp_path / "x.npy", np.array([0, 1, 0, 2], np.float32))
    arguments = ("--shape", "N=1..9", "--input", f"x={tmp_path / 'x.npy'}")
    report = figures(str(tmp_path / "net.onnx"), *arguments, "--check-with", "interpreter")
    assert [output["type"] for output in report["outputs"]] == ["i64[1x2]", "f32[2]"]


HALVED = """
<ir_version: 8, opset_import: ["": 17]>
g (float x) => (float last, float[N] all) {
  half = Constant<value = float {0.5}>()
  one = Constant<value = float {1.0}>()
  last, all = Loop(, , x) <body = body (int64 i, bool going, float v) => (bool goes, float w, float row) {
    w = Mul(v, half)
    goes = Greater(w, one)
    row = Identity(w)
  }>
}
"""
BITS = HALVED.replace("{0.5}", "{14336}").replace("{1.0}", "{15360}")
IN_HALVES = BITS.replace("float", "float16")
"""The same in f16, whose numbers onnx reads as their bits."""
SIZED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[3] x, int64[1] n) => (float[N] y) { y = Expand(x, n) }
"""


@pytest.mark.parametrize(
    ("text", "feeds", "parts"),
    [
        (HALVED, {"x": np.float32(9)}, ", a part of it in Python"),
        (IN_HALVES, {"x": np.float16(9)}, ", a part of it in Python"),
        (SIZED, {"x": np.ones(3, np.float32), "n": np.array([3])}, ""),
    ],
    ids=["loop", "halves", "value"],
)
def test_what_a_session_runs_runs(
    text: str, feeds: dict[str, Any], parts: str, tmp_path: Path
) -> None:
    """A loop that stacks without a bound is run by the session, and a value that must be known is.

    Where it computes in halves, roundings are allowed for as in any other model.
    """
    onnx.save(parser.parse_model(text), str(tmp_path / "net.onnx"))
    argv = ["run", str(tmp_path / "net.onnx"), "--check-with", "onnxruntime"]
    for name, array in feeds.items():
        np.save(tmp_path / f"{name}.npy", array)
        argv += ["--input", f"{name}={tmp_path / name}.npy"]
    out = io.StringIO()
    assert run([*argv, "--backend", "interpreter"], io.StringIO(), out, out) == 0, out.getvalue()
    assert " no " not in out.getvalue()
    assert out.getvalue().endswith(f"ms{parts}\n")
    assert ("signal to noise" in out.getvalue()) == (feeds["x"].dtype == np.float16)
