"""`glowpy doctor` and `glowpy demo`."""

import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import numpy_helper, parser
from onnx.reference import ReferenceEvaluator

from glowpy.cli import demo as demo_module
from glowpy.cli import doctor as doctor_module
from glowpy.cli.main import run
from glowpy.cli.model import load_model
from glowpy.core.tensor import Array
from glowpy.engine import compile
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.importer.onnx.reference import read_tensor
from glowpy.ir.plan import parse_plan
from glowpy.opt.known import known


def test_doctor() -> None:
    out = io.StringIO()
    assert run(["doctor", "--json"], io.StringIO(), out) == 0
    report = json.loads(out.getvalue())
    assert report["self-test cpu"] == report["self-test interpreter"] == "passed"
    assert re.fullmatch(r"bitcode-[0-9a-f]{64} of the cache", report["kernel bitcode"])


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
    x = (np.arange(32, dtype=np.float32) / 32).reshape(1, 2, 4, 4)
    (y,) = ReferenceEvaluator(model).run(None, {"x": x})
    files = tmp_path / "model.onnx", tmp_path / "output.pb"
    onnx.save(model, str(files[0]))
    files[1].write_bytes(numpy_helper.from_array(np.asarray(y)).SerializeToString())
    monkeypatch.setattr(demo_module, "packaged_network", lambda name: files)
    return files[0]


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
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"graph.glow", "lowered.glow", "ir.glow", "memory.glow"}
    parse_module((tmp_path / "graph.glow").read_text())
    plan = parse_plan((tmp_path / "memory.glow").read_text())
    assert f"peak {plan.peak:,} bytes, lower bound {plan.lower_bound:,}" in text


@pytest.mark.usefixtures("small")
def test_times_of_the_demo(tmp_path: Path) -> None:
    out = io.StringIO()
    assert run(["demo", "--output", str(tmp_path / "dumps"), "--json"], io.StringIO(), out) == 0
    report = json.loads(out.getvalue())
    for stage in ("lower", "schedule", "irgen"):
        assert report["seconds"][stage] == report["pass_seconds"][stage]
    assert min(report["seconds"].values()) > 0


def test_random_weights_keep_activations_at_their_size(small: Path) -> None:
    module = load_model(str(small))
    copy = demo_module._with_random_weights(module)
    used = {value.type.shape: value for node in copy.functions[0].nodes for value in node.inputs}
    weights = {shape: known(value) for shape, value in used.items()}
    for shape, fan_in in (((3, 3, 3, 2), 18), ((12, 8), 12)):
        array = weights[shape]
        assert array is not None
        assert array.std() == pytest.approx(np.sqrt(2 / fan_in), rel=0.25)
    bias = weights[(8,)]
    assert bias is not None
    assert 0.1 <= bias.min() < bias.max() <= 0.2


@pytest.mark.usefixtures("small")
def test_demo_fails_when_the_result_is_not_the_expected_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(path: Path) -> Array:
        tensor: Array = read_tensor(path) * np.float32(1.01)
        return tensor

    monkeypatch.setattr(demo_module, "read_tensor", wrong)
    assert verdicts(tmp_path / "dumps") == (1, [False, True])


@pytest.mark.usefixtures("small")
def test_demo_fails_when_the_backends_disagree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
            return {"y": np.zeros((1, 8), np.float32)}

    def half(module: Module, backend: str) -> object:
        return Wrong() if backend == "cpu" else compile(module, backend)

    monkeypatch.setattr(demo_module, "compile", half)
    assert verdicts(tmp_path) == (1, [True, False])


def verdicts(folder: Path) -> tuple[int, list[bool]]:
    out = io.StringIO()
    status = run(["demo", "--output", str(folder), "--json"], io.StringIO(), out)
    checks = json.loads(out.getvalue())["checks"]
    return status, [check["right"] for check in checks.values()]
