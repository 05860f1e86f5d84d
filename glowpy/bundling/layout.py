"""Layout of a bundle: one area of constants for all its networks, and the inputs and outputs of each.

Constants with the same elements are stored once. The mutable area and the activations are as large as the largest
network needs: the networks of a bundle run one after the other. Those of one module share its variables, which lie at
the beginning of the mutable area, so that what one of them leaves there the others read. Where dimensions are symbolic,
places and sizes are those for the highest extents; a run with smaller ones has the elements of each tensor one after
the other from where it begins.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from glowpy.backend import Program
from glowpy.bundling.c_names import member_name
from glowpy.bundling.network import Extent, Network, Role, Symbol
from glowpy.core.tensor import Array, Tensor
from glowpy.ir.plan import Area, Slot, aligned
from glowpy.llvm.entry import GUARD_BYTES
from glowpy.runtime.host_memory import aligned_array, write_tensor
from glowpy.runtime.ports import Port
from glowpy.support.names import UniqueNames

__all__ = ["Entry", "Layout", "lay_out"]


@dataclass(frozen=True)
class Entry(Network):
    """A network with its program, on the bundle's constants."""

    program: Program


@dataclass(frozen=True)
class Layout:
    """The areas of a bundle: sizes in bytes, the elements of the constants, and their CRC-32."""

    entries: tuple[Entry, ...]
    constants: Array
    mutable_size: int
    activations_size: int

    @property
    def is_open(self) -> bool:
        """Whether any network has extents."""
        return any(entry.extents for entry in self.entries)

    @property
    def is_told(self) -> bool:
        """Whether any network has extents that it does not find."""
        return any(not extent.found for entry in self.entries for extent in entry.extents)

    @property
    def crc(self) -> int:
        """CRC-32 of the constants."""
        return zlib.crc32(self.constants.data)


def lay_out(
    bundle: str,
    programs: Mapping[str, Program],
    *,
    guard: bool,
    modules: Mapping[str, str] | None = None,
) -> Layout:
    """The layout of a bundle of this name with these networks, by the names of their entry points.

    Networks share variables that are of one module, as `modules` says of entry points.
    """
    programs = _with_shared_variables(programs, modules or {})
    macros = {f"{bundle}_{area}".upper() for area in ("constants", "mutable", "activations")}
    bounds: set[str] = set()
    slots: dict[tuple[str, str], Slot] = {}
    tensors: list[tuple[Slot, Tensor]] = []
    end = 0
    entries = []

    def place(name: str, tensor: Tensor) -> Slot:
        nonlocal end
        key = (str(tensor.type), tensor.digest())
        if key not in slots:
            slots[key] = Slot(name, end, tensor.type.room)
            tensors.append((slots[key], tensor))
            end += aligned(tensor.type.room)
        return replace(slots[key], name=name)

    for name, program in programs.items():
        places = [place(s.name, program.constants[s.name]) for s in program.plan.constant.slots]
        initial = {
            port.placeholder: place(port.placeholder, port.contents).start
            for port in program.ports.state
            if port.initial is not None
        }
        plan = replace(program.plan, constant=Area(end, tuple(places)))
        placed = replace(program, plan=plan)
        entries.append(
            Entry(
                name,
                _symbols(name, placed, macros, initial),
                _extents(name, placed, bounds),
                plan.mutable.size,
                plan.peak,
                placed,
            )
        )
    entries = [_with_constants(entry, end) for entry in entries]
    peak = max((entry.program.plan.peak for entry in entries), default=0)
    mutable = max((entry.program.plan.mutable.size for entry in entries), default=0)
    return Layout(
        tuple(entries), _filled(end, tensors), mutable, peak + (2 * GUARD_BYTES if guard else 0)
    )


def _with_constants(entry: Entry, size: int) -> Entry:
    """The network with constants in an area of this size."""
    plan = entry.program.plan
    constant = replace(plan.constant, size=size)
    return replace(entry, program=replace(entry.program, plan=replace(plan, constant=constant)))


