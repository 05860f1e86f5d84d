"""A backend in a package of its own, built and installed as its author and its user would."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "tests" / "plugin_backend"

pytestmark = pytest.mark.timeout(300)

USE = """
import numpy as np
import onnx.parser
import glowpy

model = onnx.parser.parse_model('''<ir_version: 8, opset_import: ["": 17]> g (float[3,40] x) => (float[3,40] y) {
    scale = Constant<value_float=0.25>()  scaled = Mul(x, scale)  p = Softmax(scaled)  h = HardSwish(x)  y = Add(p, h)
}''')
x = np.random.default_rng(0).standard_normal((3, 40), np.float32) * 8
session = glowpy.InferenceSession(model, backend="fused")
expected = glowpy.InferenceSession(model, backend="interpreter").run(None, {"x": x})[0]
np.testing.assert_allclose(session.run(None, {"x": x})[0], expected, rtol=1e-5, atol=1e-6)
from glowpy.engine import backend_of, compilation
program = compilation(glowpy.load(model), "fused").program
print(*sorted({inst.SCHEMA.mnemonic for inst in program.ir.instructions}))
kernels = backend_of("fused").kernels
print(*[library.origin(kernels.variant) for library in kernels.libraries], sep="\\n")
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the installed package. What it needs to be built and to run is lent by ours."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(
        PACKAGE, folder / "source", ignore=shutil.ignore_patterns("__pycache__")
    )
    options = ["--quiet", "--no-deps", "--no-index", "--no-build-isolation"]
    command = [sys.executable, "-m", "pip", "install", *options]
    command += ["--target", str(folder / "site"), str(source)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return folder / "site"


def python(site: Path, *argv: str, cwd: Path) -> str:
    """What a program prints that knows the installed package."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(site), str(ROOT)])}
    done = subprocess.run(
        [sys.executable, *argv],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_network_runs_on_an_installed_backend(site: Path, tmp_path: Path) -> None:
    mnemonics, libjit, own = python(site, "-c", USE, cwd=tmp_path).splitlines()
    assert {"fused_scaled_softmax", "hard_swish"} <= set(mnemonics.split())
    assert not Path(libjit).is_relative_to(site)
    assert Path(own).parent == site / "glowpy_fused" / "kernels" / "bitcode"
    assert Path(own).with_suffix(".symbols").is_file()


def test_doctor_says_which_package_it_comes_from(site: Path, tmp_path: Path) -> None:
    report = json.loads(python(site, "-m", "glowpy", "doctor", "--json", cwd=tmp_path))
    assert report["backend fused"] == "glowpy-fused 0.1.0"
    assert report["self-test fused"] == "passed"


def test_generated_files_are_what_the_authors_command_writes(site: Path, tmp_path: Path) -> None:
    """From a checkout of glowpy, for a package anywhere; formatted as the package's own settings say."""
    settings = (
        '[tool.ruff]\nline-length = 100\n[tool.ruff.lint.isort]\nknown-first-party = ["glowpy"]\n'
    )
    (tmp_path / "pyproject.toml").write_text(settings)
    compiled = shutil.ignore_patterns("__pycache__")
    folder = shutil.copytree(site / "glowpy_fused", tmp_path / "glowpy_fused", ignore=compiled)
    generated = sorted(folder.rglob("*_gen.*"))
    assert [file.name for file in generated] == [
        "insts_gen.py", "kernels_gen.h", "kernels_gen.py", "nodes_gen.py",
    ]  # fmt: skip
    for file in generated:
        file.unlink()
    python(site, "-m", "classgen", "--package", str(folder), cwd=ROOT)
    for file in generated:
        name = file.relative_to(folder)
        assert file.read_text() == (PACKAGE / "glowpy_fused" / name).read_text(), name
