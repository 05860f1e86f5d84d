"""`glowpy doctor` and `glowpy demo`."""

import io
import json
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser

from glowpy.cli import demo as demo_module
from glowpy.cli import doctor as doctor_module
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.graph.parser import parse_module
from glowpy.ir.plan import parse_plan
from glowpy.llvm.library import KernelLibrary
from glowpy.onnx_package.networks import packaged_network
from glowpy.onnx_package.random_weights import with_random_weights


def test_doctor() -> None:
    out = io.StringIO()
    assert run(["doctor", "--json"], io.StringIO(), out) == 0
    report = json.loads(out.getvalue())
    assert report["self-test cpu"] == report["self-test interpreter"] == "passed"
    assert re.fullmatch(r"bitcode-[0-9a-f]{64} of the cache", report["kernel bitcode"])


def test_doctor_where_the_cache_is_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")
    monkeypatch.setattr(doctor_module, "_self_test", lambda backend: "passed")
    monkeypatch.setattr(KernelLibrary, "bitcode", lambda library, variant: b"")
    out = io.StringIO()
    assert run(["doctor", "--json"], io.StringIO(), out) == 0
    report = json.loads(out.getvalue())
    assert report["cache"] == "the cache is turned off: GLOWPY_CACHE_DIR is 'off'"
    assert report["kernel bitcode"] == "compiled for this process, as there is no cache"


def test_doctor_when_a_self_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "_self_test", lambda backend: "failed: broken")
    out = io.StringIO()
    assert run(["doctor"], io.StringIO(), out) == 1
    assert "failed: broken" in out.getvalue()


MODEL = """
<ir_version: 8, opset_import: ["": 17]>
g (float[1, 2, 4, 4] x) => (float[1, 8] y)
<float[3, 2, 3, 3] filter, float[12, 8] weights, float[8] bias> {
  c = Conv(x, filter)
  r = Relu(c)
  f = Flatten(r)
  y = Gemm(f, weights, bias)
}
"""


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Instead of a network of the onnx package, one that compiles in no time; its weights are equal as theirs are."""
    model = parser.parse_model(MODEL)
    for info, value in zip(list(model.graph.value_info), (0.5, 0.25, -3.0), strict=True):
        shape = tuple(dim.dim_value for dim in info.type.tensor_type.shape.dim)
        array = np.full(shape, value, np.float32)
        model.graph.initializer.append(numpy_helper.from_array(array, info.name))
    file = tmp_path / "model.onnx"
    onnx.save(model, str(file))
    monkeypatch.setattr(demo_module, "packaged_network", lambda name: file)
    monkeypatch.setattr(demo_module, "_SECONDS", 0.0)
    return file


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
    check_demo(tmp_path)


@pytest.mark.usefixtures("small")
def test_demo_of_a_small_network(tmp_path: Path) -> None:
    check_demo(tmp_path / "dumps")


def check_demo(tmp_path: Path) -> None:
    out = io.StringIO()
    assert run(["demo", "--output", str(tmp_path)], io.StringIO(), out) == 0, out.getvalue()
    text = out.getvalue()
    for stage in ("load", "optimize", "lower", "schedule", "irgen", "memory", "codegen", "run"):
        assert f"\n  {stage} " in text
    assert text.count("right: compared with") == 2
    assert f"dumps: {tmp_path}" in text
    stages = {"graph.glow", "lowered.glow", "ir.glow", "memory.glow"}
    assert {path.name for path in tmp_path.iterdir()} == {*stages, "squeezenet.onnx"}
    parse_module((tmp_path / "graph.glow").read_text())
    plan = parse_plan((tmp_path / "memory.glow").read_text())
    assert f"peak {plan.peak:,} bytes, lower bound {plan.lower_bound:,}" in text
    different = re.search(r"numbers from .*, (\d+) different ones", text)
    assert different is not None
    assert int(different[1]) > 4  # the weights in the package give one


def demo_report(folder: Path, status: int = 0) -> dict[str, Any]:
    out = io.StringIO()
    assert run(["demo", "--output", str(folder), "--json"], io.StringIO(), out) == status
    report: dict[str, Any] = json.loads(out.getvalue())
    return report


@pytest.mark.usefixtures("small")
def test_figures_of_the_demo(tmp_path: Path) -> None:
    report = demo_report(tmp_path / "dumps")
    for stage in ("lower", "schedule", "irgen"):
        assert report["seconds"][stage] == report["pass_seconds"][stage]
    assert min(report["seconds"].values()) > 0
    for figure in ("nodes", "instructions", "memory_peak", "weights", "functions", "object_bytes"):
        assert report[figure] > 0
    interpreter, peer = report["checks"].values()
    assert interpreter["run_seconds"] is None
    assert peer["run_seconds"] > 0


@pytest.mark.usefixtures("small")
def test_what_the_demo_says_is_next_works(tmp_path: Path) -> None:
    commands = demo_report(tmp_path / "dumps")["next"]
    assert [command.split()[1] for command in commands] == ["run", "dump", "bundle"]
    for command in commands:
        out = io.StringIO()
        assert run(command.split()[1:], io.StringIO(), out) == 0, out.getvalue()


@pytest.mark.usefixtures("small")
def test_demo_without_onnxruntime(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnxruntime", None)
    assert list(demo_report(tmp_path / "dumps")["checks"]) == ["the interpreter"]


def test_random_weights(small: Path) -> None:
    first, second, other = (with_random_weights(small, seed) for seed in (0, 0, 1))
    assert first.SerializeToString() == second.SerializeToString() != other.SerializeToString()
    weights = {t.name: numpy_helper.to_array(t) for t in first.graph.initializer}
    for name, fan_in in (("filter", 18), ("weights", 12)):
        assert weights[name].std() == pytest.approx(np.sqrt(2 / fan_in), rel=0.25)
    assert 0.1 <= weights["bias"].min() < weights["bias"].max() <= 0.2


def test_random_weights_stand_for_constants_of_one_value() -> None:
    model = with_random_weights(packaged_network("squeezenet"), 0)
    assert {node.op_type for node in model.graph.node} >= {"Conv", "Relu", "Softmax"}
    assert all(node.op_type != "ConstantOfShape" for node in model.graph.node)
    onnx.checker.check_model(model, full_check=True)
    assert len(model.graph.initializer) == 52
    assert all(np.ptp(numpy_helper.to_array(tensor)) > 0 for tensor in model.graph.initializer)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("right", ["interpreter", "onnxruntime"])
def test_demo_fails_when_the_result_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, right: str
) -> None:
    class Wrong:
        def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
            return {"y": np.zeros((1, 8), np.float32)}

    if right == "onnxruntime":
        monkeypatch.setattr(demo_module, "compile", lambda function, backend: Wrong())
    else:
        monkeypatch.setattr(demo_module, "_onnxruntime", lambda model: Wrong())
    checks = demo_report(tmp_path, status=1)["checks"]
    assert {
        name.split()[-1] if "the" in name else name.split()[0]: c["right"]
        for name, c in checks.items()
    } == {"interpreter": right == "interpreter", "onnxruntime": right == "onnxruntime"}
