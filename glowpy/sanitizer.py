"""Sanitizer: runs a network and watches its memory, as AddressSanitizer and MemorySanitizer watch a C program's.

Between any two runs of the program (see `glowpy.ir.run`) all memory of the network is looked at:

* what a run has changed must be elements of its operands that it may write, for the extents of this call. Guards of
  a pattern lie around the arena and around the array of every input and output;
* what it reads must have been written. What nobody has written, or whose buffer is no longer alive, holds a pattern;
* the network is run twice, with two patterns: results that differ say that something else was read.

Machine code is the same as without, but for a call before each run and one after it. Elements are known to the byte:
what lies between the elements of a strided operand, or after those of a buffer with room for more, is not its own.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Literal, Protocol, final

import numpy as np

from glowpy.backend import Program
from glowpy.core.extents import Extents
from glowpy.core.schema import Access, Trait
from glowpy.core.tensor import Array, address_of
from glowpy.ir.inst import Instruction, OperandRef
from glowpy.ir.insts_gen import AllocInst, DeallocInst, InsertTensorInst
from glowpy.ir.run import Run
from glowpy.ir.value import Value
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.host_memory import aligned_array
from glowpy.support.errors import AccessError, InternalError
from glowpy.support.symbolic import static

__all__ = [
    "GUARD",
    "Area",
    "Moment",
    "NumberedRuns",
    "SanitizedFunction",
    "Watch",
    "WatchedFunction",
    "sanitized",
]

GUARD = 4096
"""Bytes of the pattern before and after every area."""

_PATTERNS = 0xFF, 0x5A
"""Bytes that memory is filled with before the network writes it: NaN or -1, and something large and finite."""

Moment = Literal["before", "after"]


@dataclass(frozen=True, slots=True)
class _Step:
    """A run: its function, where its head stands there, and the number of instructions before that function's.

    A callback is told of `operands` addresses.
    """

    program: Program
    run: Run
    position: int
    first_index: int
    operands: int

    @property
    def end(self) -> int:
        """The place in its function of the instruction after it."""
        return self.position + len(self.run.members)


class NumberedRuns:
    """The runs of a program and of what it calls, by the number of their first instructions.

    Instructions are numbered as they stand: those of the program first, then those of each function that it calls.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        self.steps: dict[int, _Step] = {}
        self._instructions: dict[tuple[tuple[str, int], ...], list[Instruction]] = {}
        first = 0
        for function in (program, *program.callees):
            places = {inst: place for place, inst in enumerate(function.ir.instructions)}
            for run in function.ir.runs:
                place, told = places[run.head], len(run.operands_beside(function.plan.registers))
                self.steps[first + place] = _Step(function, run, place, first, told)
            first += len(function.ir.instructions)

    def instructions(self, extents: Extents) -> list[Instruction]:
        """All instructions, in the order of their numbers, for these extents."""
        key = tuple(extents.items())
        if key not in self._instructions:
            functions = (self.program.ir, *(function.ir for function in self.program.callees))
            found = [inst for f in functions for inst in f.at(extents).instructions]
            self._instructions = {key: found}  # those of the last run are asked for again and again
        return self._instructions[key]


