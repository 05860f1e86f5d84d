"""The proof that a memory plan is right, by code that shares nothing with `glowpy.memory`, which makes plans."""

from __future__ import annotations

import operator
from bisect import bisect_left, insort
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import accumulate, pairwise

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import sampled
from glowpy.core.schema import Access, Trait
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst, DeallocInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.plan import (
    ALIGNMENT,
    MemoryPlan,
    Slot,
)
from glowpy.ir.value import Value, WeightVar
from glowpy.support.errors import Diagnostic, VerifyError
from glowpy.support.symbolic import static

__all__ = ["check"]


def check(f: IRFunction, memory: MemoryPlan, frames: Mapping[str, int] | None = None) -> None:
    """Proves a plan right, by code that shares nothing with `plan`. `frames` are the peaks of what it calls.

    Walks the program with a map from byte ranges to owners: at its alloc a buffer must find its
    whole range free, at its dealloc it gives it back, and every access must find its operand owning
    its range. A view ends where its base does; what an instruction writes shares no byte with another
    operand, or is the same elements where it works in place. What is in registers has no place, and is written and
    read by the loop of one of the function's runs, every element after it was computed.
    The frame of a call has room for what is called.
    A program with symbols is walked with their highest extents, with their lowest, and with some between. Raises
    VerifyError with every violation.
    """
    rooms = {value.name: value.type.room for value in f.values}
    loops = _loops(f) if memory.registers else {}
    if messages := list(_frames(f, frames or {})):
        raise VerifyError.of(
            Diagnostic(text, context=f"memory @{memory.name}") for text in messages
        )
    for extents in sampled(f.symbols):
        messages = list(_violations(f.at(extents), memory, rooms, loops))
        if messages:
            context = ", ".join(
                [f"memory @{memory.name}", *(f"{k} = {n}" for k, n in extents.items())]
            )
            raise VerifyError.of(Diagnostic(message, context=context) for message in messages)


def _frames(f: IRFunction, frames: Mapping[str, int]) -> Iterator[str]:
    """Calls whose frame is too small."""
    for inst in f.instructions:
        for name in inst.callees:
            frame, needed = inst.operands[-1].value, frames.get(name, 0)
            if frame.type.room < needed:
                yield f"@{name} needs {needed} bytes, expected as many in frame %{frame.name}"


def _loops(f: IRFunction) -> dict[int, int]:
    """The run of every computing instruction, by its position in the program, which no extent changes."""
    numbers = {inst: number for number, run in enumerate(f.runs) for inst in run.members}
    return {at: numbers[inst] for at, inst in enumerate(f.instructions) if inst in numbers}


def _violations(
    f: IRFunction, memory: MemoryPlan, rooms: Mapping[str, int], loops: Mapping[int, int]
) -> Iterator[str]:
    yield from _misplaced(memory)
    constants, mutables = ({s.name: s for s in a.slots} for a in (memory.constant, memory.mutable))
    for weight in f.weights.values():
        place = (constants if weight.is_constant else mutables).get(weight.name)
        size = max(rooms[weight.name], weight.type.room)
        if place is None or place.size != size:
            yield f"weight %{weight.name} of {size} bytes has no slot of that size"
    registers = set(memory.registers)
    yield from _walk(f, {slot.name: slot for slot in memory.activations.slots}, rooms, registers)
    yield from _accesses(f, registers, loops)


def _misplaced(memory: MemoryPlan) -> Iterator[str]:
    """Yields problems of a plan, whatever its program."""
    for title, area in (
        ("activations", memory.activations),
        ("mutable", memory.mutable),
        ("constant", memory.constant),
    ):
        for slot in area.slots:
            if slot.start % ALIGNMENT:
                yield f"%{slot.name} begins at {slot.start}, expected a multiple of {ALIGNMENT}"
            if slot.end > area.size or slot.start < 0:
                yield f"%{slot.name} ends at {slot.end}, outside the {title} area of {area.size} bytes"
    for area in (memory.mutable, memory.constant):
        placed = sorted(area.slots, key=lambda slot: (slot.start, slot.end))
        for before, after in pairwise(placed):
            if after.start < before.end:
                yield f"%{before.name} and %{after.name} overlap"
    registers = set(memory.registers)
    for slot in memory.activations.slots:
        if slot.name in registers:
            yield f"%{slot.name} is in registers and in memory"


_Range = tuple[int, int, str]
"""The first byte, the first byte after, and the owner."""


