"""`glowpy bench`: what it says of small models; never how fast they are."""

import io
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from xml.etree.ElementTree import fromstring

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from glowpy import CpuBackend, load
from glowpy.backends.cpu.measuring import peaks as peaks_module
from glowpy.benchmark import ncnn as ncnn_module
from glowpy.benchmark import peers as peers_module
from glowpy.benchmark.measured import Measured
from glowpy.benchmark.ncnn import Ncnn
from glowpy.benchmark.plots import roofline
from glowpy.cli import bench as bench_verb
from glowpy.cli.main import run
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.graph.printer import print_module
from glowpy.measuring.peaks import Peaks
from glowpy.support.errors import UserError
from tests.wrapped import installed

MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4, 8, 8] x) => (float[1, 10] y)
<float[16, 4, 3, 3] filter, float[1024, 10] weights> {
  c = Conv<pads = [1, 1, 1, 1]>(x, filter)
  r = Relu(c)
  f = Flatten(r)
  z = MatMul(f, weights)
  y = Softmax(z)
}
"""

ELEMENTWISE = """
module {
  placeholder %x : f32[1000]
  placeholder %y : f32[1000]
  function @main {
    %t = tanh(%x) : f32[1000]
    %u = tanh(%t) : f32[1000]
    save(%u, %y)
  }
}
"""

OPEN = """
<ir_version: 8, opset_import: ["": 17]>
g (float[n, 3] x, float[3, 5] w, int64 rounds) => (float[n, 5] y) <bool true = {1}> {
  z = MatMul(x, w)
  y = Loop(rounds, true, z)<body = b (int64 i, bool before, float[n, 5] v) => (bool after, float[n, 5] t) {
    after = Identity(before)
    t = Tanh(v)
  }>
}
"""

BYTES = """
<ir_version: 8, opset_import: ["": 17]>
g (uint8[32, 64] x) => (uint8[32, 64] y)
<float s = {0.1}, float t = {0.01}, uint8 zero = {3}, int8 none = {0}> {
  y = QLinearMatMul(x, s, zero, w, t, none, s, zero)
}
"""

STATE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 4] x, float[n, 4] past) => (float[1, 4] y, float[m, 4] present) {
  present = Concat<axis = 0>(past, x)
  sum = ReduceSum<keepdims = 1>(present)
  y = Add(x, sum)
}
"""

SQUARE = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 64, 56, 56] x) => (float[1, 64, 56, 56] y) { y = Conv<pads = [1, 1, 1, 1]>(x, w) }
"""

SCORES = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 5, 8] q, float[1, 2, 8, 5] k, float[1, 2, 5, 8] v) => (float[1, 2, 5, 8] y, float[1, 2, 5, 5] weights) {
  scores = MatMul(q, k)
  weights = Softmax(scores)
  y = MatMul(weights, v)
}
"""

