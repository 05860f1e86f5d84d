"""`glowpy quantize`: what it writes and says, and that other verbs read it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from glowpy.cli.main import run

RNG = np.random.default_rng(0)


def model() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), name)
        for name, shape in (("w", (4, 3, 3, 3)), ("b", (4,)), ("v", (4, 2)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w", "b"], ["c"], name="the/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="the/relu"),
        helper.make_node("GlobalAveragePool", ["r"], ["p"], name="the/pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "v"], ["m"], name="matmul"),
        helper.make_node("Round", ["m"], ["y"], name="round"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 5, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model and its profile."""
    path = tmp_path_factory.mktemp("quantize")
    onnx.save(model(), path / "net.onnx")
    np.savez(path / "in.npz", x=RNG.standard_t(3, (60, 3, 5, 5)).astype(np.float32))
    np.savez(path / "one.npz", x=RNG.normal(size=(1, 3, 5, 5)).astype(np.float32))
    argv = ["net.onnx", "--shape", "N=1", "--inputs", "in.npz", "-o", "p.yaml"]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        said(["profile", *argv])
    return path


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def said(argv: list[str], status: int = 0) -> str:
    out = io.StringIO()
    assert run(argv, io.StringIO(), out) == status, out.getvalue()
    return out.getvalue()


def quantized(*argv: str, status: int = 0) -> str:
    """What is printed."""
    return said(["quantize", "net.onnx", "--shape", "N=1", "--profile", "p.yaml", *argv], status)


def figures(*argv: str) -> dict[str, Any]:
    report: dict[str, Any] = json.loads(quantized(*argv, "--json"))
    return report


def test_says_what_became_integer() -> None:
    text = quantized()
    assert "5 of 5 nodes compute on integers" in text
    assert "bytes, " in text


def test_other_verbs_read_what_it_writes() -> None:
    assert "q.glow: read it with --constants q.npz" in quantized("-o", "q.glow")
    argv = ["run", "q.glow", "--constants", "q.npz", "--input", "one.npz", "--backend"]
    said([*argv, "interpreter", "--output", "a"])
    said([*argv, "cpu", "--output", "b"])
    said(["run", "net.onnx", "--shape", "N=1", "--input", "one.npz", "--output", "c"])
    a, b, c = (np.load(next(Path(name).glob("*.npy"))) for name in "abc")
    assert a.tobytes() == b.tobytes()
    assert np.abs(a - c).max() <= 1
    assert "u8[" in said(["dump", "q.glow", "--constants", "q.npz", "--stage", "lowered"])


def test_onnx() -> None:
    """The file gives the bits of the network that was written."""
    assert "read it" not in quantized("-o", "q.onnx")
    quantized("-o", "q.glow")
    said(["run", "q.glow", "--constants", "q.npz", "--input", "one.npz", "--output", "d"])
    said(["run", "q.onnx", "--input", "one.npz", "--output", "e"])
    d, e = (np.load(next(Path(name).glob("*.npy"))) for name in "de")
    assert d.tobytes() == e.tobytes()
    assert "i8[4x3x3x3](" in said(["dump", "q.onnx"])


def test_json() -> None:
    report = figures("--keep", "the/relu", "--skip-last", "-o", "k.glow")
    assert (report["file"], report["constants"]) == ("k.glow", "k.npz")
    assert report["integer"] + report["floats"] == len(report["nodes"]) == 5
    nodes = {node["origin"].split("'")[1]: node for node in report["nodes"]}
    assert nodes["the/conv"]["integer"]
    assert nodes["the/conv"]["reason"] == ""
    assert nodes["the/relu"]["reason"] == "'the/relu' is to be kept"
    assert nodes["matmul"]["reason"] == "the last layer is to be kept"
    assert report["bytes_after"] < report["bytes_before"]


@pytest.mark.parametrize(
    "argv",
    [
        ["--schema", "symmetric", "--activations", "i8"],
        ["--schema", "power-of-two", "--weights", "tensor"],
        ["--bias", "float"],
        ["--bias", "i16", "--calibration", "percentile:99"],
        ["--calibration", "entropy"],
        ["--calibration", "squared-error"],
        ["--calibration", "average"],
        ["--calibration", "x=percentile:90"],
        ["--calibration", "percentile:90", "--backend", "interpreter"],
    ],
)
def test_options_change_the_network(argv: list[str]) -> None:
    quantized("-o", "default.glow")
    quantized("-o", "other.glow", *argv)
    assert Path("default.glow").read_text() != Path("other.glow").read_text()


