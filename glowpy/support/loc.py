"""Source locations: where in the user's input a node or instruction comes from."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from pathlib import Path

__all__ = ["UNKNOWN", "Loc", "caller"]

_PACKAGE = f"{Path(__file__).resolve().parents[1]}{os.sep}"


@dataclass(frozen=True, slots=True)
class Loc:
    """A place in the user's input.

    An ONNX node has `file`, `node` (its name or operator), `index` (its position in the graph) and `operator`;
    text has `file`, `line` and `column` (both counted from 1); a node that Python code builds has the
    `file` and `line` of that code. Every pass hands the location of what it replaces to the replacement.
    """

    file: str = ""
    line: int = 0
    column: int = 0
    node: str = ""
    index: int = -1
    operator: str = ""

    def __str__(self) -> str:
        place = self.file
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        if self.node:
            place += f"{': ' if place else ''}node '{self.node}'"
            if self.index >= 0:
                place += f" (#{self.index})"
        return place

    def __bool__(self) -> bool:
        return bool(self.file or self.node or self.line)


UNKNOWN = Loc()
"""The location of what has none, such as an instruction that Python code builds."""


def caller() -> Loc:
    """The file and line of the Python code that called into glowpy; UNKNOWN if nothing did."""
    frame = sys._getframe()
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return UNKNOWN
        frame = frame.f_back
    return Loc(frame.f_code.co_filename, frame.f_lineno)
