"""What the command line refuses of files and options: one message each, exit code 1, no traceback."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser

from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.debugging.compare import Difference, compare

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x) => (float[N, 3] y) { y = Relu(x) }
"""
TWO = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, M] x) => (float[N, M] y) { y = Relu(x) }
"""
SUM = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x, float[N, 3] y) => (float[N, 3] z) { z = Add(x, y) }
"""
TEXT = """
module {
  placeholder %x : f32[2]
  placeholder %y : f32[2]
  function @main { %n = neg(%x) : f32[2]  save(%n, %y) }
}
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Models and inputs, right and wrong. Not to be changed."""
    folder = tmp_path_factory.mktemp("files")
    onnx.save(parser.parse_model(MODEL), str(folder / "net.onnx"))
    for name in ("net.glow", "net.txt", "net_.glow"):
        (folder / name).write_text(TEXT)
    (folder / "net.ir").write_text("irfunction @main {\n}\n")
    (folder / "binary.glow").write_bytes(b"\xff\xfe\x00module")
    (folder / "folder.glow").mkdir()
    arrays = {"x": np.zeros(2, np.float32), "z": np.zeros(2, np.float32)}
    np.save(folder / "x.npy", arrays["x"])
    np.save(folder / "wide.npy", np.zeros((1, 2), np.float32))
    onnx.save(parser.parse_model(SUM), str(folder / "sum.onnx"))
    onnx.save(parser.parse_model(TWO), str(folder / "two.onnx"))
    for rows in (0, 2, 3, 5):
        np.save(folder / f"rows{rows}.npy", np.zeros((rows, 3), np.float32))
    np.save(folder / "double.npy", np.zeros(2))
    np.savez(folder / "both.npz", **arrays)  # type: ignore[arg-type]
    (folder / "text.npy").write_text("1 2\n")
    (folder / "tensor.pb").write_bytes(b"no tensor")
    (folder / "objects.npy").write_bytes(b"\x93NUMPY")
    return folder


CASES = [
    ("run missing.glow", "missing.glow: cannot read the file"),
    ("run folder.glow", "folder.glow: cannot read the file"),
    ("run binary.glow", "binary.glow: expected text in UTF-8"),
    (
        "bench net.ir",
        "net.ir: expected a model, got the text of an IR function of glowpy\nnote: glowpy run",
    ),
    (
        "run net.onnx --sanitize --instrument-ir",
        "expected at most one of --instrument-ir and --sanitize",
    ),
    ("run net.glow --shape x=2", "the shapes of a .glow file are written in it"),
    ("run net.onnx --shape N", "expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got 'N'"),
    (
        "run net.onnx --shape N=2x",
        "expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got 'N=2x'",
    ),
    (
        "run net.onnx --shape N=٣",
        "expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got 'N=٣'",
    ),
    (
        "run net.onnx --shape N=",
        "expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got 'N='",
    ),
    (
        f"run net.onnx --shape N={'9' * 5000}",
        "expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8, got",
    ),
    ("bundle net.onnx --max-ram ٣", "expected a number of bytes such as 65536, 64K or 1M, got '٣'"),
    (
        "run net.onnx --shape N=3..2",
        "--shape: expected LOW..HIGH with bounds that ascend, got 'N=3..2'",
    ),
    ("run net.onnx --shape x=3..2x3", "expected LOW..HIGH with bounds that ascend, got 'x=3..2x3'"),
    ("run net.onnx --shape N=1..", "expected NAME=1x3x224x224, DIMENSION=1 or DIMENSION=1..8"),
    ("run sum.onnx --shape N=1..4 --input x=rows5.npy", "expected 'N' in 1..4, got 5"),
    ("run sum.onnx --shape N=1..4 --input x=rows0.npy", "expected 'N' in 1..4, got 0"),
    (
        "run sum.onnx --shape N=1..4 --input x=rows2.npy --input y=rows3.npy",
        "'y': expected the shape [N x 3], got [3 x 3]\nnote: other dimensions say that N = 2",
    ),
    ("run net.onnx --shape M=2", "no symbolic dimension 'M'"),
    ("run net.onnx --shape N=2 --shape N=3", "--shape: 'N' is given twice"),
    ("run net.onnx --shape x:2x3 --shape x=3x3", "--shape: 'x' is given twice"),
    (
        "run two.onnx --shape N=1..8 --shape M=3-N",
        "two.onnx: expected dimensions of at least 0, got f32[N x -N+3]",
    ),
    ("run net.onnx --shape z:2", "no input 'z'"),
    ("run net.onnx --shape N=1 --constants both.npz", "--constants: an ONNX file has its own"),
    ("run net.glow --function other", "other"),
    ("run net.glow --input x=missing.npy", "missing.npy: cannot read the file"),
    ("run net.glow --input x=objects.npy", "objects.npy: not a file of numbers"),
    (
        "run net.glow --input x=text.npy",
        "text.npy: not a file of numbers that numpy can read\nnote: ",
    ),
    ("run net.glow --input x=tensor.pb", "tensor.pb"),
    ("run net.glow --input x=both.npz", "expected one array, got an archive of several"),
    ("run net.glow --input x.npy", "expected an archive of arrays (.npz), got one array"),
    ("run net.glow --input z=x.npy", "expected one of the inputs x, got 'z'"),
    ("run net.glow --input both.npz", "expected one of the inputs x, got 'z'"),
    ("run net.glow --input x=wide.npy", "input 'x': expected f32[2], got float32[1x2]"),
    ("run net.glow --input x=double.npy", "input 'x': expected f32[2], got float64[2]"),
    ("run net.glow --output net.txt", "net.txt"),
    ("run net.glow --check-with reference", "expected an ONNX file to check with another runtime"),
    ("run net.glow --check-with rival", "'rival' is not one of"),
    ("run net.glow --repeat 0", "--repeat"),
    ("run net.glow --backend abacus", "abacus"),
    ("bundle net.glow -o out --threads 2", "--threads: a bundle begins no threads"),
    ("bundle net.glow net.glow -o out", "expected models with different names, got 'net' twice"),
    ("bundle net.glow -o net.txt", "net.txt"),
    ("verify missing", "missing"),
    ("dump net.glow --stage soup", "'soup' is not one of"),
    ("opt net.glow -p soup", "soup"),
]


