"""Where each buffer is alive and who touches it: `lifetimes` as numbers, `Events` for passes that merge buffers."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator
from dataclasses import dataclass, field

from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst, DeallocInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value

__all__ = ["Event", "Events", "Lifetime", "lifetimes"]


@dataclass(slots=True)
class Lifetime:
    """The life of one base (a weight or an allocated buffer), in indices of instructions."""

    start: int
    """The alloc; -1 for a weight."""
    end: int
    """The dealloc; the length of the program for a weight or a buffer without dealloc."""
    reads: list[int] = field(default_factory=list)
    writes: list[int] = field(default_factory=list)

    @property
    def accesses(self) -> list[int]:
        """Every instruction that reads or writes, in order."""
        return sorted({*self.reads, *self.writes})


def lifetimes(f: IRFunction) -> dict[Value, Lifetime]:
    """The lifetime of every weight and allocated buffer; accesses through views count. Linear."""
    program = f.instructions
    lives: dict[Value, Lifetime] = {
        weight: Lifetime(-1, len(program)) for weight in f.weights.values()
    }
    for index, inst in enumerate(program):
        if isinstance(inst, AllocInst):
            lives[inst.value] = Lifetime(index, len(program))
        elif isinstance(inst, DeallocInst):
            lives[inst.buffer.base].end = index
        elif not isinstance(inst, ViewInst):
            for value in inst.reads():
                lives[value.base].reads.append(index)
            for value in inst.writes():
                lives[value.base].writes.append(index)
    return lives


@dataclass(frozen=True, slots=True, order=True)
class Event:
    """One instruction reads or writes one value."""

    index: int
    value: Value = field(compare=False)
    reads: bool = field(compare=False)
    writes: bool = field(compare=False)


class Events:
    """Who touches which memory, kept right while a pass merges buffers.

    Instructions keep the index they had when the pass began. Each index is a slot that may hold
    several instructions or none; `program` is what the pass leaves. Building it takes linear
    time, a merge takes time linear in the events and uses of the merged buffers.
    """

    def __init__(self, f: IRFunction) -> None:
        self.slots: list[list[Instruction]] = [[inst] for inst in f.instructions]
        self.alloc: dict[Value, int] = {}
        """The slot of every buffer's alloc."""
        self.dealloc: dict[Value, int] = {}
        """The slot of every buffer's dealloc."""
        self._events: dict[Value, list[Event]] = {}
        self._uses: dict[Value, list[tuple[int, Instruction]]] = {}
        for index, inst in enumerate(f.instructions):
            self._enter(index, inst)

    def _enter(self, index: int, inst: Instruction) -> None:
        if isinstance(inst, AllocInst):
            self.alloc[inst.value] = index
            return
        if isinstance(inst, DeallocInst):
            self.dealloc[inst.buffer] = index
            return
        predicate = [inst.predicate] if inst.predicate is not None else []
        for value in dict.fromkeys((*(ref.value for ref in inst.operands), *predicate)):
            self._uses.setdefault(value, []).append((index, inst))
        if not isinstance(inst, ViewInst):
            for ref in inst.operands:
                event = Event(index, ref.value, ref.access.reads, ref.access.writes)
                self._events.setdefault(ref.value.base, []).append(event)
            for value in predicate:
                self._events.setdefault(value.base, []).append(Event(index, value, True, False))

    @property
    def program(self) -> list[Instruction]:
        """The instructions in the order of their slots."""
        return [inst for slot in self.slots for inst in slot]

    def of(self, value: Value) -> list[Event]:
        """The events of the memory `value` lies in, in program order."""
        return self._events.get(value.base, [])

    def first(self, value: Value) -> int:
        """The slot of the first event of `value`'s memory."""
        return self.of(value)[0].index

    def last(self, value: Value) -> int:
        """The slot of the last event of `value`'s memory."""
        return self.of(value)[-1].index

    def within(self, value: Value, start: int, stop: int) -> Iterator[Event]:
        """Events that touch bytes of `value`, at slots from `start` up to, but not including, `stop`."""
        for event in self.of(value):
            if start <= event.index < stop and event.value.overlaps(value):
                yield event

    def used_before(self, value: Value, index: int) -> bool:
        """Whether an instruction before slot `index`, be it a view, names `value`."""
        return any(slot < index for slot, _ in self._uses.get(value, []))

    def forget(self, index: int, inst: Instruction) -> None:
        """Removes `inst` from slot `index`, with its events."""
        self.slots[index].remove(inst)
        for ref in inst.operands:
            base = ref.value.base
            self._events[base] = [e for e in self._events[base] if e.index != index]
            self._uses[ref.value] = [use for use in self._uses[ref.value] if use[1] is not inst]

    def merge(self, old: Value, new: Value) -> None:
        """Makes everything that names the buffer `old` name `new` instead, and ends the life of `old`.

        `old` is an allocated buffer; `new` is of the same type, lies in other memory, and is made
        before every use of `old`. The memory of `new` lives on until `old` would have died.
        """
        events = self._events.pop(old, [])
        self._end(old, new.base)
        for index, inst in self._uses.pop(old, []):
            inst.replace_value(old, new)
            self._uses.setdefault(new, []).append((index, inst))
        target = self._events.setdefault(new.base, [])
        for event in events:
            value = new if event.value is old else event.value
            insort(target, Event(event.index, value, event.reads, event.writes))

    def _end(self, old: Value, base: Value) -> None:
        start, stop = self.alloc.pop(old), self.dealloc.pop(old)
        self.slots[start] = [inst for inst in self.slots[start] if inst is not old.definition]
        self._take_dealloc(stop, old)
        before = self.dealloc.get(base, stop)
        if before < stop:
            self.slots[stop].append(self._take_dealloc(before, base))
            self.dealloc[base] = stop

    def _take_dealloc(self, index: int, buffer: Value) -> Instruction:
        slot = self.slots[index]
        at = next(
            i
            for i, inst in enumerate(slot)
            if isinstance(inst, DeallocInst) and inst.buffer is buffer
        )
        return slot.pop(at)

    def stand_in(self, buffer: Value, view: ViewInst) -> None:
        """Puts `view` before the alloc of `buffer`, to be merged with it."""
        index = self.alloc[buffer]
        slot = self.slots[index]
        slot.insert(next(i for i, inst in enumerate(slot) if inst is buffer.definition), view)
        self._uses.setdefault(view.source, []).append((index, view))

    def append(self, index: int, view: ViewInst) -> None:
        """Adds `view` at the end of slot `index`."""
        self.slots[index].append(view)
        self._uses.setdefault(view.source, []).append((index, view))
