"""Code for Linux's perf to annotate: the jitdump format (tools/perf/Documentation/jitdump-specification.txt).

`perf record -k mono`, then `perf inject --jit`, finds the file because this process maps it, and makes an ELF file
of every function in it; with debug information, `perf annotate` then shows the lines of the IR.
"""

from __future__ import annotations

import ctypes
import io
import mmap
import os
import struct
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import BinaryIO

from elftools.elf.elffile import ELFFile

from glowpy.llvm.code_image import Functions
from glowpy.llvm.object_file import FunctionLines, is_elf, read_lines
from glowpy.support.errors import UserError
from glowpy.support.output_files import make_output_folder

__all__ = ["jitdump_path", "write_jitdump"]

_MAGIC, _VERSION = 0x4A695444, 1
_CODE_LOAD, _DEBUG_INFO = 0, 2
_MACHINES = {"x86_64": 62, "aarch64": 183, "riscv64": 243, "ppc64le": 21}
_MARKS: list[mmap.mmap] = []
"""Mappings that tell perf where the dumps are; they live as long as the process."""


def jitdump_path(folder: Path) -> Path:
    """The dump of this process in a folder; perf wants exactly this name."""
    return folder / f"jit-{os.getpid()}.dump"


def write_jitdump(code: Functions, objects: Sequence[bytes], folder: Path) -> None:
    """Appends the functions of loaded object files that can be found by name.

    Raises UserError on a machine the format has no number for.
    """
    machine = _MACHINES.get(os.uname().machine)
    if machine is None:
        raise UserError(
            f"no jitdump on {os.uname().machine}: expected one of {', '.join(_MACHINES)}"
        )
    make_output_folder(folder)
    path = jitdump_path(folder)
    fresh = not path.exists()
    with path.open("ab+") as file:
        if fresh:
            header = struct.pack(
                "<IIIIIIQQ", _MAGIC, _VERSION, 40, machine, 0, os.getpid(), time.monotonic_ns(), 0
            )
            file.write(header)
            file.flush()
            _MARKS.append(
                mmap.mmap(
                    file.fileno(), len(header), mmap.MAP_PRIVATE, mmap.PROT_READ | mmap.PROT_EXEC
                )
            )
        for elf in objects:
            if not is_elf(elf):
                continue
            source = _source(elf)
            for function in read_lines(elf):
                address = code.address(function.name)
                if address:
                    _write_function(file, function, address, source)


def _write_function(file: BinaryIO, function: FunctionLines, address: int, source: str) -> None:
    if function.lines and source:
        entries = b"".join(
            struct.pack("<QII", address + offset, line, 0) + source.encode() + b"\0"
            for offset, line in function.lines
        )
        _write_record(file, _DEBUG_INFO, struct.pack("<QQ", address, len(function.lines)) + entries)
    place = struct.pack(
        "<IIQQQQ", os.getpid(), threading.get_native_id(), address, address, function.size, address
    )
    body = ctypes.string_at(address, function.size)
    _write_record(file, _CODE_LOAD, place + function.name.encode() + b"\0" + body)


def _write_record(file: BinaryIO, kind: int, content: bytes) -> None:
    file.write(struct.pack("<IIQ", kind, 16 + len(content), time.monotonic_ns()) + content)


def _source(code: bytes) -> str:
    """The file that debug information speaks of; empty without any."""
    elf = ELFFile(io.BytesIO(code))
    if not elf.has_dwarf_info():
        return ""
    for unit in elf.get_dwarf_info(relocate_dwarf_sections=True).iter_CUs():
        return str(Path(unit.get_top_DIE().get_full_path()))
    return ""
