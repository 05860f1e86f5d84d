"""The static memory plan: an offset for every buffer, in three areas.

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
}
```

- Offsets and areas are in bytes; every buffer begins at a multiple of 64.
- `live` is the interval of instructions, from the alloc to the dealloc, during which the buffer's bytes are its own.
- The peak is the size of the activations area; its lower bound is the largest sum of live bytes at any instruction.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import lifetimes
from glowpy.ir.value import Value, WeightVar
from glowpy.support.errors import Diagnostic, VerifyError
from glowpy.support.text import Lexer

__all__ = ["ALIGNMENT", "Area", "MemoryPlan", "Slot", "check", "parse_plan", "plan", "print_plan"]

ALIGNMENT = 64
"""Every buffer begins at a multiple of so many bytes: a cache line, and the widest vector."""


@dataclass(frozen=True, slots=True)
class Slot:
    """Where one buffer lies: bytes [start, start + size) of its area, during instructions [live[0], live[1]]."""

    name: str
    start: int
    size: int
    live: tuple[int, int] | None = None

    @property
    def end(self) -> int:
        """The first byte behind the buffer."""
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
    """The three areas of a function's memory: its own activations, the placeholders, the constants."""

    name: str
    activations: Area
    mutable: Area
    constant: Area

    @property
    def peak(self) -> int:
        """Bytes of the activation arena."""
        return self.activations.size

    @property
    def lower_bound(self) -> int:
        """The largest sum of bytes alive at one instruction: no plan can be smaller."""
        steps = sorted({slot.live[0] for slot in self.activations.slots if slot.live})
        return max(
            (
                sum(
                    s.size
                    for s in self.activations.slots
                    if s.live and s.live[0] <= at <= s.live[1]
                )
                for at in steps
            ),
            default=0,
        )


def plan(f: IRFunction) -> MemoryPlan:
    """Places every buffer. Deterministic.

    Buffers are placed one by one at the lowest offset that is free during their life; this is done in several orders (by size, by size
    times length of life, by start), and the smallest result is kept.
    """
    lives = {
        value: life for value, life in lifetimes(f).items() if not isinstance(value, WeightVar)
    }
    buffers = [
        (value.name, value.type.size, (life.start, life.end)) for value, life in lives.items()
    ]
    orders = (
        sorted(buffers, key=lambda b: (-b[1], b[2][0])),
        sorted(buffers, key=lambda b: (-b[1] * (b[2][1] - b[2][0]), b[2][0])),
        sorted(buffers, key=lambda b: (b[2][0] - b[2][1], -b[1])),
        buffers,
    )
    activations = min((_place(order) for order in orders), key=lambda area: area.size)
    constants = [w for w in f.weights.values() if w.is_constant]
    mutables = [w for w in f.weights.values() if not w.is_constant]
    return MemoryPlan(f.name, activations, _consecutive(mutables), _consecutive(constants))


def _align(offset: int) -> int:
    return -(-offset // ALIGNMENT) * ALIGNMENT


def _consecutive(values: Sequence[Value]) -> Area:
    slots, offset = [], 0
    for value in values:
        slots.append(Slot(value.name, offset, value.type.size))
        offset = _align(offset + value.type.size)
    return Area(offset, tuple(slots))


def _place(buffers: Sequence[tuple[str, int, tuple[int, int]]]) -> Area:
    """First fit: each buffer goes to the lowest gap among the buffers placed before that are alive together with it."""
    placed: list[Slot] = []
    for name, size, live in buffers:
        rivals = sorted(
            (s.start, s.end)
            for s in placed
            if s.live and s.live[0] <= live[1] and live[0] <= s.live[1]
        )
        offset = 0
        for start, end in rivals:
            if offset + size <= start:
                break
            offset = max(offset, _align(end))
        placed.append(Slot(name, offset, size, live))
    size = _align(max((slot.end for slot in placed), default=0))
    return Area(size, tuple(sorted(placed, key=lambda slot: (slot.start, slot.live))))


def check(f: IRFunction, found: MemoryPlan) -> None:
    """Proves a plan right, by code that shares nothing with `plan`.

    Walks the program with a map from byte ranges to owners: at its alloc a buffer must find its whole range free, at its dealloc it gives it
    back, and every access must find its operand owning its range. Raises VerifyError with every violation.
    """
    errors = [
        Diagnostic(message, context=f"memory @{found.name}") for message in _violations(f, found)
    ]
    if errors:
        raise VerifyError.of(errors)


def _violations(f: IRFunction, found: MemoryPlan) -> Iterator[str]:
    for title, area in (
        ("activations", found.activations),
        ("mutable", found.mutable),
        ("constant", found.constant),
    ):
        for slot in area.slots:
            if slot.start % ALIGNMENT:
                yield f"%{slot.name} begins at {slot.start}, expected a multiple of {ALIGNMENT}"
            if slot.end > area.size or slot.start < 0:
                yield f"%{slot.name} ends at {slot.end}, outside the {title} area of {area.size} bytes"
    for weight in f.weights.values():
        slot = (found.constant if weight.is_constant else found.mutable).slot(weight.name)
        if slot is None or slot.size != weight.type.size:
            yield f"weight %{weight.name} of {weight.type.size} bytes has no slot of that size"
    for area in (found.mutable, found.constant):
        for before, behind in zip(area.slots, area.slots[1:], strict=False):
            if behind.start < before.end:
                yield f"%{before.name} and %{behind.name} overlap"
    yield from _walk(f, {slot.name: slot for slot in found.activations.slots})


def _walk(f: IRFunction, slots: dict[str, Slot]) -> Iterator[str]:
    alive: dict[str, Slot] = {}
    for inst in f.instructions:
        mnemonic = inst.SCHEMA.mnemonic
        if mnemonic == "alloc":
            value: Value = inst.value  # type: ignore[attr-defined]
            slot = slots.get(value.name)
            if slot is None or slot.size != value.type.size:
                yield f"buffer %{value.name} of {value.type.size} bytes has no slot of that size"
                continue
            for other in alive.values():
                if slot.start < other.end and other.start < slot.end:
                    yield f"%{value.name} ({slot.start}..{slot.end}) and %{other.name} ({other.start}..{other.end}) are alive together"
            alive[value.name] = slot
        elif mnemonic == "dealloc":
            alive.pop(inst.operands[0].value.name, None)
        else:
            for ref in inst.operands:
                base = ref.value.base
                if not isinstance(base, WeightVar) and base.name not in alive:
                    yield f"{mnemonic} uses %{ref.value.name} while its buffer is not alive"


def print_plan(found: MemoryPlan) -> str:
    """The plan as text; `parse_plan` of it prints the same."""
    lines = [f"memory @{found.name} {{"]
    for title, area in (
        ("activations", found.activations),
        ("mutable", found.mutable),
        ("constant", found.constant),
    ):
        lines.append(f"  {title} {area.size} {{")
        for slot in area.slots:
            live = f" live {slot.live[0]}..{slot.live[1]}" if slot.live else ""
            lines.append(f"    %{slot.name} : {slot.start}..{slot.end}{live}")
        lines.append("  }")
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
    lexer.expect("}")
    if lexer.peek.kind != "end":
        raise lexer.error(f"unexpected '{lexer.peek.text}' behind the plan")
    return MemoryPlan(name, activations, mutable, constant)


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


def _read_range(lexer: Lexer) -> tuple[int, int]:
    start = lexer.integer()
    lexer.expect("..")
    return start, lexer.integer()
