"""The docstring of a pass shows the IR before and after it: here each is run."""

import inspect
import re
import textwrap

import pytest

from glowpy import CpuBackend, CpuOptions, InterpreterBackend
from glowpy.backends.cpu.passes.read_rounded import ReadRoundedPass
from glowpy.backends.cpu.passes.round_parts import RoundPartsPass
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.node import Node
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.printer import print_irfunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.passes import GraphPass, IRPass, PassContext
from glowpy.recipe import graph_recipe, ir_recipe

_BOUND = (
    CpuBackend(CpuOptions(exact=True)),
    CpuBackend(CpuOptions("cortex-m0")),
    CpuBackend(CpuOptions("x86-64-v3")),
    InterpreterBackend(),
)
GRAPH_PASSES: dict[str, GraphPass] = {
    p.name: p for backend in _BOUND for p in graph_recipe(backend).flattened()
}
GRAPH_PASSES |= {p.name: p for p in (RoundPartsPass(), ReadRoundedPass())}
IR_PASSES: dict[str, IRPass] = {
    p.name: p for backend in _BOUND for p in ir_recipe(backend).flattened()
}
_NODES = tuple(node for backend in _BOUND for node in backend.nodes)

_DECLARATION = re.compile(r"^((?:%\w+, )*%\w+) (:|=) (.*)$")


def examples(passed: object) -> tuple[str, str]:
    """What stands below `Before:` and below `After:`."""
    doc = inspect.getdoc(type(passed)) or ""
    match = re.search(r"^Before:\n(.*?)^After:\n((?:    .*\n?)+)", doc, re.MULTILINE | re.DOTALL)
    assert match, f"{type(passed).__name__} has no Before and After"
    return textwrap.dedent(match[1]), textwrap.dedent(match[2])


def _declarations(body: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The names declared in the leading lines with their types (or weights, or constants), and the other lines."""
    lines = body.strip("\n").splitlines()
    declared: list[tuple[str, str]] = []
    while lines:
        match = _DECLARATION.match(lines[0])
        if match is None or (match[2] == "=" and not match[3].startswith("weight")):
            break
        declared += [(name, match[3]) for name in match[1].split(", ")]
        lines.pop(0)
    return declared, lines


def graph(body: str, nodes: tuple[type[Node], ...] = _NODES) -> Module:
    """A module with `body` as its function; `%x, %y : type` declares placeholders, `%c : type = ...` a constant.

    Or the body is a whole module.
    """
    if body.startswith("module"):
        return parse_module(body, extra=nodes)
    declared, lines = _declarations(body)
    text = "module {\n"
    for name, type in declared:
        text += f"  {'constant' if ' = ' in type else 'placeholder'} {name} : {type}\n"
    text += "  function @main {\n" + "".join(f"    {line}\n" for line in lines) + "  }\n}\n"
    return parse_module(text, extra=nodes)


def program(body: str) -> IRFunction:
    """An IR function with `body` as its program; `%x = weight type` lines declare weights."""
    declared, lines = _declarations(body)
    text = "irfunction @main {\n  declare\n"
    text += "".join(f"    {name} = {type}\n" for name, type in declared)
    text += "  program\n" + "".join(f"    {line}\n" for line in lines) + "}\n"
    return parse_irfunction(text, extra=CpuBackend.instructions)


@pytest.mark.parametrize("passed", GRAPH_PASSES.values(), ids=GRAPH_PASSES.keys())
def test_graph_pass_does_what_its_docstring_shows(passed: GraphPass) -> None:
    before, after = (graph(text) for text in examples(passed))
    verify_module(before)
    assert passed.run(before.main, PassContext(evaluate))
    verify_module(before)
    assert print_module(before) == print_module(after)


@pytest.mark.parametrize("passed", IR_PASSES.values(), ids=IR_PASSES.keys())
def test_ir_pass_does_what_its_docstring_shows(passed: IRPass) -> None:
    before, after = (program(text) for text in examples(passed))
    verify_irfunction(before)
    assert passed.run(before, PassContext(evaluate))
    verify_irfunction(before)
    assert print_irfunction(before) == print_irfunction(after)
    assert not passed.run(before, PassContext(evaluate))
