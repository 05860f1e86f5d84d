"""What a shell is offered after the Tab key."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from click.shell_completion import BashComplete

from glowpy.backends.cpu.presets import PRESETS
from glowpy.cli.main import VERBS, _glowpy
from glowpy.recipe import Stage

ROOT = Path(__file__).resolve().parents[3]


def offered(*words: str) -> list[str]:
    """For a command line whose last word is not finished."""
    shell = BashComplete(_glowpy, {}, "glowpy", "_GLOWPY_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_verbs() -> None:
    assert set(offered("")) == set(VERBS)


@pytest.mark.parametrize("verb", ["bundle", "dump", "opt"])
def test_targets(verb: str) -> None:
    assert offered(verb, "--target", "") == list(PRESETS)
    assert offered(verb, "--target", "cortex-m7-") == ["cortex-m7-sp"]


@pytest.mark.parametrize("verb", ["run", "bundle", "dump", "opt", "demo"])
def test_backends(verb: str) -> None:
    assert {"cpu", "interpreter"} <= set(offered(verb, "--backend", ""))
    assert offered(verb, "--backend", "interp") == ["interpreter"]


def test_stages() -> None:
    assert offered("dump", "--stage", "") == [stage.value for stage in Stage]


def test_passes_are_those_of_the_backend() -> None:
    assert "fold-transpose" in offered("opt", "-p", "fold-")
    assert offered("opt", "-p", "dce,cse,fold-tr") == ["dce,cse,fold-transpose"]
    assert offered("opt", "-p", "pack-") == []
    words = ("opt", "--backend", "cpu", "--target", "x86-64-v3", "-p", "lower,pack-")
    assert offered(*words) == ["lower,pack-products", "lower,pack-recurrence"]
    assert offered("opt", "--print-after", "dc") == ["dce"]


def test_options_of_the_backend() -> None:
    assert offered("run", "--set", "thr") == ["threads="]
    assert offered("run", "--backend", "interpreter", "--set", "") == []


@pytest.mark.parametrize(
    ("words", "type"),
    [
        (("run", "net"), "file"),
        (("bundle", "net"), "file"),
        (("dump", "net"), "file"),
        (("opt", "net"), "file"),
        (("dump", "-o", "out"), "file"),
        (("bundle", "-o", "out"), "dir"),
    ],
)
def test_files_are_left_to_the_shell(words: tuple[str, ...], type: str) -> None:
    shell = BashComplete(_glowpy, {}, "glowpy", "_GLOWPY_COMPLETE")
    (item,) = shell.get_completions(list(words[:-1]), words[-1])
    assert (item.value, item.type) == (words[-1], type)


@pytest.mark.parametrize("words", [("run", "--backend", "abacus", "--set", ""), ("fly", "--stage")])
def test_a_wrong_command_line_is_no_error(words: tuple[str, ...]) -> None:
    environment = {
        **os.environ,
        "_GLOWPY_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(["glowpy", *words]),
        "COMP_CWORD": str(len(words)),
    }
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "import sys; sys.argv = ['glowpy']; import glowpy.__main__ as m; m.main()",
        ],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stderr == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell(shell: str) -> None:
    environment = {**os.environ, "_GLOWPY_COMPLETE": f"{shell}_source"}
    done = subprocess.run(
        [sys.executable, "-m", "glowpy"],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "_GLOWPY_COMPLETE" in done.stdout, done.stderr
