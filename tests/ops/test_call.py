"""Calls of functions: put in place, several times, or left as functions, on every backend."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.backend import CompileOptions
from glowpy.core.tensor import Array
from glowpy.engine import BACKENDS, compilation
from glowpy.graph import calls
from glowpy.graph.calls import inline
from glowpy.graph.function import Module
from glowpy.graph.nodes_gen import CallNode
from glowpy.graph.parser import parse_module
from glowpy.graph.printer import print_module
from glowpy.graph.verifier import verify_module
from glowpy.opt.graph import fold_calls
from glowpy.support.errors import UserError

TESTED = (CallNode,)

TEXT = """
module {
  placeholder %x : f32[3]
  placeholder %z : f32[3]
  placeholder %y : f32[3]
  placeholder %u : f32[3]
  placeholder %a : f32[3]
  placeholder %b : f32[3]
  placeholder %sum : f32[3]
  placeholder %part : f32[3]
  placeholder %c : f32[3]
  placeholder %grown : f32[3]
  constant %half : f32[3] = [0.5, 0.25, 0.125]
  function @main {
    %first, %first.1 = call(%x, %z) {function="both"} : f32[3], f32[3]
    %second, %second.1 = call(%first.1, %first) {function="both"} : f32[3], f32[3]
    save(%second, %y)
    save(%second.1, %u)
  }
  function @both(%a, %b) -> (%sum, %part) {
    %s = add(%a, %b) : f32[3]
    %d = call(%s) {function="grow"} : f32[3]
    save(%d, %sum)
    save(%b, %part)
  }
  function @grow(%c) -> (%grown) {
    %m = mul(%c, %half) : f32[3]
    save(%m, %grown)
  }
}
"""

FOUND = """
module {
  symbol n 0..5
  placeholder %x : f32[5]
  placeholder %y : f32[1]
  placeholder %z : f32[1]
  placeholder %a : f32[5]
  placeholder %sum : f32[1]
  function @main {
    %first = call(%x) {function="added"} : f32[1]
    %minus = neg(%x) : f32[5]
    %second = call(%minus) {function="added"} : f32[1]
    save(%first, %y)
    save(%second, %z)
  }
  function @added(%a) -> (%sum) {
    %places, %places.count = non_zero(%a) : i64[5x1], i64[1]
    define(%places.count) {symbols=[n]}
    %some = slice(%places) {starts=[0,0], steps=[1,1]} : i64[n x 1]
    %numbers = convert(%some) : f32[n x 1]
    %total = reduce_add(%numbers) {axes=[0]} : f32[1x1]
    %flat = reshape(%total) : f32[1]
    save(%flat, %sum)
  }
}
"""
"""A function that finds how many elements are not zero, and is called twice."""

X, Z = np.array([1, 2, 3], np.float32), np.array([4, -1, 0.5], np.float32)
HALF = np.array([0.5, 0.25, 0.125], np.float32)


def check_outputs(outputs: dict[str, Array]) -> None:
    sum = (X + Z) * HALF
    np.testing.assert_array_equal(outputs["y"], (Z + sum) * HALF)
    np.testing.assert_array_equal(outputs["u"], sum)


@pytest.mark.parametrize("backend", BACKENDS)
def test_functions_are_put_in_place(backend: str) -> None:
    options = CompileOptions(verify_each=True, cache=False)
    module = parse_module(TEXT)
    check_outputs(glowpy.compile(module, backend, options)({"x": X, "z": Z}))
    assert print_module(module) == TEXT.lstrip()
    lowered = compilation(module, backend).lowered
    assert [f.name for f in lowered.module.functions] == ["main"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_large_functions_stay_what_they_are(backend: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls them several times does so in machine code."""
    monkeypatch.setattr(fold_calls, "MOST_COPIED", 3)
    stages = compilation(parse_module(TEXT), backend, CompileOptions(cache=False))
    assert [f.name for f in stages.lowered.module.functions] == ["main", "both"]
    check_outputs(stages.compiled({"x": X, "z": Z}))


@pytest.mark.parametrize("backend", BACKENDS)
def test_what_finds_extents_is_put_in_place_once(backend: str) -> None:
    """An extent has one meaning in a function: the first call finds it elsewhere."""
    stages = compilation(parse_module(FOUND), backend, CompileOptions(cache=False))
    x = np.array([1, 0, 3, 0, 2], np.float32)
    outputs = stages.compiled({"x": x})
    assert [outputs["y"].item(), outputs["z"].item()] == [6, 6]
    assert len(stages.program.callees) == 1


def test_functions_that_call_functions_twice_do_not_grow_without_end() -> None:
    """Each of twenty calls the next one twice, which would be a million nodes."""
    module = Module()
    type = glowpy.parse_type("f32[2]")
    for level in range(20):
        ports = [module.create_placeholder(f"{role}{level}", type) for role in ("a", "b")]
        f = module.create_function(f"f{level}", ports[:1], ports[1:])
        value = ports[0].value
        for _ in range(2):
            if level:
                value = f.create_call("call", [value], f"f{level - 1}").result
            else:
                value = f.create_neg("neg", value).result
        f.create_save("save", value, ports[1])
    main = module.create_function("main")
    x, y = (module.create_placeholder(name, type) for name in "xy")
    main.create_save("save", main.create_call("call", [x], "f19"), y)
    verify_module(module)
    lowered = compilation(module, "interpreter").lowered
    assert sum(f.num_nodes for f in lowered.module.functions) < 4 * calls.MOST_COPIED


def test_a_call_takes_and_gives_what_its_function_does() -> None:
    module = parse_module(TEXT)
    f, (x, *_) = module.main, module.placeholders
    with pytest.raises(
        UserError, match=r"the operands of @grow to be f32\[3\], got f32\[3\], f32\[3\]"
    ):
        f.create_call("c", [x, x], "grow")
    with pytest.raises(UserError, match=r"expected one of the functions .*, got 'shrink'"):
        f.create_call("c", [x], "shrink")


def test_chosen_calls_are_put_in_place() -> None:
    module = parse_module(TEXT)
    f = module.main
    first, second = (node for node in f.nodes if isinstance(node, CallNode))
    assert inline(f, [second])
    verify_module(module)
    assert first in f
    assert second not in f
    assert [node.SCHEMA.mnemonic for node in f.topological()[:3]] == ["call", "add", "call"]
    assert inline(f)
    assert not inline(f)
    verify_module(module)
    assert [f.name for f in module.functions] == ["main"]


@pytest.mark.parametrize("backend", BACKENDS)
def test_quantized_elements_are_handed_over(backend: str) -> None:
    text = TEXT.replace("f32[3]", "i8[3](s=0.5,o=1)").replace("[0.5, 0.25, 0.125]", "[3, 3, 3]")
    module = parse_module(text)
    x, z = np.array([3, 5, 7], np.int8), np.array([1, 3, -1], np.int8)
    outputs = glowpy.compile(module, backend, CompileOptions(cache=False))({"x": x, "z": z})
    assert outputs["u"].tolist() == (x + z - 1).tolist()
