"""`glowpy doctor` and `glowpy demo`."""

import io
import json
from pathlib import Path

import numpy as np
import pytest

from glowpy.cli import demo as demo_module
from glowpy.cli import doctor as doctor_module
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.engine import compile
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.importer.onnx.reference import read_tensor
from glowpy.ir.plan import parse_plan


def test_doctor() -> None:
    out = io.StringIO()
    assert run(["doctor", "--json"], io.StringIO(), out) == 0
    report = json.loads(out.getvalue())
    assert report["self-test cpu"] == report["self-test interpreter"] == "passed"
    assert Path(report["kernel bitcode"]).is_file()
    assert report["kernel variant"] in report["kernel bitcode"]


def test_doctor_when_a_self_test_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor_module, "_self_test", lambda backend: "failed: broken")
    out = io.StringIO()
    assert run(["doctor"], io.StringIO(), out) == 1
    assert "failed: broken" in out.getvalue()


@pytest.mark.slow
def test_demo(tmp_path: Path) -> None:
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


@pytest.mark.slow
def test_demo_fails_when_the_result_is_not_the_expected_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def wrong(path: Path) -> Array:
        tensor: Array = read_tensor(path) + np.float32(0.01)
        return tensor

    monkeypatch.setattr(demo_module, "read_tensor", wrong)
    assert verdicts(tmp_path) == (1, [False, True])


@pytest.mark.slow
def test_demo_fails_when_the_backends_disagree(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong:
        def __call__(self, inputs: dict[str, Array]) -> dict[str, Array]:
            return {"softmaxout_1": np.zeros((1, 1000, 1, 1), np.float32)}

    def half(module: Module, backend: str) -> object:
        return Wrong() if backend == "cpu" else compile(module, backend)

    monkeypatch.setattr(demo_module, "compile", half)
    assert verdicts(tmp_path) == (1, [True, False])


def verdicts(folder: Path) -> tuple[int, list[bool]]:
    out = io.StringIO()
    status = run(["demo", "--output", str(folder), "--json"], io.StringIO(), out)
    checks = json.loads(out.getvalue())["checks"]
    return status, [check["right"] for check in checks.values()]