def _filled(size: int, tensors: Sequence[tuple[Slot, Tensor]]) -> Array:
    """The constants, each in its slot."""
    constants = aligned_array(size)
    for slot, tensor in tensors:
        write_tensor(constants[slot.start : slot.end], tensor)
    return constants


def _with_shared_variables(
    programs: Mapping[str, Program], modules: Mapping[str, str]
) -> Mapping[str, Program]:
    """The programs, where those of one module have all of its variables at the same places, and all else after them."""
    members: dict[str, list[str]] = {}
    for entry in programs:
        members.setdefault(modules.get(entry, entry), []).append(entry)
    placed = dict(programs)
    for entries in members.values():
        rooms = {p.placeholder: p.memory.room for e in entries for p in programs[e].ports.state}
        if len(entries) == 1 or not rooms:
            continue
        places, end = _stacked(rooms, 0)
        for entry in entries:
            program = programs[entry]
            slots = program.plan.mutable.slots
            others, size = _stacked({s.name: s.size for s in slots if s.name not in places}, end)
            moved = [replace(s, start=(others | places)[s.name]) for s in slots]
            area = Area(size, tuple(sorted(moved, key=lambda slot: slot.start)))
            placed[entry] = replace(program, plan=replace(program.plan, mutable=area))
    return placed


def _stacked(rooms: Mapping[str, int], start: int) -> tuple[dict[str, int], int]:
    """Returns the start of each if one lies after the other, from a place on; and the end of all of them."""
    places = {}
    for name, size in rooms.items():
        places[name] = start
        start += aligned(size)
    return places, start


def _symbols(
    entry: str, program: Program, macros: set[str], initial: Mapping[str, int]
) -> tuple[Symbol, ...]:
    """Everything of a network that can be seen.

    Ports differ in more than capitals, for the header's macros are all in capitals; `macros` has what those of the
    bundle begin with, and gets those of the ports.
    """
    given = program.ports
    outputs = {port.placeholder for port in given.outputs}
    inputs = {port.placeholder for port in given.inputs}
    variables = {port.placeholder: port for port in given.state}
    ports: dict[str, Port] = {port.placeholder: port for port in (*given.inputs, *given.outputs)}
    ports |= {p.placeholder: Port(p.name, p.placeholder, p.memory) for p in given.state}
    symbols = []
    names = UniqueNames()
    for placeholder, port in ports.items():
        slot = program.plan.mutable.slot(placeholder)
        assert slot is not None
        role: Role = (
            "variable"
            if placeholder in variables
            else "inout"
            if placeholder in inputs & outputs
            else "output"
            if placeholder in outputs
            else "input"
        )
        name = names.take(port.name)
        while (macro := f"{entry}_{name}".upper()) in macros:
            name = names.take(name)
        macros.add(macro)
        variable = variables.get(placeholder)
        symbols.append(
            Symbol(
                *(name, port.name, placeholder, role, port.type, slot.start, variable),
                initial.get(placeholder),
            )
        )
    symbols.extend(
        Symbol(
            slot.name,
            slot.name,
            slot.name,
            "constant",
            program.constants[slot.name].type,
            slot.start,
        )
        for slot in program.plan.constant.slots
    )
    return tuple(symbols)


def _extents(entry: str, program: Program, macros: set[str]) -> tuple[Extent, ...]:
    """The symbols of a network; `macros` has what those for bounds begin with, and gets theirs."""
    extents = []
    names = UniqueNames()
    found = program.ir.found
    for symbol in program.ir.symbols.values():
        name = names.take(member_name(symbol.name))
        while (macro := f"{entry}_{name}".upper()) in macros:
            name = names.take(name)
        macros.add(macro)
        extents.append(Extent(name, symbol, symbol.name in found))
    return tuple(extents)