@final
class Area:
    """Memory of a network, between two guards.

    Attributes:
        name: A description for people.
        elements: The bytes between the guards.
        known: Whether each byte was written by somebody.
    """

    def __init__(self, name: str, size: int) -> None:
        self.name = name
        room = aligned_array(size + 2 * GUARD)
        self._all = room[: size + 2 * GUARD]
        self.elements = self._all[GUARD : GUARD + size]
        self._known = np.zeros(len(self._all), np.bool_)
        self.known = self._known[GUARD : GUARD + size]
        self._start = address_of(self._all)
        self._copies: list[Array] = []

    def holds(self, address: int) -> bool:
        """Whether an address is between the guards."""
        return GUARD <= address - self._start < len(self._all) - GUARD

    def offset(self, address: int) -> int:
        """How far after the first guard an address is."""
        return address - self._start - GUARD

    def fill(self, pattern: int) -> None:
        """Writes the pattern wherever nobody has written anything."""
        self._all[~self._known] = pattern

    def fill_elements(self, value: Value, address: int, box: tuple[slice, ...], own: int) -> None:
        """Writes another pattern to those elements of a value that nobody has written."""
        mask = self.mask()
        self.elements_of(value, address, mask)[box] = True
        self._all[mask & ~self._known] = own

    def remember(self) -> None:
        """Begins to watch: keeps a copy of all bytes until `changed` is asked for."""
        self._copies.append(self._all.copy())

    def changed(self) -> Array:
        """Returns a mask of the bytes, guards among them, that differ from when this was last remembered."""
        changed: Array = self._all != self._copies.pop()
        return changed

    def mask(self) -> Array:
        """Returns a mask of all bytes, guards among them, with none set."""
        return np.zeros(len(self._all), np.bool_)

    def elements_of(self, value: Value, address: int, mask: Array) -> Array:
        """The elements of a value at an address, as they stand in a mask of all bytes; not copied."""
        start, size = address - self._start, value.type.kind.size
        (span,) = static([value.span])
        if start + span > len(mask):
            raise InternalError(f"%{value.name} ends after its memory, {self.name}")
        steps = [stride * size for stride in static(value.strides)]
        shape = (*value.type.extents, size)
        return np.lib.stride_tricks.as_strided(mask[start:], shape, (*steps, 1))

    def know(self, mask: Array) -> None:
        """Notes that somebody has written these bytes."""
        self._known |= mask
        self._known[:GUARD] = self._known[len(self._known) - GUARD :] = False

    def is_known(self, value: Value, address: int) -> bool:
        """Whether somebody has written all elements of a value."""
        return bool(self.elements_of(value, address, self._known).all())

    def forget(self, start: int, end: int) -> None:
        """Notes that what these bytes hold is nobody's."""
        self.known[start:end] = False

    def content(self, value: Value, address: int) -> bytes:
        """The bytes of a value's elements."""
        return self.elements_of(value, address, self._all).tobytes()


@dataclass
class _Frame:
    """A call of a function: the area of its buffers, where they begin there, and how far it has come."""

    program: Program
    area: Area | None
    start: int
    position: int = -1


