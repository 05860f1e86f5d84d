"""Lifetimes and users of buffers: `lifetimes` as numbers, `Events` for passes that merge buffers."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
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


@dataclass(frozen=True, slots=True)
class Event:
    """One instruction reads or writes one value."""

    index: int
    value: Value
    reads: bool
    writes: bool


class Events:
    """Accesses to memory by instructions, kept up to date while a pass merges buffers.

    Instructions keep the index they had when the pass began. Each index is a slot that may hold
    several instructions or none; `program` is what the pass leaves. Building it takes linear
    time, a merge takes time linear in the slots that name the buffer that ends, and in the fewer
    of those that touch the two.

    Of what touches a buffer only slots are stored, as sorted lists of integers, which cost Python's
    garbage collector nothing: what happens there is read from the operands when somebody asks.
    """

    def __init__(self, f: IRFunction) -> None:
        self.alloc: dict[Value, int] = {}
        """The slot of every buffer's alloc."""
        self.dealloc: dict[Value, int] = {}
        """The slot of every buffer's dealloc."""
        self._program = f.instructions
        self._end = len(f.instructions)
        self._changed: dict[int, list[Instruction]] = {}
        self._touching: dict[Value, list[int]] = {}
        self._naming: dict[Value, dict[Instruction, int]] = {}
        for index, inst in enumerate(f.instructions):
            if isinstance(inst, AllocInst):
                self.alloc[inst.value] = index
            elif isinstance(inst, DeallocInst):
                self.dealloc[inst.buffer] = index
            else:
                self._enter(index, inst)

    def _enter(self, index: int, inst: Instruction) -> None:
        values = [ref.value for ref in inst.operands]
        if inst.predicate is not None:
            values.append(inst.predicate)
        for value in values:
            self._naming.setdefault(value, {})[inst] = index
            if not isinstance(inst, ViewInst):
                _insert(self._touching, value.base, index)

    @property
    def program(self) -> list[Instruction]:
        """The instructions in the order of their slots."""
        return [inst for index in range(self._end) for inst in self.slot(index)]

    def slot(self, index: int) -> Sequence[Instruction]:
        """The instructions at `index`."""
        changed = self._changed.get(index)
        return self._program[index : index + 1] if changed is None else changed

    def _edit(self, index: int) -> list[Instruction]:
        return self._changed.setdefault(index, [self._program[index]])

    def touching(self, value: Value) -> Sequence[int]:
        """The slots of the instructions that touch the memory `value` lies in, in order."""
        return self._touching.get(value.base, ())

    def first(self, value: Value) -> int:
        """The first of `touching`."""
        return self.touching(value)[0]

    def last(self, value: Value) -> int:
        """The last of `touching`."""
        return self.touching(value)[-1]

    def between(self, value: Value, start: int, stop: int) -> Iterator[Event]:
        """The events of `value`'s memory at slots from `start` up to, but not including, `stop`."""
        slots, base = self.touching(value), value.base
        for place in range(bisect_left(slots, start), bisect_left(slots, stop)):
            yield from self._at(slots[place], base)

    def within(self, value: Value, start: int, stop: int) -> Iterator[Event]:
        """Yields the events of `between` that touch bytes of `value` itself."""
        return (e for e in self.between(value, start, stop) if e.value.overlaps(value))

    def last_write(self, value: Value, index: int) -> int:
        """The last slot before `index` whose instruction writes the memory of `value`; -1 if there is none."""
        slots, base = self.touching(value), value.base
        earlier = (slots[place] for place in reversed(range(bisect_left(slots, index))))
        return next((i for i in earlier if any(event.writes for event in self._at(i, base))), -1)

    def is_written_elsewhere(self, value: Value, index: int) -> bool:
        """Whether an instruction at another slot than `index` writes the memory of `value`."""
        events = self.between(value, 0, self._end)
        return any(event.writes and event.index != index for event in events)

    def _at(self, index: int, base: Value) -> Iterator[Event]:
        for inst in self.slot(index):
            if isinstance(inst, AllocInst | DeallocInst | ViewInst):
                continue
            for ref in inst.operands:
                if ref.value.base is base:
                    yield Event(index, ref.value, ref.access.reads, ref.access.writes)
            if inst.predicate is not None and inst.predicate.base is base:
                yield Event(index, inst.predicate, True, False)

    def users(self, value: Value) -> Iterable[Instruction]:
        """The instructions, views among them, that name `value`; its dealloc does not count."""
        return self._naming.get(value, {})

    def used_before(self, value: Value, index: int) -> bool:
        """Whether an instruction before slot `index`, be it a view, names `value`."""
        return any(slot < index for slot in self._naming.get(value, {}).values())

    def forget(self, index: int, inst: Instruction) -> None:
        """Removes `inst` from slot `index`, with its events."""
        self._edit(index).remove(inst)
        for ref in inst.operands:
            self._naming[ref.value].pop(inst, None)
            _remove(self._touching[ref.value.base], index)

    def merge(self, old: Value, new: Value) -> None:
        """Makes everything that names the buffer `old` name `new` instead, and ends the life of `old`.

        `old` is an allocated buffer; `new` is of the same type, lies in other memory, and is made
        before every use of `old`. The memory of `new` lives on until `old` would have died.
        """
        self._end_life(old, new.base)
        naming = self._naming.pop(old, {})
        for inst in naming:
            inst.replace_value(old, new)
        self._naming.setdefault(new, {}).update(naming)
        few, many = self._touching.pop(old, []), self._touching.get(new.base, [])
        if len(few) > len(many):
            few, many = many, few
        self._touching[new.base] = many
        for index in few:
            _insert(self._touching, new.base, index)

    def _end_life(self, old: Value, base: Value) -> None:
        start, stop = self.alloc.pop(old), self.dealloc.pop(old)
        self._changed[start] = [inst for inst in self.slot(start) if inst is not old.definition]
        self._take_dealloc(stop, old)
        before = self.dealloc.get(base, stop)
        if before < stop:
            self._edit(stop).append(self._take_dealloc(before, base))
            self.dealloc[base] = stop

    def _take_dealloc(self, index: int, buffer: Value) -> Instruction:
        slot = self._edit(index)
        at = next(
            i
            for i, inst in enumerate(slot)
            if isinstance(inst, DeallocInst) and inst.buffer is buffer
        )
        return slot.pop(at)

    def hoist(self, buffer: Value, index: int) -> None:
        """Moves the alloc of `buffer` to the beginning of slot `index`."""
        alloc = buffer.definition
        assert alloc is not None
        self._edit(self.alloc[buffer]).remove(alloc)
        self._edit(index).insert(0, alloc)
        self.alloc[buffer] = index

    def stand_in(self, buffer: Value, view: ViewInst) -> None:
        """Puts `view` before the alloc of `buffer`, to be merged with it."""
        index = self.alloc[buffer]
        slot = self._edit(index)
        slot.insert(next(i for i, inst in enumerate(slot) if inst is buffer.definition), view)
        self._naming.setdefault(view.source, {})[view] = index

    def append(self, index: int, view: ViewInst) -> None:
        """Adds `view` at the end of slot `index`."""
        self._edit(index).append(view)
        self._naming.setdefault(view.source, {})[view] = index


def _insert(table: dict[Value, list[int]], value: Value, index: int) -> None:
    """Enters `index` in the sorted list of `value`, once."""
    slots = table.setdefault(value, [])
    place = bisect_left(slots, index)
    if slots[place : place + 1] != [index]:
        slots.insert(place, index)


def _remove(slots: list[int], index: int) -> None:
    """Takes `index` from a sorted list, if it is there."""
    place = bisect_left(slots, index)
    if slots[place : place + 1] == [index]:
        del slots[place]
