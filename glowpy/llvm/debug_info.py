"""DWARF for generated code: the text of the IR is the source file, each instruction is a line of it.

Metadata numbers are given out in order; the nodes a function refers to are rendered with its module.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from glowpy.backend import Program
from glowpy.ir.printer import print_irfunction

__all__ = ["DebugInfo", "ir_text"]

_FLAGS = 'i32 2, !"Debug Info Version", i32 3'
_DWARF = 'i32 7, !"Dwarf Version", i32 4'
_FIXED = 6
_REFERENCE = re.compile(r"!\d+")


@dataclass
class DebugInfo:
    """The compile unit of one module.

    Attributes:
        file: Name of the IR text.
        directory: Folder the name is relative to; `.` keeps bundles free of paths of the machine that made them.
    """

    file: str
    directory: str
    _nodes: dict[str, str] = field(default_factory=dict)

    def subprogram(self, name: str, line: int) -> str:
        """Declares the function of instruction `name`, which begins on `line`; returns its reference."""
        return self._node(
            f"distinct !DISubprogram(name: {_quoted(name)}, scope: !3, file: !3, "
            f"line: {line}, scopeLine: {line}, type: !4, "
            "spFlags: DISPFlagDefinition | DISPFlagOptimized, unit: !2)"
        )

    def _node(self, text: str) -> str:
        """The reference of a node, which is written with the modules that refer to it."""
        reference = f"!{_FIXED + len(self._nodes)}"
        self._nodes[reference] = f"{reference} = {text}"
        return reference

    def location(self, line: int, scope: str) -> str:
        """The suffix of an instruction that belongs to `line` inside `scope`."""
        return f", !dbg !DILocation(line: {line}, column: 1, scope: {scope})"

    def entry(self, line: int, scope: str) -> str:
        """Starts the function of an instruction with one place on its line that runs once for each call.

        Debuggers stop where the second row of a function's line table begins, lest they stop before it has a frame; in
        code like ours that is a loop.
        """
        where = f"!DILocation(line: {line}, column: 0, scope: {scope})"
        return f"  %begun = alloca i8\n  store volatile i8 0, ptr %begun, !dbg {where}\n"

    def member(self, name: str, line: int, first_line: int, scope: str) -> str:
        """Marks the place in a function where it computes another instruction, such as one of its epilogue.

        To debuggers each is a function of its own that is inlined there, so that a breakpoint on its name is hit once
        for each call. This follows `entry`.
        """
        inlined = self._node(f"distinct !DILocation(line: {first_line}, column: 0, scope: {scope})")
        subprogram = self.subprogram(name, line)
        where = f"!DILocation(line: {line}, column: 0, scope: {subprogram}, inlinedAt: {inlined})"
        return f"  store volatile i8 0, ptr %begun, !dbg {where}\n"

    def render(self, text: str) -> list[str]:
        """The metadata of a module with these functions."""
        used = dict.fromkeys(_REFERENCE.findall(text))
        return [
            "!llvm.module.flags = !{!0, !1}",
            "!llvm.dbg.cu = !{!2}",
            f"!0 = !{{{_FLAGS}}}",
            f"!1 = !{{{_DWARF}}}",
            '!2 = distinct !DICompileUnit(language: DW_LANG_C99, file: !3, producer: "glowpy", '
            "isOptimized: true, runtimeVersion: 0, emissionKind: FullDebug)",
            f"!3 = !DIFile(filename: {_quoted(self.file)}, directory: {_quoted(self.directory)})",
            "!4 = !DISubroutineType(types: !5)",
            "!5 = !{null}",
            *(self._nodes[name] for name in used if name in self._nodes),
        ]


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\5C").replace('"', "\\22")
    return f'"{escaped}"'


def ir_text(programs: Mapping[str, Program]) -> str:
    """The IR of every program, one after the other: the source file that debug information speaks of."""
    return "".join(print_irfunction(program.ir) for program in programs.values())
