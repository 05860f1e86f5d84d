"""Sizes of a bundle: what it takes of flash and of RAM, and which instructions take it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from glowpy.backends.cpu.bundle.layout import Layout
from glowpy.backends.cpu.bundle.options import BundleOptions
from glowpy.backends.cpu.object_file import Sections
from glowpy.support.errors import UserError

__all__ = ["InstructionSize", "SizeReport", "check_budgets", "measure"]


@dataclass(frozen=True)
class InstructionSize:
    """Bytes of code of one instruction's function, and of its stack frame."""

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
        stack: The deepest chain of calls: entry point, network, instruction.
        data: Writable and zero-initialised data in the object: the self-test's memory.
        instructions: The instructions, the largest first.
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
    layout: Layout, options: BundleOptions, sections: Sections, frames: dict[str, int]
) -> SizeReport:
    """The report of a compiled bundle. `frames` has the stack frame of every function by its name."""
    weights = layout.constants.size
    rodata = sections.rodata - (weights if options.weights == "embedded" else 0)
    entries = {entry.name for entry in layout.entries}
    inner = [
        InstructionSize(name.partition(".")[2], size, frames.get(name, 0))
        for name, size in sections.functions.items()
        if name.partition(".")[0] in entries and "." in name
    ]
    shell = max(
        (frames.get(name, 0) + frames.get(f"{name}_bound", 0) for name in entries), default=0
    )
    return SizeReport(
        text=sections.text,
        rodata=max(rodata, 0),
        weights=weights,
        mutable=layout.mutable_size,
        arena=layout.activations_size,
        stack=shell + max((each.stack for each in inner), default=0),
        data=sections.data + sections.bss,
        instructions=tuple(sorted(inner, key=lambda each: (-each.text, each.name))),
    )


def check_budgets(report: SizeReport, layout: Layout, options: BundleOptions) -> None:
    """Raises UserError that names what to blame if a budget is exceeded."""
    if options.max_flash and report.flash > options.max_flash:
        largest = max(
            (
                symbol
                for entry in layout.entries
                for symbol in entry.symbols
                if symbol.role == "constant"
            ),
            key=lambda symbol: symbol.type.size,
            default=None,
        )
        blame = (
            f"constant %{largest.name} ({largest.type}) alone takes {largest.type.size}"
            if largest is not None
            else "code"
        )
        raise UserError(
            f"the bundle takes {report.flash} bytes of flash, expected at most {options.max_flash}: "
            f"text {report.text}, rodata {report.rodata}, weights {report.weights}; {blame}"
        )
    if options.max_ram and report.ram > options.max_ram:
        raise UserError(
            f"the bundle takes {report.ram} bytes of RAM, expected at most {options.max_ram}: inputs and outputs "
            f"{report.mutable}, activations {report.arena}, stack {report.stack}, data {report.data}; {_peak(layout)}"
        )


def _peak(layout: Layout) -> str:
    """The instruction at which most bytes are alive, and the buffers that are."""
    worst, where = 0, "no activations"
    for entry in layout.entries:
        slots = [slot for slot in entry.program.plan.activations.slots if slot.live]
        for index, inst in enumerate(entry.program.ir.instructions):
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
