"""What no instruction of glowpy's own has, and a backend's may: memory to work in."""

from __future__ import annotations

from typing import ClassVar

import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access, InstSchema, OperandSpec
from glowpy.core.type import Type
from glowpy.graph.function import Function, Module
from glowpy.graph.nodes_gen import AbsNode
from glowpy.ir.inst import Instruction
from glowpy.ir.verifier import verify_irfunction
from glowpy.irgen import generate, scratch
from glowpy.schedule import schedule
from glowpy.support.errors import InternalError

ROOM = Type(ElemKind.U8, (24,))


class AbsWithRoomInst(Instruction):
    """An instruction of `abs` with two pieces of scratch memory."""

    SCHEMA: ClassVar[InstSchema] = InstSchema(
        "abs",
        (
            OperandSpec("result", Access.OUT),
            OperandSpec("input", Access.IN),
            OperandSpec("room", Access.SCRATCH),
            OperandSpec("more", Access.SCRATCH),
        ),
        (),
        frozenset(),
    )
    __slots__ = ()


def network() -> Function:
    module = Module()
    x = module.create_placeholder("x", Type(ElemKind.F32, (3,)))
    f = module.create_function("main")
    f.create_save("save", f.create_abs("a", x), module.create_placeholder("y", x.type))
    return f


def test_scratch_memory_is_allocated_as_its_rule_says(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(scratch._rules, AbsNode, lambda node: (ROOM, node.type))
    f = network()
    ir = generate(f, schedule(f), [AbsWithRoomInst])
    verify_irfunction(ir)
    (inst,) = (inst for inst in ir.instructions if isinstance(inst, AbsWithRoomInst))
    operands = {ref.name: ref for ref in inst.operands}
    assert operands["room"].value.type == ROOM
    assert operands["more"].value.type == f.nodes[0].type
    assert [ref.access for ref in inst.operands[2:]] == [Access.SCRATCH] * 2
    assert operands["room"].value.base is not operands["more"].value.base


def test_an_instruction_without_the_rule_is_named() -> None:
    f = network()
    with pytest.raises(InternalError, match="no 'scratch' rule for AbsNode"):
        generate(f, schedule(f), [AbsWithRoomInst])
