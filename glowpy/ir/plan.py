"""`MemoryPlan`: an offset for every buffer, in three areas, and its text.

`glowpy.memory` makes plans, `glowpy.memory_check` proves them.

```
memory @main {
  activations 2048 {
    %conv : 0..1024 live 1..4
    %zero : 1024..2048 live 3..4
  }
  mutable 1792 {
    %input : 0..768
    %out : 768..1792
  }
  constant 464 {
    %w : 0..432
  }
  registers {
    %sums
  }
}
```

- Offsets and areas are in bytes; every buffer begins at a multiple of 64.
- `live` is the interval of instructions, from the alloc to the dealloc, during which the buffer's
  bytes are its own.
- Buffers in `registers` have no memory: the loop of one run writes them and reads them. Without any it is left out.
- The peak is the size of the activations area; its lower bound is the largest sum of live bytes at
  any instruction.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from glowpy.core.tensor import ALIGNMENT
from glowpy.support.symbolic import ceil_div
from glowpy.support.text import Lexer

__all__ = ["ALIGNMENT", "Area", "MemoryPlan", "Slot", "aligned", "parse_plan", "print_plan"]


def aligned(offset: int) -> int:
    """The first offset from `offset` on at which a buffer may begin."""
    return ceil_div(offset, ALIGNMENT) * ALIGNMENT


@dataclass(frozen=True, slots=True)
class Slot:
    """Place of one buffer: bytes [start, start + size) of its area, during instructions [live[0], live[1]]."""

    name: str
    start: int
    size: int
    live: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        """The first byte after the buffer."""
        return self.start + self.size


@dataclass(frozen=True, slots=True)
class Area:
    """A block of memory and the buffers in it, sorted by start."""

    size: int
    slots: tuple[Slot, ...]

    def slot(self, name: str) -> Slot | None:
        """The buffer called `name`, or None."""
        return next((slot for slot in self.slots if slot.name == name), None)


@dataclass(frozen=True, slots=True)
class MemoryPlan:
    """The three areas of a function's memory: its own activations, the placeholders, the constants.

    `registers` are the names of the buffers that need no memory, in the order of their allocs.
    """

    name: str
    activations: Area
    mutable: Area
    constant: Area
    registers: tuple[str, ...] = ()

    @property
    def peak(self) -> int:
        """Bytes of the activation arena."""
        return self.activations.size

    @property
    def lower_bound(self) -> int:
        """The largest sum of bytes alive at one instruction: no plan can be smaller."""
        lives = [(slot.live, slot.size) for slot in self.activations.slots if slot.live]
        steps = [(start, size) for (start, _), size in lives]
        steps += [(end + 1, -size) for (_, end), size in lives]
        return max(accumulate(size for _, size in sorted(steps)), default=0)


def print_plan(plan: MemoryPlan) -> str:
    """The plan as text; `parse_plan` of it prints the same."""
    lines = [f"memory @{plan.name} {{"]
    for title, area in (
        ("activations", plan.activations),
        ("mutable", plan.mutable),
        ("constant", plan.constant),
    ):
        lines.append(f"  {title} {area.size} {{")
        for slot in area.slots:
            live = f" live {slot.live[0]}..{slot.live[1]}" if slot.live else ""
            lines.append(f"    %{slot.name} : {slot.start}..{slot.end}{live}")
        lines.append("  }")
    if plan.registers:
        lines += ["  registers {", *(f"    %{name}" for name in plan.registers), "  }"]
    return "\n".join([*lines, "}"]) + "\n"


def parse_plan(text: str, file: str = "<text>") -> MemoryPlan:
    """The plan that `text` spells. Raises UserError with line, column and caret."""
    lexer = Lexer(text, file)
    lexer.expect("memory")
    name = lexer.take("symbol")[1:]
    lexer.expect("{")
    activations, mutable, constant = (
        _read_area(lexer, title) for title in ("activations", "mutable", "constant")
    )
    registers = _read_registers(lexer)
    lexer.expect("}")
    if lexer.peek.kind != "end":
        raise lexer.error(f"unexpected '{lexer.peek.text}' after the plan")
    return MemoryPlan(name, activations, mutable, constant, registers)


def _read_area(lexer: Lexer, title: str) -> Area:
    lexer.expect(title)
    size = lexer.integer()
    slots = []
    lexer.expect("{")
    while not lexer.at("}"):
        name = lexer.take("value")[1:]
        lexer.expect(":")
        start, end = _read_range(lexer)
        live = _read_range(lexer) if lexer.accept("live") else None
        slots.append(Slot(name, start, end - start, live))
    lexer.expect("}")
    return Area(size, tuple(slots))


def _read_registers(lexer: Lexer) -> tuple[str, ...]:
    names = []
    if lexer.accept("registers"):
        lexer.expect("{")
        while not lexer.at("}"):
            names.append(lexer.take("value")[1:])
        lexer.expect("}")
    return tuple(names)


def _read_range(lexer: Lexer) -> tuple[int, int]:
    start = lexer.integer()
    lexer.expect("..")
    return start, lexer.integer()
