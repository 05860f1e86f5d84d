"""A section for every function and constant, as compilers' -ffunction-sections and -fdata-sections make them.

A linker with --gc-sections then leaves out the networks that a program does not run, and a self-test that nobody calls.
"""

from __future__ import annotations

import re

from glowpy.llvm.machine import Machine

__all__ = ["with_sections"]

_OTHER_FORMATS = ("wasm", "darwin", "macos", "ios", "windows", "msvc", "mingw")
_FUNCTION = re.compile(r"^(define [^@\n]*@([\w.]+)\([^\n]*?)((?: !dbg ![0-9]+)? \{)$", re.MULTILINE)
_CONSTANT = re.compile(r"^@([\w.]+) = [^\n]*\bconstant [^\n]*$", re.MULTILINE)


def with_sections(text: str, machine: Machine) -> str:
    """LLVM IR with a section named in each definition.

    Left as it is for formats other than ELF, and for code models that place what is large in sections of their own.
    """
    if machine.code_model != "small" or any(name in machine.triple for name in _OTHER_FORMATS):
        return text
    text = _FUNCTION.sub(r'\1 section ".text.\2"\3', text)

    def placed(match: re.Match[str]) -> str:
        line = match[0]
        relocated = "ptr @" in line and machine.relocation != "static"
        return f'{line}, section "{".data.rel.ro" if relocated else ".rodata"}.{match[1]}"'

    return _CONSTANT.sub(placed, text)