def _walk(
    f: IRFunction, slots: dict[str, Slot], rooms: Mapping[str, int], registers: Set[str]
) -> Iterator[str]:
    owned: dict[str, _Range] = {}
    ranges: list[_Range] = []
    apart = True
    for inst in f.instructions:
        if isinstance(inst, AllocInst) and inst.value.name not in registers:
            value = inst.value
            slot = slots.get(value.name)
            size = max(rooms[value.name], value.type.room)
            if slot is None or slot.size != size:
                yield f"buffer %{value.name} of {size} bytes has no slot of that size"
                continue
            mine = owned[slot.name] = (slot.start, slot.end, slot.name)
            for start, end, other in _overlapping(ranges, mine, apart):
                apart = False
                yield f"%{slot.name} ({slot.start}..{slot.end}) and %{other} ({start}..{end}) are alive together"
            insort(ranges, mine)
        elif isinstance(inst, DeallocInst):
            if inst.buffer.name in owned:
                del ranges[bisect_left(ranges, owned.pop(inst.buffer.name))]
        else:
            for ref in inst.operands:
                base = ref.value.base
                if not (
                    isinstance(base, WeightVar) or base.name in owned or base.name in registers
                ):
                    yield f"{inst.SCHEMA.mnemonic} uses %{ref.value.name} while its buffer is not alive"


def _accesses(f: IRFunction, registers: Set[str], loops: Mapping[int, int]) -> Iterator[str]:
    places: dict[Value, _Place] = {weight: _Place.whole(weight) for weight in f.weights.values()}
    computed: dict[str, _Computed] = {}
    for at, inst in enumerate(f.instructions):
        if isinstance(inst, AllocInst):
            places[inst.value] = _Place.whole(inst.value)
        elif isinstance(inst, ViewInst):
            place = places[inst.value] = places[inst.source].part(inst)
            if place.start < 0 or place.end > place.base.type.room:
                yield f"view %{inst.value.name} ends outside %{place.base.name}"
        elif not isinstance(inst, DeallocInst):
            yield from _clashes(inst, [places[ref.value] for ref in inst.operands])
            if registers:
                named = [(ref.value, ref.access) for ref in inst.operands]
                if inst.predicate is not None:
                    named.append((inst.predicate, Access.IN))
                for value, access in reversed(named):  # what is read first
                    if value.base.name in registers:
                        elements = computed.setdefault(value.base.name, _Computed(loops[at]))
                        yield from elements.accessed(inst, value, access, places[value], loops[at])


class _Computed:
    """Elements of a buffer that the loop of one run has computed in registers."""

    def __init__(self, loop: int) -> None:
        self._loop = loop
        self._elements: set[tuple[ElemKind, int, tuple[int, ...]]] = set()

    def accessed(
        self, inst: Instruction, value: Value, access: Access, place: _Place, loop: int
    ) -> Iterator[str]:
        """Yields problems of an access by `inst` to elements in a loop, which it reads or computes."""
        use = f"{inst.SCHEMA.mnemonic} {'writes' if access.writes else 'reads'} %{value.name}"
        elements = value.type.kind, place.start, place.layout
        in_loop = inst.has(Trait.ELEMENTWISE) or (inst.has(Trait.EPILOGUE) and access.writes)
        if access not in (Access.OUT, Access.IN) or not in_loop:
            yield f"{use} in memory, which %{place.base.name} has none of"
        elif loop != self._loop:
            yield f"{use}, which is in registers of another loop"
        elif access is Access.OUT:
            self._elements.add(elements)
        elif elements not in self._elements:
            yield f"{use}, which its loop has not computed"