def test_a_search_leaves_symmetric_u8_its_range() -> None:
    """What is never negative has all integers: a search for a symmetric range would take half of them away."""
    quantized("-o", "u8.glow", "--schema", "symmetric-u8", "--calibration", "entropy")
    lines = Path("u8.glow").read_text().splitlines()
    assert any("_quantized = rescale" in line and ",o=0)" in line for line in lines)


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--calibration", "magic"], "--calibration: expected one of min-max, .* got 'magic'"),
        (
            ["--calibration", "x=entropy", "--calibration", "x=average"],
            "the way for 'x' is given twice",
        ),
        (["--calibration", "entropy", "--calibration", "average"], "all values is given twice"),
        (["--calibration", "nothing=entropy"], "the profile has no value 'nothing'"),
        (["--calibration", "x=magic"], "--calibration: expected one of .* got 'magic'"),
        (["--calibration", "entropy:3"], "--calibration: expected one of .* got 'entropy:3'"),
        (["--calibration", "percentile:x"], "--calibration: expected a number, got 'x'"),
        (["--calibration", "percentile:0"], "expected a percentile above 0"),
        (["-o", "q.yaml"], "-o: expected a file that ends in .onnx or .glow, got 'q.yaml'"),
        (["--keep", "nothing"], "expected a name or a kind of a node to keep, got 'nothing'"),
        (["--skip-first", "--assert-all"], "stays in floats: the first layer is to be kept"),
        (["--shape", "N=1"], "--shape: 'N' is given twice"),
        (["--profile", "none.yaml"], "none.yaml: cannot read the file"),
        (["--activations", "i4"], "'i4' is not one of"),
    ],
)
def test_refuses(argv: list[str], message: str) -> None:
    assert re.search(message, quantized(*argv, status=1))


@pytest.mark.parametrize("shape", ["N=2", "N=1..8"])
def test_a_profile_serves_other_extents(shape: str) -> None:
    text = said(["quantize", "net.onnx", "--shape", shape, "--profile", "p.yaml"], 0)
    same = said(["quantize", "net.onnx", "--shape", "N=1", "--profile", "p.yaml"], 0)
    assert text == same


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--dynamic", "--assert-all"], "--assert-all: expected --profile with it"),
        (["--weight-only", "4", "--calibration", "entropy"], "--calibration: expected --profile"),
        (["--dynamic", "--block", "64"], "--block: expected --weight-only with it"),
        (["--bias", "i8"], "--bias: expected --profile with it"),
    ],
)
def test_options_of_another_way_are_refused(argv: list[str], message: str) -> None:
    assert message in said(["quantize", "net.onnx", "--shape", "N=1", *argv], 1)


def test_weights_alone_and_ranges_at_run_time_need_no_profile() -> None:
    argv = ["quantize", "net.onnx", "--shape", "N=1"]
    text = said([*argv, "--weight-only", "8", "--block", "64", "-o", "w.glow"])
    assert "1 of 2 nodes read stored integers" in text
    assert "(convolution, node 'the/conv' (#0)) stays in floats: weights of convolutions" in text
    assert "dequantize_blocks" in Path("w.glow").read_text()
    said(["run", "w.glow", "--constants", "w.npz", "--input", "one.npz", "--output", "d"])
    text = said([*argv, "--dynamic", "-o", "d.glow"])
    assert "1 of 2 nodes compute on integers" in text
    assert "stays in floats: ranges of convolutions are not found at run time" in text
    assert "mat_mul" in Path("d.glow").read_text()
    said(["run", "d.glow", "--constants", "d.npz", "--input", "one.npz", "--output", "d"])
    message = "expected one of --profile, --weight-only and --dynamic"
    assert message in quantized("--weight-only", "4", status=1)