MACS = 8 * 8 * 16 * 3 * 3 * 4 + 1024 * 10


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    network = parser.parse_model(MODEL)
    rng = np.random.default_rng(0)
    for info in list(network.graph.value_info):
        shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        array = rng.normal(size=shape, scale=0.1).astype(np.float32)
        network.graph.initializer.append(numpy_helper.from_array(array, info.name))
    path = tmp_path_factory.mktemp("bench") / "small.onnx"
    onnx.save(network, str(path))
    return path


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The peaks of the machine are measured in no time."""
    monkeypatch.setattr(peaks_module, "_SIZES", (1 << 14, 1 << 16))
    monkeypatch.setattr(peaks_module, "_SECONDS", 0.0)
    monkeypatch.setattr(peaks_module, "_SWEEPS", 1)


def bench(*arguments: str) -> str:
    out = io.StringIO()
    code = run(["bench", *arguments, "--seconds", "0", "--repeat", "2"], io.StringIO(), out)
    assert code == 0, out.getvalue()
    return out.getvalue()


def refused(*arguments: str) -> str:
    err = io.StringIO()
    assert run(["bench", *arguments], io.StringIO(), io.StringIO(), err) in (1, 2)
    return err.getvalue()


def figures(*arguments: str) -> dict[str, Any]:
    (result,) = json.loads(bench(*arguments, "--json"))["models"]
    assert isinstance(result, dict)
    return result


def test_figures_of_a_model(model: Path) -> None:
    before = os.sched_getaffinity(0)
    report = json.loads(bench(str(model), "--json"))
    assert os.sched_getaffinity(0) == before
    machine, (result,) = report["machine"], report["models"]
    assert machine["core"] == max(before)
    assert machine["gflops"] > 0
    assert machine["read_gbytes"].keys() == {"16384", "65536"}
    assert result["model"] == str(model)
    assert result["macs"] == MACS
    assert 0 < result["seconds"]["median"] <= result["seconds"]["p95"]
    assert result["seconds"]["runs"] >= 2
    assert result["gflops"] == pytest.approx(2e-9 * MACS / result["seconds"]["median"])
    assert result["roof"] == pytest.approx(result["roof_seconds"] / result["seconds"]["median"])
    assert result["layers"] == []
    assert result["vs"] == {}


def test_rates_are_of_what_is_computed_and_of_what_the_direct_algorithm_needs(
    tmp_path: Path,
) -> None:
    path, network = tmp_path / "square.onnx", parser.parse_model(SQUARE)
    weights = np.random.default_rng(0).normal(size=(64, 64, 3, 3)).astype(np.float32)
    network.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(network, str(path))
    wide, reduced = (figures(str(path), "--layers", *more) for more in (["--exact"], []))
    direct = 56 * 56 * 64 * 64 * 9
    assert wide["macs"] == wide["direct_macs"] == reduced["direct_macs"] == direct
    assert reduced["macs"] < 0.5 * direct
    for result in (wide, reduced):
        assert sum(layer["macs"] for layer in result["layers"]) == result["macs"]
        assert sum(layer["direct_macs"] for layer in result["layers"]) == direct
        (layer,) = (layer for layer in result["layers"] if layer["macs"])
        ratio = layer["direct_gflops"] / layer["gflops"]
        assert ratio == pytest.approx(layer["direct_macs"] / layer["macs"])
    (layer,) = (layer for layer in wide["layers"] if layer["macs"])
    assert layer["declined"] == {"Winograd": "products are to be exact"}
    assert layer["why"].endswith("; not by Winograd: products are to be exact")


def test_layers_say_what_they_were_not_made_of(tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(parser.parse_model(SCORES), str(path))
    layers = {layer["kernel"]: layer for layer in figures(str(path), "--layers")["layers"]}
    reason = "scores or weights are used elsewhere"
    assert {"fuse-attention": reason} in [layer["declined"] for layer in layers.values()]
    assert any(
        layer["why"].endswith(f"not by fuse-attention: {reason}") for layer in layers.values()
    )


def test_tables(model: Path) -> None:
    text = bench(str(model), "--layers")
    assert "GFLOP/s" in text
    assert "sum of layers" in text
    assert "one that does not" in text
    assert "waits for" in text
    assert text.count("if direct") == 2
    (head,) = (line.split() for line in text.splitlines() if "decided" in line)
    assert head == ["layer", "decided"]


def test_more_threads_than_processors(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_verb, "usable_cores", lambda: 1)
    text = bench(str(model), "--threads", "2", "--seconds", "0", "--repeat", "1")
    assert "2 threads on 1 processor\n" in text


def test_a_model_without_products_has_no_rate(tmp_path: Path) -> None:
    path = tmp_path / "net.glow"
    path.write_text(ELEMENTWISE)
    row = next(line for line in bench(str(path)).splitlines() if "net.glow" in line)
    assert row.split()[4] == "-"


def test_layers_are_all_runs(model: Path) -> None:
    result = figures(str(model), "--layers")
    layers = result["layers"]
    assert [layer["kernel"] for layer in layers if layer["macs"]] == ["cpu_conv", "cpu_matmul"]
    assert sum(layer["macs"] for layer in layers) == MACS
    conv = next(layer for layer in layers if layer["kernel"] == "cpu_conv")
    assert conv["origin"]
    assert conv["fused"] == ["max"]
    assert conv["decision"]["tile_pixels"] > 0
    assert "units" in conv["why"]
    assert all(layer["seconds"] > 0 for layer in layers)
    starts = [layer["start"] for layer in layers]
    assert starts == sorted(starts)
    assert sum(layer["bytes"] for layer in layers) == result["bytes"]
    assert result["instrumented_seconds"] > 0


def test_other_runtimes(model: Path) -> None:
    result = figures(str(model), "--vs", "onnxruntime", "--layers")
    assert result["missing"] == {}
    assert result["vs"]["onnxruntime"]["seconds"] > 0
    assert result["vs"]["onnxruntime"]["ratio"] > 0


def test_runtimes_without_figures(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def imported(name: str) -> None:
        raise ImportError(name)

    with monkeypatch.context() as without:
        without.setattr(peers_module, "import_module", imported)
        assert "ncnn has no figure: ncnn is not installed; pip install ncnn" in bench(
            str(model), "--vs", "ncnn"
        )
    wrong = peers_module.Contestant(
        "onnxruntime", lambda: None, lambda: [np.zeros((1, 10), np.float32)]
    )
    monkeypatch.setitem(peers_module.PEERS, "onnxruntime", lambda *arguments: wrong)
    missing = figures(str(model), "--vs", "onnxruntime")["missing"]
    assert missing["onnxruntime"].startswith("its outputs differ from ours by 0.")


LOOKUP = """
<ir_version: 8, opset_import: ["": 17]>
g (int64[1, 2] ids, int64[1, 2] kinds) => (float[1, 2, 1] y)
<float[9, 1] words = {0, 1, 2, 3, 4, 5, 6, 7, 8}, float[2, 1] few = {0, 1}> {
  a = Gather(words, ids)
  b = Gather(few, kinds)
  y = Add(a, b)
}
"""


def test_inputs_from_files(tmp_path: Path) -> None:
    path, ids = tmp_path / "lookup.onnx", tmp_path / "ids.npy"
    onnx.save(parser.parse_model(LOOKUP), str(path))
    np.save(ids, np.array([[8, 0]]))
    result = figures(str(path), "--input", f"ids={ids}", "--vs", "onnxruntime")
    assert result["vs"].keys() == {"onnxruntime"}  # the other input is random, and in range
    np.save(ids, np.array([[9, 0]]))
    result = figures(str(path), "--input", f"ids={ids}", "--vs", "onnxruntime")
    assert "onnxruntime does not run the model" in result["missing"]["onnxruntime"]
    assert "expected one of the inputs ids, kinds" in refused(str(path), "--input", f"x={ids}")


class FakeNet:
    """Looks as ncnn's does, and computes nothing."""

    status = 0

    def __init__(self) -> None:
        self.opt = SimpleNamespace(num_threads=0, use_fp16_storage=True, use_int8_storage=True)

    def load_param(self, path: str) -> int:
        return -1 if "unknown" in path else 0

    def load_model(self, path: str) -> int:
        return 0

    def input_names(self) -> list[str]:
        return ["in0"]

    def output_names(self) -> list[str]:
        return ["out1", "out0"]

    def create_extractor(self) -> Any:
        return SimpleNamespace(
            input=lambda name, blob: None,
            extract=lambda name: (self.status, [float(name[-1])]),
        )


