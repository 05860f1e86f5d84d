"""Dimensions that nobody gives a size: 1 in every verb, which is said once, unless arrays say otherwise."""

import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from glowpy.cli.main import run
from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import ValueInfo
from glowpy.importer.open_dimensions import Unsaid

HEADER = '<ir_version: 8, opset_import: ["": 17]>'
MODELS = {
    "net": "g (float[batch, 3] x) => (float[batch, 3] y) <float[3, 3] w = {1,2,3,4,5,6,7,8,9}>"
    " { p = MatMul(x, w) y = Relu(p) }",
    "unnamed": "g (float[?, 3] x, float[batch, 3] z) => (float[a, 3] y) { y = Relu(x) t = Relu(z) }",
    "sum": "g (float[a, 2] x, float[b, 3] z) => (float[a, 5] y) { y = Concat<axis = 1>(x, z) }",
    "unlike": "g (float[a, 2] x, float[a, 3] z) => (float[a, 5] y) { y = Add(x, z) }",
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in MODELS.items():
        model = onnx.parser.parse_model(f"{HEADER} {text.replace('?', 'unknown')}")
        for dim in model.graph.input[0].type.tensor_type.shape.dim:
            if dim.dim_param == "unknown":
                dim.ClearField("dim_param")
        onnx.save(model, f"{name}.onnx")
    for rows in (1, 4):
        (tmp_path / f"samples{rows}").mkdir()
        for index in range(2):
            array = np.full((rows, 3), index, np.float32)
            np.savez(tmp_path / f"samples{rows}/{index}.npz", x=array)
            np.save(tmp_path / f"x{rows}.npy", array)
    return tmp_path


def command(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(argv, io.StringIO(), out, err), out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "net.onnx", "--backend", "interpreter"],
        ["run", "net.onnx", "--backend", "interpreter", "--json", "--check-with", "reference"],
        ["profile", "net.onnx", "--inputs", "samples1/1.npz", "--backend", "interpreter"],
        ["quantize", "net.onnx", "--dynamic", "--backend", "interpreter", "-o", "q.onnx"],
        ["quantize", "net.onnx", "--weight-only", "8", "--backend", "interpreter"],
        ["convert", "net.onnx", "--to", "f16", "--backend", "interpreter", "-o", "h.onnx"],
        ["export", "net.onnx", "-o", "e.onnx"],
        ["dump", "net.onnx"],
        ["dump", "net.onnx", "--stage", "memory"],
        ["bundle", "net.onnx", "-o", "made"],
        ["bench", "net.onnx", "--seconds", "0.01"],
    ],
)
@pytest.mark.usefixtures("folder")
def test_every_verb_takes_one_and_says_so_once(argv: list[str]) -> None:
    status, out, err = command(*argv)
    assert status == 0, err + out
    assert err.count("note: 'batch' is taken to be 1; --shape says otherwise: --shape batch=8") == 1
    if "--json" in argv:
        json.loads(out)
    _, _, err = command(*argv, "--shape", "batch=1", *(["--force"] if argv[0] == "profile" else []))
    assert "taken to be" not in err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize("inputs", [["x=x4.npy"], ["samples4/1.npz"]])
def test_arrays_say_what_dimensions_are(inputs: list[str]) -> None:
    options = [word for text in inputs for word in ("--input", text)]
    status, out, err = command("run", "net.onnx", "--backend", "interpreter", *options)
    assert (status, err) == (0, "")
    assert "f32[4x3]" in out
    status, _, err = command("run", "net.onnx", "--shape", "batch=2", *options)
    assert status == 1
    assert "expected f32[2x3], got float32[4x3]" in err


@pytest.mark.usefixtures("folder")
@pytest.mark.parametrize(
    "argv",
    [
        ["profile", "net.onnx"],
        ["convert", "net.onnx", "--to", "f16"],
        ["quantize", "net.onnx", "--dynamic", "--report", "r.html"],
    ],
)
def test_samples_say_what_dimensions_are(argv: list[str]) -> None:
    status, out, err = command(*argv, "--inputs", "samples4", "--backend", "interpreter")
    assert (status, "taken to be" in err) == (0, False), out + err


@pytest.mark.parametrize(
    ("stacked", "assumed"),
    [((6, 4, 3), []), ((6, 3), ["'a' is"])],
)
def test_an_archive_says_what_the_dimensions_of_each_sample_are(
    stacked: tuple[int, ...], assumed: list[str], folder: Path
) -> None:
    """Samples of [4, 3] in a dimension of their own, and of [1, 3] along the first."""
    text = f"{HEADER} g (float[a, b] x) => (float[a, b] y) {{ y = Relu(x) }}"
    onnx.save(onnx.parser.parse_model(text), "open.onnx")
    np.savez(folder / "all.npz", x=np.ones(stacked, np.float32))
    argv = ["profile", "open.onnx", "--inputs", "all.npz", "--backend", "interpreter"]
    status, out, err = command(*argv)
    assert (status, "1 inputs were added" in out) == (0, True), out + err
    assert re.findall("^note: (.*) taken", err, re.MULTILINE) == assumed


