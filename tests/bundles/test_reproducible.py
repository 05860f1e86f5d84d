"""Equal models, options and versions make equal bytes, and nothing but Python is needed to make them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.bundling.make import model_fingerprint
from tests.bundles.programs import ALONE, MODEL

ROOT = Path(__file__).resolve().parents[2]

EVERY_KIND = (
    MODEL
    + """
from pathlib import Path

out = Path("out").resolve()
arm = CpuBackend(CpuOptions("aarch64-linux-gnu"))
bundle(model(), out / "file", BundleOptions("net"))
bundle(model(), out / "full", BundleOptions("net", api="dynamic", weights="embedded", selftest=2,
                                            guard=True, debug=True))
bundle(model(), out / "header", BundleOptions("net", emit="lib", weights="header"))
bundle(model(), out / "assembly", BundleOptions("net", emit="asm"))
bundle(model(), out / "llvm", BundleOptions("net", emit="llvm"))
bundle({"one": model(), "two": model(2.0)}, out / "several", BundleOptions("net"), arm)
"""
)

SHARED = (
    MODEL
    + """
bundle(model(), "out/shared", BundleOptions("net", emit="shared", debug=True))
"""
)


def run(program: str, folder: Path, **environment: str) -> str:
    """What the program prints in a process of its own that works in `folder`."""
    folder.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder by its name."""
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def expect_reproducible(program: str, tmp_path: Path, least: int, **environment: str) -> None:
    """Two processes with other hash seeds, folders, time zones and languages write the same bytes."""
    first, second = tmp_path / "first", tmp_path / "another one"
    run(program, first, PYTHONHASHSEED="1", TZ="UTC", LANG="C", **environment)
    run(program, second, PYTHONHASHSEED="4242", TZ="Asia/Tokyo", LANG="de_DE.UTF-8", **environment)
    one, other = contents(first / "out"), contents(second / "out")
    assert list(one) == list(other)
    assert len(one) >= least
    assert [name for name in one if one[name] != other[name]] == []
    for name, content in one.items():
        for path in (tmp_path, ROOT, Path(sys.prefix), Path.home()):
            assert os.fsencode(path) not in content or path == Path("/"), f"{path} in {name}"


def test_every_kind_of_bundle_has_equal_bytes(tmp_path: Path) -> None:
    expect_reproducible(EVERY_KIND, tmp_path, 35)


@pytest.mark.skipif(sys.platform != "linux", reason="shared bundles are linked for Linux")
@pytest.mark.parametrize("search", [os.environ.get("PATH", ""), ""], ids=["system", "ziglang"])
def test_shared_bundles_have_equal_bytes(search: str, tmp_path: Path) -> None:
    """Linked by the system's compiler, and where there is none by ziglang."""
    expect_reproducible(SHARED, tmp_path, 5, PATH=search)


def test_bundles_and_machine_code_need_no_compiler(tmp_path: Path) -> None:
    LIBJIT.bitcode(CpuBackend().target.variant)  # what a wheel brings
    assert run(ALONE, tmp_path / "alone", PATH="") == "no linker"
    files = contents(tmp_path / "alone" / "out")
    assert {"file/net.o", "file/net.weights.bin", "embedded/net.o", "lib/libnet.a"} <= set(files)


def model(extra: float = 1.0) -> Module:
    """The module that the programs define."""
    names: dict[str, object] = {}
    exec(MODEL, names)
    module = names["model"](extra)  # type: ignore[operator]
    assert isinstance(module, Module)
    return module


def test_the_fingerprint_is_in_the_manifest(tmp_path: Path) -> None:
    options = BundleOptions("net")
    glowpy.bundle(model(), tmp_path, options)
    manifest = json.loads((tmp_path / "net.json").read_text(encoding="utf-8"))
    assert manifest["fingerprint"] == model_fingerprint(model(), options, CpuBackend())


def test_what_makes_another_bundle_has_another_fingerprint() -> None:
    plain, here = BundleOptions("net"), CpuBackend()
    arm = CpuOptions(target="aarch64-linux-gnu")
    kinds = [
        *(
            (model(), options, here)
            for options in (
                plain,
                replace(plain, name="other"),
                replace(plain, api="dynamic"),
                replace(plain, emit="lib"),
                replace(plain, weights="header"),
                replace(plain, weights="embedded"),
                replace(plain, weights="embedded", selftest=1),
                replace(plain, guard=True),
                replace(plain, debug=True),
                replace(plain, instrument="ir"),
            )
        ),
        (model(), plain, CpuBackend(arm)),
        (model(), plain, CpuBackend(replace(arm, cpu="cortex-a72"))),
        (model(), plain, CpuBackend(replace(arm, features="+sve"))),
        (model(np.nextafter(np.float32(1), np.float32(2)).item()), plain, here),
    ]
    assert len({model_fingerprint(*kind) for kind in kinds}) == len(kinds)


def test_how_it_is_made_does_not_change_the_fingerprint() -> None:
    plain = BundleOptions("net")
    ways = [CpuBackend(), CpuBackend(CpuOptions(perf_map=True)), CpuBackend(CpuOptions(debug="ir"))]
    assert len({model_fingerprint(model(), plain, way) for way in ways}) == 1
