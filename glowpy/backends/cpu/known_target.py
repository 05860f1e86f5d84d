"""Remembers the identity of code for this machine that a compilation has found out: LLVM need not be asked again.

What is remembered is an entry of the cache, named after all that the answer follows from: the processor as the system
describes it, this package, the sources of the kernels, and the files that say which LLVM there is.
"""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

from glowpy.backends.cpu.options import CpuOptions
from glowpy.llvm.code_image import is_loadable
from glowpy.llvm.variant import LIBJIT_FOLDER
from glowpy.support.cache import Key, read, write
from glowpy.support.identity import files_identity, installed_identity, package_identity

__all__ = ["known_code_identity", "note_code_identity"]

_CPU_INFO = Path("/proc/cpuinfo")
_FIRST = 1 << 14
"""Bytes in which the first processor is described."""
_VARYING = frozenset({"cpu MHz", "bogomips", "BogoMIPS", "processor", "core id", "apicid"})


def known_code_identity(options: CpuOptions) -> str:
    """Returns `Compiler.code_identity` for these options, here; empty where that is not known."""
    key = _key(options)
    payload = None if key is None else read(key)
    return "" if payload is None else payload.decode()


def note_code_identity(options: CpuOptions, identity: str) -> None:
    """Remembers what a compilation has found out, whose code runs here."""
    if (key := _key(options)) is not None:
        write(key, identity.encode())


def _key(options: CpuOptions) -> Key | None:
    processor, llvm = _processor(), installed_identity("llvmlite")
    if not (is_loadable() and processor and llvm):
        return None
    machine = options.target, options.cpu, options.features, options.float_abi
    form = options.relocation, options.code_model, options.optimize, options.precision
    kernels = files_identity([str(LIBJIT_FOLDER)])
    return Key.of(
        "target", "of code", processor, llvm, package_identity(), kernels, *machine, *form
    )


@cache
def _processor() -> str:
    """Returns the system's description of the first processor, without what changes; empty where there is none."""
    try:
        with _CPU_INFO.open("rb") as file:
            first = file.read(_FIRST).decode(errors="replace").partition("\n\n")[0]
    except OSError:
        return ""
    lines = [line for line in first.splitlines() if line.partition(":")[0].strip() not in _VARYING]
    return "\n".join([platform.machine(), *lines])
