"""Symbols in the text of modules and IR."""

from __future__ import annotations

import pytest

from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.printer import print_irfunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.memory import plan
from glowpy.memory_check import check
from glowpy.support.errors import UserError, VerifyError

MODULE = """module {
  symbol seq 1..64 likely 10
  symbol past 0..
  placeholder %x : f32[2 x seq x 16]
  placeholder %k : f32[2 x past x 16]
  placeholder %y : f32[2 x past+seq x 16]
  function @main {
    %c = concat(%k, %x) {axis=1} : f32[2 x past+seq x 16]
    %s = slice(%c) {starts=[0,past,0], steps=[1,1,1]} : f32[2 x seq x 16]
    save(%c, %y)
    save(%s, %x)
  }
}
"""

IR = """irfunction @main {
  symbol n 1..9
  declare
    %x = weight f32[n x 4] mutable
    %y = weight f32[2*n x 4] mutable
  program
    %a = alloc f32[n x 4]
    copy @out %a, @in %x
    insert_tensor @inout %y, @in %a {offsets=[n,0]}
    %v = view f32[n x 4], @in %y {offset=0}
    copy @out %v, @in %a
    dealloc @out %a
}
"""


def test_modules_declare_their_symbols() -> None:
    module = parse_module(MODULE)
    assert print_module(module) == MODULE
    assert {name: (s.low, s.likely) for name, s in module.symbols.items()} == {
        "seq": (1, 10),
        "past": (0, module.symbols["past"].high),
    }


def test_programs_declare_their_symbols_and_are_planned_for_the_highest_extents() -> None:
    f = parse_irfunction(IR)
    assert print_irfunction(f) == IR
    memory = plan(f)
    check(f, memory)
    assert (memory.peak, memory.mutable.size) == (192, 192 + 320)
    static = f.at({"n": 3})
    assert not static.symbols
    assert [str(w.type) for w in static.weights.values()] == ["f32[3x4]", "f32[6x4]"]
    assert static.instructions[2].attrs["offsets"] == (3, 0)


def test_strides_of_views_need_no_order() -> None:
    """Which of 24*n and 24 is less depends on n, but not whether both are at least 1."""
    text = """irfunction @main {
  symbol n 1..5
  declare
    %x = weight f32[1 x n x 24] mutable
  program
    %v = view f32[1 x n x 12], @in %x {offset=12, strides=[STRIDES]}
}
"""
    verify_irfunction(parse_irfunction(text.replace("STRIDES", "24*n,24,1")))
    with pytest.raises(VerifyError, match="it is not known whether 24\\*n-24 < 1"):
        verify_irfunction(parse_irfunction(text.replace("STRIDES", "24*n-24,24,1")))


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ("symbol seq 5..5", "expected bounds that ascend, got 5..5"),
        ("symbol x 1..4", "expected another name for a symbol than 'x'"),
        ("symbol min 1..4", "expected another name for a symbol than 'min'"),
        ("symbol seq 1..4 likely 9", "expected a likely extent in 1..4, got 9"),
        ("symbol seq 1..4\n  symbol seq 1..5", "expected another name for a symbol than 'seq'"),
    ],
)
def test_bad_declarations_are_refused(declared: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        parse_module(f"module {{\n  {declared}\n  function @main {{\n  }}\n}}\n")
    assert message in caught.value.diagnostics[0].message
