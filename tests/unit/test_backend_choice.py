"""Backends by name: glowpy's own are known without metadata, and none is imported before it is asked for."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import ClassVar

import pytest

import glowpy
from glowpy import plugins
from glowpy.backend import Backend, CompileOptions, Operation, Program
from glowpy.backend_choice import backend_of
from glowpy.backends.builtin import BACKENDS, PLACES
from glowpy.cli.backends import bound_backend
from glowpy.runtime.artifact import Artifact
from glowpy.support.errors import UserError

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True)
class ExactOptions:
    exact: bool = False


class Exact(Backend):
    """A backend with an option that verbs have a name for."""

    name: ClassVar[str] = "exact"
    options_type: ClassVar[type | None] = ExactOptions

    def __init__(self, options: ExactOptions | None = None) -> None:
        super().__init__()
        self.options = options or ExactOptions()

    def unsupported(self, operation: Operation) -> str:
        return f"no {operation.mnemonic}"

    def compile(self, program: Program, options: CompileOptions) -> Artifact:
        raise AssertionError("nothing is supported, so nothing is compiled")


@pytest.fixture
def entries(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[EntryPoint]]:
    """The entry points of the group, to be filled in before the first question."""
    entries: list[EntryPoint] = []
    monkeypatch.setattr(plugins, "entry_points", lambda *, group: entries)
    plugins.plugins.cache_clear()
    yield entries
    plugins.plugins.cache_clear()


def test_the_table_and_the_entry_points_name_the_same() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"][plugins.GROUP] == dict(PLACES)
    assert {name: cls.name for name, cls in BACKENDS.items()} == {name: name for name in PLACES}


def test_our_own_entry_points_are_no_plugins(entries: list[EntryPoint]) -> None:
    """Whether metadata has them or is older than the tree, which then has none of them or another class."""
    entries += [EntryPoint(name, place, plugins.GROUP) for name, place in PLACES.items()]
    assert plugins.plugins() == ()
    plugins.plugins.cache_clear()
    entries[0] = EntryPoint("cpu", "glowpy.backends.cpu.old:CpuBackend", plugins.GROUP)
    (plugin,) = plugins.plugins()
    assert plugin.name == "cpu"
    assert plugins.name_fault("cpu")
    assert backend_of("cpu").name == "cpu"


CODE = """
import sys
import numpy as np
import glowpy
from glowpy.engine import BACKENDS
assert [*BACKENDS] == ["cpu", "interpreter"] and "cpu" in BACKENDS and "gpu" not in BACKENDS
module = glowpy.Module()
x, y = (module.create_placeholder(name, glowpy.parse_type("f32[2]")) for name in "xy")
f = module.create_function("main")
f.create_save("save", f.create_exp("e", x), y)
assert (glowpy.compile(module, "interpreter")({"x": np.zeros(2, np.float32)})["y"] == 1).all()
print(*[name for name in sys.modules if name.startswith(("glowpy.backends.cpu", "llvmlite", "onnx"))])
assert glowpy.engine.backend_of("cpu").name == "cpu"
"""


def test_a_backend_is_imported_when_it_is_asked_for(tmp_path: Path) -> None:
    """Also by a checkout that is not installed, whose metadata nobody can read."""
    (tmp_path / "importlib_metadata_off.py").write_text(
        "import importlib.metadata as m\nm.entry_points = lambda **_: ()\n"
    )
    command = [sys.executable, "-c", "import importlib_metadata_off\n" + CODE]
    paths = os.pathsep.join(map(str, (ROOT, tmp_path)))
    environment = {**os.environ, "PYTHONPATH": paths}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ""


def test_verbs_give_any_backend_the_options_that_it_has(entries: list[EntryPoint]) -> None:
    entries.append(EntryPoint("exact", f"{__name__}:Exact", plugins.GROUP))
    backend = bound_backend("exact", glowpy.CpuOptions(exact=True))
    assert isinstance(backend, Exact)
    assert backend.options.exact
    with pytest.raises(UserError, match="the exact backend has no option --low-memory"):
        bound_backend("exact", glowpy.CpuOptions(exact=True, low_memory=True))
    with pytest.raises(UserError, match="the interpreter backend has no option --exact"):
        bound_backend("interpreter", glowpy.CpuOptions(exact=True))


def test_an_option_beside_a_backend_says_where_it_belongs(tmp_path: Path) -> None:
    for backend, remedy in (
        (glowpy.CpuBackend(), r"CpuBackend\(CpuOptions\(threads=2\)\)"),
        (glowpy.InterpreterBackend(), "leave it out"),
        (Exact(), "leave it out"),
    ):
        with pytest.raises(UserError, match=remedy):
            glowpy.InferenceSession(tmp_path / "net.onnx", backend=backend, threads=2)
