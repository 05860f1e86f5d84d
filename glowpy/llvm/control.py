"""Control flow in machine code: functions of a network that call each other, with branches and loops around the calls.

A function that is called takes what the entry point of a network takes: the constants of the network, a table with a
pointer to each of its weights and what follows these in all tables, and its frame in place of the activations.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from glowpy.backend import Program
from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.core.type import Type
from glowpy.ir.calls import branch_call, loop_call
from glowpy.ir.insts_gen import IfInst, LoopInst
from glowpy.ir.value import Mutability, Value, WeightVar
from glowpy.llvm.writer import Body

__all__ = ["CONSTANTS", "TABLE", "Callees", "callee_symbol", "emit_call"]

_BYTES = Type(ElemKind.U8, ())
CONSTANTS = WeightVar("<constants>", _BYTES, Mutability.MUTABLE)
"""Stand-in for the constants in the memory that a function works on."""
TABLE = WeightVar("<table>", _BYTES, Mutability.MUTABLE)
"""Stand-in for the table."""


def callee_symbol(network: str, name: str) -> str:
    """Returns the symbol in machine code of a function that others call."""
    return f"{network}.call.{name}"


@dataclass(frozen=True)
class Callees:
    """Facts that the calls of a function depend on.

    Attributes:
        network: The name of the network's entry point.
        programs: The functions that may be called, by name.
        slots: How many weights the table of the function has.
        shared: How many pointers follow them in every table.
    """

    network: str
    programs: Mapping[str, Program]
    slots: int
    shared: int


def emit_call(body: Body, inst: IfInst | LoopInst, callees: Callees) -> None:
    """Writes an instruction that calls functions."""
    if isinstance(inst, IfInst):
        _emit_if(body, inst, callees)
    else:
        _emit_loop(body, inst, callees)


def _emit_if(body: Body, inst: IfInst, callees: Callees) -> None:
    condition, *_ = inst.those(Access.IN)
    holds = body.load(ElemKind.BOOL, body.pointer(condition), "0")
    fails = body.let(f"xor i1 {holds}, true")
    for name, truth in ((inst.then, holds), (inst.otherwise, fails)):
        bound = branch_call(inst, callees.programs[name].ir)
        pointers = {weight: body.pointer(value) for weight, value in bound.items()}
        call = _Call(body, callees, name, inst.operands[-1].value)
        with body.only_if(truth):
            call.bind(pointers)
            call.emit()


def _emit_loop(body: Body, inst: LoopInst, callees: Callees) -> None:
    program = callees.programs[inst.body]
    loop = loop_call(inst, program.ir)
    dim = body.module.dim
    limit = body.load(ElemKind.I64, body.pointer(loop.limit), "0")
    for value in loop.stacked.values():
        room = body.number(value.type.shape[0])
        if dim != "i64":
            room = body.let(f"zext {dim} {room} to i64")
        fewer = body.let(f"icmp slt i64 {limit}, {room}")
        limit = body.let(f"select i1 {fewer}, i64 {limit}, i64 {room}")
    keep, round = body.alloca("i8"), body.alloca("i64")
    first = body.load(ElemKind.BOOL, body.pointer(loop.first), "0")
    body.store(ElemKind.BOOL, first, keep, "0")
    whole = {weight: body.pointer(value) for weight, value in loop.whole.items()}
    stacked = {weight: body.pointer(value) for weight, value in loop.stacked.items()}
    sizes = {weight: body.number(program.ir.weights[weight].type.size) for weight in stacked}
    call = _Call(body, callees, inst.body, inst.operands[-1].value)
    call.bind({**whole, loop.keep: keep, loop.round: round})

    def goes_on(index: str) -> str:
        more = body.let(f"icmp slt i64 {index}, {limit}")
        flag = body.load(ElemKind.BOOL, keep, "0")
        return body.let(f"and i1 {more}, {flag}")

    with body.rounds(goes_on) as index:
        body.store(ElemKind.I64, index, round, "0")
        number = index if dim == "i64" else body.let(f"trunc i64 {index} to {dim}")
        for own, pointer in stacked.items():
            step = body.let(f"mul {dim} {number}, {sizes[own]}")
            place = body.let(f"getelementptr inbounds i8, ptr {pointer}, {dim} {step}")
            call.bind({own: place})
        call.emit()
    body.store(ElemKind.I64, index, body.pointer(loop.count), "0")


class _Call:
    """Calls of one function, with a table that they share."""

    def __init__(self, body: Body, callees: Callees, name: str, frame: Value) -> None:
        self._body = body
        self._symbol = callee_symbol(callees.network, name)
        slots: Sequence[str] = [s.name for s in callees.programs[name].plan.mutable.slots]
        self._places = {slot: index for index, slot in enumerate(slots)}
        self._table = body.alloca(f"[{len(slots) + callees.shared} x ptr]")
        self._constants, self._frame = body.pointer(CONSTANTS), body.pointer(frame)
        outer = body.pointer(TABLE)
        for index in range(callees.shared):
            pointer = body.let(f"load ptr, ptr {self._slot(outer, callees.slots + index)}")
            body.line(f"store ptr {pointer}, ptr {self._slot(self._table, len(slots) + index)}")

    def _slot(self, table: str, index: int) -> str:
        dim = self._body.module.dim
        return self._body.let(f"getelementptr inbounds ptr, ptr {table}, {dim} {index}")

    def bind(self, pointers: Mapping[str, str]) -> None:
        """Says where weights of the function are."""
        for weight, pointer in pointers.items():
            slot = self._slot(self._table, self._places[weight])
            self._body.line(f"store ptr {pointer}, ptr {slot}")

    def emit(self) -> None:
        """Calls the function."""
        areas = f"ptr {self._constants}, ptr {self._table}, ptr {self._frame}"
        self._body.let(f"call i32 @{self._symbol}({areas})")