@pytest.mark.parametrize(
    "argv",
    [
        ["profile", "net.onnx"],
        ["convert", "net.onnx", "--to", "f16"],
        ["quantize", "net.onnx", "--dynamic", "--report", "r.html"],
    ],
)
def test_samples_of_several_shapes_are_told_with_the_option_for_them(
    argv: list[str], folder: Path
) -> None:
    np.savez(folder / "samples4/2.npz", x=np.ones((5, 3), np.float32))
    words = [*argv, "--inputs", "samples4", "--backend", "interpreter"]
    status, _, err = command(*words)
    assert status == 1
    assert "2.npz: 'x': expected an array of type f32[4x3], got float32[5x3]" in err
    assert err.endswith("what dimensions are; --shape batch=1..64 leaves them open\n")
    status, out, err = command(*words, "--shape", "batch=1..64")
    assert status == 0, out + err


@pytest.mark.usefixtures("folder")
def test_dimensions_without_a_name() -> None:
    status, out, err = command("run", "unnamed.onnx", "--backend", "interpreter")
    assert status == 0
    assert err == (
        "note: 'batch', 'x[0]' are taken to be 1; --shape says otherwise: "
        "--shape batch=8, or batch=1..64 for a range\n"
    )
    options = ["--input", "x=x4.npy", "--backend", "interpreter"]
    status, out, err = command("run", "unnamed.onnx", *options)
    assert "f32[4x3]" in out
    assert err.startswith("note: 'batch' is taken to be 1")


@pytest.mark.usefixtures("folder")
def test_an_error_says_what_was_assumed() -> None:
    status, _, err = command("run", "unlike.onnx")
    assert status == 1
    first, *others = err.splitlines()
    said = "'a' is taken to be 1; --shape says otherwise: --shape a=8, or a=1..64 for a range"
    assert first == f"note: {said}"
    assert others[0].startswith("error: unlike.onnx")
    assert "taken to be" not in "".join(others)


def test_dimensions_without_a_name_are_given_as_they_are_called(folder: Path) -> None:
    text = f"{HEADER} g (float[?, ?, n] x) => (float[a, b, n] y) {{ y = Relu(x) }}"
    model = onnx.parser.parse_model(text.replace("?", "unk__1"))
    onnx.save(model, folder / "two.onnx")
    argv = ["dump", "two.onnx", "--stage", "graph", "--shape", "n=4", "--shape", "x[0]=1..8"]
    status, out, err = command(*argv, "--shape", "x[1]=3")
    assert (status, err) == (0, "")
    assert "f32[x_0 x 3 x 4]" in out
    status, _, err = command(*argv)
    assert (status, err) == (
        1,
        "error: --shape: expected all open dimensions of the input 'x', got 'x[0]'\n"
        "note: add --shape 'x[1]=1'\n",
    )
    status, _, err = command(*argv, "--shape", "x=1x3x4")
    assert (status, "'x[0]' is given twice" in err) == (1, True)


def test_what_is_left_open() -> None:
    infos = [
        ValueInfo("x", ElemKind.F32, ["n", None, 3]),
        ValueInfo("y", ElemKind.F32, ["n+m", "m", 2]),
        ValueInfo("z", ElemKind.F32, None),
    ]
    unsaid = Unsaid(infos, {}, {})
    assert unsaid.names == ["n", "m"]
    assert unsaid.said() == ({"x": (1, 1, 3)}, {"n": 1, "m": 1})
    assert unsaid.said(2) == ({"x": (2, 2, 3)}, {"n": 2, "m": 2})
    assert unsaid.summary == {"n": 1, "m": 1, "x[1]": 1}
    assert unsaid.options == "--shape n=1 --shape m=1 --shape x:1x1x3"
    seen = {"x": (5, 6, 3), "y": (1, 1, 1), "other": (1,)}
    unsaid = Unsaid(infos, {}, {"m": 4}, seen)
    assert unsaid.said() == ({"x": (5, 6, 3)}, {"n": 5, "m": 4})
    assert unsaid.summary == {}
    assert Unsaid(infos, {"x": (2, 2, 3)}, {}).said() == ({"x": (2, 2, 3)}, {"m": 1})
