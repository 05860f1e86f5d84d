"""`glowpy convert`: what it writes and says, and that other verbs read it."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from onnx import TensorProto, helper, numpy_helper

from glowpy.cli.main import run

RNG = np.random.default_rng(0)


def model() -> onnx.ModelProto:
    weights = [
        numpy_helper.from_array(RNG.normal(size=shape).astype(np.float32), name)
        for name, shape in (("w", (4, 3, 3, 3)), ("v", (4, 2)))
    ]
    nodes = [
        helper.make_node("Conv", ["x", "w"], ["c"], name="the/conv", pads=[1, 1, 1, 1]),
        helper.make_node("Sigmoid", ["c"], ["s"], name="the/gate"),
        helper.make_node("GlobalAveragePool", ["s"], ["p"], name="the/pool"),
        helper.make_node("Flatten", ["p"], ["f"], name="flat"),
        helper.make_node("MatMul", ["f", "v"], ["y"], name="the/head"),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["N", 3, 5, 5])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["N", 2])
    graph = helper.make_graph(nodes, "net", [x], [y], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("convert")
    onnx.save(model(), path / "net.onnx")
    np.savez(path / "in.npz", x=RNG.normal(size=(6, 3, 5, 5)).astype(np.float32))
    return path


@pytest.fixture(autouse=True)
def inside(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)


def said(argv: list[str], status: int = 0) -> str:
    out = io.StringIO()
    assert run(argv, out, out) == status, out.getvalue()
    return out.getvalue()


def converted(*argv: str, status: int = 0) -> str:
    return said(["convert", "net.onnx", *argv], status)


def test_an_onnx_file_that_runs_as_near_as_is_said() -> None:
    text = converted("--shape", "N=2", "--to", "f16", "-o", "half.onnx")
    assert "4 of 4 nodes compute in f16" in text
    assert "constants take 240 bytes, 480 in f32" in text
    assert "output 'y': " in text
    assert " dB on a random input" in text
    stored = {tensor.data_type for tensor in onnx.load("half.onnx").graph.initializer}
    assert TensorProto.FLOAT not in stored
    assert "not written" not in text
    report = json.loads(said(["run", "half.onnx", "--check-with", "onnxruntime", "--json"]))
    (difference,) = report["differences"]
    assert 40 < difference["decibels"] < 90
    said(["run", "half.onnx", "--check-with", "onnxruntime", "--atol", "0", "--rtol", "0"], 1)


def test_open_dimensions_stay_open() -> None:
    converted("--shape", "N=1..4", "--to", "f16", "-o", "open.onnx")
    (dim, *_) = onnx.load("open.onnx").graph.input[0].type.tensor_type.shape.dim
    assert dim.dim_param == "N"
    said(["run", "open.onnx", "--shape", "N=3"])


def test_bf16_is_written_in_an_opset_whose_convolutions_take_it() -> None:
    converted("--shape", "N=1", "--to", "bf16", "--ports", "-o", "half.onnx")
    proto = onnx.load("half.onnx")
    onnx.checker.check_model(proto, full_check=True)
    assert proto.opset_import[0].version == 22
    assert proto.graph.input[0].type.tensor_type.elem_type == TensorProto.BFLOAT16
    text = said(["run", "half.onnx", "--check-with", "interpreter"])
    assert "signal to noise" in text


def test_text_that_is_read_again() -> None:
    text = converted("--shape", "N=1", "--to", "bf16", "-o", "half.glow")
    assert "half.glow: read it with --constants half.npz" in text
    said(["run", "half.glow", "--constants", "half.npz"])
    assert "bf16[" in Path("half.glow").read_text()


def test_what_is_kept_is_named() -> None:
    text = converted("--shape", "N=1", "--to", "f16", "--keep", "the/conv", "--keep", "MatMul")
    assert "2 of 4 nodes compute in f16" in text
    assert text.endswith("the network was not written: -o FILE writes it\n")
    assert "node 'the/conv' (#0)) stays in f32: 'the/conv' is to be kept" in text
    assert "node 'the/head' (#4)) stays in f32: 'MatMul' is to be kept" in text


def test_figures_on_inputs_of_the_user() -> None:
    argv = ["--shape", "N=1", "--to", "f16", "--inputs", "in.npz", "--json"]
    figures = json.loads(converted(*argv))
    assert (figures["to"], figures["file"], figures["samples"]) == ("f16", None, 6)
    assert (figures["converted"], figures["kept"]) == (4, 0)
    assert figures["bytes_after"] * 2 == figures["bytes_before"]
    (output,) = figures["outputs"]
    assert output["name"] == "y"
    assert 50 < output["decibels"] < 90
    assert not output["exact"]
    assert [node["kind"] for node in figures["nodes"] if node["converted"]] == [
        node["kind"] for node in figures["nodes"]
    ]
    everything = [part for node in figures["nodes"] for part in ("--keep", node["kind"])]
    (exact,) = json.loads(converted(*argv, *everything))["outputs"]
    assert exact == {"name": "y", "decibels": None, "exact": True}
    assert "output 'y': exact on 6 inputs" in converted(*argv[:-1], *everything)


def test_every_sample_finds_the_variables_as_at_first() -> None:
    Path("sum.glow").write_text("""module {
      placeholder %x : f32[4]
      placeholder %y : f32[4]
      variable %sum : f32[4]
      function @main {
        %total = add(%sum, %x) : f32[4]
        save(%total, %sum)
        save(%total, %y)
      }
    }""")
    np.savez("xs.npz", x=np.arange(12, dtype=np.float32).reshape(3, 4))
    argv = ["sum.glow", "--to", "f16", "--inputs", "xs.npz", "-o", "half.glow"]
    assert "output 'y': exact on 3 inputs" in said(["convert", *argv])
    assert "y" in said(["run", "half.glow", "--backend", "interpreter"])
    assert "over 3 inputs" in said(["profile", "sum.glow", "--inputs", "xs.npz", "-o", "sum.yaml"])


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["--to", "f16", "-o", "x.txt"], "expected a file that ends in .onnx or .glow"),
        (["--to", "f16", "--keep", "conv"], "expected a name or a kind of a node to keep"),
        (["--to", "f16", "--inputs", "nothing"], "no such folder"),
        (["--to", "f32"], "'f32' is not one of 'f16', 'bf16'"),
    ],
)
def test_refusals(argv: list[str], message: str) -> None:
    assert message in converted("--shape", "N=1", *argv, status=1)


def steep(name: str, nodes: str) -> None:
    text = f"""<ir_version: 8, opset_import: ["": 17]>
    agraph (float[64] x) => (float[64] y) {{ {nodes} }}"""
    onnx.save(onnx.parser.parse_model(text), name)


def test_values_out_of_range_are_measured_and_stay_in_f32() -> None:
    steep("squares.onnx", "q = Mul(x, x) r = Relu(q) y = Sqrt(r)")
    np.savez("large.npz", x=RNG.normal(size=(2, 64)).astype(np.float32) * 3000)
    argv = ["convert", "squares.onnx", "--to", "f16", "-o", "roots.onnx"]
    assert "3 of 3 nodes" in said(argv)
    text = said([*argv, "--inputs", "large.npz"])
    assert "0 of 3 nodes" in text
    assert "on the samples, which f16 does not hold well" in text


def test_what_halves_ruin_is_not_written() -> None:
    steep("steep.onnx", "c = Constant <value_float = 10000.0> () q = Mul(x, c) y = Sin(q)")
    argv = ["convert", "steep.onnx", "--to", "f16", "-o", "ruined.onnx"]
    text = said(argv, 1)
    assert "output 'y': expected at least 30 dB in f16, got " in text
    assert "so ruined.onnx is not written" in text
    assert not Path("ruined.onnx").exists()
    assert "dB on a random input" in said(argv[:-2])
    said([*argv, "--keep", "Mul", "--keep", "Sin"])
    said([*argv, "--min-decibels", "-100"])
    assert Path("ruined.onnx").exists()


def test_an_output_beyond_halves_is_told_with_its_size() -> None:
    steep("big.onnx", "c = Constant <value_float = 1000.0> () d = Mul(x, c) y = Mul(d, c)")
    argv = ["convert", "big.onnx", "--to", "f16", "-o", "small.onnx"]
    text = said([*argv, "--ports", "--min-decibels", "-1000"], 1)
    assert re.search(r"'y': expected at most 65504, the largest f16, got .*, so small.onnx", text)
    assert text.endswith("note: leave out --ports: outputs stay f32\n")
    said(argv)
    said([*argv[:3], "bf16", "--ports", "-o", "small.onnx"])


@pytest.mark.parametrize("name", ["input:0", "/x/y", "1", "a b", "x", "x" * 300])
def test_inputs_may_have_any_name(name: str, tmp_path: Path) -> None:
    value = helper.make_tensor_value_info
    node = helper.make_node("Exp", [name], [f"{name}.y"])
    ports = (
        [value(name, TensorProto.FLOAT, [2, 3])],
        [value(f"{name}.y", TensorProto.FLOAT, [2, 3])],
    )
    opset = [helper.make_opsetid("", 17)]
    proto = helper.make_model(
        helper.make_graph([node], "g", *ports), opset_imports=opset, ir_version=8
    )
    onnx.save(proto, tmp_path / "m.onnx")
    for ports_too in ([], ["--ports"]):
        out = io.StringIO()
        command = [
            "convert",
            str(tmp_path / "m.onnx"),
            "--to",
            "f16",
            "-o",
            str(tmp_path / "h.onnx"),
        ]
        assert run([*command, *ports_too], io.StringIO(), out) == 0, out.getvalue()
        assert "dB" in out.getvalue()
