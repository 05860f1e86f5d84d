"""The bench tool's arithmetic, and one run of it on a small model."""

import json
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import parser
from onnx.reference import ReferenceEvaluator

from glowpy.benchmark.peers import Contestant
from tools import (
    bench,
    bench_decoders,
    bench_extents,
    bench_first,
    bench_layers,
    bench_opening,
    bench_threads,
)
from tools.bench import main, parse, table
from tools.bench_contestants import CONTESTANTS, Kind, Setting, prepare
from tools.bench_processors import shared_cache
from tools.bench_rounds import interleaved, time_once
from tools.bench_rows import Row, ThreadsRow, geometric_mean
from tools.bench_subjects import Subject, prepared
from tools.zoo import NAMES, batched

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[2, 3] x) => (float[2, 3] y) { s = Add(x, x)  y = Softmax(s) }
"""


RESHAPED = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 3] x) => (float[1, 6] y)
<int64[1] line = {6}, int64[2] flat = {1, 6}, float[3, 2] w = {1, 2, 3, 4, 5, 6}>
{ scale = Reshape(w, line)  rows = Reshape(x, flat)  y = Mul(rows, scale) }
"""


class FakeClock:
    """Time that passes only inside of runs."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def contestant(self, name: str, seconds: list[float]) -> Contestant:
        """Takes these times in turn."""
        turns = iter(seconds * 1000)

        def run() -> None:
            self.now += next(turns)

        return Contestant(name, run, list)


@pytest.fixture(autouse=True)
def keep_affinity() -> Iterator[None]:
    """Tools stay on one processor; other tests may have all of them."""
    before = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    yield
    if before is not None:
        os.sched_setaffinity(0, before)


def test_time_once_is_the_median() -> None:
    clock = FakeClock()
    assert time_once(clock.contestant("a", [1, 9, 2]).run, 0, clock) == 2


def test_interleaved_gives_every_round_of_everybody() -> None:
    clock = FakeClock()
    samples = interleaved(
        [clock.contestant("a", [0.001]), clock.contestant("b", [0.003])], 4, 0, clock
    )
    assert samples.keys() == {"a", "b"}
    assert samples["a"] == pytest.approx([1] * 4)
    assert samples["b"] == pytest.approx([3] * 4)


ROWS = [
    Row("resnet50", "1x3", rounds={"glowpy": [2, 1, 90], "onnxruntime": [4, 4, 90]}),
    Row("bert", "1x4", rounds={"glowpy": [8], "onnxruntime": [4], "ncnn": [16]}),
    Row("lstm", missing={"glowpy": "wrong by 1"}, rounds={"onnxruntime": [3]}),
]


def test_ratio_is_below_one_where_glowpy_is_faster() -> None:
    first, second, third = ROWS
    assert first.milliseconds == {"glowpy": 2, "onnxruntime": 4}
    assert first.ratio("onnxruntime") == first.ratio("fastest") == 0.5
    assert first.ratio("openvino") is None
    assert (second.ratio("ncnn"), second.ratio("fastest")) == (0.5, 2)
    assert third.ratio("fastest") is None
    assert geometric_mean(ROWS, "onnxruntime") == pytest.approx(1)
    assert geometric_mean(ROWS, "openvino") is None
    heads, cells = table(ROWS, ["onnxruntime", "openvino"])
    assert len(cells) == 4
    assert all(len(row) == len(heads) for row in cells)


def test_a_wrong_network_gets_no_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, row = tmp_path / "small.onnx", Row("small")
    onnx.save(parser.parse_model(MODEL), str(path))
    with prepared(str(path), tmp_path, small=False, keep=True) as subject:
        names = ["glowpy", "onnxruntime"]
        assert len(prepare(subject, names, Setting(), row)) == 2
        assert row.missing == {}
        assert row.least["glowpy"] > 0
        wrong = Subject("small", path, subject.inputs, [2 + subject.expected[0]])
        assert prepare(wrong, names, Setting(), row) == []
        assert row.missing == {"glowpy": "wrong by 2", "onnxruntime": "wrong by 2"}

        def broken(subject: Subject, setting: Setting) -> Contestant:
            raise ZeroDivisionError("too small")

        monkeypatch.setitem(CONTESTANTS, "glowpy", Kind(broken))
        (contestant,) = prepare(subject, names, Setting(), row)
        assert contestant.name == "onnxruntime"
        assert row.missing["glowpy"] == "ZeroDivisionError('too small')"


def test_networks_that_are_kept_are_taken_again(tmp_path: Path) -> None:
    with prepared("squeezenet", tmp_path, small=False, keep=True, batch=2) as first:
        made = first.path.stat().st_mtime_ns
    with prepared("squeezenet", tmp_path, small=False, keep=True, batch=2) as second:
        assert second.path.stat().st_mtime_ns == made
        assert second.name == first.name
        assert second.inputs.keys() == first.inputs.keys()
        for before, after in zip(
            (*first.inputs.values(), *first.expected),
            (*second.inputs.values(), *second.expected),
            strict=True,
        ):
            assert np.array_equal(before, after)


@pytest.mark.parametrize("name", ["lstm", pytest.param("gpt2 prefill", marks=pytest.mark.slow)])
def test_exports_are_written_and_timed(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    pytest.importorskip("torch")
    options = ["--models", name, "--small", "--against", "onnxruntime", "--rounds", "2"]
    (row,) = bench.measure(parse([*options, "--seconds", "0", "--keep", str(tmp_path)]))
    assert not row.missing
    assert row.rounds.keys() == {"glowpy", "onnxruntime"}
    (file,) = tmp_path.rglob("*.onnx")
    dims = [d for i in onnx.load(file).graph.input for d in i.type.tensor_type.shape.dim]
    assert all(dim.HasField("dim_value") for dim in dims)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_what_an_export_needs_is_said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "tools.exports.catalogue", None)
    assert main(["--models", "mobilenetv2", "--against", "onnxruntime"]) == 1
    error = capsys.readouterr().err
    assert "'mobilenetv2' is exported by PyTorch" in error
    assert "pip install '.[bench,models]'" in error


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_a_small_model(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(parser.parse_model(MODEL), str(path))
    options = ["--models", str(path), "--against", "onnxruntime", "--rounds", "2", "--seconds", "0"]
    assert main([*options, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    (row,) = report["rows"]
    assert row["model"] == "small"
    assert report["milliseconds"]["small"].keys() == {"glowpy", "onnxruntime"}
    assert all(len(rounds) == 2 and np.min(rounds) > 0 for rounds in row["rounds"].values())
    assert max(row["errors"].values()) < 1e-6
    assert report["machine"]["cores"] == str(os.cpu_count())


def test_threads_and_sessions(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "small.onnx"
    onnx.save(parser.parse_model(MODEL), str(path))
    options = "--models", str(path), "--rounds", "1", "--seconds", "0"
    assert bench_threads.main([*options]) == 0
    (head,) = [line for line in capsys.readouterr().out.splitlines() if "1 thread ms" in line]
    assert all(name in head for name in ThreadsRow.HEADS)
    assert bench_threads.main([*options, "--json"]) == 0
    figures = json.loads(capsys.readouterr().out)
    assert not figures["note"] or "has just written at" in figures["note"]
    (row,) = [ThreadsRow(**row) for row in figures["rows"]]
    assert row.same_bits
    assert min(row.one, row.two, row.speedup, row.apart, row.together, row.gain) > 0
    assert len(row.cells) == len(ThreadsRow.HEADS)


def test_layers_of_a_small_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(bench_layers, "_LEAST_ROOF", float("inf"))
    path = tmp_path / "small.onnx"
    onnx.save(parser.parse_model(MODEL), str(path))
    options = ["--models", str(path), "--rounds", "1", "--seconds", "0"]
    assert bench_layers.main([*options, "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["rows"]
    assert row["model"] == "small"
    assert row["milliseconds"] > 0
    assert sum(layer["share"] for layer in row["layers"]) == pytest.approx(1)
    assert bench_layers.main(options) == 0
    assert "softmax" in capsys.readouterr().out


@pytest.mark.parametrize("bits", ["4", "8"])
def test_decoders(bits: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Both runtimes compute the same, with and without rounding; several tokens and one."""
    options = ["--small", "--bits", bits, "--past", "5", "--new", "1,3"]
    options += ["--rounds", "1", "--seconds", "0"]
    assert bench_decoders.main([*options]) == 0
    assert "glowpy 8 bits" in capsys.readouterr().out
    assert bench_decoders.main([*options, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [(row["new"], row["past"]) for row in rows] == [(1, 5), (3, 0)]
    assert all(min(row["milliseconds"].values()) > 0 for row in rows)
    assert max(row["error"]["f32"] for row in rows) < 1e-5


def test_the_largest_shared_cache_is_found(tmp_path: Path) -> None:
    for index, (level, size, users) in enumerate(
        [(1, "32K", "3"), (2, "1M", "2-3"), (3, "8M", "0-4,7"), (3, "8M", ""), (4, "", "3,8")]
    ):
        folder = tmp_path / "cpu3" / "cache" / f"index{index}"
        folder.mkdir(parents=True)
        for name, text in (("level", level), ("size", size), ("shared_cpu_list", users)):
            if text:  # systems leave out what they do not know
                (folder / name).write_text(f"{text}\n")
    largest = {second: shared_cache(3, second, tmp_path) for second in (2, 4, 5, 7, 8)}
    assert largest == {2: "L3 of 8M", 4: "L3 of 8M", 5: "", 7: "L3 of 8M", 8: "L4"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--cpu", "x86-64-v3", "--write", "speed.md"], "--write: expected no --cpu"),
        (["--batch", "8", "--write", "speed.md"], "--write: expected no --batch"),
        (["--batch", "8", "--models", "bert"], "--batch: expected light networks, got bert"),
        (["--int8", "--models", "bert"], "--int8: expected light networks, got bert"),
        (["--threads", "2", "--clock", "cpu"], "--threads: expected the wall's clock"),
    ],
)
def test_what_goes_together_is_checked(
    arguments: list[str],
    message: str,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SystemExit):
        parse(arguments)
    assert message in capsys.readouterr().err


def test_light_networks_take_batches() -> None:
    """Each row of a batch is what the image by itself gives."""
    reshaped = parser.parse_model(RESHAPED)
    assert batched(reshaped, 1) is reshaped
    several = batched(reshaped, 3)
    assert [dim.dim_value for dim in several.graph.output[0].type.tensor_type.shape.dim] == [3, 6]
    x = np.arange(18, dtype=np.float32).reshape(3, 2, 3)
    (rows,) = ReferenceEvaluator(several).run(None, {"x": x})
    single = ReferenceEvaluator(reshaped)
    for row, image in zip(rows, x, strict=True):
        (expected,) = single.run(None, {"x": image[np.newaxis]})
        assert np.array_equal(row[np.newaxis], expected)
    assert reshaped.graph.output[0].type.tensor_type.shape.dim[0].dim_value == 1
    assert parse(["--batch", "8"]).models == list(NAMES)


TOOLS: dict[str, tuple[Callable[[list[str]], int], list[str]]] = {
    "bench": (main, ["--against", "onnxruntime", "--models"]),
    "bench_threads": (bench_threads.main, ["--models"]),
    "bench_opening": (bench_opening.main, []),
    "bench_layers": (bench_layers.main, ["--models"]),
    "bench_first": (bench_first.main, ["--models"]),
    "bench_extents": (lambda argv: bench_extents.main([*argv, "n=1..8", "5"]), []),
}


NUMBERS = [
    (["--rounds", "0"], "argument --rounds: 0 is not in the range x>=1"),
    (["--rounds", "many"], "argument --rounds: 'many' is not a valid integer range"),
    (["--seconds", "-1"], "argument --seconds: expected a number of at least 0, got -1"),
    (["--seconds", "nan"], "argument --seconds: expected a number of at least 0, got nan"),
    (["--core", "9999"], "argument --core: expected one of the processors"),
]
LACKING = {("--core", "bench_threads"), ("--core", "bench_first")}
LACKING |= {("--seconds", "bench_opening"), ("--seconds", "bench_first")}


@pytest.mark.parametrize(
    ("tool", "arguments", "message"),
    [(tool, *case) for tool in TOOLS for case in NUMBERS if (case[0][0], tool) not in LACKING],
)
def test_numbers_are_checked(
    tool: str,
    arguments: list[str],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    path, (command, options) = tmp_path / "small.onnx", TOOLS[tool]
    onnx.save(parser.parse_model(MODEL), str(path))
    with pytest.raises(SystemExit):
        command([*options, str(path), *arguments])
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("tool", TOOLS)
def test_files_are_named(tool: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing, corrupt = tmp_path / "missing.onnx", tmp_path / "corrupt.onnx"
    corrupt.write_bytes(b"no model")
    command, options = TOOLS[tool]
    with pytest.raises(SystemExit):
        command([*options, str(missing)])
    assert f"cannot read the file '{missing}': No such file" in capsys.readouterr().err
    assert command([*options, str(corrupt), "--rounds", "1"]) == 1
    message = capsys.readouterr().err
    assert message.startswith("error: ")
    assert corrupt.name in message
    assert "Traceback" not in message


def test_unknown_names(capsys: pytest.CaptureFixture[str]) -> None:
    for command in (main, bench_threads.main, bench_first.main):
        with pytest.raises(SystemExit):
            command(["--models", "gpt9"])
        assert "no network 'gpt9': expected FILE.onnx, or some of" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["--against", "abacus"])
    assert "unknown runtime abacus" in capsys.readouterr().err


def test_code_for_a_range_is_compared_with_code_for_an_extent(tmp_path: Path) -> None:
    path = str(tmp_path / "net.onnx")
    onnx.save(parser.parse_model(MODEL.replace("[2, 3]", "[n, 3, m]")), path)
    row = bench_extents.measure(path, "n=1..8", 5, ["m=2"], rounds=3, seconds=0.0)
    assert row.extent == 5
    assert min(row.constant, row.symbolic, row.ratio) > 0
