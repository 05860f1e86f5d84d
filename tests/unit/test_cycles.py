"""No module of the package imports itself by way of others, also not where a function imports."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

from tools.repomap import ROOT


def modules(root: Path) -> dict[str, Path]:
    """The files of a package beside `root`, by name."""
    paths = (root / "glowpy").rglob("*.py")
    named = {path.relative_to(root).with_suffix("").parts: path for path in paths}
    return {".".join(parts).removesuffix(".__init__"): path for parts, path in named.items()}


def imported(node: ast.AST, named: Mapping[str, Path]) -> Iterator[str]:
    """The modules that are imported at run time: what only a type checker needs is left out."""
    if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
        return
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    if isinstance(node, ast.ImportFrom) and node.module:
        inner = [f"{node.module}.{alias.name}" for alias in node.names]
        yield from (name if name in named else node.module for name in inner)
    for child in ast.iter_child_nodes(node):
        yield from imported(child, named)


def check(root: Path) -> None:
    """Raises CycleError, which names the modules of one."""
    named = modules(root)
    trees = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in named.items()}
    lazy = {"glowpy"}  # its names are imported when they are asked for
    graph = {
        name: {other for other in imported(tree, named) if other in named} - {name} - lazy
        for name, tree in trees.items()
    }
    TopologicalSorter(graph).prepare()


def test_no_module_imports_itself_by_way_of_others() -> None:
    check(ROOT)


def test_a_cycle_is_found(tmp_path: Path) -> None:
    package = tmp_path / "glowpy"
    package.mkdir()
    (package / "first.py").write_text("from glowpy import second\n")
    (package / "second.py").write_text("def late():\n    import glowpy.first\n")
    with pytest.raises(ValueError, match="cycle"):
        check(tmp_path)
