"""Sizes in WebAssembly object files: the binary format, and LLVM's custom section `linking`.

Source: WebAssembly Core Specification, section 5; tool-conventions, "WebAssembly Object File Linking".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from glowpy.llvm.object_file import Sections

__all__ = ["is_wasm", "read_wasm_sections"]

_MAGIC = b"\0asm"
_CUSTOM, _IMPORT, _CODE, _DATA = 0, 2, 10, 11
_SEGMENT_INFO, _SYMBOL_TABLE = 5, 8
_UNDEFINED, _EXPLICIT_NAME = 0x10, 0x40
_FUNCTION_SYMBOL, _DATA_SYMBOL, _SECTION_SYMBOL = 0, 1, 3
_END = 0x0B


def is_wasm(code: bytes) -> bool:
    """Whether an object file is one of WebAssembly."""
    return code.startswith(_MAGIC)


@dataclass
class _Reader:
    """A place in the file."""

    data: bytes
    at: int = 0

    def byte(self) -> int:
        self.at += 1
        return self.data[self.at - 1]

    def number(self) -> int:
        """An unsigned number, seven bits to a byte."""
        result, shift = 0, 0
        while True:
            byte = self.byte()
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    def bytes(self) -> bytes:
        """A block that follows its length."""
        size = self.number()
        self.at += size
        return self.data[self.at - size : self.at]

    @property
    def more(self) -> bool:
        return self.at < len(self.data)


@dataclass
class _Contents:
    """Contents of the sections, before they are put together."""

    imports: list[str] = field(default_factory=list)
    bodies: list[int] = field(default_factory=list)
    segments: list[int] = field(default_factory=list)
    segment_names: list[str] = field(default_factory=list)
    functions: list[tuple[str, int]] = field(default_factory=list)


def read_wasm_sections(code: bytes) -> Sections:
    """The sizes of an object file of WebAssembly."""
    contents = _Contents()
    reader = _Reader(code, 8)
    while reader.more:
        kind = reader.byte()
        section = _Reader(reader.bytes())
        if kind == _IMPORT:
            contents.imports += _imported_functions(section)
        elif kind == _CODE:
            contents.bodies += [len(section.bytes()) for _ in range(section.number())]
        elif kind == _DATA:
            contents.segments += _segments(section)
        elif kind == _CUSTOM and section.bytes() == b"linking":
            _read_linking(section, contents)
    sizes = {"rodata": 0, "data": 0, "bss": 0}
    for name, size in zip(contents.segment_names, contents.segments, strict=True):
        sizes[name.split(".")[1]] += size
    first = len(contents.imports)
    functions = {name: contents.bodies[index - first] for name, index in contents.functions}
    undefined = tuple(sorted(contents.imports))
    return Sections(text=sum(contents.bodies), functions=functions, undefined=undefined, **sizes)


def _imported_functions(section: _Reader) -> Iterator[str]:
    for _ in range(section.number()):
        section.bytes()
        name, kind = section.bytes().decode(), section.byte()
        if kind == 0:
            section.number()
            yield name
        elif kind == 3:
            section.at += 2
        else:  # a table or a memory: an element type or nothing, then limits
            section.at += kind == 1
            bounded = section.byte() & 1
            for _ in range(1 + bounded):
                section.number()


def _segments(section: _Reader) -> Iterator[int]:
    """The size of each segment; an active one begins with the address it is copied to."""
    for _ in range(section.number()):
        if section.number() == 0:
            section.byte()
            section.number()
            assert section.byte() == _END
        yield len(section.bytes())


def _read_linking(section: _Reader, contents: _Contents) -> None:
    section.number()
    while section.more:
        kind = section.byte()
        part = _Reader(section.bytes())
        if kind == _SEGMENT_INFO:
            for _ in range(part.number()):
                contents.segment_names.append(part.bytes().decode())
                part.number()
                part.number()
        elif kind == _SYMBOL_TABLE:
            for _ in range(part.number()):
                _read_symbol(part, contents)


def _read_symbol(part: _Reader, contents: _Contents) -> None:
    kind, flags = part.byte(), part.number()
    if kind == _DATA_SYMBOL:
        part.bytes()
        for _ in range(0 if flags & _UNDEFINED else 3):
            part.number()
        return
    index = part.number()
    if kind != _SECTION_SYMBOL and (not flags & _UNDEFINED or flags & _EXPLICIT_NAME):
        name = part.bytes().decode()
        if kind == _FUNCTION_SYMBOL and not flags & _UNDEFINED:
            contents.functions.append((name, index))
