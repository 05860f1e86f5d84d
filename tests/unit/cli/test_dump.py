"""`glowpy dump`, and `glowpy opt` on what it prints."""

import io
import re
import shutil
from pathlib import Path

import pytest

from glowpy.cli.main import run
from glowpy.core.type import parse_type
from glowpy.graph.dot import print_dot
from glowpy.graph.function import Module
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import parse_plan

TEXT = """\
module {
  placeholder %x : f32[2x3]
  placeholder %m : bool[2x3]
  placeholder %y : f32[2x3]
  constant %c : f32[3] = [1.0, 2.0, 3.0]
  function @main {
    %a = add(%x, %c) if %m : f32[2x3]
    %r = relu(%a) : f32[2x3]
    save(%r, %y)
  }
}
"""


def dump(*argv: str, text: str = TEXT) -> str:
    out = io.StringIO()
    status = run(["dump", "-", *argv], io.StringIO(text), out)
    assert status == 0, out.getvalue()
    return out.getvalue()


def test_graph_is_the_model() -> None:
    assert dump() == TEXT


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_stages_parse(backend: str) -> None:
    parse_module(dump("--stage", "lowered", "--backend", backend))
    parse_irfunction(dump("--stage", "ir", "--backend", backend))
    text = dump("--stage", "memory", "--backend", backend)
    plan = parse_plan(text)
    assert f"// peak {plan.peak} bytes\n" in text
    assert f"// lower bound {plan.lower_bound} bytes\n" in text


def test_lowered_has_no_relu() -> None:
    assert "relu(" in dump()
    assert "relu(" not in dump("--stage", "lowered")


def test_llvm_and_assembly() -> None:
    assert "define " in dump("--stage", "llvm")
    assert ".globl\tglowpy_main" in dump("--stage", "asm", "--target", "x86_64-unknown-linux-gnu")


def test_output_file(tmp_path: Path) -> None:
    assert dump("-o", str(tmp_path / "net.glow")) == ""
    assert (tmp_path / "net.glow").read_text() == TEXT


def test_dot() -> None:
    source = dump("--format", "dot")
    assert source == dump("--format", "dot")
    nodes = dict(re.findall(r'^  (\w+) \[label="(\w+)', source, re.M))
    assert sorted(nodes.values()) == ["a", "c", "m", "r", "save", "x", "y"]
    edges = {
        (nodes[a], nodes[b], label)
        for a, b, label in re.findall(r'^  (\w+) -> (\w+) \[label="(\w+)"\];', source, re.M)
    }
    assert edges == {
        ("x", "a", "lhs"),
        ("c", "a", "rhs"),
        ("m", "a", "predicate"),
        ("a", "r", "input"),
        ("r", "save", "input"),
        ("save", "y", "output"),
    }


def test_dot_escapes_names() -> None:
    module = parse_module(TEXT)
    module.placeholders[0].original = 'a "b"\\c'
    assert r'label="a \"b\"\\c\nf32[2x3]"' in print_dot(module.main)


def test_svg_without_graphviz(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    out = io.StringIO()
    assert run(["dump", "-", "--format", "svg"], io.StringIO(TEXT), out) == 1
    assert "install Graphviz" in out.getvalue()


@pytest.mark.skipif(shutil.which("dot") is None, reason="Graphviz is not installed")
def test_svg() -> None:
    assert "<svg" in dump("--format", "svg")


def test_dumping_changes_nothing() -> None:
    module = parse_module(TEXT)
    before = print_module(module)
    print_dot(module.main)
    assert print_module(module) == before


def test_dot_numbers_the_operands_of_a_variadic_node() -> None:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[2x3]"))
    f.create_concat("joined", (x, f.create_neg("n", x), x), 0)
    source = print_dot(f)
    for index in range(3):
        assert f'[label="inputs {index}"]' in source


@pytest.mark.parametrize(
    ("argv", "option"),
    [
        (["dump", "-", "--stage", "ir", "--target", "rpi4"], "--target"),
        (["dump", "-", "--stage", "ir", "--features", "+avx2"], "--features"),
        (["run", "-", "--perf-map"], "--perf-map"),
        (["opt", "-", "--target", "rpi4"], "--target"),
    ],
)
def test_options_of_another_backend_are_refused(argv: list[str], option: str) -> None:
    out, err = io.StringIO(), io.StringIO()
    status = run([*argv, "--backend", "interpreter"], io.StringIO(TEXT), out, err)
    assert (status, out.getvalue()) == (1, "")
    assert f"the interpreter backend has no option {option}" in err.getvalue()
