"""Elements of inputs that --value says, in every verb: what they choose is known while compiling."""

import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy.cli.main import run
from glowpy.cli.values import parse_values
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.declared import ValueInfo
from glowpy.support.errors import UserError

MODELS = {
    "rate": """net (float[N] x, int64 sr) => (float y) {
        k = Constant <value = int64 {16}> ()
        c = Equal (sr, k)
        y = If (c) <
            then_branch = t () => (float s) { s = ReduceSum <keepdims = 0> (x) },
            else_branch = e () => (float p) {
                w = Constant <value_floats = [1.0, 2.0, 3.0]> ()
                z = Mul (x, w)
                p = ReduceSum <keepdims = 0> (z)
            }
        >
    }""",
    "unlike": """net (float[4] x, bool whole) => (float[M] y) {
        one = Constant <value_ints = [1]> ()
        y = If (whole) <
            then_branch = t () => (float[4] a) { a = Identity (x) },
            else_branch = e () => (float[1] b) { b = ReduceSum (x) }
        >
    }""",
    "shape": "net (float[2, 6] x, int64[D] to) => (float[A, B] y) { y = Reshape (x, to) }",
}
INFOS = [
    ValueInfo("scalar", ElemKind.I64, []),
    ValueInfo("row", ElemKind.I32, ["n"]),
    ValueInfo("grid", ElemKind.F32, [2, 2]),
    ValueInfo("rows", ElemKind.F32, [None, 2]),
    ValueInfo("flag", ElemKind.BOOL, []),
    ValueInfo("any", ElemKind.U8, None),
    ValueInfo("half", ElemKind.BF16, [1]),
]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in MODELS.items():
        header = '<ir_version: 8, opset_import: ["": 16]>'
        onnx.save(onnx.parser.parse_model(f"{header} {text}"), f"{name}.onnx")
    np.save("x.npy", np.arange(4, dtype=np.float32))
    return tmp_path


def command(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(argv, io.StringIO(), out, err), out.getvalue(), err.getvalue()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("scalar=-16000", np.array(-16000)),
        ("row=1,3, 224", np.array([1, 3, 224], np.int32)),
        ("grid=1,.5,-inf,1e3", np.array([[1, 0.5], [-np.inf, 1000]], np.float32)),
        ("rows=1,2,3,4", np.array([[1, 2], [3, 4]], np.float32)),
        ("flag=True", np.array(True)),
        ("flag=0", np.array(False)),
        ("any=255", np.array(255, np.uint8)),
        ("any=1,2", np.array([1, 2], np.uint8)),
        ("half=0.1", np.array([0.1], ElemKind.BF16.dtype)),
    ],
)
def test_numbers_are_in_the_type_and_shape_of_their_input(text: str, expected: Array) -> None:
    (array,) = parse_values([text], INFOS).values()
    assert (array.dtype, array.shape) == (expected.dtype, expected.shape)
    np.testing.assert_array_equal(array, expected)


def test_files_hold_arrays_of_any_shape(tmp_path: Path) -> None:
    file = tmp_path / "a.npy"
    np.save(file, np.array([7], np.int32))
    np.testing.assert_array_equal(parse_values([f"row={file}"], INFOS)["row"], [7])
    with pytest.raises(UserError, match="'scalar' of int64, got int32"):
        parse_values([f"scalar={file}"], INFOS)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (["scalar"], "expected INPUT=NUMBERS or INPUT=FILE.npy, got 'scalar'"),
        (["scalar="], "expected INPUT=NUMBERS"),
        (["none=1"], "expected one of the inputs scalar, row, .*, got 'none'"),
        (["scalar=1", "scalar=1"], "'scalar' is given twice"),
        (["scalar=1.5"], "expected numbers of int64 for 'scalar', got '1.5'"),
        (["scalar=9223372036854775808"], "expected numbers of int64"),
        (["any=256"], "expected numbers of uint8 for 'any', got '256'"),
        (["any=-1"], "expected numbers of uint8"),
        (["flag=2"], "expected numbers of bool"),
        (["grid=x"], "expected numbers of float32 for 'grid', got 'x'"),
        (["scalar=1,2"], r"expected 'scalar' of shape \[\], got 2 numbers"),
        (["rows=1,2,3"], r"expected 'rows' of shape \[\?x2\], got 3 numbers"),
    ],
)
def test_what_is_no_value_is_told(texts: list[str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        parse_values(texts, INFOS)


@pytest.mark.parametrize(
    "argv",
    [
        ["run", "--backend", "interpreter", "--check-with", "reference"],
        ["run", "--input", "x=x.npy", "--backend", "interpreter"],
        ["dump", "--stage", "lowered", "--backend", "interpreter"],
        ["check", "--backend", "interpreter"],
        ["export", "-o", "e.onnx"],
        ["convert", "--to", "f16", "--backend", "interpreter"],
        ["quantize", "--estimate", "--backend", "interpreter"],
        ["profile", "--inputs", "samples.npz", "--backend", "interpreter", "-o", "p.yaml"],
        ["bench", "--seconds", "0.01", "--repeat", "1"],
    ],
    ids=" ".join,
)
def test_every_verb_with_shapes_takes_values(folder: Path, argv: list[str]) -> None:
    np.savez("samples.npz", x=np.ones(4, np.float32), sr=np.array(16))
    status, _, err = command(argv[0], "rate.onnx", *argv[1:], "--shape", "N=4", "--value", "sr=16")
    assert status == 0, err
    status, _, err = command("dump", "rate.onnx", "--shape", "N=4")
    assert status == 1
    assert "--value sr=..." in err


def test_bundles_are_made_for_values(folder: Path) -> None:
    arguments = ("rate.onnx", "--shape", "N=4", "--value", "sr=16")
    status, _, err = command("bundle", *arguments, "--emit", "shared", "-o", "b")
    assert status == 0, err
    assert command("bundle", *arguments, "--check", "b")[0] == 0
    loaded = glowpy.load_bundle("b")
    assert loaded({"x": np.arange(4, dtype=np.float32), "sr": np.array(16)})["y"] == 6


@pytest.mark.parametrize(
    ("model", "value", "shape"),
    [
        ("unlike", "whole=true", [4]),
        ("unlike", "whole=false", [1]),
        ("shape", "to=3,4", [3, 4]),
        ("shape", "to=-1,2", [6, 2]),
    ],
)
def test_values_decide_types(folder: Path, model: str, value: str, shape: list[int]) -> None:
    status, out, err = command(
        "run", f"{model}.onnx", "--value", value, "--backend", "interpreter", "--json"
    )
    assert status == 0, err
    (output,) = json.loads(out)["outputs"]
    assert output["type"] == f"f32[{'x'.join(map(str, shape))}]"


def test_values_are_not_for_text(folder: Path) -> None:
    command("dump", "rate.onnx", "--shape", "N=4", "--value", "sr=16", "-o", "net.glow")
    status, _, err = command("run", "net.glow", "--value", "sr=16", "--backend", "interpreter")
    assert status == 1
    assert "leave out --value" in err


def test_an_input_is_given_once(folder: Path) -> None:
    np.save("sr.npy", np.array(16))
    given = ("--value", "sr=16", "--input", "sr=sr.npy", "--backend", "interpreter")
    status, _, err = command("run", "rate.onnx", "--shape", "N=4", *given)
    assert status == 1
    assert "'sr' is given by --value as well" in err


def test_what_is_prepared_may_be_for_values(folder: Path) -> None:
    status, out, err = command(
        "run", "rate.onnx", "--prepare", "N=4..8", "--value", "sr=16", "--backend", "interpreter"
    )
    assert status == 0, err
    assert out
