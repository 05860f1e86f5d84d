"""From LLVM IR text to object files: through the cache, and several parts at the same time.

A text is linked with *libraries*, files of LLVM bitcode that hold the kernels it calls.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from glowpy.llvm import machine as llvm
from glowpy.llvm.cache import code_key, read_code, write_code
from glowpy.llvm.machine import Form, InvalidIRError, LoadedCode, Machine
from glowpy.support.errors import InternalError

__all__ = ["compile_parts", "compile_whole", "load_objects", "usable_cores"]

_STACK = re.compile(r"stack frame size \((\d+)\) exceeds limit \(\d+\) in function '([^']+)'")


def usable_cores() -> int:
    """How many processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def compile_parts(
    texts: Sequence[str], machine: Machine, libraries: Sequence[Path], *, use_cache: bool
) -> list[bytes]:
    """The object file of each part, from the cache where it is there.

    The first missing part is compiled here, the others each in a process of its own.
    """
    where = (*astuple(machine), llvm.LLVM_VERSION, *map(_identity, libraries))
    keys = [code_key(text, *where) for text in texts]
    objects = [read_code(key) if use_cache else None for key in keys]
    missing = [index for index, code in enumerate(objects) if code is None]
    workers = [(index, _start(machine, texts[index], libraries)) for index in missing[1:]]
    try:
        for index in missing[:1]:
            objects[index] = _here(machine, texts[index], libraries)
        for index, process in workers:
            objects[index] = _result(process)
    finally:
        for _, process in workers:
            process.kill()
    for index in missing:
        if use_cache:
            write_code(keys[index], objects[index] or b"")
    return [code or b"" for code in objects]


def _identity(library: Path) -> str:
    """Tells one version of a library from another."""
    stat = library.stat()
    return f"{library.name} {stat.st_size} {stat.st_mtime_ns}"


def _here(machine: Machine, text: str, libraries: Sequence[Path]) -> bytes:
    try:
        return machine.object_code(text, libraries)
    except InvalidIRError as error:
        raise InternalError(f"LLVM refuses generated code: {error}") from error


def compile_whole(
    text: str, machine: Machine, libraries: Sequence[Path], form: Form
) -> tuple[bytes, dict[str, int]]:
    """One module as object code, assembly or LLVM IR, with the stack frame of every function in bytes.

    The frames are only known for functions with the attribute `"warn-stack-size"="0"`: LLVM then warns about each.
    """
    process = _start(machine, text, libraries, form)
    result, messages = process.communicate()
    warnings = messages.decode(errors="replace")
    if process.returncode:
        raise InternalError(f"LLVM refuses generated code: {warnings}")
    return result, {name: int(size) for size, name in _STACK.findall(warnings)}


def load_objects(machine: Machine, objects: Sequence[bytes]) -> LoadedCode:
    """Object files in this process. Raises InternalError if they call functions that it does not have."""
    try:
        return LoadedCode(machine, list(objects))
    except InvalidIRError as error:
        raise InternalError(f"generated code cannot be loaded: {error}") from error


def _start(
    machine: Machine, text: str, libraries: Sequence[Path], form: Form = "object_code"
) -> subprocess.Popen[bytes]:
    """A process that compiles `text` and writes the result to its standard output."""
    with tempfile.TemporaryFile() as request:
        request.write(machine.request(text, libraries, form))
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
        raise InternalError(f"LLVM refuses generated code: {errors.decode(errors='replace')}")
    return code
