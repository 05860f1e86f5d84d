"""`glowpy profile`: where inputs come from, what it writes and says."""

from __future__ import annotations

import importlib
import io
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from glowpy import quantization
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.importer import load

ONE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[N, 3] x) => (float[N, 3] y) { s = Mul(x, x)  y = Relu(s) }
"""
TWO = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2] a, float[1, 2] b) => (float[1, 2] y) { y = Add(a, b) }
"""
Sample = dict[str, Array]


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, text in (("one.onnx", ONE), ("two.onnx", TWO)):
        onnx.save(parser.parse_model(text), name)
    return tmp_path


def profiled(*argv: str, status: int = 0) -> tuple[str, str]:
    """What is printed on standard output and on standard error."""
    out, err = io.StringIO(), io.StringIO()
    got = run(["profile", *argv], io.StringIO(), out, err)
    assert got == status, out.getvalue() + err.getvalue()
    return out.getvalue(), err.getvalue()


def figures(*argv: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(profiled(*argv, "--json")[0])
    return report


def one_samples(count: int) -> list[Sample]:
    rng = np.random.default_rng(0)
    return [{"x": rng.normal(size=(2, 3)).astype(np.float32)} for _ in range(count)]


def two_samples(count: int) -> list[Sample]:
    rng = np.random.default_rng(0)
    draw = rng.normal
    return [
        {"a": draw(size=2).astype(np.float32), "b": draw(size=(1, 2)).astype(np.float32)}
        for _ in range(count)
    ]


def right_text(model: str, inputs: list[Sample], **dims: int) -> str:
    return quantization.profile(load(model, dims=dims), inputs).text()


def test_folder_of_archives(folder: Path) -> None:
    (folder / "in").mkdir()
    inputs = two_samples(3)
    for index, sample in enumerate(inputs):
        np.savez(folder / "in" / f"{index}.npz", allow_pickle=False, **sample)
    report = figures("two.onnx", "--inputs", "in", "-o", "p.yaml")
    assert (report["inputs"], report["added"], report["seen_before"]) == (3, 3, 0)
    assert 1e7 < report["peak_bytes_after_first"] <= report["peak_bytes"]
    assert (report["file"], report["not_finite"]) == ("p.yaml", [])
    assert Path("p.yaml").read_text() == right_text("two.onnx", inputs)


def test_folder_of_arrays_of_a_model_with_one_input(folder: Path) -> None:
    (folder / "in").mkdir()
    inputs = one_samples(2)
    np.save(folder / "in" / "a.npy", inputs[0]["x"])
    tensor = numpy_helper.from_array(inputs[1]["x"])
    (folder / "in" / "b.pb").write_bytes(tensor.SerializeToString())
    (folder / "in" / ".hidden").write_text("not looked at")
    profiled("one.onnx", "--inputs", "in", "--shape", "N=2")
    assert Path("profile.yaml").read_text() == right_text("one.onnx", inputs, N=2)


def test_folder_of_folders(folder: Path) -> None:
    inputs = two_samples(2)
    for index, sample in enumerate(inputs):
        part = folder / "in" / str(index)
        part.mkdir(parents=True)
        for name, array in sample.items():
            np.save(part / f"{name}.npy", array)
        np.save(part / "expected_output.npy", np.zeros(7))
    profiled("two.onnx", "--inputs", "in")
    assert Path("profile.yaml").read_text() == right_text("two.onnx", inputs)


@pytest.mark.parametrize("join", [np.stack, np.concatenate])
def test_archive_of_all_inputs(folder: Path, join: Any) -> None:
    inputs = one_samples(4)
    np.savez(folder / "all.npz", x=join([sample["x"] for sample in inputs]))
    profiled("one.onnx", "--inputs", "all.npz", "--shape", "N=2")
    assert Path("profile.yaml").read_text() == right_text("one.onnx", inputs, N=2)


def test_archive_of_one_input(folder: Path) -> None:
    inputs = two_samples(1)
    np.savez(folder / "only.npz", allow_pickle=False, **inputs[0])
    profiled("two.onnx", "--inputs", "only.npz")
    assert Path("profile.yaml").read_text() == right_text("two.onnx", inputs)


def test_inputs_of_several_shapes(folder: Path) -> None:
    (folder / "in").mkdir()
    rows = [np.full((count, 3), count, np.float32) for count in (1, 5, 2)]
    for index, x in enumerate(rows):
        np.savez(folder / "in" / f"{index}.npz", x=x)
    profiled("one.onnx", "--inputs", "in", "--shape", "N=1..5")
    values = quantization.Profile.load("profile.yaml").values.values()
    apart = [quantization.profile(load("one.onnx", dims={"N": len(x)}), [{"x": x}]) for x in rows]
    for index, value in enumerate(values):
        parts = [list(profile.values.values())[index].statistics for profile in apart]
        merged = parts[0].merged(parts[1]).merged(parts[2])
        assert (value.statistics.low, value.statistics.high) == (merged.low, merged.high)
        np.testing.assert_array_equal(value.statistics.histogram.counts, merged.histogram.counts)
    profiled("one.onnx", "--inputs", "in", "--shape", "N=1..5", "--resume")
    np.savez(folder / "all.npz", x=np.concatenate(rows))
    out, err = profiled(
        *("one.onnx", "--inputs", "all.npz", "--shape", "N=1..5", "--force"), status=1
    )
    expected = "input 'x': expected a constant shape for arrays one after the other, got f32[N x 3]"
    assert f"all.npz: {expected}" in out + err


READERS = """
import numpy as np
from onnxruntime.quantization import CalibrationDataReader

rng = np.random.default_rng(0)
inputs = [{"x": rng.normal(size=(2, 3)).astype(np.float32)} for _ in range(4)]


class Reader(CalibrationDataReader):
    def __init__(self):
        self.rest = iter(inputs)

    def get_next(self):
        return next(self.rest, None)


class Holder:
    reader = Reader()


def generate():
    yield from inputs


def broken():
    return {}["x"]


def late():
    yield from inputs
    raise ValueError("later")


number = 5
"""


@pytest.mark.parametrize("name", ["inputs", "Reader", "Holder.reader", "generate"])
def test_module(folder: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    (folder / "readers.py").write_text(READERS)
    monkeypatch.delitem(sys.modules, "readers", raising=False)
    importlib.import_module("onnxruntime.quantization")  # which makes paths of its own
    path = list(sys.path)
    profiled("one.onnx", "--inputs", f"readers:{name}", "--shape", "N=2")
    assert Path("profile.yaml").read_text() == right_text("one.onnx", one_samples(4), N=2)
    assert sys.path == path


def test_text_is_profiled_as_well(folder: Path) -> None:
    inputs = two_samples(2)
    text = str(load("two.onnx"))
    (folder / "two.glow").write_text(text)
    a, b = (np.stack([sample[name] for sample in inputs]) for name in "ab")
    np.savez(folder / "all.npz", a=a, b=b)
    out, _ = profiled("two.glow", "--inputs", "all.npz", "--backend", "interpreter")
    assert out.startswith("profile.yaml: 3 values over 2 inputs\n")


def test_resume_and_merge(folder: Path) -> None:
    inputs = one_samples(6)
    for name, part in (("a", inputs[:4]), ("b", inputs[4:])):
        np.savez(folder / f"{name}.npz", x=np.stack([sample["x"] for sample in part]))
        profiled("one.onnx", "--inputs", f"{name}.npz", "-o", f"{name}.yaml", "--shape", "N=2")
    whole = right_text("one.onnx", inputs, N=2)
    report = figures("--merge", "a.yaml", "b.yaml", "-o", "both.yaml")
    assert report == {"file": "both.yaml", "inputs": 6, "values": 3}
    assert Path("both.yaml").read_text() == whole
    np.savez(folder / "c.npz", x=np.stack([sample["x"] for sample in inputs[2:]]))
    report = figures("one.onnx", "--inputs", "c.npz", "-o", "a.yaml", "--resume", "--shape", "N=2")
    assert (report["inputs"], report["added"], report["seen_before"]) == (6, 2, 2)
    assert Path("a.yaml").read_text() == whole
    out, _ = profiled("--merge", "a.yaml", "both.yaml", "b.yaml", "-o", "both.yaml")
    assert out == "both.yaml: 3 values over 6 inputs\n"
    assert Path("both.yaml").read_text() == whole


def test_keeps_a_profile_that_is_there(folder: Path) -> None:
    argv = ["one.onnx", "--inputs", "all.npz", "--shape", "N=2"]
    for number in (1, 2):
        np.savez(folder / "all.npz", x=np.full((1, 2, 3), number, np.float32))
        text = Path("profile.yaml").read_text() if number == 2 else ""
        if number == 2:
            _, err = profiled(*argv, status=1)
            assert err == (
                "error: profile.yaml: there is a file already\n"
                "note: --resume adds inputs to it, --force replaces it\n"
            )
            assert Path("profile.yaml").read_text() == text
            _, err = profiled("--merge", "profile.yaml", "profile.yaml", "-o", "one.onnx", status=1)
            assert err.endswith("already\nnote: --force replaces it\n")
            assert "leave one out" in profiled(*argv, "--resume", "--force", status=1)[1]
        profiled(*argv, *(["--force"] if number == 2 else []))
    assert Path("profile.yaml").read_text() != text
    Path("profile.yaml").write_text("")
    profiled(*argv)


def test_warns_of_ranges_that_grow_and_of_nans(folder: Path) -> None:
    inputs = np.ones((20, 2, 3), np.float32)
    inputs += np.arange(20, dtype=np.float32).reshape(20, 1, 1) / 1000
    inputs[19] = 2
    inputs[3, 0, 0] = np.nan
    np.savez(folder / "all.npz", x=inputs)
    out, err = profiled("one.onnx", "--inputs", "all.npz", "--shape", "N=2")
    assert out.startswith("profile.yaml: 3 values over 20 inputs\n20 inputs were added in ")
    assert re.search(r"^memory was at most [0-9,]+ MB, [0-9,]+ MB of it after the first", out, re.M)
    assert err == (
        "warning: 3 values had NaNs or infinities, which do not count (%x, %s, %y)\n"
        "warning: the ranges of 3 values grew by more than 5% in the last 10% of the inputs: more are"
        " needed (%x, %s, %y)\n"
    )


def test_nothing_is_written_where_an_input_does_not_fit(folder: Path) -> None:
    (folder / "in").mkdir()
    np.savez(folder / "in" / "0.npz", x=np.ones((2, 3), np.float32))
    np.savez(folder / "in" / "1.npz", x=np.ones((2, 4), np.float32))
    _, err = profiled("one.onnx", "--inputs", "in", "--shape", "N=2", status=1)
    place = Path("in") / "1.npz"
    assert err.startswith(
        f"error: {place}: 'x': expected an array of type f32[2x3], got float32[2x4]"
    )
    assert not Path("profile.yaml").exists()


def _arrange(folder: Path) -> None:
    """What the rows below read."""
    for name in ("empty", "odd", "single"):
        (folder / name).mkdir()
    (folder / "odd" / "x.jpg").write_text("a picture")
    np.save(folder / "single" / "0.npy", np.ones(2, np.float32))
    two = np.ones((2, 3), np.float32)
    np.savez(folder / "short.npz", a=np.ones((4, 2), np.float32), b=np.ones((3, 1, 2), np.float32))
    np.savez(folder / "misfit.npz", x=np.ones((5, 7), np.float32))
    np.savez(folder / "good.npz", x=two)
    (folder / "readers.py").write_text(READERS)
    profiled("one.onnx", "--inputs", "good.npz", "--shape", "N=2", "-o", "one.yaml")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ("one.onnx", "expected inputs to profile the model with"),
        ("one.onnx two.onnx", "expected one model, got 2 files"),
        ("one.onnx --inputs empty", "expected at least one input to profile with, got none"),
        ("one.onnx --inputs odd", f"odd{os.sep}x.jpg: expected .npz, .npy or .pb files"),
        ("two.onnx --inputs single", "expected arrays for the inputs 'a', 'b', got one array"),
        ("two.onnx --inputs short.npz", "expected as many of each input, got 4 of 'a', 3 of 'b'"),
        (
            "one.onnx --inputs misfit.npz",
            "input 'x': expected arrays of f32[2x3] one after the other",
        ),
        ("two.onnx --inputs good.npz", "expected the inputs 'a', 'b', got 'x'"),
        (
            "one.onnx --inputs none",
            "expected a folder, a .npz file, or module:name, got 'none': no such",
        ),
        ("one.onnx --inputs one.onnx", "got 'one.onnx': it is none of them"),
        ("one.onnx --inputs none.npz", "none.npz: cannot read the file"),
        (
            "one.onnx --inputs nowhere:reader",
            "error: --inputs: there is no module 'nowhere'\nnote: the current",
        ),
        (
            "one.onnx --inputs readers:broken",
            f"{os.sep}readers.py:26: --inputs: broken raised KeyError: 'x'",
        ),
        (
            "one.onnx --inputs readers:late",
            f"{os.sep}readers.py:31: --inputs: late raised ValueError: later",
        ),
        ("one.onnx --inputs readers:other", "the module 'readers' has no 'other'"),
        ("one.onnx --inputs readers:number", "expected an iterable of dicts"),
        ("two.onnx --inputs short.npz -o one.yaml --resume", "expected as many of each input"),
        ("--merge one.yaml one.onnx", "one.onnx: not a YAML file"),
        ("--merge one.yaml --resume", "--merge reads profiles only, got --resume"),
        ("--merge one.yaml --inputs in", "--merge reads profiles only, got --inputs"),
        ("one.onnx --inputs good.npz -o no/p.yaml", "cannot write there: no folder 'no'"),
    ],
)
def test_refusals(folder: Path, monkeypatch: pytest.MonkeyPatch, argv: str, message: str) -> None:
    _arrange(folder)
    monkeypatch.delitem(sys.modules, "readers", raising=False)
    words = argv.split()
    words += ["--shape", "N=2"] if words[0] == "one.onnx" else []
    out, err = profiled(*words, status=1)
    assert not out
    assert message in err
    assert err.startswith("error: ")


