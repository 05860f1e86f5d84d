"""Object files joined to one image, which is loaded into this process without LLVM: those of x86-64 in ELF.

In an image everything has its place from the beginning on, so that calls and reads of constants are final. What depends
on where the image begins is left for when it is loaded: addresses in tables, and functions of the process, which are
called by a jump through a slot for each. The format is that of the System V ABI's AMD64 supplement, section 4.4.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from itertools import chain
from operator import index as integer
from typing import TYPE_CHECKING, Protocol, TypeAlias, final

from glowpy.support.errors import InternalError, UserError
from glowpy.support.limits import of_limits

if TYPE_CHECKING:
    from glowpy.llvm.machine import Machine

__all__ = [
    "Code",
    "Functions",
    "LinkedCode",
    "LoadedImage",
    "MissingFunctionError",
    "is_loadable",
    "joined",
    "link",
    "load_code",
]

_HEADER = b"\x7fELF\x02\x01"
_X86_64 = 62
_SYMBOL_TABLE, _RELOCATIONS, _NO_BITS, _GROUP = 2, 4, 8, 17
_WRITE, _ALLOCATED, _EXECUTABLE, _THREAD_LOCAL = 1, 2, 4, 0x400
_ABSOLUTE_SECTION = 0xFFF1
_WEAK, _FUNCTION = 2, 2
"""Binding and type of a symbol."""
_ADDRESS, _RELATIVE, _CALL, _SLOTS = 1, 2, 4, (9, 41, 42)
"""Relocations: 8 bytes, 4 relative ones, the same of a call, and those of a slot that holds an address."""

_CODE, _READ, _WRITTEN = range(3)
"""Permissions of the memory of a part of an image."""
_PAGE = 1 << 12
_LINE = 64
"""Functions begin on a line of the cache, so that their loops lie in the same way wherever they are."""
_STUB = struct.Struct("<HiQ")
_JUMP = 0x25FF
"""`jmp *offset(%rip)`."""
_STUB_ALIGNMENT = 16
_POINTER = struct.Struct("<Q")


class MissingFunctionError(LookupError):
    """Raised where this process lacks functions that the code calls, whose names are the arguments."""


class _UnknownError(Exception):
    """An object file has something that is not known here."""


@final
@dataclass(frozen=True)
class LinkedCode:
    """An image.

    Attributes:
        content: Its bytes: code, what is only read, and what is written, each from a page on.
        ends: Where these three end.
        functions: Where the functions begin that can be found by name.
        addresses: The places of addresses, and where in the image these lead.
        externals: The places of addresses of functions that the process has, by name.
    """

    content: bytes
    ends: tuple[int, int, int]
    functions: Mapping[str, int]
    addresses: Sequence[tuple[int, int]]
    externals: Mapping[str, Sequence[int]]

    def payload(self) -> bytes:
        """The image as bytes: a line of JSON, then the content."""
        fields = [self.ends, dict(self.functions), self.addresses, dict(self.externals)]
        return json.dumps(fields).encode() + b"\n" + self.content

    @staticmethod
    def parse(payload: bytes) -> LinkedCode:
        """The image that `payload` gave. Raises ValueError for one that is damaged."""
        line, _, content = payload.partition(b"\n")
        try:
            ends, functions, addresses, externals = json.loads(line)
            code, read, written = map(integer, ends)
            image = LinkedCode(
                content,
                (code, read, written),
                {name: integer(place) for name, place in functions.items()},
                tuple((integer(place), integer(target)) for place, target in addresses),
                {name: tuple(map(integer, places)) for name, places in externals.items()},
            )
        except (AttributeError, TypeError) as error:
            raise ValueError("expected an image, got something else") from error
        if not image.is_consistent:
            raise ValueError("expected an image with all places inside it, got one with others")
        return image

    @property
    def is_consistent(self) -> bool:
        """Whether all that is written and called when it is loaded lies inside it."""
        code, read, written = self.ends
        size = len(self.content)
        places = chain((place for place, _ in self.addresses), *self.externals.values())
        return (
            0 < code <= read <= written == size
            and not any(end % _PAGE for end in self.ends)
            and all(0 <= place <= size - _POINTER.size for place in places)
            and all(0 <= target <= size for _, target in self.addresses)
            and all(0 <= place < code for place in self.functions.values())
        )


Code: TypeAlias = LinkedCode | tuple[bytes, ...]
"""An image, or the object files of a system for which there are none."""


class Functions(Protocol):
    """Code in this process."""

    def address(self, name: str) -> int:
        """Returns the address of the function called `name`; 0 if there is none."""


def joined(objects: Sequence[bytes]) -> Code:
    """An image of object files, where such can be loaded into this process; else the files."""
    linked = link(objects) if is_loadable() else None
    return tuple(objects) if linked is None else linked


def load_code(code: Code, machine: Callable[[], Machine]) -> Functions:
    """Code in this process; object files by LLVM, for a `machine` that is asked for then.

    Raises InternalError if it calls functions that this process does not have, and UserError if the system refuses
    memory that can be run.
    """
    if not isinstance(code, LinkedCode):
        from glowpy.llvm.objects import load_objects  # noqa: PLC0415 - LLVM

        return load_objects(machine(), code)
    try:
        return LoadedImage(code)
    except MissingFunctionError as error:
        names = ", ".join(error.args)
        raise InternalError(
            f"generated code cannot be loaded: this process does not have {names}, which the code calls"
        ) from error
    except OSError as error:
        raise of_limits(error) or UserError(
            f"expected a process that may run generated code, got one to which the system refuses it: {error}",
            note="allow memory that is run: SELinux's 'deny_execmem' and systemd's 'MemoryDenyWriteExecute' forbid it",
        ) from error


def is_loadable() -> bool:
    """Whether images can be loaded into this process."""
    is_x86_64 = platform.machine() in ("x86_64", "AMD64") and sys.maxsize > 1 << 32
    return sys.platform == "linux" and is_x86_64


@dataclass(frozen=True)
class _Section:
    """A section of an object file; see `struct Elf64_Shdr`."""

    name: str
    kind: int
    flags: int
    offset: int
    size: int
    link: int
    target: int
    alignment: int

    @property
    def part(self) -> int:
        """The permission of its memory once it is loaded."""
        if self.flags & _EXECUTABLE:
            return _CODE
        written = self.flags & _WRITE and not self.name.startswith(".data.rel.ro")
        return _WRITTEN if written else _READ


@dataclass(frozen=True)
class _Symbol:
    """An entry of a symbol table: where it is in a section, 0 if it is no symbol of the file."""

    name: str
    info: int
    visibility: int
    section: int
    value: int

    @property
    def binding(self) -> int:
        """0 for a symbol of this file alone, else that of a name that all files share."""
        return self.info >> 4


@final
class _Object:
    """An object file. Raises UnknownError for what is not one of x86-64."""

    def __init__(self, code: bytes) -> None:
        if not code.startswith(_HEADER) or struct.unpack_from("<H", code, 18) != (_X86_64,):
            raise _UnknownError
        self.code = code
        (start,) = struct.unpack_from("<Q", code, 40)
        size, count, names = struct.unpack_from("<HHH", code, 58)
        headers = [struct.unpack_from("<IIQQQQIIQ", code, start + i * size) for i in range(count)]
        text = headers[names][4]
        self.sections = [
            _Section(self._text(text + h[0]), h[1], h[2], h[4], h[5], h[6], h[7], h[8])
            for h in headers
        ]
        tables = [section for section in self.sections if section.kind == _SYMBOL_TABLE]
        if len(tables) != 1 or any(
            section.kind == _GROUP or section.flags & _THREAD_LOCAL for section in self.sections
        ):
            raise _UnknownError
        begin, texts = tables[0].offset, self.sections[tables[0].link].offset
        fields = struct.iter_unpack("<IBBHQQ", code[begin : begin + tables[0].size])
        self.symbols = [
            _Symbol(self._text(texts + f[0]), f[1], f[2] & 3, f[3], f[4]) for f in fields
        ]

    def _text(self, start: int) -> str:
        return self.code[start : self.code.index(b"\0", start)].decode()

    def relocations(self, section: _Section) -> list[tuple[int, int, _Symbol, int]]:
        """Place, kind, symbol, and what is added, of each in a section of relocations."""
        content = self.code[section.offset : section.offset + section.size]
        return [
            (place, info & 0xFFFFFFFF, self.symbols[info >> 32], added)
            for place, info, added in struct.iter_unpack("<QQq", content)
        ]


def link(objects: Sequence[bytes]) -> LinkedCode | None:
    """The image of some object files; None where they have something that is not known here."""
    try:
        image = _Linker([_Object(code) for code in objects]).image()
    except _UnknownError:
        return None
    return image if image.is_consistent else None


@dataclass
class _Linker:
    """Lays out sections, and computes what relocations say."""

    objects: Sequence[_Object]
    _parts: tuple[bytearray, bytearray, bytearray] = field(
        default_factory=lambda: (bytearray(), bytearray(), bytearray())
    )
    _places: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    """The part and the place there of each section of each object."""
    _slots: dict[str, int] = field(default_factory=dict)
    _stubs: dict[str, int] = field(default_factory=dict)

    def image(self) -> LinkedCode:
        """The image. Raises UnknownError."""
        for index, elf in enumerate(self.objects):
            for number, section in enumerate(elf.sections):
                if section.flags & _ALLOCATED:
                    self._places[index, number] = self._placed(elf, section)
        defined = self._defined()
        for name in self._with_slots(defined):
            self._slots[name] = self._appended(_READ, bytes(8), 8)
            if name not in defined:
                self._stubs[name] = self._appended(_CODE, bytes(_STUB.size), _STUB_ALIGNMENT)
        starts = self._starts()
        content = bytearray(starts[-1])
        for start, part in zip(starts, self._parts, strict=False):
            content[start : start + len(part)] = part
        for name, stub in self._stubs.items():
            slot = starts[_READ] + self._slots[name]
            _STUB.pack_into(content, stub, _JUMP, slot - (stub + 6), 0)
        slots = {name: starts[_READ] + slot for name, slot in self._slots.items()}
        externals = {name: [slot] for name, slot in slots.items() if name not in defined}
        addresses = self._relocated(content, starts, defined, externals)
        addresses += [
            (slots[name], self._address(starts, *defined[name]))
            for name in slots
            if name in defined
        ]
        functions = {
            name: self._address(starts, index, symbol)
            for name, (index, symbol) in defined.items()
            if not symbol.visibility and symbol.info & 15 == _FUNCTION
        }
        ends = starts[1], starts[2], starts[3]
        places = {name: tuple(slots) for name, slots in externals.items()}
        return LinkedCode(bytes(content), ends, functions, tuple(addresses), places)

    def _defined(self) -> dict[str, tuple[int, _Symbol]]:
        """The definitions of the names that all objects share. Raises UnknownError for two, unless both are weak."""
        defined: dict[str, tuple[int, _Symbol]] = {}
        for index, elf in enumerate(self.objects):
            for symbol in elf.symbols:
                if symbol.section and symbol.name and symbol.binding:
                    _, first = defined.setdefault(symbol.name, (index, symbol))
                    if first is not symbol and not first.binding == symbol.binding == _WEAK:
                        raise _UnknownError
        return defined

    def _placed(self, own: _Object, section: _Section) -> tuple[int, int]:
        is_empty = section.kind == _NO_BITS
        content = own.code[section.offset : section.offset + section.size]
        alignment = max(section.alignment, _LINE if section.part == _CODE else 1)
        bits = bytes(section.size) if is_empty else content
        return section.part, self._appended(section.part, bits, alignment)

    def _appended(self, part: int, content: bytes, alignment: int) -> int:
        """Appends content to a part; returns its offset there."""
        memory = self._parts[part]
        memory += bytes(-len(memory) % alignment)
        memory += content
        return len(memory) - len(content)

    def _starts(self) -> list[int]:
        """Returns the starts of the parts, and the end of the last."""
        starts = [0]
        for part in self._parts:
            starts.append(-(-(starts[-1] + len(part)) // _PAGE) * _PAGE)
        return starts

    def _with_slots(self, defined: Mapping[str, object]) -> list[str]:
        """The functions that no object defines and some relocation needs, and all whose address is read from a slot."""
        names: dict[str, None] = {}
        for elf in self.objects:
            for section in elf.sections:
                if section.kind == _RELOCATIONS:
                    for _, kind, symbol, _ in elf.relocations(section):
                        if kind in _SLOTS and symbol.section and not symbol.binding:
                            raise _UnknownError  # another object may have one of that name
                        if kind in _SLOTS or not (symbol.section or symbol.name in defined):
                            names[symbol.name] = None
        return list(names)

    def _address(self, starts: Sequence[int], index: int, symbol: _Symbol) -> int:
        """Returns the offset of a symbol in the image."""
        if symbol.section >= _ABSOLUTE_SECTION or (index, symbol.section) not in self._places:
            raise _UnknownError
        part, place = self._places[index, symbol.section]
        return starts[part] + place + symbol.value

    def _relocated(
        self,
        content: bytearray,
        starts: Sequence[int],
        defined: Mapping[str, tuple[int, _Symbol]],
        externals: Mapping[str, list[int]],
    ) -> list[tuple[int, int]]:
        """The addresses that are left for when the image is loaded; all else is written."""
        addresses: list[tuple[int, int]] = []
        for index, elf in enumerate(self.objects):
            for section in elf.sections:
                if section.kind != _RELOCATIONS or (index, section.target) not in self._places:
                    continue
                part, begin = self._places[index, section.target]
                for offset, kind, symbol, added in elf.relocations(section):
                    place, name = starts[part] + begin + offset, symbol.name
                    is_own = symbol.section and not symbol.binding
                    owner = (index, symbol) if is_own else defined.get(name)
                    if owner is None and kind == _ADDRESS and not added:
                        externals[name].append(place)
                    elif owner is not None and kind == _ADDRESS:
                        addresses.append((place, self._address(starts, *owner) + added))
                    elif kind in (_RELATIVE, _CALL, *_SLOTS):
                        target = self._target(starts, kind, name, owner)
                        struct.pack_into("<i", content, place, target + added - place)
                    else:
                        raise _UnknownError
        return addresses

    def _target(
        self, starts: Sequence[int], kind: int, name: str, owner: tuple[int, _Symbol] | None
    ) -> int:
        """Returns the target of a relative address: a symbol, a jump to a function of the process, or its slot."""
        if kind in _SLOTS:
            return starts[_READ] + self._slots[name]
        if owner is not None:
            return self._address(starts, *owner)
        if kind != _CALL:
            raise _UnknownError
        return self._stubs[name]


@final
class LoadedImage:
    """An image in this process; lives as long as any function of it may be called.

    Raises MissingFunctionError where the process does not have what the code calls.
    """

    def __init__(self, code: LinkedCode) -> None:
        externals = {name: _function_of_process(name) for name in code.externals}
        if missing := sorted(name for name, address in externals.items() if not address):
            raise MissingFunctionError(*missing)
        flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
        self._memory = mmap.mmap(-1, max(len(code.content), _PAGE), flags=flags)
        self._memory[: len(code.content)] = code.content
        self._start = ctypes.addressof(ctypes.c_char.from_buffer(self._memory))
        self._functions = code.functions
        put = _POINTER.pack_into
        for place, target in code.addresses:
            put(self._memory, place, self._start + target)
        for name, places in code.externals.items():
            for place in places:
                put(self._memory, place, externals[name])
        _protect(self._start, code.ends[0], mmap.PROT_READ | mmap.PROT_EXEC)
        _protect(self._start + code.ends[0], code.ends[1] - code.ends[0], mmap.PROT_READ)

    def address(self, name: str) -> int:
        """Returns the address of the function called `name`; 0 if there is none."""
        place = self._functions.get(name)
        return 0 if place is None else self._start + place


@cache
def _libraries() -> tuple[ctypes.CDLL, ...]:
    """Returns this process, and the library of mathematics, which it may not have made known to all.

    It is part of the library of C where there is no file of its own, as with musl.
    """
    libraries = [ctypes.CDLL(None, use_errno=True)]
    with suppress(OSError):
        libraries.append(ctypes.CDLL("libm.so.6"))
    return tuple(libraries)


def _function_of_process(name: str) -> int:
    """Returns the address of a function of this process; 0 where it has none of that name."""
    for library in _libraries():
        try:
            function = getattr(library, name)
        except AttributeError:
            continue
        return ctypes.cast(function, ctypes.c_void_p).value or 0
    return 0


def _protect(start: int, size: int, protection: int) -> None:
    """Says what may be done with some pages. Raises OSError."""
    if size and _libraries()[0].mprotect(ctypes.c_void_p(start), ctypes.c_size_t(size), protection):
        error = ctypes.get_errno()
        raise OSError(error, f"mprotect: {os.strerror(error)}")
