"""Tells Linux's perf the names of functions compiled into this process (tools/perf/Documentation/jit-interface.txt)."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from glowpy.llvm.code_image import Functions
from glowpy.llvm.object_file import is_elf, read_sections

__all__ = ["perf_map_path", "write_perf_map"]


def perf_map_path() -> Path:
    """The file in which perf looks for the names of this process."""
    return Path("/tmp") / f"perf-{os.getpid()}.map"


def write_perf_map(code: Functions, objects: Sequence[bytes]) -> None:
    """Appends the functions of loaded object files that can be found by name: address, size, name, in hexadecimal."""
    lines = []
    for elf in objects:
        if not is_elf(elf):
            continue
        for name, size in read_sections(elf).functions.items():
            address = code.address(name)
            if address and size:
                lines.append(f"{address:x} {size:x} {name}\n")
    with perf_map_path().open("a", encoding="utf-8") as file:
        file.writelines(lines)
