"""Sizes of a bundle: what it takes of flash and of RAM, and which instructions take it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from glowpy.backend import Program
from glowpy.bundling.layout import Layout
from glowpy.bundling.options import BundleOptions
from glowpy.ir.value import WeightVar
from glowpy.llvm.object_file import Sections
from glowpy.llvm.target import Target
from glowpy.support.errors import UserError

__all__ = ["InstructionSize", "SizeReport", "check_budgets", "measure"]


@dataclass(frozen=True)
class InstructionSize:
    """Bytes of code of one function, and what a call of it takes of the stack."""

    name: str
    text: int
    stack: int


@dataclass(frozen=True)
class SizeReport:
    """Everything in bytes.

    Attributes:
        text: Machine code.
        rodata: Read-only data, without weights.
        weights: The constants of all networks.
        mutable: Inputs and outputs.
        arena: The activations.
        stack: The deepest chain of calls: self-test, entry point, network, instruction, what that calls. What memcpy
            and memset use is not in it.
        data: Writable and zero-initialised data in the object.
        instructions: The instructions with a function of their own, the largest first.
    """

    text: int
    rodata: int
    weights: int
    mutable: int
    arena: int
    stack: int
    data: int
    instructions: tuple[InstructionSize, ...]

    @property
    def flash(self) -> int:
        """Code, read-only data and weights."""
        return self.text + self.rodata + self.weights

    @property
    def ram(self) -> int:
        """Inputs, outputs, activations, stack and the object's own data."""
        return self.mutable + self.arena + self.stack + self.data

    def as_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        return {**asdict(self), "flash": self.flash, "ram": self.ram}


def measure(
    layout: Layout,
    options: BundleOptions,
    target: Target,
    sections: Sections,
    depths: Mapping[str, int],
) -> SizeReport:
    """The report of a compiled bundle. `depths` has what a call of every function takes of the stack, by its name."""
    weights = layout.constants.size
    rodata = sections.rodata - (weights if options.weights == "embedded" else 0)
    entries = {entry.name for entry in layout.entries}
    inner = [
        InstructionSize(name.partition(".")[2], size, depths.get(name, 0))
        for name, size in sections.functions.items()
        if name.partition(".")[0] in entries and "." in name
    ]
    outermost = {*entries, *([f"{options.name}_selftest"] if options.selftest else [])}
    return SizeReport(
        text=sections.text,
        rodata=max(rodata, 0),
        weights=weights,
        mutable=layout.mutable_size,
        arena=layout.activations_size,
        stack=max(depths.get(name, 0) for name in outermost) + _alignment(target) * _ALIGNED_FRAMES,
        data=sections.data + sections.bss,
        instructions=tuple(
            sorted(inner, key=lambda instruction: (-instruction.text, instruction.name))
        ),
    )


_ALIGNED_FRAMES = 5
"""Frames of a chain of calls that are aligned for vectors: at most those of an instruction, of its walk, of a kernel,
of a function of tiles or patches, and of what that calls."""


def _alignment(target: Target) -> int:
    """Bytes of stack that no frame has: what it takes to align one for vectors."""
    aligned = 8 if target.variant.family in ("arm", "thumb", "thumb_soft") else 16
    return max(target.variant.vector_bytes - aligned, 0)


def check_budgets(report: SizeReport, layout: Layout, options: BundleOptions) -> None:
    """Raises UserError that names what to blame if a budget is exceeded."""
    if options.max_flash is not None and report.flash > options.max_flash:
        raise UserError(
            f"the bundle takes {report.flash} bytes of flash, expected at most {options.max_flash}: text "
            f"{report.text}, rodata {report.rodata}, weights {report.weights}; {_heaviest(report, layout)}"
        )
    if options.max_ram is not None and report.ram > options.max_ram:
        raise UserError(
            f"the bundle takes {report.ram} bytes of RAM, expected at most {options.max_ram}: inputs and outputs "
            f"{report.mutable}, activations {report.arena}, stack {report.stack}, data {report.data}; "
            f"{_hungriest(report, layout)}",
            note=f"memory is for {highest}" if (highest := _highest_extents(layout)) else "",
        )


def _highest_extents(layout: Layout) -> str:
    """Describes the extents that memory is planned for: `seq=512`; empty without symbols."""
    extents = [extent for entry in layout.entries for extent in entry.extents]
    bounds = {extent.symbol.name: extent.symbol.high for extent in extents}
    return ", ".join(f"{name}={high}" for name, high in bounds.items())


def _programs(layout: Layout) -> list[Program]:
    """All functions of all networks."""
    networks = [entry.program for entry in layout.entries]
    return [function for program in networks for function in (*program.callees, program)]


def _heaviest(report: SizeReport, layout: Layout) -> str:
    """The instruction with the most code and constants."""
    code = {instruction.name: instruction.text for instruction in report.instructions}
    most, where = 0, "no instruction has code or constants"
    for program in _programs(layout):
        for inst in program.ir.instructions:
            bases = {ref.value.base for ref in inst.operands}
            constants = [b for b in bases if isinstance(b, WeightVar) and b.is_constant]
            total = code.get(inst.name, 0) + sum(constant.type.room for constant in constants)
            if total > most:
                most = total
                largest = sorted(
                    constants, key=lambda constant: (-constant.type.room, constant.name)
                )
                parts = [f"%{constant.name} ({constant.type.room})" for constant in largest]
                if inst.name in code:
                    parts.append(f"code ({code[inst.name]})")
                where = (
                    f"{inst.SCHEMA.mnemonic} '{inst.name}' takes {total} bytes: {', '.join(parts)}"
                )
    return where


def _hungriest(report: SizeReport, layout: Layout) -> str:
    """Names what takes the most memory: the instruction with the largest frame, or a port."""
    deepest = max(report.instructions, key=lambda instruction: instruction.stack, default=None)
    if deepest is not None and deepest.stack > report.arena:
        return f"'{deepest.name}' takes most of the stack: {deepest.stack} bytes"
    if report.arena:
        return _peak(layout)
    ports = [port for entry in layout.entries for port in entry.ports]
    largest = max(ports, key=lambda port: port.type.room)
    return f"{largest.role} '{largest.original}' alone takes {largest.type.room}"


def _peak(layout: Layout) -> str:
    """The instruction at which most bytes are alive, and the buffers that are."""
    worst, where = 0, "no activations"
    for program in _programs(layout):
        slots = [slot for slot in program.plan.activations.slots if slot.live]
        for index, inst in enumerate(program.ir.instructions):
            alive = [slot for slot in slots if slot.live and slot.live[0] <= index <= slot.live[1]]
            total = sum(slot.size for slot in alive)
            if total > worst and inst.SCHEMA.mnemonic not in ("alloc", "dealloc", "view"):
                largest = sorted(alive, key=lambda slot: -slot.size)[:3]
                names = ", ".join(f"%{slot.name} ({slot.size})" for slot in largest)
                worst = total
                where = (
                    f"most is alive at {inst.SCHEMA.mnemonic} '{inst.name}': {total} bytes, {names}"
                )
    return where
