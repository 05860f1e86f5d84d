"""Functions that are called, optimized in the context of their calls."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.engine import evaluate
from glowpy.graph.function import Module
from glowpy.graph.node import Operand
from glowpy.graph.nodes_gen import IfNode, LoopNode, SaveNode
from glowpy.graph.parser import parse_module
from glowpy.graph.verifier import verify_module
from glowpy.opt.graph.fold_calls import FoldCallsPass
from glowpy.opt.graph.hoist_invariants import HoistInvariantsPass
from glowpy.passes import GraphPass, PassContext

TEXT = """
module {
  placeholder %n : i64[]
  placeholder %keep : bool[]
  placeholder %x : f32[2]
  placeholder %y : f32[2]
  placeholder %rows : f32[4x2]
  placeholder %round : i64[]
  placeholder %scale : f32[2]
  placeholder %unread : f32[2]
  placeholder %step : f32[2]
  placeholder %more : bool[]
  placeholder %row : f32[2]
  variable %sum : f32[2]
  constant %true : bool[] = splat 1
  constant %three : i64[] = splat 3
  constant %two : f32[2] = splat 2.0
  function @main {
    %y0 = neg(%x) : f32[2]
    %loop, %loop.1, %loop.2 = loop(LIMIT, KEEP, %x, %two, %y0, %x) BODY : f32[2], f32[4x2], i64[1]
    save(%loop, %y)
    SAVE_ROWS
  }
  function @add(%round, %sum, %scale, %unread, %step) -> (%more, %sum, %row) {
    %wave = sin(%step) : f32[2]
    %part = mul(%wave, %scale) : f32[2]
    %next = add(%sum, %part) : f32[2]
    %square = mul(%next, %next) : f32[2]
    save(%true, %more)
    save(%next, %sum)
    save(%square, %row)
  }
}
"""


def module(limit: str = "%n", keep: str = "%keep", rows: str = "") -> Module:
    text = TEXT.replace("LIMIT", limit).replace("KEEP", keep).replace("SAVE_ROWS", rows)
    return parse_module(text.replace("BODY", '{body="add", carried=1, room=4}'))


def passed(m: Module, *passes: GraphPass) -> list[bool]:
    changed = [step.run(m.main, PassContext(evaluate)) for step in passes]
    verify_module(m)
    return changed


def outputs(m: Module) -> Array:
    feeds = {"n": np.array(3), "keep": np.array(True), "x": np.array([1, 2], np.float32)}
    compiled = glowpy.compile(m, "interpreter")
    unread = {name: np.zeros(type.extents, np.float32) for name, type in compiled.inputs.items()}
    return compiled({name: feeds.get(name, array) for name, array in unread.items()})["y"]


EXPECTED = np.array([1, 2]) + 3 * 2 * np.sin([1, 2])


def test_a_function_takes_and_gives_what_is_read() -> None:
    m = module()
    assert passed(m, FoldCallsPass(), FoldCallsPass()) == [True, False]
    (loop,) = (node for node in m.main.nodes if isinstance(node, LoopNode))
    body = m.function("add")
    assert [s.name for s in body.takes] == ["round", "sum", "step"]
    assert [s.name for s in body.gives] == ["more", "sum"]
    assert [value.name for value in loop.inputs] == ["n", "keep", "x", "x"]
    assert (loop.name, [r.name for r in loop.results]) == ("loop", ["loop", "loop.1"])
    assert {node.SCHEMA.mnemonic for node in body.nodes} == {"sin", "mul", "add", "save"}
    np.testing.assert_allclose(outputs(m), EXPECTED, 1e-6)


def test_what_is_stacked_and_read_stays() -> None:
    m = module(rows="save(%loop.1, %rows)")
    passed(m, FoldCallsPass())
    assert [s.name for s in m.function("add").gives] == ["more", "sum", "row"]


def test_few_known_rounds_are_written_out() -> None:
    m = module("%three", "%true")
    (add,) = (f for f in m.functions if f.is_called)
    assert passed(m, *[FoldCallsPass(most_nodes=8)] * 2) == [True, False]  # 3 rounds of 3 nodes
    assert add in m.functions
    assert passed(m, FoldCallsPass(most_nodes=9), FoldCallsPass()) == [True, False]
    assert [f.name for f in m.functions] == ["main"]
    assert sum(node.SCHEMA.mnemonic == "add" for node in m.main.nodes) == 3
    np.testing.assert_allclose(outputs(m), EXPECTED, 1e-6)


@pytest.mark.parametrize(("limit", "keep"), [("%n", "%true"), ("%three", "%keep")])
def test_rounds_that_are_not_known_stay_a_loop(limit: str, keep: str) -> None:
    m = module(limit, keep)
    passed(m, FoldCallsPass(), FoldCallsPass())
    assert len(m.functions) == 2


def test_invariants_are_computed_once() -> None:
    m = module()
    assert passed(m, FoldCallsPass(), HoistInvariantsPass(), HoistInvariantsPass()) == [
        True,
        True,
        False,
    ]
    assert {node.SCHEMA.mnemonic for node in m.function("add").nodes} == {"add", "save"}
    assert {"sin", "mul", "loop"} <= {node.SCHEMA.mnemonic for node in m.main.nodes}
    np.testing.assert_allclose(outputs(m), EXPECTED, 1e-6)


def test_a_loop_that_never_runs_gives_what_it_is_given() -> None:
    zero = "constant %zero : i64[] = splat 0\n  function @main"
    text = str(module()).replace("loop(%n", "loop(%zero").replace("function @main", zero, 1)
    m = parse_module(text)
    passed(m, FoldCallsPass(), FoldCallsPass())
    assert not any(isinstance(node, LoopNode) for node in m.main.nodes)
    np.testing.assert_array_equal(outputs(m), [1, 2])


def test_rows_of_few_rounds_are_joined() -> None:
    four = "constant %four : i64[] = splat 4\n  function @main"
    text = (
        str(module("%n", "%true", "save(%loop.1, %rows)"))
        .replace("loop(%n", "loop(%four")
        .replace("function @main", four, 1)
    )
    m = parse_module(text)
    passed(m, FoldCallsPass(), FoldCallsPass())
    assert [f.name for f in m.functions] == ["main"]
    feed = {"x": np.array([1, 2], np.float32)}
    sums = [np.array([1, 2]) + 2 * (i + 1) * np.sin([1, 2]) for i in range(4)]
    compiled = glowpy.compile(m, "interpreter")
    unread = {n: np.zeros(type.extents, type.kind.dtype) for n, type in compiled.inputs.items()}
    rows = compiled(unread | feed)["rows"]
    np.testing.assert_allclose(rows, np.square(sums), 1e-5)


def test_a_loop_in_a_loop_stays_a_loop() -> None:
    """Where the inner one is too large: rounds never multiply. One that runs once is as good as its body."""
    for outer, functions in ((3, 3), (1, 2)):
        module = nested_loops(outer)
        passed(module, FoldCallsPass(), FoldCallsPass())
        assert len(module.functions) == functions


def nested_loops(rounds: int) -> Module:
    m = Module()
    truth, number, type = (glowpy.parse_type(kind) for kind in ("bool[]", "i64[]", "f32[2]"))
    true, many, few = (m.create_constant("c", np.array(v)) for v in (True, 99, rounds))
    callee = ""
    for name in ("inner", "outer"):
        round, keep = m.create_placeholder("round", number), m.create_placeholder("keep", truth)
        state = m.create_variable("state", type)
        f = m.create_function(name, [round, state], [keep, state])
        value: Operand = f.create_sin("sin", state)
        if callee:
            value = f.create_loop("loop", [many, true, value], callee, 1, 0).results[0]
        f.create_save("save", value, state)
        f.create_save("save", true, keep)
        callee = name
    x, y = m.create_placeholder("x", type), m.create_placeholder("y", type)
    main = m.create_function("main")
    loop = main.create_loop("loop", [few, true, x], callee, 1, 0)
    main.create_save("save", loop.results[0], y)
    return m


def test_a_module_counts_calls() -> None:
    m = nested_loops(3)
    assert m.calls == m.clone().calls == {"inner": 1, "outer": 1}
    (inner, outer) = (m.function(name) for name in ("inner", "outer"))
    (save, loop) = (next(n for n in m.main.nodes if isinstance(n, c)) for c in (SaveNode, LoopNode))
    m.main.erase(save)
    m.main.erase(loop)
    assert m.calls["outer"] == 0
    assert m.erase_uncalled()
    assert not {inner, outer} & set(m.functions)
    assert not m.calls["inner"]


def test_a_branch_that_is_called_twice_keeps_what_it_takes() -> None:
    m = Module()
    type = glowpy.parse_type("f32[2]")
    a, b, result = (m.create_placeholder(name, type) for name in ("a", "b", "result"))
    f = m.create_function("f", [a, b], [result])
    f.create_save("save", f.create_exp("exp", a), result)
    main = m.create_function("main")
    c = m.create_placeholder("c", glowpy.parse_type("bool[]"))
    x, y = (m.create_placeholder(name, type) for name in "xy")
    main.create_save("save", main.create_if("if", [c, x, x], "f", "f"), y)
    assert passed(m, FoldCallsPass()) == [False]
    (node,) = (node for node in main.nodes if isinstance(node, IfNode))
    assert len(node.inputs) == 3
