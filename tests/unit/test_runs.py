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
from glowpy.ir.insts_gen import AddInst, ExpInst, MulInst, NegInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.runs import LONGEST, Run, runs
from glowpy.ir.value import Mutability, Value
from glowpy.opt.ir.stack import StackPass

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
    memory = start.astype(np.float32).view(np.uint8)
    looped = memory.copy()
    with np.errstate(all="ignore"):
        for run in runs(f):
            for inst in run:
                _execute(memory, inst)
            for number in range(math.prod(run[0].operands[0].value.type.extents)):
                for inst in run:
                    _execute_element(looped, inst, number)
            np.testing.assert_array_equal(looped, memory)


@settings(max_examples=60, deadline=None)
@given(st.randoms(use_true_random=False))
def test_every_instruction_is_in_one_run_in_order(rng: random.Random) -> None:
    f = _program(rng)
    StackPass().run(f, None)  # type: ignore[arg-type]
    members = [inst for run in runs(f) for inst in run]
    assert members == [inst for inst in f.instructions if inst.SCHEMA.mnemonic != "view"]


def test_a_chain_is_one_run_up_to_the_limit() -> None:
    f = IRFunction("main")
    x = f.create_weight("x", Type(ElemKind.F32, (4,)), Mutability.MUTABLE)
    for _ in range(LONGEST + 5):
        f.create_neg(x, x)
    assert [len(run) for run in runs(f)] == [LONGEST, 5]


def test_an_epilogue_takes_what_depends_on_it_and_streams() -> None:
    f = IRFunction("main")

    def weight(*shape: int) -> Value:
        return f.create_weight("w", Type(ElemKind.F32, shape), Mutability.MUTABLE)

    result, input, other, out = weight(2, 4), weight(8), weight(2, 4), weight(2, 4)
    run = Run(ScanInst([result, input], {}))
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
    assert runs(f) == [[product], [first, second]], "they have nothing to do with the product"
    third = f.add(AddInst([out, result, scaled], {}))
    last = f.add(NegInst([scaled, other], {}))
    assert runs(f) == [[product, first, second, third], [last]]


def test_members_of_an_epilogue_depend_on_its_results_and_may_write_over_what_they_read() -> None:
    f = IRFunction("main")
    result, input, other, out = (
        f.create_weight("w", Type(ElemKind.F32, (2, 4)), Mutability.MUTABLE) for _ in range(4)
    )
    run = Run(ScanInst([result, input], {}))
    run.add(AddInst([out, result, other], {}))
    assert run.admits(NegInst([other, out], {})), "each element after it was read"
    assert run.admits(MulInst([result, result, out], {})), "in place of the product"
    assert not run.admits(NegInst([input, out], {})), "the product reads that"
    lone = Run(ExpInst([result, input], {}))
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
            assert Run(head).admits(AddInst([out, result, weight(*shape)], {})), shape


def test_shapes_do_not_matter_where_elements_are_taken_in_order() -> None:
    f = IRFunction("main")

    def weight(*shape: int) -> Value:
        return f.create_weight("w", Type(ElemKind.F32, shape), Mutability.MUTABLE)

    def view(source: Value, *shape: int) -> Value:
        return f.create_view("v", Type(ElemKind.F32, shape), source, 0).value

    result, out = weight(6, 4), weight(6, 4)
    for head in (ScanInst([result, weight(8)], {}), ExpInst([result, weight(6, 4)], {})):
        is_product = isinstance(head, ScanInst)
        run = Run(head)
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
    assert not Run(ScanInst([result, input], {})).admits(NegInst([input, result], {}))
    assert Run(ExpInst([result, input], {})).admits(NegInst([input, result], {}))
