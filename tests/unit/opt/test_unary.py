"""Which nodes are a function of one value."""

from __future__ import annotations

import pytest

from glowpy.graph.function import Function
from glowpy.graph.parser import parse_module
from glowpy.opt.unary import unary_of

ENDS = "  placeholder %x : f32[2x3]\n  placeholder %y : f32[2x3]\n  placeholder %z : f32[2x3]\n"


def function(body: str) -> Function:
    lines = "\n".join(f"    {line}" for line in body.strip().splitlines())
    constants = "  constant %c : f32[1] = [2.0]\n  constant %v : f32[3] = [1.0, 2.0, 3.0]\n"
    constants += "  constant %w : f32[1x1x1] = [2.0]\n"
    text = f"module {{\n{ENDS}{constants}  function @main {{\n{lines}\n  }}\n}}\n"
    return parse_module(text, "<test>").main


@pytest.mark.parametrize(
    ("body", "operand", "nodes"),
    [
        ("%a = exp(%x) : f32[2x3]", "x", "a"),
        ("%b = exp(%x) : f32[2x3]\n%a = mul(%b, %c) : f32[2x3]", "x", "a b"),
        ("%b = exp(%x) : f32[2x3]\n%a = mul(%b, %x) : f32[2x3]", "x", "a b"),
        ("%b = exp(%x) : f32[2x3]\n%a = mul(%b, %b) : f32[2x3]", "x", "a b"),
        # Of two inputs, of a vector, of what others read, of another shape.
        ("%a = mul(%x, %z) : f32[2x3]", "", ""),
        ("%b = mul(%x, %z) : f32[2x3]\n%a = exp(%b) : f32[2x3]", "b", "a"),
        ("%b = mul(%x, %v) : f32[2x3]\n%a = exp(%b) : f32[2x3]", "b", "a"),
        ("%b = exp(%x) : f32[2x3]\n%a = neg(%b) : f32[2x3]\nsave(%b, %z)", "b", "a"),
        ("%b = reduce_max(%x) {axes=[0]} : f32[1x3]\n%a = mul(%x, %b) : f32[2x3]", "", ""),
        ("%b = softmax(%x) {axis=1} : f32[2x3]\n%a = exp(%b) : f32[2x3]", "b", "a"),
    ],
)
def test_unary(body: str, operand: str, nodes: str) -> None:
    f = function(f"{body}\nsave(%a, %y)")
    unary = unary_of(next(node for node in f.nodes if node.name == "a"))
    if not operand:
        assert unary is None
        return
    assert unary is not None
    assert unary.operand.name == operand
    assert " ".join(node.name for node in unary.nodes) == nodes


def test_a_result_of_another_rank_is_no_function_of_elements() -> None:
    f = function("%b = mul(%x, %w) : f32[1x2x3]\n%r = reshape(%b) : f32[2x3]\nsave(%r, %y)")
    assert unary_of(next(node for node in f.nodes if node.name == "b")) is None
