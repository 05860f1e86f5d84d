"""A network is called with the inputs of the user's model, whichever face it is used through."""

import io
import json
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

import glowpy
from glowpy import BundleOptions
from glowpy.bundling.make import bundle
from glowpy.cli.main import run
from glowpy.engine import compilation
from glowpy.recipe import Stage

INPUTS = ["x", "unread", "dropped"]
"""Nothing ever reads the second; the optimizer finds that the result does not depend on the third."""

MODEL = onnx.parser.parse_model(
    """<ir_version: 8, opset_import: ["": 17]>
    g (float[3] x, float[2] unread, float[3] dropped) => (float[3] y) <bool always = {1}> {
      chosen = Where(always, x, dropped)
      y = Exp(chosen)
    }"""
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(MODEL, tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_compiled_functions(backend: str) -> None:
    x = np.array([0.0, 1.0, -1.0], np.float32)
    feeds = {"x": x, "unread": np.zeros(2, np.float32), "dropped": x}
    compiled = glowpy.compile(glowpy.load(MODEL), backend)
    assert list(compiled.inputs) == INPUTS
    np.testing.assert_allclose(compiled(feeds)["y"], np.exp(x), rtol=1e-6)


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_programs_and_dumps(backend: str) -> None:
    stages = compilation(glowpy.load(MODEL), backend)
    assert [port.name for port in stages.program.ports.inputs] == INPUTS
    for name in INPUTS:
        assert f"%{name} = weight" in stages.text(Stage.IR)
        assert f"%{name} : " in stages.text(Stage.MEMORY)


def test_sessions() -> None:
    assert [info.name for info in glowpy.InferenceSession(MODEL).get_inputs()] == INPUTS


def test_verbs(path: Path) -> None:
    out = io.StringIO()
    flags = [f"--input={name}={path.parent / name}.npy" for name in INPUTS]
    for name, size in zip(INPUTS, (3, 2, 3), strict=True):
        np.save(path.parent / f"{name}.npy", np.ones(size, np.float32))
    assert run(["run", str(path), *flags, "--json"], io.StringIO(), out) == 0, out.getvalue()
    assert json.loads(out.getvalue())
    graph, ir = io.StringIO(), io.StringIO()
    assert run(["dump", str(path)], io.StringIO(), graph) == 0
    assert run(["opt", "-", "-p", "lower,irgen"], io.StringIO(graph.getvalue()), ir) == 0
    assert all(f"%{name} = weight" in ir.getvalue() for name in INPUTS)


def test_bundles(tmp_path: Path) -> None:
    result = bundle(glowpy.load(MODEL), tmp_path, BundleOptions("net", api="static"))
    header = (tmp_path / "net.h").read_text()
    assert result.files
    offsets = [f"NET_{name.upper()}_OFFSET" for name in INPUTS]
    assert [offset for offset in offsets if offset not in header] == []