class FakeBlob:
    def __init__(self, array: np.ndarray) -> None:
        self.array = array

    def clone(self) -> "FakeBlob":
        return self


def test_ncnn_computes_in_f32_and_says_what_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    module, files = SimpleNamespace(Net=FakeNet, Mat=FakeBlob), (Path("net.param"), Path("net.bin"))
    net = Ncnn(module, files, [np.zeros((1, 3), np.int64)], 1)
    assert vars(net._net.opt) == {
        "num_threads": 1,
        "use_fp16_storage": False,
        "use_int8_storage": True,
    }
    assert net._batch[0][0].array.dtype == np.int32
    net.run()
    assert [array.tolist() for array in net.outputs()] == [[[0.0]], [[1.0]]]
    monkeypatch.setattr(FakeNet, "status", -100)
    with pytest.raises(UserError, match="does not compute every output"):
        net.run()
    with pytest.raises(UserError, match=r"cannot read unknown\.param"):
        Ncnn(module, (Path("unknown.param"), files[1]), [], 1)
    with pytest.raises(UserError, match="for one batch"):
        Ncnn(module, files, [np.zeros(())], 1)


def test_ncnn_computes_images_of_a_batch_one_by_one() -> None:
    module, files = SimpleNamespace(Net=FakeNet, Mat=FakeBlob), (Path("net.param"), Path("net.bin"))
    net = Ncnn(module, files, [np.arange(6).reshape(2, 3)], 1)
    assert [blob.array.tolist() for (blob,) in net._batch] == [[0, 1, 2], [3, 4, 5]]
    net.run()
    assert [array.shape for array in net.outputs()] == [(2, 1), (2, 1)]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        ("import os, signal; os.kill(os.getpid(), signal.SIGSEGV)", "it crashes (SIGSEGV)"),
        ("raise SystemExit(256 - 11)", "it crashes (SIGSEGV)"),
        ("raise SystemExit('no such thing')", "no such thing"),
        ("pass", "it wrote nothing for ncnn"),
    ],
)
def test_pnnx_may_fail(
    code: str, reason: str, model: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(peers_module, "import_module", lambda name: SimpleNamespace())
    monkeypatch.setattr(ncnn_module, "find_spec", lambda name: None)
    missing = figures(str(model), "--vs", "ncnn")["missing"]
    assert missing["ncnn"].startswith("ncnn reads no ONNX: expected small.param and small.bin")
    monkeypatch.setattr(ncnn_module, "find_spec", lambda name: name)
    monkeypatch.setattr(ncnn_module, "_CONVERT", code)
    missing = figures(str(model), "--vs", "ncnn")["missing"]
    assert missing["ncnn"] == f"pnnx cannot convert the model: {reason}"


@pytest.mark.slow
def test_ncnn_runs_what_pnnx_makes(model: Path, tmp_path: Path) -> None:
    pytest.importorskip("ncnn")
    pytest.importorskip("pnnx")
    assert figures(str(model), "--vs", "ncnn")["vs"].keys() == {"ncnn"}
    param = tmp_path / "small.param"
    param.write_text("7767517\n1 1\nNothing n 0 1 in0\n")
    param.with_suffix(".bin").write_bytes(b"")
    missing = figures(str(model), "--vs", "ncnn", "--ncnn-models", str(tmp_path))["missing"]
    assert missing["ncnn"].startswith("ncnn cannot run the model: ")


def test_runtimes_read_onnx_only(tmp_path: Path) -> None:
    path = tmp_path / "net.glow"
    path.write_text(ELEMENTWISE)
    result = figures(str(path), "--vs", "onnxruntime", "--layers")
    assert result["missing"] == {"onnxruntime": "onnxruntime runs ONNX files only"}
    assert [layer["kernel"] for layer in result["layers"]] == ["tanh"]


def test_threads_and_processor_time(model: Path) -> None:
    assert json.loads(bench(str(model), "--threads", "2", "--json"))["machine"]["core"] is None
    result = figures(str(model), "--clock", "cpu", "--layers")
    total = sum(layer["seconds"] for layer in result["layers"])
    assert 0 < total < 2 * result["instrumented_seconds"]


def test_constants_and_exact_products(tmp_path: Path) -> None:
    """What `glowpy dump` writes of a network whose convolution is one by Winograd's algorithm otherwise."""
    text, constants = tmp_path / "net.glow", tmp_path / "net.npz"
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[1x28x28x64]"))
    f = module.create_function("main")
    numbers = np.random.default_rng(0).standard_normal((64, 3, 3, 64), np.float32)
    operands = module.create_constant("w", numbers), module.create_constant("b", numbers[0, 0, 0])
    conv = f.create_convolution("conv", x, *operands, (3, 3), (1, 1), (1,) * 4, (1, 1), 1)
    f.create_save("save", conv, module.create_placeholder("y", conv.result.type))
    text.write_text(print_module(module))
    blobs: dict[str, Any] = {c.digest: c.tensor.array for c in module.constants}
    np.savez(constants, **blobs)
    given = str(text), "--layers", "--constants", str(constants)
    for option in ((), ("--exact",), ("--low-memory",)):
        kernel = "cpu_conv" if option else "cpu_winograd"
        assert kernel in [layer["kernel"] for layer in figures(*given, *option)["layers"]]


def test_refusals(model: Path) -> None:
    assert "got 'abacus'" in refused(str(model), "--vs", "abacus")
    assert "--core: expected one of the processors" in refused(str(model), "--core", "9999")
    assert "--core: expected one thread" in refused(str(model), "--core", "0", "--threads", "2")
    assert "expected one thread" in refused(str(model), "--clock", "cpu", "--threads", "2")
    assert "--seconds': expected a number of at least 0" in refused(str(model), "--seconds", "nan")
    message = "the interpreter backend measures no peaks of a machine"
    assert message in refused(str(model), "--backend", "interpreter")


def test_any_backend_with_a_meter_is_timed(model: Path) -> None:
    with installed():
        result = figures(str(model), "--layers", "--backend", "wrapped", "--tune", "0")
    assert result["tuning"] == []
    assert sum(layer["macs"] for layer in result["layers"]) == result["macs"] > 0
    assert result["instrumented_seconds"] > 0


def test_page_and_trace(model: Path, tmp_path: Path) -> None:
    page, trace = tmp_path / "bench.html", tmp_path / "bench.json"
    result = figures(str(model), "--html", str(page), "--trace", str(trace))
    text = page.read_text(encoding="utf-8")
    tree = fromstring(text.partition("\n")[2].replace('<meta charset="utf-8">', ""))
    assert text.startswith("<!DOCTYPE html>")
    assert "1 thread on processor" in text
    assert [heading.text for heading in tree.iter("h3")] == ["Roofline", "Layers", "Memory"]
    assert [len(tree.findall(f".//{{*}}{tag}")) for tag in ("circle", "h2")] == [
        2,
        1,
    ]  # products, models
    layers = [row[0].text for row in list(tree.iter("table"))[-1].iter("tr")]
    assert layers == ["layer", *(layer["name"] for layer in result["layers"])]
    assert not re.search(r'(?:src|href)="', text)  # it needs no other file
    events = json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]
    slices = [event for event in events if event["ph"] == "X"]
    assert [event["name"] for event in slices] == [layer["name"] for layer in result["layers"]]
    assert [event["ts"] for event in slices] == sorted(event["ts"] for event in slices)
    alive = [event["args"]["bytes"] for event in events if event["ph"] == "C"]
    assert alive[-1] == 0
    assert 0 < max(alive) <= compilation(load(model), CpuBackend()).program.plan.peak