def test_a_profile_of_another_model_is_not_resumed(folder: Path) -> None:
    _arrange(folder)
    np.savez(folder / "two.npz", allow_pickle=False, **two_samples(1)[0])
    before = Path("one.yaml").read_text()
    _, err = profiled(*["two.onnx", "--inputs", "two.npz", "-o", "one.yaml", "--resume"], status=1)
    assert (
        "error: one.yaml: the profile is not of the model: input 'x': expected f32[2x3], got none"
        in err
    )
    assert Path("one.yaml").read_text() == before
    profiled(*["two.onnx", "--inputs", "two.npz", "-o", "two.yaml"])
    _, err = profiled(*["--merge", "one.yaml", "two.yaml"], status=1)
    assert "error: two.yaml: the profile is not of the same model as the other: input 'x'" in err


def test_what_ctrl_c_ends_is_kept(folder: Path) -> None:
    (folder / "stopped.py").write_text(
        f"{READERS}\ndef stop():\n    yield from inputs[:2]\n    raise KeyboardInterrupt\n"
    )
    _, err = profiled("one.onnx", "--inputs", "stopped:stop", "--shape", "N=2", status=130)
    assert "profile.yaml has 2 inputs more; --resume adds others" in err
    assert Path("profile.yaml").read_text() == right_text("one.onnx", one_samples(2), N=2)
