"""Compilers, linkers and emulators on the machine: the best there are for a target. Object files need none."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from glowpy.llvm.machine import host_triple
from glowpy.llvm.target import Target, family_of
from glowpy.support.children import child_environment
from glowpy.support.errors import UserError

__all__ = ["MissingToolError", "c_compiler", "can_sanitize", "is_native", "link_shared", "runner"]

SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
"""Options to find reads and writes outside of objects, and undefined behaviour, in main.c."""

_ZIG_TARGETS = {
    "x86_64": "x86_64-linux-gnu",
    "aarch64": "aarch64-linux-musl",
    "arm": "arm-linux-musleabihf",
    "riscv64": "riscv64-linux-musl",
    "riscv32": "riscv32-linux-musl",
    "powerpc64le": "powerpc64le-linux-musl",
    "wasm32": "wasm32-wasi",
}
"""How zig calls the target of a family, for programs that run under an operating system or emulator."""

_TRAPS = "-fsanitize-trap=undefined"
"""Undefined behaviour, which zig checks for unless it optimizes, ends the program. To describe it, zig would compile a
library for the target first, which takes longer than all else that it needs once."""

_STATIC = "-static"
"""Suffix that Debian and others give to emulators that need no libraries, which run programs as well."""

_EMULATORS = {
    "x86_64": "qemu-x86_64",
    "aarch64": "qemu-aarch64",
    "arm": "qemu-arm",
    "riscv64": "qemu-riscv64",
    "riscv32": "qemu-riscv32",
    "powerpc64le": "qemu-ppc64le",
}


class MissingToolError(UserError):
    """A compiler or emulator for the target is not there; the note says what to install."""


def is_native(triple: str) -> bool:
    """Whether programs for the target run on this machine as they are."""
    return family_of(triple) == family_of(host_triple()) and not _is_bare(triple)


def c_compiler(triple: str, *, system: bool = True) -> list[str]:
    """A command that compiles and links C for a target.

    That is the system's compiler for this machine, a cross compiler named after the triple, or zig.

    Args:
        triple: LLVM's name of the target.
        system: Whether compilers of the system may be taken.

    Raises MissingToolError if there is none.
    """
    short = triple.replace("-unknown-", "-").replace("armv7-", "arm-")
    names = ("cc", "gcc", "clang") if is_native(triple) else (f"{short}-gcc",)
    for name in names if system else ():
        path = shutil.which(name)
        if path:
            return [path]
    family = family_of(triple)
    if family not in _ZIG_TARGETS or (_is_bare(triple) and family != "wasm32"):
        raise MissingToolError(
            f"no operating system for {triple}: a bare-metal program needs a linker script and startup code",
            note="docs/bundles.md shows one that runs in an emulator",
        )
    if importlib.util.find_spec("ziglang") is None:
        raise MissingToolError(
            f"no C compiler for {triple}",
            note="pip install 'glowpy[cross]' brings one for every target",
        )
    target = _ZIG_TARGETS[family]
    if triple.endswith("eabi"):
        target = target.removesuffix("hf")
    return [sys.executable, "-m", "ziglang", "cc", "-target", target, _TRAPS]


def runner(triple: str) -> list[str]:
    """Returns the command prefix that runs a program for the target here: nothing, an emulator, or Node.

    Raises MissingToolError if that is not installed.
    """
    if is_native(triple):
        return []
    family = family_of(triple)
    program = "node" if family == "wasm32" else _EMULATORS[family]
    path = shutil.which(program) or shutil.which(f"{program}{_STATIC}")
    if path is None:
        package = "Node 20 or later" if program == "node" else "QEMU's user mode (qemu-user)"
        raise MissingToolError(
            f"no {program} to run a program for {triple} with", note=f"install {package}"
        )
    return [path, "--no-warnings"] if program == "node" else [path]


def can_sanitize(command: Sequence[str]) -> bool:
    """Whether a compiler for this machine makes programs that check themselves, and they run."""
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "probe.c").write_text("int main(void) { return 0; }\n")
        build = [*command, *SANITIZERS, "probe.c", "-o", "probe"]
        return all(_ends_well(step, scratch) for step in (build, ["./probe"]))


def _ends_well(command: Sequence[str], folder: str) -> bool:
    environment = child_environment(command)
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, check=False)
    return done.returncode == 0


def link_shared(code: bytes, name: str, target: Target) -> bytes:
    """A shared library of one object file.

    Raises MissingToolError if no linker for the target is there, UserError if it refuses.
    """
    if target.machine.relocation == "static":
        raise UserError(
            f"expected position-independent code for a shared library, got static for {target.machine.triple}",
            note="--relocation pic, for a target with an operating system",
        )
    command = c_compiler(target.machine.triple)
    with tempfile.TemporaryDirectory() as scratch:
        Path(scratch, "network.o").write_bytes(code)
        flags = ["-shared", "-nostdlib", "-Wl,--build-id=none", f"-Wl,-soname,{name}"]
        done = subprocess.run(
            [*command, *flags, "network.o", "-o", name, "-lc"],
            cwd=scratch,
            env=child_environment(command),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            what = f"a shared library for {target.machine.triple}"
            raise UserError(f"{command[0]} cannot link {what}: {done.stderr.strip()}")
        return Path(scratch, name).read_bytes()


def _is_bare(triple: str) -> bool:
    """Whether there is no operating system."""
    return "linux" not in triple and triple != host_triple()