def test_products_of_bytes_have_a_roof_of_their_own(tmp_path: Path) -> None:
    path, network = tmp_path / "bytes.onnx", parser.parse_model(BYTES)
    weights = np.random.default_rng(0).integers(-9, 9, (64, 64), np.int8)
    network.graph.initializer.append(numpy_helper.from_array(weights, "w"))
    onnx.save(network, str(path))
    page = tmp_path / "bench.html"
    bench(str(path), "--html", str(page))
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", page.read_text(encoding="utf-8"))
    (roof,) = [text for text in texts if re.fullmatch(r"\w+: \d+ GFLOP/s", text)]
    assert roof.startswith("u8: ")


def test_a_page_of_a_model_without_products(tmp_path: Path) -> None:
    path, page = tmp_path / "net.glow", tmp_path / "bench.html"
    path.write_text(ELEMENTWISE)
    bench(str(path), "--html", str(page))
    text = page.read_text(encoding="utf-8")
    assert "f32: " in text
    assert 'class="layer"' not in text


def test_slopes_end_at_the_highest_roof() -> None:
    """However slow memory is beside arithmetic."""
    peaks = Peaks(1, 1e12, ((1 << 14, 2e11), (1 << 27, 1e9)), ((1 << 14, 2e11), (1 << 27, 1e9)))
    result = cast(
        Measured, SimpleNamespace(layers=[], peaks=peaks, roofs={"f32": 1e12, "u8": 4e12})
    )
    lines = [line.attrib for line in roofline(result).iter("line") if line.get("class") == "roof"]
    slopes = [line for line in lines if line["y1"] != line["y2"]]
    assert len(slopes) == 4
    steepness = {
        round((float(line["y1"]) - float(line["y2"])) / (float(line["x2"]) - float(line["x1"])), 2)
        for line in slopes
    }
    assert len(steepness) == 1, "a slope is cut off"


def test_files_are_named(model: Path) -> None:
    assert "expected files for --html and --trace" in refused(str(model), "--html", "-")


def test_open_dimensions_and_branches(tmp_path: Path) -> None:
    path = tmp_path / "open.onnx"
    onnx.save(parser.parse_model(OPEN), str(path))
    result = figures(str(path), "--shape", "n=1..6", "--layers")
    layers = {layer["kernel"]: layer for layer in result["layers"]}
    assert layers["cpu_matmul"]["macs"] == 6 * 3 * 5  # at the highest extent, which inputs have
    assert "loop" in layers


def test_state_begins_anew(tmp_path: Path) -> None:
    path = tmp_path / "state.onnx"
    onnx.save(parser.parse_model(STATE), str(path))
    shapes = ("--shape", "n=0..2", "--state", "past=present")
    assert figures(str(path), *shapes)["seconds"]["runs"] >= 2  # a third run would have no room
