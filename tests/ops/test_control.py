"""Functions that call functions: branches and loops, on every backend."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest

import glowpy
from glowpy import UserError
from glowpy.backend import CompileOptions
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.engine import BACKENDS, compilation, known_instructions
from glowpy.graph.function import Function, Module
from glowpy.graph.nodes_gen import IfNode, LoopNode
from glowpy.graph.parser import parse_module
from glowpy.graph.verifier import verify_module
from glowpy.ir.inst import Instruction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.printer import print_irfunction
from glowpy.ir.verifier import verify_irfunction
from glowpy.memory_check import check
from glowpy.support.errors import VerifyError
from glowpy.support.symbolic import symbol

TESTED = (IfNode, LoopNode)

TEXT = """
module {
  placeholder %n : i64[]
  placeholder %x : f32[3]
  placeholder %y : f32[3]
  placeholder %sums : f32[8x3]
  placeholder %count : i64[1]
  placeholder %round : i64[]
  placeholder %step : f32[3]
  placeholder %keep : bool[]
  placeholder %scaled : f32[3]
  placeholder %a : f32[3]
  placeholder %halved : f32[3]
  placeholder %b : f32[3]
  placeholder %grown : f32[3]
  variable %sum : f32[3]
  constant %true : bool[] = splat 1
  constant %limit : f32[] = splat 100.0
  constant %half : f32[3] = [0.5, 0.25, 0.125]
  constant %zero : f32[] = splat 0.0
  function @main {
    %loop, %loop.1, %loop.2 = loop(%n, %true, %x, %x) {body="add", carried=1, room=8} : f32[3], f32[8x3], i64[1]
    %first = slice(%loop) {starts=[0], steps=[1]} : f32[1]
    %number = reshape(%first) : f32[]
    %positive = lt(%zero, %number) : bool[]
    %if = if(%positive, %loop) {otherwise="grow", then="halve"} : f32[3]
    save(%if, %y)
    save(%loop.1, %sums)
    save(%loop.2, %count)
  }
  function @halve(%a) -> (%halved) {
    %m = mul(%a, %half) : f32[3]
    save(%m, %halved)
  }
  function @grow(%b) -> (%grown) {
    %d = sub(%b, %half) : f32[3]
    %e = exp(%d) : f32[3]
    save(%e, %grown)
  }
  function @add(%round, %sum, %step) -> (%keep, %sum, %scaled) {
    %next = add(%sum, %step) : f32[3]
    %part = mul(%next, %half) : f32[3]
    %most = reduce_max(%next) {axes=[0]} : f32[1]
    %top = reshape(%most) : f32[]
    %less = lt(%top, %limit) : bool[]
    save(%less, %keep)
    save(%next, %sum)
    save(%part, %scaled)
  }
}
"""


def _expected(n: int, x: Array) -> tuple[Array, list[Array]]:
    half = np.array([0.5, 0.25, 0.125], np.float32)
    value = x
    stacked: list[Array] = []
    while len(stacked) < min(n, 8) and (not stacked or value.max() < 100):
        value = value + x
        stacked.append(value * half)
    return (value * half if value[0] > 0 else np.exp(value - half)), stacked


@pytest.fixture(scope="module", params=BACKENDS)
def compiled(request: pytest.FixtureRequest) -> glowpy.CompiledFunction:
    return glowpy.compile(parse_module(TEXT), request.param)


@pytest.mark.parametrize("x", [[1, 2, 30], [-1, 2, 3]], ids=["stops", "goes on"])
@pytest.mark.parametrize("n", [-1, 0, 1, 5, 8, 100])
def test_loop_and_branch(compiled: glowpy.CompiledFunction, n: int, x: list[int]) -> None:
    outputs = compiled({"n": np.array(n), "x": np.array(x, np.float32)})
    y, stacked = _expected(n, np.array(x, np.float32))
    assert outputs["count"].tolist() == [len(stacked)]
    np.testing.assert_allclose(outputs["y"], y, 1e-5)
    np.testing.assert_allclose(outputs["sums"][: len(stacked)], stacked or np.zeros((0, 3)))


QUANTIZED = """
module {
  placeholder %n : i64[]
  placeholder %x : COARSE
  placeholder %y : COARSE
  placeholder %rounds : FINE
  placeholder %positive : bool[]
  placeholder %round : i64[]
  placeholder %step : COARSE
  placeholder %keep : bool[]
  placeholder %fine : i8[3](s=0.25,o=-1)
  placeholder %a : COARSE
  placeholder %same : COARSE
  placeholder %b : COARSE
  placeholder %doubled : COARSE
  variable %sum : COARSE
  constant %true : bool[] = splat 1
  function @main {
    %loop, %loop.1, %loop.2 = loop(%n, %true, %x, %x) {body="more", carried=1, room=4} : COARSE, FINE, i64[1]
    %if = if(%positive, %loop) {otherwise="double", then="keep_it"} : COARSE
    save(%if, %y)
    save(%loop.1, %rounds)
  }
  function @keep_it(%a) -> (%same) {
    save(%a, %same)
  }
  function @double(%b) -> (%doubled) {
    %d = add(%b, %b) : COARSE
    save(%d, %doubled)
  }
  function @more(%round, %sum, %step) -> (%keep, %sum, %fine) {
    %next = add(%sum, %step) : COARSE
    %finer = rescale(%next) : i8[3](s=0.25,o=-1)
    save(%true, %keep)
    save(%next, %sum)
    save(%finer, %fine)
  }
}
""".replace("COARSE", "i8[3](s=0.5,o=3)").replace("FINE", "i8[4x3](s=0.25,o=-1)")


@pytest.mark.parametrize("backend", BACKENDS)
def test_quantized_elements_are_handed_over(backend: str) -> None:
    compiled = glowpy.compile(parse_module(QUANTIZED), backend)
    numbers = np.array([1.5, -2, 0])
    x = (numbers / 0.5 + 3).astype(np.int8)
    for positive, times in ((True, 5), (False, 10)):
        outputs = compiled({"n": np.array(4), "x": x, "positive": np.array(positive)})
        assert ((outputs["y"] - 3.0) * 0.5).tolist() == (numbers * times).tolist()
        stacked = (outputs["rounds"] + 1.0) * 0.25
        assert stacked.tolist() == [(numbers * (i + 2)).tolist() for i in range(4)]
    other = QUANTIZED.replace("%b : i8[3](s=0.5,o=3)", "%b : i8[3](s=0.5,o=4)")
    with pytest.raises(
        UserError, match=r"operands of @double to be i8\[3\]\(s=0.5,o=4\), got i8\[3\]\(s=0.5,o=3\)"
    ):
        verify_module(parse_module(other))


def test_every_level_is_text() -> None:
    module = parse_module(TEXT)
    verify_module(module)
    assert str(parse_module(str(module))) == str(module) == str(module.clone())
    for name, cls in BACKENDS.items():
        text = compilation(module, name).text("ir")
        ir = parse_irfunction(text, extra=known_instructions(cls))
        assert print_irfunction(ir) == text
        assert [*ir.callees] == ["add", "halve", "grow"]


def test_a_frame_has_room_for_what_is_called() -> None:
    program = compilation(parse_module(TEXT), "interpreter").program
    peaks = {one.ir.name: one.plan.peak for one in program.callees}
    check(program.ir, program.plan, peaks)
    with pytest.raises(VerifyError, match="@add needs 1000 bytes, expected as many in frame"):
        check(program.ir, program.plan, {**peaks, "add": 1000})


@pytest.mark.parametrize("backend", BACKENDS)
def test_observers_see_what_is_called(backend: str) -> None:
    compiled = glowpy.compile(parse_module(TEXT), backend, CompileOptions(instrument=True))
    seen: list[str] = []

    class Names:
        def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            seen.append(inst.name)
            if inst.name == "part":
                assert operands["lhs"].shape == (3,)

        def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
            if inst.name == "next":
                np.testing.assert_equal(operands["result"], [2 + seen.count("part")] * 3)

    compiled.observer = Names()
    compiled({"n": np.array(3), "x": np.ones(3, np.float32)})
    assert [seen.count(name) for name in ("loop", "next", "part", "m", "e")] == [2, 3, 3, 1, 0]


def _body(module: Module, kind: str = "f32[2x2]") -> Function:
    type = parse_type(kind)
    round = module.create_placeholder("round", parse_type("i64[]"))
    matrix = module.create_variable("matrix", type)
    factor = module.create_placeholder("factor", type)
    keep = module.create_placeholder("keep", parse_type("bool[]"))
    body = module.create_function("body", [round, matrix, factor], [keep, matrix])
    body.create_save("save", body.create_mat_mul("product", matrix, factor), matrix)
    true = module.create_constant("true", np.array(True))
    body.create_save("save_keep", true, keep)
    return body


@pytest.mark.parametrize("backend", BACKENDS)
def test_powers_of_powers(backend: str) -> None:
    """A loop in a loop, and frames in frames: ((x^3)^3)..."""
    module = Module()
    body = _body(module)
    type = parse_type("f32[2x2]")
    round = module.create_placeholder("round", parse_type("i64[]"))
    value = module.create_variable("value", type)
    keep = module.create_placeholder("keep", parse_type("bool[]"))
    outer = module.create_function("outer", [round, value], [keep, value])
    two, true = (module.create_constant(name, np.array(v)) for name, v in (("two", 2), ("t", True)))
    cube = outer.create_loop("cube", [two, true, value, value], body.name, 1, 0)
    outer.create_save("save", cube, value)
    outer.create_save("save_keep", true, keep)
    main = module.create_function("main")
    x, n, y = (
        module.create_placeholder(name, parse_type(kind))
        for name, kind in (("x", "f32[2x2]"), ("n", "i64[]"), ("y", "f32[2x2]"))
    )
    main.create_save("save", main.create_loop("loop", [n, true, x], "outer", 1, 0), y)
    matrix = np.array([[0.5, 0.5], [-0.5, 1]], np.float32)
    compiled = glowpy.compile(module, backend)
    for rounds in range(4):
        outputs = compiled({"x": matrix, "n": np.array(rounds)})
        expected = np.linalg.matrix_power(matrix.astype(np.float64), 3**rounds)
        np.testing.assert_allclose(outputs["y"], expected, 1e-4, 1e-6)


def test_operands_are_what_a_function_takes() -> None:
    module = Module()
    _body(module)
    main = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[3x3]"))
    n = module.create_placeholder("n", parse_type("i64[]"))
    with pytest.raises(UserError, match=r"of @body to be .*, got i64\[\], f32\[3x3\], f32\[3x3\]"):
        main.create_loop("loop", [n, module.constants[0], x, x], "body", 1, 0)
    with pytest.raises(UserError, match="expected one of the functions"):
        main.create_loop("loop", [n, module.constants[0], x, x], "nobody", 1, 0)
    with pytest.raises(UserError, match="expected the condition bool"):
        main.create_if("if", [n, x], "body", "body")


def test_no_function_calls_itself() -> None:
    module = Module()
    type = parse_type("bool[]")
    again, result = (module.create_placeholder(name, type) for name in ("again", "result"))
    f = module.create_function("f", [again], [result])
    f.create_save("save", f.create_if("if", [again, again], "f", "f"), result)
    with pytest.raises(VerifyError, match="@f calls itself"):
        verify_module(module)
    main = module.create_function("main")
    x, y = (module.create_placeholder(name, parse_type("f32[4]")) for name in "xy")
    _, count = main.create_non_zero("places", x).results
    main.create_define("define", count, (symbol("k", 0, 4),))
    main.create_save("copy", x, y)
    main.create_save("call", main.create_if("call", [again, again], "f", "f"), again)
    with pytest.raises(VerifyError, match="@f calls itself"):
        verify_module(module)
    with pytest.raises(UserError, match="@f calls itself"):
        compilation(main, "interpreter").text("optimized")


def test_functions_keep_to_what_is_theirs() -> None:
    module = Module()
    type = parse_type("f32[2]")
    x, y, z = (module.create_placeholder(name, type) for name in "xyz")
    f = module.create_function("f", [x, y], [y])
    f.create_save("save", f.create_exp("exp", z), y)
    main = module.create_function("main")
    main.create_save("save", x, z)
    with pytest.raises(VerifyError) as caught:
        verify_module(module)
    for message in (
        "expected %y to be a variable if it is both taken and given",
        "%z is used, but neither taken nor given",
        "%x belongs to another function",
    ):
        assert message in str(caught.value)


_HEAD = "irfunction @f(%a) -> (%b) {\n  declare\n    %a = weight f32[2] mutable\n"
_MAIN = "irfunction @main {\n  declare\n    %x = weight f32[2] mutable\n  program\n"


def verified(text: str) -> None:
    verify_irfunction(parse_irfunction(text))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("module { function @f() -> () { } }", "expected what a function that others call gives"),
        ("irfunction @f() -> () { declare program }", "expected what a function that others call"),
        (f"{_HEAD}  program\n}}\n", "expected a function that no other calls after @f"),
        (f"{_HEAD}  program\n}}\n{_MAIN}}}\n", "expected one of its mutable weights"),
        (
            f'{_MAIN}    if @in %x {{then="a", otherwise="b", results=999999999999}}\n}}\n',
            "expected 1000000000001 operands, got 1",
        ),
    ],
)
def test_texts_that_are_wrong(text: str, message: str) -> None:
    read = parse_module if text.startswith("module") else verified
    with pytest.raises(UserError, match=message):
        read(text)


NOTHING_STACKED = """
module {
  placeholder %x : f32[]
  placeholder %y : f32[]
  placeholder %round : i64[]
  placeholder %keep : bool[]
  variable %sum : f32[]
  constant %true : bool[] = splat 1
  constant %n : i64[] = splat 3
  function @main {
    %loop, %loop.1 = loop(%n, %true, %x) {body="add", carried=1, room=8} : f32[], i64[1]
    save(%loop, %y)
  }
  function @add(%round, %sum) -> (%keep, %sum) {
    %next = add(%sum, %sum) : f32[]
    save(%true, %keep)
    save(%next, %sum)
  }
}
"""

OPEN = """
module {
  symbol a 1..8
  placeholder %c : bool[]
  placeholder %x : f32[a]
  placeholder %y : f32[a]
  placeholder %u : f32[a]
  placeholder %v : f32[a]
  function @main {
    %if = if(%c, %x) {otherwise="f", then="f"} : f32[a]
    save(%if, %y)
  }
  function @f(%u) -> (%v) {
    %e = exp(%u) : f32[a]
    save(%e, %v)
  }
}
"""


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("results=1, variables=1", "results=-1, variables=1"), "results of at least 0, got -1"),
        (("results=1, variables=1", "results=1, variables=-1"), "variables of at least 0, got -1"),
        (("%n = weight i64[]", "%n = weight i32[]"), r"%n of type i64\[\], got i32"),
        (("%count = weight i64[1]", "%count = weight i8[1]"), r"%count of type i64\[1\], got i8"),
        (("%true = weight bool[]", "%true = weight f32[]"), r"%true of type bool\[\], got f32"),
        (("@in %positive, @in %loop", "@in %n, @in %loop"), r"%n of type bool\[\], got i64\[\]"),
        (("%round = weight", "%z = weight i8[] mutable\n %round = weight"), "take or give %z"),
    ],
)
def test_instructions_that_are_wrong(change: tuple[str, str], message: str) -> None:
    """Whoever runs them reads and writes what the operands are taken for."""
    text = compilation(parse_module(TEXT), "interpreter").text("ir")
    assert change[0] in text
    with pytest.raises(UserError, match=message):
        verified(text.replace(*change))


def test_a_call_names_what_it_depends_on() -> None:
    text = compilation(parse_module(OPEN), "interpreter").text("ir")
    verified(text)
    with pytest.raises(UserError, match="expected a among the extents, on which @f depends"):
        verified(text.replace("extents=[a], ", ""))


def test_a_graph_that_is_no_function_any_more() -> None:
    """Names that nothing has, and functions in circles, are errors with a line, whatever is asked of the text."""
    for text, message in (
        (TEXT.replace('body="add"', 'body="nobody"'), "expected one of the functions"),
        (TEXT.replace('then="halve"', 'then="add"'), "expected the operands of @add to be"),
        (TEXT.replace("carried=1", "carried=9"), "9 values that @add takes and gives"),
        (TEXT.replace("carried=1", "carried=-1"), "-1 values that @add takes and gives"),
        (
            TEXT.replace("room=8", "room=-8"),
            "loop: expected a room from 0 to 1099511627776, got -8",
        ),
        (NOTHING_STACKED.replace("room=8", "room=-8"), "a room from 0 to 1099511627776, got -8"),
        (NOTHING_STACKED.replace("room=8", f"room={10**30}"), f"1099511627776, got {10**30}"),
        (TEXT.replace("(%b) -> (%grown)", "(%b) -> (%half)"), "placeholders and variables that it"),
    ):
        with pytest.raises(VerifyError, match=message):
            verify_module(parse_module(text))
