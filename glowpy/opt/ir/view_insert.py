"""Inserts that need no copy."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import ClassVar

from glowpy.ir.insts_gen import InsertTensorInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Event, Events
from glowpy.ir.value import Value, WeightVar
from glowpy.opt.boxes import Box, all_disjoint, contiguous_offset, disjoint
from glowpy.passes import IRPass, PassContext

__all__ = ["ViewInsertPass"]


@dataclass(frozen=True)
class ViewInsertPass(IRPass):
    """Lets the producer of a tensor write straight into the place where the tensor is inserted.

    The elements of the place must be contiguous.

    Before:
        %x, %y = weight f32[1x4] mutable
        %out = weight f32[2x4] mutable
        %a = alloc f32[1x4]
        exp @out %a, @in %x
        insert_tensor @inout %out, @in %a {offsets=[0,0]}
        insert_tensor @inout %out, @in %y {offsets=[1,0]}
        dealloc @out %a
    After:
        %x, %y = weight f32[1x4] mutable
        %out = weight f32[2x4] mutable
        %a = view f32[1x4], @in %out {offset=0}
        exp @out %a, @in %x
        insert_tensor @inout %out, @in %y {offsets=[1,0]}
    """

    name: ClassVar[str] = "view-insert"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every insert once, in program order. Linear but for the events of merged buffers."""
        del ctx
        inserts = {i: x for i, x in enumerate(f.instructions) if isinstance(x, InsertTensorInst)}
        if not inserts:
            return False
        events = Events(f)
        rivals = _Rivals(inserts, events)
        changed = False
        for index, inst in inserts.items():
            if _start(inst) >= 0 and _free(events, rivals, index, inst):
                _place(f, events, index, inst)
                changed = True
        if changed:
            f.replace_instructions(events.program)
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
        """Those at slots from `start` up to, but not including, `stop`."""
        others = self._others.get(result)
        if others is None:
            return self._events.between(result, start, stop)
        first = bisect_left(others, start, key=_index)
        return others[first : bisect_left(others, stop, first, key=_index)]


def _start(inst: InsertTensorInst) -> int:
    """The element of the result at which the input begins; -1 if it is not contiguous there."""
    offset = contiguous_offset(inst.result.type.shape, inst.offsets, inst.input.type.shape)
    return -1 if offset is None else offset


def _free(events: Events, rivals: _Rivals, index: int, inst: InsertTensorInst) -> bool:
    """Whether the place in the result is nobody's while the input's buffer is used."""
    result, buffer = inst.result, inst.input.base
    if buffer not in events.alloc or buffer.type.size != inst.input.type.size:
        return False
    if result not in events.alloc and not isinstance(result, WeightVar):
        return False
    first, last = events.first(buffer), events.last(buffer)
    if any(event.writes for event in events.between(buffer, index + 1, last + 1)):
        return False
    few, many = sorted((events.touching(buffer), events.touching(result)), key=len)
    if any(slot != index and _contains(many, slot) for slot in few):
        return False
    return all(
        event.index == index
        or (event.index > index and not event.writes)
        or _elsewhere(events, event, inst)
        for event in rivals.between(result, first, last + 1)
    )


def _elsewhere(events: Events, event: Event, inst: InsertTensorInst) -> bool:
    """Whether the event is about another part of the result, which is all of its buffer."""
    size = inst.input.type.kind.size
    start = size * _start(inst)
    if event.value.byte_offset >= start + inst.input.type.size:
        return True
    if event.value.byte_offset + event.value.type.size <= start:
        return True
    others = [inst for inst in events.slot(event.index) if isinstance(inst, InsertTensorInst)]
    box = (inst.offsets, inst.input.type.shape)
    return event.value is inst.result and any(
        other.result is inst.result and disjoint(box, (other.offsets, other.input.type.shape))
        for other in others
    )


def _place(f: IRFunction, events: Events, index: int, inst: InsertTensorInst) -> None:
    """Makes the input's buffer a view of the result, which must be allocated by then."""
    result, buffer = inst.result, inst.input.base
    events.forget(index, inst)
    slot = events.alloc[buffer]
    if result in events.alloc and events.alloc[result] > slot:
        events.hoist(result, slot)
    f.names.release(buffer.name)
    view = ViewInst(
        (result,),
        {"offset": _start(inst)},
        name=f.fresh_name(buffer.name),
        type=buffer.type,
        loc=inst.loc,
    )
    events.stand_in(buffer, view)
    events.merge(buffer, view.value)


def _contains(slots: Sequence[int], index: int) -> bool:
    """Whether `index` is in a sorted list."""
    place = bisect_left(slots, index)
    return place < len(slots) and slots[place] == index
