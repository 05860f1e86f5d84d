"""Where each buffer is alive and who touches it: `lifetimes` as numbers, `Events` for passes that merge buffers."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterator
from dataclasses import dataclass, field
from operator import attrgetter

from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst, DeallocInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value

__all__ = ["Event", "Events", "Lifetime", "events_between", "lifetimes"]


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


@dataclass(frozen=True, slots=True)
class Event:
    """One instruction reads or writes one value."""

    index: int
    value: Value
    reads: bool
    writes: bool


_index = attrgetter("index")


def events_between(events: list[Event], start: int, stop: int) -> list[Event]:
    """Those of `events`, which are in program order, at slots from `start` up to, but not including, `stop`."""
    first = bisect_left(events, start, key=_index)
    return events[first : bisect_left(events, stop, first, key=_index)]


class Events:
    """Who touches which memory, kept right while a pass merges buffers.

    Instructions keep the index they had when the pass began. Each index is a slot that may hold
    several instructions or none; `program` is what the pass leaves. Building it takes linear
    time, a merge takes time linear in the events and uses of the buffer that ends.
    """

    def __init__(self, f: IRFunction) -> None:
        self.slots: list[list[Instruction]] = [[inst] for inst in f.instructions]
        self.alloc: dict[Value, int] = {}
        """The slot of every buffer's alloc."""
        self.dealloc: dict[Value, int] = {}
        """The slot of every buffer's dealloc."""
        self._events: dict[Value, list[Event]] = {}
        self._uses: dict[Value, dict[Instruction, int]] = {}
        for index, inst in enumerate(f.instructions):
            self._enter(index, inst)

    def _enter(self, index: int, inst: Instruction) -> None:
        if isinstance(inst, AllocInst):
            self.alloc[inst.value] = index
            return
        if isinstance(inst, DeallocInst):
            self.dealloc[inst.buffer] = index
            return
        accesses = [(ref.value, ref.access.reads, ref.access.writes) for ref in inst.operands]
        if inst.predicate is not None:
            accesses.append((inst.predicate, True, False))
        for value, reads, writes in accesses:
            self._uses.setdefault(value, {})[inst] = index
            if not isinstance(inst, ViewInst):
                event = Event(index, value, reads, writes)
                self._events.setdefault(value.base, []).append(event)

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

    def between(self, value: Value, start: int, stop: int) -> list[Event]:
        """The events of `value`'s memory at slots from `start` up to, but not including, `stop`."""
        return events_between(self.of(value), start, stop)

    def within(self, value: Value, start: int, stop: int) -> Iterator[Event]:
        """Those of `between` that touch bytes of `value` itself."""
        return (e for e in self.between(value, start, stop) if e.value.overlaps(value))

    def used_before(self, value: Value, index: int) -> bool:
        """Whether an instruction before slot `index`, be it a view, names `value`."""
        return any(slot < index for slot in self._uses.get(value, {}).values())

    def forget(self, index: int, inst: Instruction) -> None:
        """Removes `inst` from slot `index`, with its events."""
        self.slots[index].remove(inst)
        for value in {ref.value: None for ref in inst.operands}:
            events = self._events[value.base]
            first = bisect_left(events, index, key=_index)
            del events[first : bisect_left(events, index + 1, first, key=_index)]
            del self._uses[value][inst]

    def merge(self, old: Value, new: Value) -> None:
        """Makes everything that names the buffer `old` name `new` instead, and ends the life of `old`.

        `old` is an allocated buffer; `new` is of the same type, lies in other memory, and is made
        before every use of `old`. The memory of `new` lives on until `old` would have died.
        """
        events = self._events.pop(old, [])
        self._end(old, new.base)
        uses = self._uses.pop(old, {})
        for inst in uses:
            inst.replace_value(old, new)
        self._uses.setdefault(new, {}).update(uses)
        target = self._events.setdefault(new.base, [])
        for event in events:
            value = new if event.value is old else event.value
            insort(target, Event(event.index, value, event.reads, event.writes), key=_index)

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
        self._uses.setdefault(view.source, {})[view] = index

    def append(self, index: int, view: ViewInst) -> None:
        """Adds `view` at the end of slot `index`."""
        self.slots[index].append(view)
        self._uses.setdefault(view.source, {})[view] = index
