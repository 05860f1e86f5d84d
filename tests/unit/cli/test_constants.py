"""Text and its constants beside it are a whole model."""

import io
import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from glowpy.cli.files import read_arrays, read_constants, write_constants
from glowpy.cli.main import run
from glowpy.core.tensor import Array
from glowpy.graph.function import Module
from glowpy.graph.printer import print_module
from glowpy.support.errors import LoadError
from tests.e2e.models import mlp


def command(*argv: str) -> str:
    out = io.StringIO()
    status = run(argv, io.StringIO(), out)
    assert status == 0, out.getvalue()
    return out.getvalue()


@pytest.mark.parametrize("stage", ["graph", "lowered"])
def test_dump_and_run_again(tmp_path: Path, stage: str) -> None:
    text, npz = tmp_path / "mlp.glow", str(tmp_path / "mlp.npz")
    text.write_text(print_module(mlp()))
    write_constants(Path(npz), mlp().constants)
    first = json.loads(command("run", str(text), "--constants", npz, "--json"))
    again, npz2 = tmp_path / "again.glow", str(tmp_path / "again.npz")
    argv = ["dump", str(text), "--constants", npz, "--stage", stage]
    command(*argv, "-o", str(again), "--save-constants", npz2)
    second = json.loads(command("run", str(again), "--constants", npz2, "--json"))
    assert first["outputs"] == second["outputs"]


def test_without_the_constants(tmp_path: Path) -> None:
    text = tmp_path / "mlp.glow"
    text.write_text(print_module(mlp()))
    assert "sha256" in text.read_text()
    out = io.StringIO()
    assert run(["run", str(text)], io.StringIO(), out) == 1
    assert "only the digest" in out.getvalue()


def test_elements_of_another_digest(tmp_path: Path) -> None:
    wrong: dict[str, Any] = {"0" * 64: np.zeros(3, np.float32)}
    np.savez(tmp_path / "bad.npz", **wrong)
    (tmp_path / "mlp.glow").write_text(print_module(mlp()))
    out = io.StringIO()
    argv = ["run", str(tmp_path / "mlp.glow"), "--constants", str(tmp_path / "bad.npz")]
    assert run(argv, io.StringIO(), out) == 1
    assert "not the ones of that digest" in out.getvalue()


def test_elements_that_are_no_numbers(tmp_path: Path) -> None:
    np.savez(tmp_path / "bad.npz", words=np.array(["a"]))
    with pytest.raises(LoadError, match=r"bad\.npz: expected an array of numbers") as caught:
        read_constants(str(tmp_path / "bad.npz"))
    assert caught.value.diagnostics[0].loc.file.endswith("bad.npz")


@pytest.mark.parametrize("dtype", [np.float16, ml_dtypes.bfloat16, np.int8, np.bool_])
def test_every_kind_survives(tmp_path: Path, dtype: type) -> None:
    module = Module()
    array: Array = np.arange(20).astype(dtype)
    write_constants(tmp_path / "c.npz", [module.create_constant("c", array)])
    (stored,) = read_constants(str(tmp_path / "c.npz")).values()
    assert stored.dtype == array.dtype
    assert stored.tobytes() == array.tobytes()


def test_files_get_the_usual_permissions(tmp_path: Path) -> None:
    (tmp_path / "plain").write_text("")
    write_constants(tmp_path / "c.npz", [])
    assert (tmp_path / "c.npz").stat().st_mode == (tmp_path / "plain").stat().st_mode
    assert read_arrays(str(tmp_path / "c.npz")) == {}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["c.npz", "plain"]
