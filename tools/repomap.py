"""Prints a map of the repository: `python tools/repomap.py [FOLDER] [--files] [--check]`.

It has a line for each folder with source files, and for one that is named a line for each of its own files besides;
`--files` shows the files of all folders. A line is the first of the file's description, its docstring or its leading
comment, that of `__init__.py` for a folder: the map cannot say anything that the files do not. It is printed when
somebody wants it and lies in no commit.
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
_HEADER = "# Map of the repository\n\n"
_PLAIN = {
    "libjit": "The kernels in C, and what compiles them for each variant of a processor.",
    "libjit/include": "Headers of the kernels.",
    "libjit/src": "The kernels, one family a file.",
    "tools": "The developers' tools: each says in its first line what it does, and how it is called.",
}
"""Lines of folders that are no packages."""


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


def folder_line(root: Path, folder: Path) -> str:
    """The first line of what a folder says about itself; empty if it says nothing."""
    plain = _PLAIN.get(folder.as_posix(), "")
    init = root / folder / "__init__.py"
    return plain or (description(init) if init.is_file() else "")


def lacking(root: Path) -> list[Path]:
    """The files and folders without a description."""
    paths = list(source_files(root))
    files = [
        path
        for path in paths
        if not description(root / path)
        and (path.name != "__init__.py" or (root / path).stat().st_size)
    ]
    folders = dict.fromkeys(path.parent for path in paths)
    return files + [folder for folder in folders if not folder_line(root, folder)]


def render(root: Path, inside: Path = Path(), *, files: bool = False) -> str:
    """The map of what is inside a folder: its folders, its own files, and with `files` those of all folders."""
    parts = [_HEADER]
    paths = (path for path in source_files(root) if path.is_relative_to(inside))
    for folder, members in groupby(paths, key=lambda path: path.parent):
        named = [path for path in members if path.name != "__init__.py"]
        parts.append(f"- `{folder.as_posix()}/`: {folder_line(root, folder)}\n")
        if files or folder == inside:
            parts += [f"  - `{path.name}`: {description(root / path)}\n" for path in named]
    return "".join(parts)


def main() -> int:
    """Prints the map; 1 if a file or a folder describes nothing."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="print nothing but what lacks a line")
    parser.add_argument("--files", action="store_true", help="show the files of all folders")
    parser.add_argument("folder", nargs="?", type=Path, default=Path(), help="show its files")
    options = parser.parse_args()
    silent = lacking(ROOT)
    for path in silent:
        sys.stderr.write(f"{path}: no description; expected a docstring or a leading comment\n")
    if not options.check:
        folder = options.folder
        folder = folder.resolve().relative_to(ROOT) if folder.is_absolute() else folder
        sys.stdout.write(render(ROOT, folder, files=options.files))
    return int(bool(silent))


if __name__ == "__main__":
    sys.exit(main())
