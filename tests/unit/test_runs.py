"""Runs of instructions compute the same in one loop, element by element, as one instruction after the other."""

import math
import random
from typing import ClassVar

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access, InstSchema, OperandSpec, Trait
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AddInst, ExpInst, MulInst, NegInst, NotInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.printer import instruction_lines, print_inst, print_irfunction
from glowpy.ir.runs import LONGEST, RunBuilder, form_runs, in_registers
from glowpy.ir.value import Mutability, Value
from glowpy.ir.verifier import verify_irfunction
from glowpy.opt.ir.stack import StackPass
from glowpy.support.loc import UNKNOWN

_BYTES = 256
_SHAPES = ((2, 4), (2, 4), (2, 4), (1, 4), (4,), (), (8,))


class ScanInst(Instruction):
    """A product in miniature: every element of the result needs all of the input."""

    SCHEMA: ClassVar[InstSchema] = InstSchema(
        "scan",
        (OperandSpec("result", Access.OUT), OperandSpec("input", Access.IN)),
        (),
        frozenset({Trait.EPILOGUE}),
    )
    __slots__ = ()


def _program(rng: random.Random) -> IRFunction:
    """Instructions over views that often share memory, all of one arena."""
    f = IRFunction("main")
    arena = f.create_weight("arena", Type(ElemKind.F32, (_BYTES // 4,)), Mutability.MUTABLE)
    values = [
        f.create_view("v", Type(ElemKind.F32, rng.choice(_SHAPES)), arena, rng.choice(_OFFSETS))
        for _ in range(8)
    ]
    operands = [view.value for view in values]
    for _ in range(rng.randint(1, 10)):
        _instruction(rng, f, operands)
    return f


_OFFSETS = (0, 0, 8, 8, 16, 24, 32, 4, 12)


def _instruction(rng: random.Random, f: IRFunction, values: list[Value]) -> None:
    cls = rng.choice((AddInst, MulInst, NegInst, ExpInst, ScanInst))
    result = rng.choice(values)
    inputs = [rng.choice(values) for _ in range(2 if cls in (AddInst, MulInst) else 1)]
    try:
        whole = np.broadcast_shapes(*(value.type.extents for value in inputs))
    except ValueError:
        return
    in_place = cls is not ScanInst
    clean = all(
        not result.overlaps(value)
        or (in_place and result.same_memory(value) and result.type == value.type)
        for value in inputs
    )
    if whole == result.type.shape and clean:
        f.add(cls([result, *inputs], {}))


def _tensor(memory: Array, value: Value) -> Tensor:
    raw = memory[value.byte_offset : value.byte_offset + value.type.size]
    return Tensor(value.type, raw.view(np.float32).reshape(value.type.extents))


def _execute(memory: Array, inst: Instruction) -> None:
    tensors = [_tensor(memory, ref.value) for ref in inst.operands]
    if isinstance(inst, ScanInst):
        total = tensors[1].array.sum(dtype=np.float32)
        tensors[0].array[...] = total + np.arange(tensors[0].array.size).reshape(
            tensors[0].array.shape
        )
    else:
        interpret[type(inst)](*tensors, **inst.attrs)


def _execute_element(memory: Array, inst: Instruction, number: int) -> None:
    """Computes all, from memory as it is now, but stores only one element, the `number`th."""
    scratch = memory.copy()
    _execute(scratch, inst)
    result = inst.operands[0].value
    at = np.unravel_index(number, result.type.extents)
    _tensor(memory, result).array[at] = _tensor(scratch, result).array[at]


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_a_run_in_one_loop_does_what_its_members_do(rng: random.Random) -> None:
    f = _program(rng)
    start = np.random.default_rng(rng.randint(0, 9)).uniform(-1, 1, _BYTES // 4)
    form_runs(f)
    memory = start.astype(np.float32).view(np.uint8)
    looped = memory.copy()
    with np.errstate(all="ignore"):
        for run in f.runs:
            for inst in run.members:
                _execute(memory, inst)
            for number in range(math.prod(run.head.operands[0].value.type.extents)):
                for inst in run.members:
                    _execute_element(looped, inst, number)
            np.testing.assert_array_equal(looped, memory)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_instruction_is_in_one_run_in_order(rng: random.Random) -> None:
    f = _program(rng)
    StackPass().run(f, None)  # type: ignore[arg-type]
    form_runs(f)
    members = [inst for run in f.runs for inst in run.members]
    assert members == [inst for inst in f.instructions if inst.SCHEMA.mnemonic != "view"]


def _members(f: IRFunction) -> list[list[Instruction]]:
    return [list(run.members) for run in f.runs]


def test_a_chain_is_one_run_up_to_the_limit() -> None:
    f = IRFunction("main")
    x = f.create_weight("x", Type(ElemKind.F32, (4,)), Mutability.MUTABLE)
    for _ in range(LONGEST + 5):
        f.create_neg(x, x)
    form_runs(f)
    assert [len(run.members) for run in f.runs] == [LONGEST, 5]


def test_an_epilogue_takes_what_depends_on_it_and_streams() -> None:
    f = IRFunction("main")

    def weight(*shape: int) -> Value:
        return f.create_weight("w", Type(ElemKind.F32, shape), Mutability.MUTABLE)

    result, input, other, out = weight(2, 4), weight(8), weight(2, 4), weight(2, 4)
    run = RunBuilder(ScanInst([result, input], {}))
    for operand in (other, weight(4), weight(1, 4), weight(), weight(1, 1), weight(2, 1)):
        assert run.admits(AddInst([out, result, operand], {}))
    assert not run.admits(ScanInst([out, result], {})), "it needs everything"
    reshaped = f.create_view("v", Type(ElemKind.F32, (2, 4)), input, 0).value
    assert not run.admits(NegInst([reshaped, result], {})), "the product still reads its input"
    halves = f.create_view("h", Type(ElemKind.I32, (2, 4)), result, 0).value
    assert not run.admits(NegInst([out, halves], {})), "other elements are written"


def test_what_does_not_depend_on_a_product_is_in_its_run_if_something_needs_both() -> None:
    f = IRFunction("main")
    result, input, other, steps, scaled, out = (
        f.create_weight("w", Type(ElemKind.F32, (2, 4)), Mutability.MUTABLE) for _ in range(6)
    )
    product = f.add(ScanInst([result, input], {}))
    first = f.add(NegInst([steps, other], {}))
    second = f.add(ExpInst([scaled, steps], {}))
    form_runs(f)
    assert _members(f) == [[product], [first, second]], "they have nothing to do with the product"
    third = f.add(AddInst([out, result, scaled], {}))
    last = f.add(NegInst([scaled, other], {}))
    form_runs(f)
    assert _members(f) == [[product, first, second, third], [last]]


def test_members_of_an_epilogue_depend_on_its_results_and_may_write_over_what_they_read() -> None:
    f = IRFunction("main")
    result, input, other, out = (
        f.create_weight("w", Type(ElemKind.F32, (2, 4)), Mutability.MUTABLE) for _ in range(4)
    )
    run = RunBuilder(ScanInst([result, input], {}))
    run.add(AddInst([out, result, other], {}))
    assert run.admits(NegInst([other, out], {})), "each element after it was read"
    assert run.admits(MulInst([result, result, out], {})), "in place of the product"
    assert not run.admits(NegInst([input, out], {})), "the product reads that"
    lone = RunBuilder(ExpInst([result, input], {}))
    assert lone.admits(NegInst([out, other], {})), "a loop may compute two things"


def test_an_operand_broadcasts_in_any_way() -> None:
    f = IRFunction("main")

    def weight(*shape: int) -> Value:
        return f.create_weight("w", Type(ElemKind.F32, shape), Mutability.MUTABLE)

    result, out = weight(2, 3, 4), weight(2, 3, 4)
    heads = ScanInst([result, weight(8)], {}), ExpInst([result, weight(2, 3, 4)], {})
    shapes = ((2, 3, 4), (4,), (1, 4), (), (1, 1), (3, 4), (2, 1, 4), (3, 1), (1, 3, 1), (2, 1, 1))
    for head in heads:
        for shape in shapes:
            assert RunBuilder(head).admits(AddInst([out, result, weight(*shape)], {})), shape


def test_shapes_do_not_matter_where_elements_are_taken_in_order() -> None:
    f = IRFunction("main")

    def weight(*shape: int) -> Value:
        return f.create_weight("w", Type(ElemKind.F32, shape), Mutability.MUTABLE)

    def view(source: Value, *shape: int) -> Value:
        return f.create_view("v", Type(ElemKind.F32, shape), source, 0).value

    result, out = weight(6, 4), weight(6, 4)
    for head in (ScanInst([result, weight(8)], {}), ExpInst([result, weight(6, 4)], {})):
        is_product = isinstance(head, ScanInst)
        run = RunBuilder(head)
        assert run.admits(NegInst([weight(24), view(result, 24)], {}))
        rows = AddInst([view(out, 2, 3, 4), view(result, 2, 3, 4), weight(3, 4)], {})
        assert run.admits(rows), "the rows are as long as those of the head"
        others = AddInst([view(out, 4, 6), view(result, 4, 6), weight(6)], {})
        assert run.admits(others) is not is_product
        run.add(rows)
        assert run.shape == (2, 3, 4)
        assert run.admits(NegInst([weight(4, 6), view(out, 4, 6)], {}))
        assert not run.admits(others), "one loop has one shape"
        assert not run.admits(NegInst([weight(12), view(result, 12)], {})), "half of the elements"


def test_nothing_is_written_over_the_input_of_an_epilogue() -> None:
    f = IRFunction("main")
    result, input = (
        f.create_weight("w", Type(ElemKind.F32, (2, 4)), Mutability.MUTABLE) for _ in range(2)
    )
    assert not RunBuilder(ScanInst([result, input], {})).admits(NegInst([input, result], {}))
    assert RunBuilder(ExpInst([result, input], {})).admits(NegInst([input, result], {}))


PROGRAM = """irfunction @main {
  symbol n 1..9
  declare
    %x = weight f32[n x 4] mutable
    %y = weight f32[n x 4] mutable
    %p = weight bool[n x 4] mutable
    %q = weight bool[n x 4] mutable
  program
    %a = alloc f32[n x 4]
    %b = alloc f32[n x 4]
    exp @out %a, @in %x
    neg @out %b, @in %a
    neg @out %y, @in %b
    dealloc @out %a
    dealloc @out %b
}
"""


def _formed(text: str) -> IRFunction:
    f = parse_irfunction(text)
    form_runs(f)
    verify_irfunction(f)
    return f


def test_runs_are_printed_and_read_back() -> None:
    f = _formed(PROGRAM)
    text = print_irfunction(f)
    lines = [
        "run @exp {",
        "  exp @out %a, @in %x",
        "  neg @out %b, @in %a",
        "  neg @out %y, @in %b",
        "}",
    ]
    assert "".join(f"    {line}\n" for line in lines) in text
    again = parse_irfunction(text)
    verify_irfunction(again)
    assert print_irfunction(again) == text
    places = instruction_lines(again, 1)
    rows = text.splitlines()
    assert all(rows[line - 1].strip() == print_inst(inst) for inst, line in places.items())


def test_without_runs_every_instruction_is_computed_by_itself() -> None:
    f = parse_irfunction(PROGRAM)
    assert [len(run.members) for run in f.runs] == [1, 1, 1]
    assert "run" not in print_irfunction(f)
    assert not in_registers(f)
    form_runs(f)
    assert [value.name for value in in_registers(f)] == ["a", "b"]
    f.replace_instructions(f.instructions)
    assert f.groups == (), "other instructions may be other runs"


def test_a_run_that_text_names_has_that_name() -> None:
    text = PROGRAM.replace("exp @out %a, @in %x", "run @first { exp @out %a, @in %x }")
    f = parse_irfunction(text)
    verify_irfunction(f)
    assert [run.name for run in f.runs] == ["first", "neg", "neg"]
    assert "    run @first {\n      exp @out %a, @in %x\n    }\n" in print_irfunction(f)
    assert not in_registers(f), "one instruction is no loop"


def test_the_program_for_some_extents_has_the_same_runs() -> None:
    f = _formed(PROGRAM)
    (run,) = f.at({"n": 3}).runs
    assert run.name == "exp"
    assert run.shape == (3, 4)
    assert [inst.SCHEMA.mnemonic for inst in run.members] == ["exp", "neg", "neg"]


def test_a_run_has_one_predicate() -> None:
    steps = "exp @out %a, @in %x, @predicate %p", "neg @out %b, @in %a, @predicate %p"
    text = PROGRAM.replace("exp @out %a, @in %x\n", f"{steps[0]}\n")
    text = text.replace("neg @out %b, @in %a\n", f"{steps[1]}\n")
    f = _formed(text)
    assert [len(run.members) for run in f.runs] == [2, 1]
    assert [run.predicate for run in f.runs] == [f.weights["p"], None]
    f = _formed(text.replace("@in %a, @predicate %p", "@in %a, @predicate %q"))
    assert [len(run.members) for run in f.runs] == [1, 1, 1]


def test_no_member_writes_the_predicate_of_its_run() -> None:
    f = IRFunction("main")
    x, y, predicate = (
        f.create_weight(name, Type(ElemKind.BOOL, (4,)), Mutability.MUTABLE) for name in "xyp"
    )
    builder = RunBuilder(NotInst([y, x], {}, predicate=predicate))
    assert builder.admits(NotInst([x, y], {}, predicate=predicate))
    assert not builder.admits(NotInst([predicate, y], {}, predicate=predicate))


def test_a_run_comes_from_where_its_first_member_with_a_place_comes_from() -> None:
    f = parse_irfunction(PROGRAM, "net.ir")
    form_runs(f)
    (run,) = f.runs
    assert (run.loc.file, run.loc.line) == ("net.ir", 11)
    run.head.loc = UNKNOWN
    assert run.loc.line == 12
