"""From LLVM IR text to object files: through the cache, and several parts at the same time."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from glowpy.backends.cpu import llvm
from glowpy.backends.cpu.bitcode import bitcode_path
from glowpy.backends.cpu.cache import code_key, read_code, write_code
from glowpy.backends.cpu.target import CpuTarget
from glowpy.support.errors import InternalError

__all__ = ["compile_parts", "compile_whole", "usable_cores"]

_STACK = re.compile(r"stack frame size \((\d+)\) exceeds limit \(\d+\) in function '([^']+)'")


def usable_cores() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_parts(texts: Sequence[str], target: CpuTarget, *, use_cache: bool) -> list[bytes]:
    """The object file of each part, from the cache where it is there.

    The first missing part is compiled here, the others each in a process of its own.
    """
    library = bitcode_path(target.variant)
    machine = target.machine
    where = (*astuple(machine), llvm.LLVM_VERSION, _identity(library))
    keys = [code_key(text, *where) for text in texts]
    found = [read_code(key) if use_cache else None for key in keys]
    missing = [index for index, code in enumerate(found) if code is None]
    workers = [(index, _start(target, texts[index], library)) for index in missing[1:]]
    try:
        for index in missing[:1]:
            found[index] = _here(target, texts[index], library)
        for index, process in workers:
            found[index] = _result(process)
    finally:
        for _, process in workers:
            process.kill()
    for index in missing:
        if use_cache:
            write_code(keys[index], found[index] or b"")
    return [code or b"" for code in found]


def _identity(library: Path) -> str:
    """Tells one version of the kernel library from another."""
    stat = library.stat()
    return f"{library.name} {stat.st_size} {stat.st_mtime_ns}"


def _here(target: CpuTarget, text: str, library: Path) -> bytes:
    try:
        return target.machine.object_code(text, library)
    except llvm.InvalidIRError as error:
        raise InternalError(f"the code generator wrote IR that LLVM refuses: {error}") from error


def compile_whole(text: str, target: CpuTarget, form: llvm.Form) -> tuple[bytes, dict[str, int]]:
    """One module as object code, assembly or LLVM IR, with the stack frame of every function in bytes.

    The frames are only known for functions with the attribute `"warn-stack-size"="0"`: LLVM then warns about each.
    """
    process = _start(target, text, bitcode_path(target.variant), form)
    result, messages = process.communicate()
    warnings = messages.decode(errors="replace")
    if process.returncode:
        raise InternalError(f"LLVM failed on generated code: {warnings}")
    return result, {name: int(size) for size, name in _STACK.findall(warnings)}


def _start(
    target: CpuTarget, text: str, library: Path, form: llvm.Form = "object_code"
) -> subprocess.Popen[bytes]:
    """A process that compiles `text` and writes the result to its standard output."""
    with tempfile.TemporaryFile() as request:
        request.write(target.machine.request(text, library, form))
        request.seek(0)
        return subprocess.Popen(
            [sys.executable, "-I", str(Path(llvm.__file__))],
            stdin=request,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )


def _result(process: subprocess.Popen[bytes]) -> bytes:
    code, errors = process.communicate()
    if process.returncode:
        raise InternalError(f"LLVM failed on generated code: {errors.decode(errors='replace')}")
    return code
