"""docs/bundles.md, from the model to three programs: its commands are run, and all print the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from onnx.reference import ReferenceEvaluator

from tests.bundles.networks import need
from tests.docs.blocks import Page, blocks

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "bundles.md"
SHELL = {block.name: block.text for block in blocks(PAGE.read_text()) if block.kind == "sh"}
TOOLS = {
    "linux": ["cc"],
    "verify": ["qemu-aarch64"],
    "cortex-m7": ["qemu-system-arm"],
    "browser": ["node"],
    "batch": ["cc"],
}


@pytest.fixture(scope="module")
def walk(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which everything on the page but the shell blocks has happened."""
    folder = tmp_path_factory.mktemp("walk")
    (folder / "docs").symlink_to(ROOT / "docs")
    programs = folder / "programs"
    programs.mkdir()
    python = f'PYTHONPATH="{ROOT}" exec "{sys.executable}"'
    for name, words in (("glowpy", " -m glowpy"), ("python", "")):
        (programs / name).write_text(f'#!/bin/sh\n{python}{words} "$@"\n')
        (programs / name).chmod(0o755)
    here = Path.cwd()
    os.chdir(folder)
    try:
        Page(PAGE, folder).run()
    finally:
        os.chdir(here)
    return folder


def shell(walk: Path, name: str) -> str:
    """What a block prints; semihosting prints on QEMU's standard error."""
    need("bash", *TOOLS[name])
    environment = {**os.environ, "PATH": f"{walk / 'programs'}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-euc", SHELL[name]],
        cwd=walk, env=environment, capture_output=True, text=True, check=False, timeout=500,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def numbers(text: str) -> list[float]:
    """The outputs a program prints."""
    match = re.search(r"^y: (.*)$", text, re.MULTILINE)
    assert match is not None, text
    return [float(word) for word in match[1].split()]


def test_every_shell_block_is_tested() -> None:
    assert list(SHELL) == list(TOOLS)


def test_verify(walk: Path) -> None:
    assert "right" in shell(walk, "verify")


@pytest.mark.parametrize("name", ["linux", "cortex-m7", "browser"])
def test_programs_print_what_onnx_computes(name: str, walk: Path) -> None:
    printed = numbers(shell(walk, name))
    ramp = (np.arange(16) % 17 / 16).astype(np.float32).reshape(1, 16)
    (expected,) = ReferenceEvaluator(str(walk / "mlp.onnx")).run(["y"], {"x": ramp})
    assert printed == pytest.approx(np.asarray(expected)[0], abs=2e-6)


def test_a_program_with_open_dimensions(walk: Path) -> None:
    """It prints the first eight results of three rows."""
    printed = numbers(shell(walk, "batch").replace(" ...", ""))
    ramp = (np.arange(48) % 17 / 16).astype(np.float32).reshape(3, 16)
    (expected,) = ReferenceEvaluator(str(walk / "batch.onnx")).run(["y"], {"x": ramp})
    assert printed == pytest.approx(np.asarray(expected).reshape(-1)[:8], abs=2e-6)


def test_cmake(walk: Path) -> None:
    need("cmake", "cc")
    for words in (["-S", "build/linux", "-B", "build/cmake"], ["--build", "build/cmake"]):
        done = subprocess.run(
            ["cmake", *words], cwd=walk, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
    example = subprocess.run(
        ["../cmake/mlp_example"],
        cwd=walk / "build" / "linux",
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(numbers(example.stdout)) == 4