def test_says_what_a_quantized_model_computes_on_integers() -> None:
    quantized("-o", "q.onnx", "--keep", "the/pool", "--keep", "matmul")
    report = json.loads(said(["quantize", "q.onnx", "--json", "-o", "again.glow"]))
    reasons = {node["kind"]: node["reason"] for node in report["nodes"]}
    assert reasons["convolution"] == ""
    assert reasons["relu"] == "its result is not quantized"
    assert reasons["mat_mul"] == "what it reads is not quantized"
    assert report["bytes_after"] < report["bytes_before"]
    said(["run", "again.glow", "--constants", "again.npz", "--input", "one.npz"])
    said(["quantize", "net.onnx", "--shape", "N=1", "--weight-only", "8", "-o", "w.glow"])
    text = said(["quantize", "w.glow", "--constants", "w.npz"])
    assert "1 of 2 nodes read stored integers" in text
    assert "stays in floats: its weights are floats" in text
    refusal = said(["quantize", "net.onnx", "--shape", "N=1"], 1)
    message = "net.onnx: the model neither computes on integers nor stores weights so"
    assert message in refusal
    assert "say how with --profile, --weight-only or --dynamic" in refusal


def test_a_check_of_integers_says_signal_to_noise() -> None:
    quantized("-o", "q.onnx")
    argv = ["--input", "one.npz", "--check-with", "interpreter"]
    assert re.search(
        r"signal to noise *\n.*\n +y +0 +0 +yes +exact", said(["run", "q.onnx", *argv])
    )
    assert "signal to noise" not in said(["run", "net.onnx", "--shape", "N=1", *argv])


def test_operators_of_onnx_are_kept() -> None:
    report = figures("--keep", "Conv", "--keep", "Relu")
    reasons = {node["kind"]: node["reason"] for node in report["nodes"]}
    assert (reasons["convolution"], reasons["relu"]) == (
        "'Conv' is to be kept",
        "'Relu' is to be kept",
    )
    assert not reasons["mat_mul"]
    refusal = quantized("--keep", "Gelu", status=1)
    assert "the kinds are " in refusal
    assert ", transpose, Conv, " in refusal


def test_report() -> None:
    text = quantized("--inputs", "in.npz", "--report", "report.html")
    assert "output 'y': " in text
    assert "report.html: " in text
    page = Path("report.html").read_text()
    assert page.startswith("<!DOCTYPE html>")
    assert "the/conv" in page
    assert page.count("<svg") > 3
    assert "http" not in page
    figures_of = figures("--inputs", "in.npz")["accuracy"]
    assert figures_of["samples"] == 32
    assert figures_of["outputs"]["y"] > 5
    names = {entry["name"] for entry in figures_of["ranking"]}
    values = {entry["name"]: entry for entry in figures_of["values"]}
    assert names == {name for name, entry in values.items() if "sensitivity" in entry}
    assert values["x"]["type"] == "u8"
    assert values["x"]["low"] < 0 < values["x"]["high"]
    assert 0 <= values["x"]["saturation"] < 0.5


METRIC = """
import numpy as np

def fails(model):
    return 1 / 0

def text(model):
    return "0.5"

def leaves(model):
    raise SystemExit(3)

def likeness(model):
    x = np.load("in.npz")["x"]
    rows = [model({"x": sample[None]})["y"] for sample in x[:8]]
    return float(np.concatenate(rows).std())

number = 3
"""


def test_search() -> None:
    Path("metric_of_tests.py").write_text(METRIC)
    argv = ["--max-drop", "1e9", "--metric", "metric_of_tests:likeness"]
    text = quantized(*argv)
    assert "the metric is " in text
    assert "all layers on integers: the drop is " in text
    (state,) = json.loads(Path("p.search.json").read_text())["searches"].values()
    assert state["scores"].keys() == {"floats", "integer"}
    other = ["--inputs", "in.npz", "--search-file", "other.json"]
    result = figures(*argv, *other)
    assert result["search"]["layers_in_floats"] == []
    assert len(result["accuracy"]["ranking"]) == 2
    quantized(*argv, "--inputs", "in.npz")
    assert len(json.loads(Path("p.search.json").read_text())["searches"]) == 2


