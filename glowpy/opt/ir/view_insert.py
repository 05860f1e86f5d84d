"""Inserts that need no copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.ir.insts_gen import InsertTensorInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Event, Events
from glowpy.ir.value import Value, WeightVar
from glowpy.opt.boxes import contiguous_offset, disjoint
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
        """Tries every insert once, in program order."""
        del ctx
        events = Events(f)
        changed = False
        for index, inst in enumerate(f.instructions):
            if not isinstance(inst, InsertTensorInst):
                continue
            if _start(inst) >= 0 and _free(events, index, inst):
                _place(f, events, index, inst)
                changed = True
        if changed:
            f.replace_instructions(events.program)
        return changed


def _start(inst: InsertTensorInst) -> int:
    """The element of the result at which the input begins; -1 if it is not contiguous there."""
    offset = contiguous_offset(inst.result.type.shape, inst.offsets, inst.input.type.shape)
    return -1 if offset is None else offset


def _free(events: Events, index: int, inst: InsertTensorInst) -> bool:
    """Whether the place in the result is nobody's while the input's buffer is used."""
    result, buffer = inst.result, inst.input.base
    if buffer not in events.alloc or buffer.type.size != inst.input.type.size:
        return False
    if result not in events.alloc and not isinstance(result, WeightVar):
        return False
    first, last = events.first(buffer), events.last(buffer)
    mine = {event.index for event in events.of(buffer)} - {index}
    theirs = [
        event
        for event in events.of(result)
        if first <= event.index <= last and event.index != index
    ]
    if any(event.index in mine for event in theirs):
        return False
    if any(event.writes and event.index > index for event in events.of(buffer)):
        return False
    return all(
        (event.index > index and not event.writes) or _elsewhere(events, event, inst)
        for event in theirs
    )


def _elsewhere(events: Events, event: Event, inst: InsertTensorInst) -> bool:
    """Whether the event is about another part of the result, which is all of its buffer."""
    size = inst.input.type.kind.size
    start = size * _start(inst)
    if event.value.byte_offset >= start + inst.input.type.size:
        return True
    if event.value.byte_offset + event.value.type.size <= start:
        return True
    others = [each for each in events.slots[event.index] if isinstance(each, InsertTensorInst)]
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
        _hoist(events, result, slot)
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


def _hoist(events: Events, buffer: Value, slot: int) -> None:
    alloc = buffer.definition
    assert alloc is not None
    before = events.alloc[buffer]
    events.slots[before].remove(alloc)
    events.slots[slot].insert(0, alloc)
    events.alloc[buffer] = slot
