"""The public names: complete, few, of one definition, and imported only when they are used."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import glowpy

ROOT = Path(__file__).resolve().parents[2]
HEAVY = ("llvmlite", "ml_dtypes", "numpy", "onnx")


def imported_by(code: str) -> set[str]:
    """The modules a fresh interpreter has after running `code`."""
    program = f"{code}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def for_type_checkers() -> dict[str, str]:
    """What `glowpy/__init__.py` imports for type checkers alone: name to module."""
    tree = ast.parse(Path(str(glowpy.__file__)).read_text(encoding="utf-8"))
    (block,) = (
        node
        for node in tree.body
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    )
    imports = [node for node in block.body if isinstance(node, ast.ImportFrom)]
    return {alias.name: str(node.module) for node in imports for alias in node.names}


def test_type_checkers_and_programs_see_the_same_names() -> None:
    declared = for_type_checkers()
    assert sorted(declared) == sorted(glowpy.__all__)
    for name, home in declared.items():
        assert getattr(glowpy, name) is getattr(import_module(home), name)


def test_names_are_few_sorted_and_listed() -> None:
    assert len(glowpy.__all__) <= 40
    assert len(set(glowpy.__all__)) == len(glowpy.__all__)
    assert set(glowpy.__all__) <= set(dir(glowpy))


def test_everything_can_be_imported_at_once() -> None:
    names: dict[str, object] = {}
    exec("from glowpy import *", names)
    assert set(glowpy.__all__) <= set(names)


def test_other_names_are_refused() -> None:
    with pytest.raises(AttributeError, match="module 'glowpy' has no attribute 'nonsense'"):
        getattr(glowpy, "nonsense")  # noqa: B009 - a type checker refuses it too
    with pytest.raises(ImportError):
        exec("from glowpy import nonsense", {})


def test_importing_glowpy_imports_next_to_nothing() -> None:
    modules = imported_by("import glowpy")
    assert not modules.intersection(HEAVY)
    assert len([name for name in modules if name.startswith("glowpy.")]) < 10


@pytest.mark.parametrize(
    "code",
    [
        "import glowpy\nm = glowpy.Module()",
        "from glowpy import Module\nm = Module()",
        "from glowpy.graph.function import Module\nm = Module()",
    ],
)
def test_graphs_are_typed_whatever_was_imported_first(code: str) -> None:
    program = (
        f"{code}\n"
        "from glowpy import parse_type\n"
        "x = m.create_placeholder('x', parse_type('f32[2x3]'))\n"
        "node = m.create_function('main').create_mat_mul('p', x, m.create_placeholder("
        "'w', parse_type('f32[3x4]')))\n"
        "assert str(node.result.type) == 'f32[2x4]'"
    )
    modules = imported_by(program)
    assert "glowpy.ops" in modules
    assert not modules.intersection(("llvmlite", "onnx"))


def test_threads_that_need_rules_first_wait_for_all_of_them() -> None:
    imported_by(
        "import threading\n"
        "from glowpy.graph.infer import infer\n"
        "from glowpy.graph.nodes_gen import ConvolutionNode, GatherNode, MatMulNode, TransposeNode\n"
        "classes = [ConvolutionNode, GatherNode, MatMulNode, TransposeNode]\n"
        "missing = []\n"
        "start = threading.Barrier(8)\n"
        "def ask():\n"
        "    start.wait()\n"
        "    missing.extend(infer.missing(classes))\n"
        "threads = [threading.Thread(target=ask) for _ in range(8)]\n"
        "[t.start() for t in threads]; [t.join() for t in threads]\n"
        "assert not missing, missing"
    )