def test_a_metric_without_a_budget_is_measured() -> None:
    Path("metric_of_tests.py").write_text(METRIC)
    argv = ["--metric", "metric_of_tests:likeness", "--search-file", "measured.json"]
    text = quantized(*argv)
    assert re.search(r"the metric is \S+, \S+ in floats\nall layers on integers: the drop is", text)
    searched = figures(*argv)["search"]
    assert searched["layers_in_floats"] == []
    (decision,) = searched["decisions"]
    drop = searched["in_floats"] - searched["score"]
    assert decision["reason"] == f"the drop is {drop:.6g}"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--report", "r.html"], "--report: expected --inputs to compare the networks on"),
        (["--max-drop", "1"], "--max-drop: expected --metric MODULE:FUNCTION with it"),
        (["--search-file", "s.json"], "--search-file: expected --metric with it"),
        (["--inputs", "none"], "--inputs: expected a folder"),
        (["--max-drop", "1", "--metric", "x"], "--metric: expected module:name, got 'x'"),
        (["--max-drop", "1", "--metric", "none:x"], "--metric: there is no module 'none'"),
        (
            ["--max-drop", "1", "--metric", "metric_of_tests:x"],
            "the module 'metric_of_tests' has no 'x'",
        ),
        (["--max-drop", "1", "--metric", "metric_of_tests:number"], "expected a function, got int"),
        (
            ["--max-drop", "1", "--metric", "metric_of_tests:fails", "--search-file", "f.json"],
            r"metric_of_tests.py:5: --metric: fails raised ZeroDivisionError",
        ),
        (
            ["--max-drop", "1", "--metric", "metric_of_tests:leaves", "--search-file", "l.json"],
            r"metric_of_tests.py:11: --metric: leaves raised SystemExit: 3",
        ),
        (
            ["--max-drop", "1", "--metric", "metric_of_tests:text", "--search-file", "t.json"],
            "expected a finite number from the metric, got '0.5'",
        ),
        (
            [
                "--max-drop",
                "1",
                "--metric",
                "metric_of_tests:likeness",
                "--search-file",
                "deep.json",
            ],
            "deep.json: not the state of a search",
        ),
        (["--inputs", "wide.npz"], "input 0: 'x': expected an array of type .*, got float64"),
    ],
)
def test_refuses_to_compare(argv: list[str], message: str) -> None:
    Path("metric_of_tests.py").write_text(METRIC)
    Path("deep.json").write_text("[" * 100_000)
    np.savez("wide.npz", x=np.zeros((1, 3, 5, 5)))
    assert re.search(message, quantized(*argv, status=1))


@pytest.mark.parametrize(
    "way", [["--weight-only", "8"], ["--dynamic"]], ids=lambda way: str(way[0])
)
def test_what_needs_no_profile_is_compared_too(way: list[str]) -> None:
    Path("metric_of_tests.py").write_text(METRIC)
    argv = ["quantize", "net.onnx", "--shape", "N=1", *way]
    text = said([*argv, "--inputs", "in.npz", "--report", "w.html"])
    assert "w.html: 2 values over 32 inputs" in text
    assert "convolutions" in Path("w.html").read_text()
    report = json.loads(said([*argv, "--inputs", "in.npz", "--json"]))["accuracy"]
    value = next(value for value in report["values"] if not value["reason"])
    assert value["decibels"] > 20
    assert report["ranking"] == [{"name": value["name"], "sensitivity": value["sensitivity"]}]
    said([*argv, "--max-drop", "1e9", "--metric", "metric_of_tests:likeness"])
    assert Path("net.search.json").exists()
    Path("net.search.json").unlink()
    measured = json.loads(said([*argv, "--estimate", "--json"]))
    first, last = measured["layers"]
    assert (first["kind"], first["integers"]) == ("convolution", None)
    assert "convolutions" in first["reason"]
    assert last["integers"] > 0


def test_estimate() -> None:
    argv = ["quantize", "net.onnx", "--shape", "N=1", "--estimate"]
    text = said(argv)
    assert "the whole network" in text
    assert "on this machine" in text
    estimate = json.loads(said([*argv, "--json", "--keep", "matmul"]))
    first, last = estimate["layers"]
    assert first["integers"] > 0
    assert (last["integers"], last["reason"]) == (None, "'matmul' is to be kept")
    assert estimate["bytes_after"] < estimate["bytes_before"]
    assert estimate["ratio"] == pytest.approx(estimate["integers"] / estimate["floats"])
    for option in (["-o", "e.glow"], ["--inputs", "in.npz"]):
        assert f"{option[0]}: leave it out with --estimate" in said([*argv, *option], 1)
    assert "--profile: leave it out with --estimate" in quantized("--estimate", status=1)
    comparison = ["quantize", "net.onnx", "--shape", "N=1", "--inputs", "in.npz"]
    assert "--inputs: expected --profile, --weight-only or --dynamic" in said(comparison, 1)
