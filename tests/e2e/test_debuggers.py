"""gdb and perf see the IR as the source of a network, in JIT code and in bundles."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from glowpy.bundling.make import bundle
from glowpy.bundling.options import BundleOptions
from glowpy.graph.function import Module

ROOT = Path(__file__).resolve().parents[2]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(ROOT)}
"""The debugged processes test this checkout, wherever they run."""

needs_gdb = pytest.mark.skipif(shutil.which("gdb") is None, reason="gdb is not installed")

_BUILD = """
import numpy as np
from glowpy.core.type import parse_type
from glowpy.graph.function import Module

def network():
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[1x16x16x8]"))
    y = module.create_placeholder("y", parse_type("f32[1x8x8x8]"))
    f = module.create_function("main")
    weights = np.linspace(-1, 1, 8 * 3 * 3 * 8, dtype=np.float32).reshape(8, 3, 3, 8)
    filter, bias = module.create_constant("w", weights), module.create_constant("b", np.zeros(8, np.float32))
    conv = f.create_convolution("conv1", x, filter, bias, (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), 1)
    pool = f.create_max_pool("pool1", f.create_relu("relu1", conv), (2, 2), (2, 2), (0, 0, 0, 0), (1, 1), False)
    f.create_save("save", pool, y)
    return module
"""


def network() -> Module:
    scope: dict[str, object] = {}
    exec(_BUILD, scope)  # the same text runs in the debugged process
    build = scope["network"]
    assert callable(build)
    module = build()
    assert isinstance(module, Module)
    return module


def debug(commands: list[str], program: list[str], folder: Path) -> str:
    """What gdb prints for the commands."""
    script = folder / "commands.gdb"
    setup = ["set breakpoint pending on", "set pagination off", "set width 0", "set auto-load off"]
    script.write_text("\n".join([*setup, *commands]) + "\n")
    done = subprocess.run(
        ["gdb", "-batch", "-nx", "-x", str(script), "--args", *program],
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
        env=ENVIRONMENT,
    )
    return done.stdout


@needs_gdb
def test_breakpoint_on_an_instruction_in_jit_code(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        f"{_BUILD}\n"
        "import glowpy\n"
        f"backend = glowpy.CpuBackend(glowpy.CpuOptions(debug={str(tmp_path / 'dumps')!r}))\n"
        "compiled = glowpy.compile(network(), backend, glowpy.CompileOptions(cache=False))\n"
        "compiled({'x': np.ones((1, 16, 16, 8), np.float32)})\n"
        "print('finished')\n"
    )
    transcript = debug(
        ["break pool1", "run", "backtrace 2", "continue"], [sys.executable, str(script)], tmp_path
    )
    assert "hit Breakpoint 1, pool1 () at glowpy_main.ir:" in transcript
    assert "max_pool @out %y, @in %conv1" in transcript  # the source line
    assert "#1" in transcript
    assert "glowpy_main_bound () at glowpy_main.ir:" in transcript
    assert "finished" in transcript


@needs_gdb
def test_breakpoint_on_a_member_of_a_run(tmp_path: Path) -> None:
    """The activation is computed in the convolution's epilogue, and `y2` and `y3` in the loop of `y1`."""
    more = (
        "    chain = f.create_exp('y3', f.create_neg('y2', f.create_tanh('y1', pool)))\n"
        "    f.create_save('save', chain, y)\n"
    )
    script = tmp_path / "run.py"
    script.write_text(
        _BUILD.replace("    f.create_save('save', pool, y)\n".replace("'", '"'), more)
        + "\nimport glowpy\n"
        f"backend = glowpy.CpuBackend(glowpy.CpuOptions(debug={str(tmp_path / 'dumps')!r}))\n"
        "compiled = glowpy.compile(network(), backend, glowpy.CompileOptions(cache=False))\n"
        "compiled({'x': np.ones((1, 16, 16, 8), np.float32)})\n"
        "print('finished')\n"
    )
    names = ["relu1", "y2", "y3"]
    commands = [*(f"break {name}" for name in names), "run"]
    commands += [command for _ in names for command in ("backtrace 2", "continue")]
    transcript = debug(commands, [sys.executable, str(script)], tmp_path)
    lines = (tmp_path / "dumps/glowpy_main.ir").read_text().splitlines()
    for number, name in enumerate(names, 1):
        assert f"hit Breakpoint {number}, {name} () at glowpy_main.ir:" in transcript
    for name, owner in (("relu1", "conv1"), ("y2", "y1"), ("y3", "y1")):
        (place,) = re.findall(
            rf"#0 +{name} \(\) at glowpy_main.ir:(\d+)\n#1 +(?:0x\w+ in )?{owner} \(\)", transcript
        )
        assert {"relu1": "relu", "y2": "neg", "y3": "exp"}[name] in lines[int(place) - 1]
    assert "finished" in transcript


