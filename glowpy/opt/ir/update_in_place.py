"""Tensors that are parts of a weight with something added, and become that weight's next content."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.strides import canonical_strides
from glowpy.core.type import Shape, Type
from glowpy.ir.insts_gen import InsertTensorInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.ir.value import Value, WeightVar
from glowpy.opt.moves import Moves, place
from glowpy.passes import IRPass, PassContext
from glowpy.support.symbolic import Dim

__all__ = ["UpdateInPlacePass"]


@dataclass(frozen=True)
class UpdateInPlacePass(IRPass):
    """Lets a tensor that is stored into a weight lie there from the beginning, if parts of it are there already.

    What is added to a cache is written where it will be, and nothing else is moved. What is overwritten must not be
    read afterwards, and everything that touches the tensor must take strides.

    Before:
        %x = weight f32[2x1] mutable
        %cache = weight f32[2x8] mutable
        %out = weight f32[2x4] mutable
        %now = view f32[2x3], @in %cache {offset=0, strides=[8,1]}
        %all = alloc f32[2x4]
        insert_tensor @inout %all, @in %now {offsets=[0,0]}
        insert_tensor @inout %all, @in %x {offsets=[0,3]}
        exp @out %out, @in %all
        insert_tensor @inout %cache, @in %all {offsets=[0,0]}
        dealloc @out %all
    After:
        %x = weight f32[2x1] mutable
        %cache = weight f32[2x8] mutable
        %out = weight f32[2x4] mutable
        %now = view f32[2x3], @in %cache {offset=0, strides=[8,1]}
        %all = view f32[2x4], @in %cache {offset=0, strides=[8,1]}
        insert_tensor @inout %all, @in %x {offsets=[0,3]}
        exp @out %out, @in %all
    """

    name: ClassVar[str] = "update-in-place"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every insert into a weight once. Linear but for the events of the buffers that are inserted."""
        del ctx
        stores = {
            index: inst
            for index, inst in enumerate(f.instructions)
            if isinstance(inst, InsertTensorInst) and isinstance(inst.result, WeightVar)
        }
        if not stores:
            return False
        events = Events(f)
        changed = False
        for index, store in stores.items():
            changed |= _update(f, events, index, store)
        if changed:
            f.replace_instructions(events.program)
        return changed


def _update(f: IRFunction, events: Events, index: int, store: InsertTensorInst) -> bool:
    """Makes the stored buffer a view of the weight, if nothing is in the way."""
    parts = _parts(events, index, store)
    if not _untouched(events, index, store, parts):
        return False
    moves = Moves(events)
    frame, strides = store.input.type.shape, store.result.strides
    start = _offset(store.offsets, strides)
    move = moves.possible(store.input.base, store, frame, store.result, start, strides)
    if move is None:
        return False
    for slot, part in parts.items():
        if part.is_there:
            events.forget(slot, part.inst)
    view = moves.enter(move)
    place(f, events, index, store, view)
    moves.settle([view])
    return True


def _offset(offsets: Shape, strides: Shape) -> Dim:
    total: Dim = sum(map(operator.mul, offsets, strides))
    return total


def _box(weight: Value, offsets: Shape, type: Type) -> Value:
    """The elements of a weight from `offsets` on, as a value of no program."""
    strides = canonical_strides(type.shape, weight.strides)
    start = 0 if type.is_empty else _offset(offsets, weight.strides)
    return ViewInst((weight,), {"offset": start, "strides": strides}, name="box", type=type).value


@dataclass(frozen=True)
class _Part:
    """An insert into the buffer, and where it would lie in the weight."""

    inst: InsertTensorInst
    box: Value

    @property
    def is_there(self) -> bool:
        """Whether it lies there before."""
        return self.inst.input.base is self.box.base and self.inst.input.same_memory(self.box)


def _parts(events: Events, index: int, store: InsertTensorInst) -> dict[int, _Part]:
    """The inserts that make the stored buffer, by slot; none if anything else writes it, or nothing is there before."""
    value, buffer = store.input, store.input.base
    if buffer not in events.alloc or buffer.type.size != value.type.size:
        return {}
    parts: dict[int, _Part] = {}
    for event in events.between(buffer, 0, events.last(buffer) + 1):
        if not event.writes:
            continue
        inserts = [inst for inst in events.slot(event.index) if isinstance(inst, InsertTensorInst)]
        if len(inserts) != 1 or inserts[0].result is not value:
            return {}
        inst = inserts[0]
        offsets = tuple(map(operator.add, store.offsets, inst.offsets))
        parts[event.index] = _Part(inst, _box(store.result, offsets, inst.input.type))
    is_late = any(slot > index for slot in parts)
    return {} if is_late or not any(part.is_there for part in parts.values()) else parts


def _untouched(
    events: Events, index: int, store: InsertTensorInst, parts: Mapping[int, _Part]
) -> bool:
    """Whether there are parts, and nobody else writes the weight meanwhile, or reads what they have overwritten."""
    buffer, weight = store.input.base, store.result
    if not parts:
        return False
    overwritten: list[Value] = []
    for slot in sorted({*parts, *events.touching(weight)}):
        if slot < events.first(buffer) or slot == index:
            continue
        if slot in parts and not parts[slot].is_there:
            overwritten.append(parts[slot].box)
        for event in events.between(weight, slot, slot + 1):
            if event.writes and slot <= events.last(buffer):
                return False
            if slot < index and any(event.value.overlaps(box) for box in overwritten):
                return False
    return True