@dataclass(frozen=True, slots=True)
class _Place:
    """Place of a value: its base, its first byte, and the bytes of each dimension's steps."""

    base: Value
    start: int
    shape: tuple[int, ...]
    steps: tuple[int, ...]
    element: int

    @classmethod
    def whole(cls, value: Value) -> _Place:
        return cls(value, 0, value.type.extents, _dense(value.type), value.type.kind.size)

    def part(self, view: ViewInst) -> _Place:
        """Returns the place of a view of this value."""
        type = view.value.type
        size = type.kind.size
        offset, *strides = static((view.offset, *view.strides))
        steps = tuple(step * size for step in strides) or _dense(type)
        return _Place(self.base, self.start + offset * size, type.extents, steps, size)

    @property
    def end(self) -> int:
        """The first byte after the last element."""
        if 0 in self.shape:
            return self.start
        last = sum((n - 1) * step for n, step in zip(self.shape, self.steps, strict=True))
        return self.start + last + self.element

    @property
    def layout(self) -> tuple[int, ...]:
        """Equal for places, of one first byte, that have the same elements in the same order of bytes."""
        dims = [(n, step) for n, step in zip(self.shape, self.steps, strict=True) if n != 1]
        layout: list[int] = [self.element, 1]
        for n, step in reversed(dims):
            if step == layout[-1] * layout[-2]:
                layout[-1] *= n
            else:
                layout += [step, n]
        return layout[0] * layout[1], *layout[2:]

    def rows(self, step: int) -> tuple[range, _Place] | None:
        """The numbers of its rows that begin `step` bytes apart, and the first of them as if it were number 0.

        None where something reaches from one of them into the next.
        """
        length, *pairs = self.layout
        dims = list(zip(pairs[1::2], pairs[::2], strict=True))
        outer = [n for n, distance in dims if distance == step]
        inner = [dim for dim in dims if dim[1] != step]
        number, start = divmod(self.start, step)
        shape, steps = tuple(n for n, _ in inner), tuple(distance for _, distance in inner)
        row = _Place(self.base, start, shape, steps, length)
        if len(outer) > 1 or row.end > step:
            return None
        return range(number, number + (outer[0] if outer else 1)), row

    def pieces(self) -> Array:
        """The first byte of every piece without gaps, in ascending order, and how long each one is, last."""
        length, *outer = self.layout
        starts = np.array([self.start])
        for step, n in zip(outer[::2], outer[1::2], strict=True):
            starts = (starts + step * np.arange(n).reshape(-1, 1)).reshape(-1)
        return np.append(np.sort(starts), length)


def _dense(type: Type) -> tuple[int, ...]:
    sizes = accumulate(reversed(type.extents), operator.mul, initial=type.kind.size)
    return tuple(sizes)[:-1][::-1]


def _clashes(inst: Instruction, places: Sequence[_Place]) -> Iterator[str]:
    """Operands of one instruction that share bytes although one of them is written, unless it works in place."""
    for index, ref in enumerate(inst.operands):
        if not ref.access.writes:
            continue
        for other_index, other in enumerate(inst.operands):
            mine, theirs = places[index], places[other_index]
            if index == other_index or mine.base is not theirs.base:
                continue
            in_place = inst.has(Trait.INPLACE) and mine.start == theirs.start
            if _share_bytes(mine, theirs) and not (in_place and mine.layout == theirs.layout):
                yield f"{inst.SCHEMA.mnemonic} writes %{ref.value.name} over bytes of %{other.value.name}"


def _share_bytes(a: _Place, b: _Place) -> bool:
    """Whether two places in one base share a byte.

    Rows of both that are equally far apart, and longer than none of the distances, are compared by their numbers, and
    then one row of each: so for most places no piece is looked at. Of others, every piece of both is.
    """
    if a.end <= b.start or b.end <= a.start or 0 in a.shape or 0 in b.shape:
        return False
    if a.start == b.start:
        return True
    step = max((*a.layout[1::2], *b.layout[1::2]), default=0)
    if step:
        first, second = a.rows(step), b.rows(step)
        if first is not None and second is not None:
            together = range(
                max(first[0].start, second[0].start), min(first[0].stop, second[0].stop)
            )
            return len(together) > 0 and _share_bytes(first[1], second[1])
    return _share_pieces(a.pieces(), b.pieces())


def _share_pieces(first: Array, second: Array) -> bool:
    """Whether a piece of one place shares a byte with one of another: see `_Place.pieces`."""
    starts, ends = second[:-1], second[:-1] + second[-1]
    after = np.searchsorted(ends, first[:-1], side="right")
    hit = after < len(starts)
    return bool((starts[after[hit]] < first[:-1][hit] + first[-1]).any())


def _overlapping(ranges: Sequence[_Range], mine: _Range, apart: bool) -> list[_Range]:
    """Returns the ranges, of the sorted `ranges`, that share a byte with `mine`.

    Where all are `apart`, only the last of those that begin before `mine` can reach into it.
    """
    overlaps: list[_Range] = []
    for index in range(bisect_left(ranges, (mine[1],)) - 1, -1, -1):
        if ranges[index][1] > mine[0]:
            overlaps.append(ranges[index])
        elif apart:
            break
    return overlaps
