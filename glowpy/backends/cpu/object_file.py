"""What is done to and read from object files."""

from __future__ import annotations

import io
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile
from elftools.elf.sections import SymbolTableSection

from glowpy.core.tensor import Array
from glowpy.support.errors import InternalError

__all__ = ["MARKER", "Sections", "embed", "is_elf", "read_sections"]


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
    room = code[start + len(MARKER) : start + constants.size] if start >= 0 else b"?"
    if start < 0 or code.find(MARKER, start + 1) >= 0 or any(room):
        raise InternalError("the object file has no place for the weights")
    content = constants.tobytes()
    size = max(len(content), len(MARKER))
    return code[:start] + content.ljust(size, b"\0") + code[start + size :]


def is_elf(code: bytes) -> bool:
    """Whether an object file is one of the ELF format (Linux, bare metal)."""
    return code.startswith(b"\x7fELF")


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
