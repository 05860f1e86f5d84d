"""What is written by hand stays small enough to be read at one sitting."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("classgen", "glowpy", "libjit", "tests", "tools")
FILE_LINES = 600
FUNCTION_LINES = 60


def hand_written(*suffixes: str) -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in suffixes and not path.stem.endswith("_gen"):
                yield path


def long_functions(source: str) -> list[tuple[str, int]]:
    """Name and length of each function over the budget, its decorators not counted."""
    functions = (
        node
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    )
    lengths = (
        (node.name, (node.end_lineno or node.lineno) - node.lineno + 1) for node in functions
    )
    return [(name, lines) for name, lines in lengths if lines > FUNCTION_LINES]


def test_files_are_short() -> None:
    lengths = {
        path.relative_to(ROOT).as_posix(): len(path.read_text(encoding="utf-8").splitlines())
        for path in hand_written(".py", ".c", ".h", ".j2")
    }
    assert lengths
    assert {path: lines for path, lines in lengths.items() if lines > FILE_LINES} == {}


def test_functions_are_short() -> None:
    offenders = {
        path.relative_to(ROOT).as_posix(): functions
        for path in hand_written(".py")
        if (functions := long_functions(path.read_text(encoding="utf-8")))
    }
    assert offenders == {}


@pytest.mark.parametrize(("lines", "expected"), [(60, []), (61, [("long", 61)])])
def test_long_functions_counts_from_def_to_last_line(
    lines: int, expected: list[tuple[str, int]]
) -> None:
    source = "@decorated\ndef long():\n" + "    pass\n" * (lines - 1)
    assert long_functions(source) == expected
