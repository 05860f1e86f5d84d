"""Prints a map of the repository, one line for each source file: `python tools/repomap.py [--check] [FOLDER]`.

The line is the first of the file's own description, its docstring or its leading comment, so the map cannot
say anything that the file does not. It is printed when somebody wants it and lies in no commit.
"""

from __future__ import annotations

import argparse
import ast
import sys
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]

_FOLDERS = ("glowpy", "classgen", "libjit", "tools")
_KINDS = (".py", ".c", ".h")
_HEADER = """\
# Map of the repository

The first line of every file's own description.
"""


def source_files(root: Path) -> Iterator[Path]:
    """Every file the map has a line for, relative to the root, folder by folder."""
    paths = [
        path.relative_to(root)
        for folder in _FOLDERS
        for path in (root / folder).rglob("*")
        if path.suffix in _KINDS and path.is_file()
    ]
    return iter(sorted(paths, key=lambda path: (path.parent.parts, path.name)))


def description(path: Path) -> str:
    """The first line of what a file says about itself; empty if it says nothing."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".py":
        return (ast.get_docstring(ast.parse(text)) or "").partition("\n")[0].strip()
    for line in text.splitlines():
        if line.startswith(("//", "/*")):
            return line.lstrip("/* ").removesuffix("*/").strip()
        if line and not line.startswith("#"):
            break
    return ""


def render(root: Path, inside: Path = Path()) -> tuple[str, list[Path]]:
    """The map of what is inside a folder, and the files there that lack a description."""
    parts = [_HEADER]
    silent: list[Path] = []
    paths = (path for path in source_files(root) if path.is_relative_to(inside))
    for folder, files in groupby(paths, key=lambda path: path.parent):
        rows: list[str] = []
        for path in files:
            line = description(root / path)
            if line:
                rows.append(f"- `{path.name}`: {line}")
            elif path.name != "__init__.py" or (root / path).stat().st_size:
                silent.append(path)
        if rows:
            parts.append(f"\n## {folder.as_posix()}\n\n" + "\n".join(rows) + "\n")
    return "".join(parts), silent


def main() -> int:
    """Prints the map; 1 if a file describes nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="print nothing but what lacks a line")
    parser.add_argument(
        "folder", nargs="?", type=Path, default=Path(), help="all folders, if left out"
    )
    options = parser.parse_args()
    text, silent = render(ROOT, options.folder)
    for path in silent:
        sys.stderr.write(f"{path}: no description; expected a docstring or a leading comment\n")
    if not options.check:
        sys.stdout.write(text)
    return int(bool(silent))


if __name__ == "__main__":
    sys.exit(main())
