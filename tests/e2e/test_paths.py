"""Where Python and users are in other places: packages on a path that a program sets, and users without a home."""

import os
import subprocess
import sys
from pathlib import Path

import llvmlite
import pytest

from glowpy.support import cache_folder as module
from glowpy.support.cache_folder import cache_folder, set_cache_limit
from glowpy.support.errors import UserError

COMPILE = """
from glowpy.llvm import objects
from glowpy.llvm.machine import Machine, host_cpu, host_triple
objects.usable_cores = lambda: 2
machine = Machine(host_triple(), host_cpu(), "")
texts = [f"define i32 @f{n}() {{ ret i32 {n} }}" for n in range(8)]
assert len(set(objects.compile_objects(texts, machine, [], use_cache=False))) == 8
assert objects.compile_whole(texts[0], machine, [], "assembly")[0]
assert not machine.problem()
from glowpy.bundling import link
compiler = link.c_compiler(host_triple(), system=False)
assert "ziglang" not in compiler or link._ends_well([*compiler, "--version"], ".")
"""


def python(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A Python outside the virtual environment, which finds no packages by itself."""
    command = [str(Path(sys.executable).resolve()), "-S", *arguments]
    variables = {"PATH": os.defpath, "HOME": "/nowhere", **environment}
    return subprocess.run(command, env=variables, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("way", ["environment", "program"])
def test_processes_that_compile_find_what_this_one_finds(way: str) -> None:
    folders = [str(Path(__file__).parents[2]), *sys.path]
    if way == "environment":
        done = python("-c", COMPILE, PYTHONPATH=os.pathsep.join(folders))
    else:
        done = python("-c", f"import sys; sys.path[:] = {folders!r}\n{COMPILE}")
    assert done.returncode == 0, done.stderr


def test_files_of_the_current_folder_are_not_taken_for_pythons_own(tmp_path: Path) -> None:
    for name in ("struct", "json", "select", "ctypes"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a file of the user')")
    body = COMPILE.replace(
        "objects.usable", f"import os; os.chdir({str(tmp_path)!r})\nobjects.usable"
    )
    body = body[: body.index("from glowpy.bundling")]
    folders = os.pathsep.join([str(Path(__file__).parents[2]), *sys.path])
    done = python("-c", body, PYTHONPATH=folders)
    assert done.returncode == 0, done.stderr


def test_packages_beside_llvm_are_not_taken_for_pythons_own(tmp_path: Path) -> None:
    """As backports in a folder of packages, which a program adds once Python's own are imported."""
    for name in ("enum", "platform", "tempfile", "zipfile"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('a backport')")
    (tmp_path / "llvmlite").symlink_to(Path(llvmlite.__file__).parent)
    folders = [str(Path(__file__).parents[2]), *sys.path]
    early = (
        f"import ctypes, platform, sys, tempfile, zipfile; sys.path[:] = {folders!r}; import numpy"
    )
    body = COMPILE[: COMPILE.index("from glowpy.bundling")]
    done = python("-c", f"{early}\nsys.path.insert(0, {str(tmp_path)!r})\n{body}")
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("way", ["raises", "stays relative"])
def test_a_user_without_a_home_has_no_cache(monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    def user_cache_path(*_: object, **__: object) -> Path:
        if way == "raises":
            raise RuntimeError("could not determine the home directory for '~/.cache'")
        return Path("~/.cache/glowpy")

    monkeypatch.setenv("GLOWPY_CACHE_DIR", "")
    monkeypatch.setattr(module, "user_cache_path", user_cache_path)
    assert cache_folder() is None
    with pytest.raises(UserError, match="this user has no home"):
        set_cache_limit(100)