@dataclass
class Watch:
    """Checks one run of a network, with one pattern. Raises AccessError from `before` and `after`.

    Attributes:
        runs: The numbered runs that the calls are about.
        areas: All memory that it may touch but constants; the first is its arena.
        pattern: The byte that fills memory which nobody has written.
        places: Where the weights of the program are: the area, and the first byte.
        own: The byte that fills elements which a run is about to write; the pattern if None.
        digests: Digests of what each run has written.
    """

    runs: NumberedRuns
    areas: Sequence[Area]
    pattern: int
    places: Mapping[str, tuple[Area, int]]
    own: int | None = None
    digests: list[tuple[int, bytes]] = field(default_factory=list)
    _frames: list[_Frame] = field(default_factory=list)
    _called: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._frames.append(_Frame(self.runs.program, self.areas[0], 0))

    def see(
        self,
        moment: Moment,
        index: int,
        pointers: int,
        instructions: Sequence[Instruction],
    ) -> None:
        """Handles a callback of machine code; `pointers` is the address of an array of the operands' addresses."""
        count = self.runs.steps[index].operands
        addresses = list((ctypes.c_size_t * count).from_address(pointers))
        (self.before if moment == "before" else self.after)(index, addresses, instructions)

    def before(
        self, index: int, addresses: Sequence[int], instructions: Sequence[Instruction]
    ) -> None:
        """Is called before a run, with the addresses of the operands that are in memory."""
        step = self.runs.steps[index]
        self._enter(step, instructions)
        run, operands = self._run(step, addresses, instructions)
        written: set[Value] = set()
        for inst, ref, address in operands:
            area = self._area(address)
            stays = isinstance(inst, InsertTensorInst) and ref.access is Access.INOUT
            read = ref.access.reads and not stays and ref.value.base not in written
            if read and area is not None and not area.is_known(ref.value, address):
                raise AccessError(
                    f"{_text(run)}: {inst.SCHEMA.mnemonic} reads elements of %{ref.value.name} that nothing wrote"
                )
            if ref.access.writes:
                written.add(ref.value.base)
        for area in self.areas:
            area.fill(self.pattern)
        for inst, ref, address in operands:
            area = self._area(address) if ref.access.writes else None
            if area is not None and self.own is not None:
                area.fill_elements(ref.value, address, _written_box(inst), self.own)
        for area in self.areas:
            area.remember()
        self._called.append(addresses[-1] if addresses else 0)

    def after(
        self, index: int, addresses: Sequence[int], instructions: Sequence[Instruction]
    ) -> None:
        """Is called after a run."""
        step = self.runs.steps[index]
        self._called.pop()
        while self._frames[-1].program is not step.program:
            self._frames.pop()
        run, operands = self._run(step, addresses, instructions)
        may: dict[str, Array] = {}
        scratch: list[tuple[Area, int, Value]] = []
        digest = blake2b(digest_size=8)
        for inst, ref, address in operands:
            area = self._area(address) if ref.access.writes else None
            if area is None:
                continue
            mask = may.setdefault(area.name, area.mask())
            area.elements_of(ref.value, address, mask)[_written_box(inst)] = True
            if ref.access is Access.SCRATCH:
                scratch.append((area, area.offset(address), ref.value))
            else:
                digest.update(area.content(ref.value, address))
        for area in self.areas:
            changed = area.changed()
            if area.name in may:
                changed &= ~may[area.name]
                area.know(may[area.name])
            if changed.any():
                places = np.flatnonzero(changed) - GUARD
                raise AccessError(self._outside(run, area, places), package=_package(run))
        for area, start, value in scratch:
            (size,) = static([value.type.size])
            area.forget(start, start + size)
        self.digests.append((index, digest.digest()))

    def _run(
        self, step: _Step, addresses: Sequence[int], instructions: Sequence[Instruction]
    ) -> tuple[Sequence[Instruction], list[tuple[Instruction, OperandRef, int]]]:
        """A run and those of its operands that are in memory and have elements, with their addresses."""
        run = instructions[step.first_index + step.position : step.first_index + step.end]
        registers = set(step.program.plan.registers)
        pairs = [
            (i, ref) for i in run for ref in i.operands if ref.value.base.name not in registers
        ]
        return run, [
            (inst, ref, address)
            for (inst, ref), address in zip(pairs, addresses, strict=False)
            if not ref.value.type.is_empty
        ]

    def _area(self, address: int) -> Area | None:
        """The area that an address is in; None for constants, and what machine code has on its stack."""
        return next((area for area in self.areas if area.holds(address)), None)

    def _enter(self, step: _Step, instructions: Sequence[Instruction]) -> None:
        """Catches up with events since the last run: calls, and buffers that begin and end."""
        frame = self._frames[-1]
        if frame.program is not step.program:
            address = self._called[-1]  # the frame is the last operand of a call
            area = self._area(address)
            frame = _Frame(step.program, area, 0 if area is None else area.offset(address))
            self._frames.append(frame)
        elif step.position <= frame.position:  # the next round of a loop
            frame.position = -1
        slots = {slot.name: slot for slot in step.program.plan.activations.slots}
        for place in range(frame.position + 1, step.position):
            symbolic = step.program.ir.instructions[place]
            if isinstance(symbolic, AllocInst | DeallocInst):
                buffer = symbolic.value if isinstance(symbolic, AllocInst) else symbolic.buffer
                slot = slots.get(buffer.name)
                if slot is not None and frame.area is not None:
                    frame.area.forget(frame.start + slot.start, frame.start + slot.end)
            elif not symbolic.has(Trait.MEMORY) and step.first_index + place in self.runs.steps:
                self._skip(frame, instructions[step.first_index + place])
        frame.position = step.end - 1

    def _skip(self, frame: _Frame, inst: Instruction) -> None:
        """Takes what no code was made for as done, such as constants that are part of the code."""
        slots = {slot.name: slot for slot in frame.program.plan.activations.slots}
        for value in inst.writes():
            (offset,) = static([value.byte_offset])
            area, start = frame.area, frame.start
            if value.base.name in slots:
                start += slots[value.base.name].start
            elif frame.program is self.runs.program and value.base.name in self.places:
                area, start = self.places[value.base.name]
            else:
                continue
            if area is not None and not value.type.is_empty:
                mask = area.mask()
                address = address_of(area.elements) + start + offset
                area.elements_of(value, address, mask)[...] = True
                area.know(mask)

    def _outside(self, run: Sequence[Instruction], area: Area, places: Array) -> str:
        """Describes bytes of an area that a run should not have written."""
        first, frame = int(places[0]), self._frames[-1]
        where = "before" if first < 0 else "after" if first >= len(area.elements) else "in"
        owner = next(
            (
                f" (%{slot.name})"
                for slot in frame.program.plan.activations.slots
                if area is frame.area
                and slot.start <= first - frame.start < slot.end
                and slot.live is not None
                and slot.live[0] <= frame.position <= slot.live[1]
            ),
            "",
        )
        return (
            f"{_text(run)}: wrote {len(places)} bytes outside its operands, "
            f"the first at byte {first}, {where} {area.name}{owner}"
        )


