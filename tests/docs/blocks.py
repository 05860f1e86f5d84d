"""Runs the fenced blocks of a Markdown page, from top to bottom, in one folder.

| fence | what happens |
|---|---|
| ```` ```python ```` | runs; names live on in later blocks of the page |
| ```` ```text ```` right after python | is what that block printed |
| ```` ```console ```` | each `$ glowpy ...` runs here; what it prints is compared; `...` is any lines, or any text |
| ```` ```glow FILE ```` | parses; is written to FILE, if one is named, for later blocks |
| ```` ```sh ```` and others | are for people |
"""

from __future__ import annotations

import io
import linecache
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from pathlib import Path

from glowpy.cli.main import run
from glowpy.graph.parser import parse_module
from glowpy.ir.parser import parse_irfunction
from glowpy.memory import parse_plan

_FENCE = re.compile(
    r"^```(?P<kind>[a-z]+)(?: +(?P<name>\S+))?\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL
)
_PARSERS: dict[str, Callable[[str, str], object]] = {
    "module": parse_module,
    "irfunction": parse_irfunction,
    "memory": parse_plan,
}


@dataclass(frozen=True)
class Block:
    kind: str
    name: str
    text: str
    line: int
    span: tuple[int, int]
    """Where the text is in the page."""


def blocks(page: str) -> Iterator[Block]:
    for match in _FENCE.finditer(page):
        line = page.count("\n", 0, match.start()) + 1
        yield Block(match["kind"], match["name"] or "", match["text"], line, match.span("text"))


def matches(expected: str, got: str) -> bool:
    """Whether the lines are the same, where a line `...` stands for any lines, and `...` in one for any text."""
    pattern = "".join(
        r"(?:.*\n)*?"
        if line.strip() == "..."
        else re.escape(line).replace(re.escape("..."), ".*") + r"\n"
        for line in expected.splitlines()
    )
    return re.fullmatch(pattern, got) is not None


class Page:
    """One page being run; `fresh` is the page as it should be."""

    def __init__(self, path: Path, folder: Path) -> None:
        self.path = path
        self.folder = folder
        self.page = path.read_text(encoding="utf-8")
        self.names: dict[str, object] = {"__name__": "__docs__"}
        self.edits: list[tuple[tuple[int, int], str]] = []

    def run(self) -> str:
        printed: str | None = None
        for block in blocks(self.page):
            where = f"{self.path.name}:{block.line}"
            match block.kind:
                case "python":
                    printed = self._python(block, where)
                    continue
                case "text" if printed is not None:
                    self._expect(block, printed)
                case "console":
                    self._expect(block, self._console(block, where))
                case "glow":
                    self._glow(block, where)
                case _:
                    pass
            printed = None
        fresh = self.page
        for (start, end), text in reversed(self.edits):
            fresh = fresh[:start] + text + fresh[end:]
        return fresh

    def _expect(self, block: Block, got: str) -> None:
        if not matches(block.text, got):
            self.edits.append((block.span, got))

    def _python(self, block: Block, where: str) -> str:
        stream = io.StringIO()
        lines = block.text.splitlines(keepends=True)
        linecache.cache[where] = len(block.text), None, lines, where  # for inspect.getsource
        with redirect_stdout(stream):
            exec(compile(block.text, where, "exec"), self.names)
        return stream.getvalue()

    def _console(self, block: Block, where: str) -> str:
        """The block with what its commands print now; output that still matches stays as it is."""
        fresh = ""
        for command, expected in _commands(block.text):
            words = shlex.split(command)
            assert words[0] == "glowpy", f"{where}: only glowpy runs here, got {command!r}"
            stream = io.StringIO()
            run(words[1:], io.StringIO(), stream)
            got = "".join(f"{line.rstrip()}\n" for line in stream.getvalue().splitlines())
            fresh += f"$ {command}\n{expected if matches(expected, got) else got}"
        return fresh

    def _glow(self, block: Block, where: str) -> None:
        parse = _PARSERS[block.text.split(None, 1)[0]]
        parse(block.text, where)
        if block.name:
            (self.folder / block.name).write_text(block.text)


def _commands(text: str) -> list[tuple[str, str]]:
    """(command, output) of a console block."""
    parts = re.split(r"^\$ (.*)\n", text, flags=re.MULTILINE)
    return list(zip(parts[1::2], parts[2::2], strict=True))
