"""Bindings of calls: the weights of a called function, and the operands of the caller that they stand for.

A body of a loop takes the number of the round, then what is carried, then the rest. It gives whether there is to be
another round, what is carried, and what is stacked: one element of the caller's operand in each round.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.core.type import Type
from glowpy.ir.insts_gen import IfInst, LoopInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.support.symbolic import symbols_of

__all__ = ["FRAME", "LoopCall", "branch_call", "call_problems", "loop_call"]

FRAME = ElemKind.U8
"""A frame is so many bytes."""

_COUNT = Type(ElemKind.I64, (1,))
_ROUND = Type(ElemKind.I64, ())
_KEEP = Type(ElemKind.BOOL, ())


def branch_call(inst: IfInst, branch: IRFunction) -> dict[str, Value]:
    """Binds the weights of a branch to the operands of the call."""
    _, *inputs = inst.those(Access.IN)
    return _named(branch.takes, inputs) | _named(branch.gives, inst.those(Access.OUT))


@dataclass(frozen=True)
class LoopCall:
    """Bindings of the weights of a loop's body.

    Attributes:
        round: The weight with the number of the round.
        keep: The weight that says whether there is another one.
        whole: Weights that are the caller's operands in every round.
        stacked: Weights that are one element of an operand, along its first dimension.
        count: Where the number of rounds is stored.
        limit: Where the highest number of rounds is.
        first: The value that says whether there is a round at all.
    """

    round: str
    keep: str
    whole: dict[str, Value]
    stacked: dict[str, Value]
    count: Value
    limit: Value
    first: Value


def loop_call(inst: LoopInst, body: IRFunction) -> LoopCall:
    """Binds the weights of a body to the operands of the loop."""
    *stacked, count = inst.those(Access.OUT)
    limit, first, *inputs = inst.those(Access.IN)
    carried = inst.those(Access.INOUT)
    round, *takes = body.takes
    keep, *gives = body.gives
    return LoopCall(
        round,
        keep,
        _named(takes, [*carried, *inputs]),
        _named(gives[len(carried) :], stacked),
        count,
        limit,
        first,
    )


def _named(names: Sequence[str], values: Sequence[Value]) -> dict[str, Value]:
    return dict(zip(names, values, strict=True))


def call_problems(inst: IfInst | LoopInst, f: IRFunction) -> Iterator[str]:
    """Yields problems of a call in `f`: functions that do not exist, or operands of other numbers and types."""
    frame = inst.operands[-1].value.type
    if frame.kind is not FRAME or frame.rank != 1:
        yield f"expected a frame of bytes, got {frame}"
    for name in inst.callees:
        callee = f.callees.get(name)
        if callee is None:
            yield f"there is no function @{name} before this one"
        elif all(weight in callee.weights for weight in (*callee.takes, *callee.gives)):
            yield from _misfits(inst, callee)
            if unnamed := callee.own_symbols.keys() - symbols_of(inst.extents).keys():
                names = ", ".join(sorted(unnamed))
                yield f"expected {names} among the extents, on which @{name} depends"


def _misfits(inst: IfInst | LoopInst, callee: IRFunction) -> Iterator[str]:
    ins, outs = inst.those(Access.IN), inst.those(Access.OUT)
    if isinstance(inst, IfInst):
        yield from _others([(ins[0], _KEEP)])
        takes, gives = [value.type for value in ins[1:]], [value.type for value in outs]
    else:
        yield from _others([(outs[-1], _COUNT), (ins[0], _ROUND), (ins[1], _KEEP)])
        carried = [value.type for value in inst.those(Access.INOUT)]
        takes = [_ROUND, *carried, *(value.type for value in ins[2:])]
        stacked = [value.type for value in outs[:-1]]
        if any(type.rank < 1 for type in stacked):
            yield "expected results to stack elements in, got a scalar"
            return
        gives = [_KEEP, *carried, *(type.with_shape(type.shape[1:]) for type in stacked)]
        both = callee.takes[1 : 1 + len(carried)], callee.gives[1 : 1 + len(carried)]
        if both[0] != both[1]:
            yield f"expected @{callee.name} to give what it takes first as what it carries"
    for role, names, types in (("take", callee.takes, takes), ("give", callee.gives, gives)):
        own = [callee.weights[name].type for name in names]
        if own != types:
            expected, got = (", ".join(map(str, some)) or "nothing" for some in (types, own))
            yield f"expected @{callee.name} to {role} {expected}, got {got}"


def _others(operands: Sequence[tuple[Value, Type]]) -> Iterator[str]:
    """Yields problems of operands that are not handed on."""
    for value, expected in operands:
        if value.type != expected:
            yield f"expected %{value.name} of type {expected}, got {value.type}"
