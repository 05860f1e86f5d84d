"""Edits and reads object files."""

from __future__ import annotations

import io
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from glowpy.core.tensor import Array
from glowpy.support.errors import InternalError

__all__ = ["MARKER", "FunctionLines", "Sections", "embed", "is_elf", "read_lines", "read_sections"]


@dataclass(frozen=True)
class Sections:
    """Sizes in bytes: of the code, read-only data, writable data and zero-initialised data, and of each function."""

    text: int
    rodata: int
    data: int
    bss: int
    functions: dict[str, int]
    undefined: tuple[str, ...]


MARKER = bytes(range(0x47, 0x67)) * 2
"""Stands where generated code has left room for constants; `embed` looks for it."""


def embed(code: bytes, constants: Array) -> bytes:
    """The object file with the constants where the generated code has left room for them.

    Raises InternalError unless that place is found exactly once.
    """
    start = code.find(MARKER)
    after, end = start + len(MARKER), start + constants.size
    room = max(end - after, 0)
    if start < 0 or code.find(MARKER, after) >= 0 or code.count(0, after, end) != room:
        raise InternalError("the object file has no place for the weights")
    padding = bytes(max(after - end, 0))
    # Weights are large: no copy but the one that is returned.
    rest = memoryview(code)[max(after, end) :]
    return b"".join((code[:start], constants.data, padding, rest))


def is_elf(code: bytes) -> bool:
    """Whether an object file is one of the ELF format (Linux, bare metal)."""
    return code.startswith(b"\x7fELF")


@dataclass(frozen=True)
class FunctionLines:
    """A function's range of bytes in its section, and the source line of each of its places."""

    name: str
    start: int
    size: int
    lines: tuple[tuple[int, int], ...]
    """(offset from the function's start, line), in order of offsets."""


def read_lines(code: bytes) -> list[FunctionLines]:
    """The functions of an ELF object file, with what its debug information says; without any, no lines."""
    elf = ELFFile(io.BytesIO(code))
    places: list[tuple[int, int]] = []
    if elf.has_dwarf_info():
        dwarf = elf.get_dwarf_info(relocate_dwarf_sections=True)
        for unit in dwarf.iter_CUs():
            program = dwarf.line_program_for_CU(unit)
            states = [entry.state for entry in program.get_entries()] if program is not None else []
            places += [(state.address, state.line) for state in states if state is not None]
    places.sort()
    functions = []
    for section in elf.iter_sections():
        if not isinstance(section, SymbolTableSection):
            continue
        for symbol in section.iter_symbols():
            if symbol["st_info"]["type"] != "STT_FUNC" or not symbol["st_size"]:
                continue
            start, size = int(symbol["st_value"]), int(symbol["st_size"])
            lines = tuple((at - start, line) for at, line in places if start <= at < start + size)
            functions.append(FunctionLines(symbol.name, start, size, lines))
    return functions


def read_sections(code: bytes) -> Sections:
    """The sizes of an ELF object file."""
    sizes = {"text": 0, "rodata": 0, "data": 0, "bss": 0}
    functions: dict[str, int] = {}
    undefined: list[str] = []
    elf = ELFFile(io.BytesIO(code))
    for section in elf.iter_sections():
        if isinstance(section, SymbolTableSection):
            for symbol in section.iter_symbols():
                if symbol["st_info"]["type"] == "STT_FUNC":
                    functions[symbol.name] = int(symbol["st_size"])
                elif symbol["st_shndx"] == "SHN_UNDEF" and symbol.name:
                    undefined.append(symbol.name)
        flags, size = section["sh_flags"], int(section["sh_size"])
        if not flags & 2 or section["sh_type"] in ("SHT_ARM_EXIDX", "SHT_X86_64_UNWIND"):
            continue
        if section["sh_type"] == "SHT_NOBITS":
            sizes["bss"] += size
        else:
            sizes["text" if flags & 4 else "data" if flags & 1 else "rodata"] += size
    return Sections(**sizes, functions=functions, undefined=tuple(sorted(undefined)))