def _written_box(inst: Instruction) -> tuple[slice, ...]:
    """The part of what it writes that an instruction computes: all, but where something is put into the result."""
    if not isinstance(inst, InsertTensorInst):
        return ()
    starts, sizes = static(inst.offsets), inst.input.type.extents
    return tuple(slice(first, first + n) for first, n in zip(starts, sizes, strict=True))


def _text(run: Sequence[Instruction]) -> str:
    """A run for people: the names of its nodes, and of the first instruction."""
    named = (inst.name or inst.operands[0].value.name for inst in run)
    names = ", ".join(dict.fromkeys(f"%{name}" for name in named))
    package = _package(run)
    return f"{names} ({run[0].SCHEMA.mnemonic}{f' of the package {package}' if package else ''})"


def _package(run: Sequence[Instruction]) -> str:
    """The Python package whose kernels a run calls; empty if they are glowpy's own."""
    packages = (type(inst).__module__.partition(".")[0] for inst in run)
    return next((package for package in packages if package != "glowpy"), "")


class WatchedFunction(Protocol):
    """Machine code or a program that calls a watch around each of its runs."""

    arena_size: int

    def execute_watched(
        self, bindings: Mapping[str, Array], arena: Array, extents: Extents, watch: Watch
    ) -> Extents:
        """Does what `Executable.execute` does."""


def sanitized(
    runs: NumberedRuns,
    areas: Callable[[], tuple[list[Area], Mapping[str, tuple[Area, int]]]],
    execute: Callable[[Sequence[Area], Watch], Extents],
) -> tuple[Sequence[Area], Extents]:
    """Executes a network twice, in areas that are made for each time, with both patterns.

    Returns the areas and what was found the second time. Raises AccessError that names the run which touches what it
    should not.
    """

    def attempt(pattern: int, own: int | None = None) -> tuple[Watch, Sequence[Area], Extents]:
        made, places = areas()
        watch = Watch(runs, made, pattern, places, own)
        return watch, made, execute(made, watch)

    low, high = _PATTERNS
    first, before, _ = attempt(low)
    second, after, found = attempt(high)
    if unlike := _unlike(before, after):
        pairs = enumerate(zip(first.digests, second.digests, strict=False))
        place = next((place for place, (one, other) in pairs if one != other), None)
        if place is None:
            raise AccessError(f"{unlike}: results depend on memory that nobody wrote")
        third, _, _ = attempt(high, own=low)
        beyond = third.digests[place] != first.digests[place]
        run = runs.steps[first.digests[place][0]].run.members
        raise AccessError(
            f"{_text(run)}: results depend on memory that nobody wrote: "
            + ("it reads outside its operands" if beyond else _UNWRITTEN),
            package=_package(run),
        )
    return after, found


_UNWRITTEN = "it leaves elements unwritten that are its own to write, or reads them first"


def _unlike(before: Sequence[Area], after: Sequence[Area]) -> str:
    """The first area, but for the arena, in which two runs have left different elements; empty if there is none."""
    for one, other in zip(before[1:], after[1:], strict=True):
        both = one.known & other.known
        if not np.array_equal(one.elements[both], other.elements[both]):
            return one.name
    return ""


@final
class SanitizedFunction(CompiledFunction):
    """A compiled function whose every run is checked. Raises AccessError for the first fault."""

    def __init__(
        self, function: CompiledFunction, watched: WatchedFunction, runs: NumberedRuns
    ) -> None:
        super().__init__(function.ports, function.arena_size)
        self._watched = watched
        self._runs = runs
        self._given = {port.placeholder for port in self.input_ports}
        self._given |= {port.placeholder for port in self.state_ports}

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs in areas of its own, of which the results are copied."""
        del arena
        copies: dict[str, Array] = {}

        def areas() -> tuple[list[Area], Mapping[str, tuple[Area, int]]]:
            made, places = [Area("the arena", self.arena_size)], {}
            for name, array in bindings.items():
                area = Area(f"%{name}", array.nbytes)
                copies[name] = area.elements.view(array.dtype).reshape(array.shape)
                if name in self._given:
                    copies[name][...] = array
                    area.known[:] = True
                made.append(area)
                places[name] = area, 0
            return made, places

        def execute(made: Sequence[Area], watch: Watch) -> Extents:
            return self._watched.execute_watched(copies, made[0].elements, extents, watch)

        _, found = sanitized(self._runs, areas, execute)
        for name, array in bindings.items():
            if array.flags.writeable:
                array[...] = copies[name]
        return found