@needs_gdb
def test_breakpoint_on_a_line_in_jit_code(tmp_path: Path) -> None:
    dumps = tmp_path / "dumps"
    script = tmp_path / "run.py"
    script.write_text(
        f"{_BUILD}\n"
        "import glowpy\n"
        f"backend = glowpy.CpuBackend(glowpy.CpuOptions(debug={str(dumps)!r}))\n"
        "compiled = glowpy.compile(network(), backend, glowpy.CompileOptions(cache=False))\n"
        "compiled({'x': np.ones((1, 16, 16, 8), np.float32)})\n"
    )
    subprocess.run(
        [sys.executable, str(script)], check=True, cwd=tmp_path, timeout=100, env=ENVIRONMENT
    )
    lines = (dumps / "glowpy_main.ir").read_text().splitlines()
    line = next(
        number for number, text in enumerate(lines, 1) if text.strip().startswith("cpu_conv")
    )
    transcript = debug(
        [f"break glowpy_main.ir:{line}", "run", "backtrace 1"],
        [sys.executable, str(script)],
        tmp_path,
    )
    assert f"glowpy_main.ir:{line}" in transcript
    assert lines[line - 1].strip() in transcript


@needs_gdb
@pytest.mark.skipif(shutil.which("cc") is None, reason="no C compiler")
def test_breakpoint_on_an_instruction_in_a_bundle(tmp_path: Path) -> None:
    module = network()
    bundle(module, tmp_path / "net", BundleOptions("net", weights="embedded", debug=True))
    folder = tmp_path / "net"
    subprocess.run(
        ["cc", "-g", "main.c", "net.o", "-o", "main"], cwd=folder, check=True, timeout=100
    )
    transcript = debug(["break conv1", "run", "backtrace", "continue"], ["./main"], folder)
    assert "Breakpoint 1, conv1 () at net.ir:" in transcript
    assert "cpu_conv @out %conv1, @in %x" in transcript
    assert "net () at net.ir:" in transcript
    assert "main (argc=1" in transcript
    assert "exited normally" in transcript


def test_bundle_keeps_no_path_of_this_machine(tmp_path: Path) -> None:
    bundle(network(), tmp_path / "net", BundleOptions("net", weights="embedded", debug=True))
    for file in (tmp_path / "net").iterdir():
        assert str(tmp_path).encode() not in file.read_bytes(), file.name


@pytest.mark.skipif(shutil.which("perf") is None, reason="perf is not installed")
def test_perf_annotates_jit_code_with_the_ir(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        f"{_BUILD}\n"
        "import glowpy\n"
        "backend = glowpy.CpuBackend(glowpy.CpuOptions(debug='ir', jitdump='dumps'))\n"
        "options = glowpy.CompileOptions(cache=False)\n"
        "instance = glowpy.compile(network(), backend, options).instance()\n"
        "for _ in range(20000): instance.run()\n"
    )

    def perf(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["perf", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            env=ENVIRONMENT,
            check=False,
        )

    record = ("record", "-k", "mono", "-e", "cpu-clock", "-o", "raw", sys.executable, str(script))
    if perf(*record).returncode:
        pytest.skip("perf may not record here")
    assert perf("inject", "--jit", "-f", "-i", "raw", "-o", "jitted").returncode == 0
    assert "glowpy_main.conv1" in perf("report", "-f", "-i", "jitted", "--stdio").stdout
    lines = (tmp_path / "ir" / "glowpy_main.ir").read_text().splitlines()
    line = next(
        number for number, text in enumerate(lines, 1) if text.strip().startswith("cpu_conv")
    )
    annotated = perf("annotate", "-f", "-i", "jitted", "--stdio", "-l", "glowpy_main.conv1").stdout
    assert f"glowpy_main.ir:{line}" in annotated