@pytest.mark.parametrize(("command", "message"), CASES, ids=[command[:60] for command, _ in CASES])
def test_refusal(command: str, message: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    before = sorted(folder.iterdir())
    out, err = io.StringIO(), io.StringIO()
    assert run(command.split(), io.StringIO(), out, err) == 1, err.getvalue()
    assert out.getvalue() == ""
    assert "error: " in err.getvalue()
    assert "Traceback" not in err.getvalue()
    assert message in err.getvalue()
    assert sorted(folder.iterdir()) == before


def test_usage_errors_point_to_the_help_of_the_verb() -> None:
    err = io.StringIO()
    assert run(["dump", "--soup"], io.StringIO(), io.StringIO(), err) == 1
    assert err.getvalue().endswith("\nnote: see glowpy dump --help\n")
    err = io.StringIO()
    assert run(["run", "missing.onnx"], io.StringIO(), io.StringIO(), err) == 1
    assert "--help" not in err.getvalue()


ONE = np.array([1, -2, np.inf, np.nan], np.float32)
NEAR = np.array([1.001, -2, np.inf, np.nan], np.float32)


@pytest.mark.parametrize(
    ("got", "within", "absolute"),
    [
        (ONE, True, 0),
        (NEAR, True, 1e-3),
        (ONE.astype(np.float64), False, np.inf),
        (ONE[None], False, np.inf),
        (np.array([1, 2, np.inf, np.nan], np.float32), False, 4),
        (np.array([1, -2, -np.inf, np.nan], np.float32), False, np.inf),
        (np.array([1, -2, np.inf, 0], np.float32), False, np.inf),
        (np.array([np.nan, -2, np.inf, np.nan], np.float32), False, np.inf),
    ],
    ids=["equal", "near", "kind", "shape", "far", "infinity", "a number for NaN", "NaN"],
)
def test_comparison(got: Array, within: bool, absolute: float) -> None:
    (difference,) = compare({"y": got, "more": got}, {"y": ONE}, rtol=1e-2, atol=0)
    assert (difference.name, difference.within) == ("y", within)
    assert difference.absolute == pytest.approx(absolute, rel=1e-3)


def test_floats_may_be_off_by_a_share_of_the_largest() -> None:
    want, got = np.array([1e4, 0.5, np.inf], np.float32), np.array([1e4, 1, np.inf], np.float32)
    for share, within in ((1e-4, True), (1e-5, False)):
        assert compare({"y": got}, {"y": want}, 1e-3, 1e-5, share)[0].within is within
    whole = {"y": np.array([10000, 3])}, {"y": np.array([10000, 4])}
    assert not compare(*whole, 1e-3, 1e-5, 1e-3)[0].within


def test_comparison_of_a_missing_output_and_of_nothing() -> None:
    empty = np.zeros((0, 3), np.float32)
    missing = Difference("y", np.inf, np.inf, within=False, decibels=-np.inf)
    assert compare({}, {"y": ONE}, 1, 1) == [missing]
    assert compare({"y": empty}, {"y": empty}, 0, 0) == [
        Difference("y", 0, 0, within=True, decibels=np.inf)
    ]
