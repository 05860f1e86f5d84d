"""Inserts that need no copy."""

from __future__ import annotations

import operator
from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from glowpy.core.strides import strides_of
from glowpy.ir.insts_gen import DefineInst, InsertTensorInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Event, Events
from glowpy.ir.value import Value, WeightVar
from glowpy.opt.boxes import Box, all_disjoint, disjoint
from glowpy.opt.moves import Move, Moves, place
from glowpy.passes import IRPass, PassContext
from glowpy.support.symbolic import symbols_of

__all__ = ["ViewInsertPass"]


@dataclass(frozen=True)
class ViewInsertPass(IRPass):
    """Lets the producer of a tensor write straight into the place where the tensor is inserted.

    Where the place has gaps, everything that touches the tensor must take strides.

    Before:
        %x, %y = weight f32[3x4] mutable
        %out = weight f32[3x8] mutable
        %a = alloc f32[3x4]
        exp @out %a, @in %x
        insert_tensor @inout %out, @in %a {offsets=[0,0]}
        insert_tensor @inout %out, @in %y {offsets=[0,4]}
        dealloc @out %a
    After:
        %x, %y = weight f32[3x4] mutable
        %out = weight f32[3x8] mutable
        %a = view f32[3x4], @in %out {offset=0, strides=[8,1]}
        exp @out %a, @in %x
        insert_tensor @inout %out, @in %y {offsets=[0,4]}
    """

    name: ClassVar[str] = "view-insert"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every insert once, in program order. Linear but for the events of merged buffers."""
        del ctx
        inserts = {i: x for i, x in enumerate(f.instructions) if isinstance(x, InsertTensorInst)}
        if not inserts:
            return False
        events = Events(f)
        rivals, moves = _Rivals(inserts, events), Moves(events)
        defined = {
            name: index
            for index, definition in enumerate(f.instructions)
            if isinstance(definition, DefineInst)
            for name in symbols_of(definition.symbols)
        }
        changed = False
        for index, inst in inserts.items():
            if not _ends_there(events, index, inst):
                continue
            move = _move(moves, inst)
            if move is None or not _is_known(events, defined, inst, move.view):
                continue
            if not _apart(events, moves, index, inst, move.view):
                continue
            if _free(events, rivals, moves, index, inst, move.view):
                place(f, events, index, inst, moves.enter(move))
                changed = True
        if changed:
            program = events.program
            moves.settle(program)
            f.replace_instructions(program)
        return changed


_index = attrgetter("index")


class _Rivals:
    """The events of a buffer that may be about the same elements as an insert into it.

    Where no two inserts into a buffer share an element, which one look at all of them tells, these are
    the events that are neither inserts nor came from tensors that write into their places by now.
    """

    def __init__(self, inserts: Mapping[int, InsertTensorInst], events: Events) -> None:
        self._events = events
        by_result: dict[Value, dict[int, Box]] = {}
        for index, inst in inserts.items():
            if inst.result.source is None:
                box = (inst.offsets, inst.input.type.shape)
                by_result.setdefault(inst.result, {})[index] = box
        self._others: dict[Value, list[Event]] = {}
        for result, own in by_result.items():
            if all_disjoint(own.values()):
                self._others[result] = [
                    event
                    for event in events.between(result, 0, events.last(result) + 1)
                    if event.value is not result or event.index not in own
                ]

    def between(self, result: Value, start: int, stop: int) -> Iterable[Event]:
        """Yields the events at slots from `start` up to, but not including, `stop`."""
        others = self._others.get(result)
        if others is None:
            return self._events.between(result, start, stop)
        first = bisect_left(others, start, key=_index)
        return others[first : bisect_left(others, stop, first, key=_index)]


def _ends_there(events: Events, index: int, inst: InsertTensorInst) -> bool:
    """Whether the input is all of a buffer that nobody writes after it, and the result can be allocated before that."""
    result, buffer = inst.result, inst.input.base
    if buffer not in events.alloc or buffer.type.size != inst.input.type.size:
        return False
    if buffer is result.base or not inst.input.is_contiguous:
        return False  # an empty tensor may be inserted twice, and is there by then
    if result not in events.alloc and not isinstance(result, WeightVar):
        return False
    last = events.last(buffer)
    return not any(event.writes for event in events.between(buffer, index + 1, last + 1))


def _move(moves: Moves, inst: InsertTensorInst) -> Move | None:
    """The place of the input in the result, for its buffer; None if somebody who touches that needs it without gaps."""
    frame, strides = inst.input.type.shape, strides_of(inst.result.type.shape)
    start = 0 if 0 in frame else sum(map(operator.mul, inst.offsets, strides))
    return moves.possible(inst.input.base, inst, frame, inst.result, start, strides)


def _is_known(
    events: Events, defined: Mapping[str, int], inst: InsertTensorInst, view: ViewInst
) -> bool:
    """Whether it is known by then where the place is, if that depends on what the program finds."""
    first = events.first(inst.input)
    needed = symbols_of((view.offset, *view.value.strides)) if defined else ()
    return all(defined.get(name, -1) < first for name in needed)


def _apart(
    events: Events, moves: Moves, index: int, inst: InsertTensorInst, view: ViewInst
) -> bool:
    """Whether no other instruction is both about the input's buffer and about its place in the result."""
    few, many = sorted((events.touching(inst.input), events.touching(inst.result)), key=len)
    both = (slot for slot in few if slot != index and _contains(many, slot))
    return not any(
        moves.outermost(event.value).overlaps(view.value)
        for slot in both
        for event in events.between(inst.result, slot, slot + 1)
    )


def _free(
    events: Events,
    rivals: _Rivals,
    moves: Moves,
    index: int,
    inst: InsertTensorInst,
    view: ViewInst,
) -> bool:
    """Whether the place in the result is nobody's while the input's buffer is used."""
    buffer = inst.input.base
    first, last = events.first(buffer), events.last(buffer)
    return all(
        event.index == index
        or (event.index > index and not event.writes)
        or _elsewhere(events, moves, event, inst, view)
        for event in rivals.between(inst.result, first, last + 1)
    )


def _elsewhere(
    events: Events, moves: Moves, event: Event, inst: InsertTensorInst, view: ViewInst
) -> bool:
    """Whether the event is about another part of the result, which is all of its buffer."""
    if not moves.outermost(event.value).overlaps(view.value):
        return True
    others = [inst for inst in events.slot(event.index) if isinstance(inst, InsertTensorInst)]
    box = (inst.offsets, inst.input.type.shape)
    return event.value is inst.result and any(
        other.result is inst.result and disjoint(box, (other.offsets, other.input.type.shape))
        for other in others
    )


def _contains(slots: Sequence[int], index: int) -> bool:
    """Whether `index` is in a sorted list."""
    place = bisect_left(slots, index)
    return place < len(slots) and slots[place] == index
