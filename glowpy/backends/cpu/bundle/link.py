"""Compilers and linkers on the machine: the best there is for a target. Object files and libraries need none."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from glowpy.backends.cpu.llvm import host_triple
from glowpy.backends.cpu.target import CpuTarget
from glowpy.support.errors import UserError

__all__ = ["c_compiler", "link_shared"]

_ZIG_TARGETS = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-musl",
    "armv7": "arm-linux-musleabihf",
    "arm": "arm-linux-musleabihf",
    "riscv64": "riscv64-linux-musl",
    "riscv32": "riscv32-linux-musl",
    "powerpc64le": "powerpc64le-linux-musl",
    "wasm32": "wasm32-wasi",
}
"""How zig calls the target of an architecture, for programs that run under an operating system or emulator."""


def c_compiler(triple: str) -> list[str]:
    """A command that compiles and links C for a target: the system's compiler for this machine, else zig.

    Raises UserError if there is none.
    """
    architecture = triple.split("-", 1)[0]
    if architecture == host_triple().split("-", 1)[0]:
        for name in ("cc", "gcc", "clang"):
            found = shutil.which(name)
            if found:
                return [found]
    if importlib.util.find_spec("ziglang") is None:
        raise UserError(
            f"no C compiler for {triple}",
            note="pip install 'glowpy[cross]' brings one for every target",
        )
    if architecture not in _ZIG_TARGETS:
        raise UserError(f"expected a target of {', '.join(_ZIG_TARGETS)}, got '{triple}'")
    return [sys.executable, "-m", "ziglang", "cc", "-target", _ZIG_TARGETS[architecture]]


def link_shared(code: bytes, name: str, target: CpuTarget) -> bytes:
    """A shared library of one object file. Raises UserError if no linker for the target is there."""
    command = c_compiler(target.machine.triple)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "network.o").write_bytes(code)
        flags = ["-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{name}"]
        done = subprocess.run(
            [*command, *flags, "network.o", "-o", name, "-lc"],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            what = f"a shared library for {target.machine.triple}"
            raise UserError(f"{command[0]} cannot link {what}: {done.stderr.strip()}")
        return Path(scratch, name).read_bytes()
