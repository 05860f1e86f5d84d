"""Memory planning: places every buffer of a program in one arena, and proves a plan right.

`plan` chooses offsets; `check` shares no code with it. The plan itself, and its text, is
`glowpy.ir.plan`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

from glowpy.ir.insts_gen import AllocInst, DeallocInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import lifetimes
from glowpy.ir.plan import ALIGNMENT, Area, MemoryPlan, Slot, parse_plan, print_plan
from glowpy.ir.value import Value, WeightVar
from glowpy.support.errors import Diagnostic, VerifyError

__all__ = ["check", "parse_plan", "plan", "print_plan"]


def plan(f: IRFunction) -> MemoryPlan:
    """Places every buffer. Deterministic.

    Buffers are placed one by one at the lowest offset that is free during their life; this is done
    in several orders (by size, by size times length of life, by start), and the smallest result is
    kept.
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

    Walks the program with a map from byte ranges to owners: at its alloc a buffer must find its
    whole range free, at its dealloc it gives it back, and every access must find its operand owning
    its range. Raises VerifyError with every violation.
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
        place = (found.constant if weight.is_constant else found.mutable).slot(weight.name)
        if place is None or place.size != weight.type.size:
            yield f"weight %{weight.name} of {weight.type.size} bytes has no slot of that size"
    for area in (found.mutable, found.constant):
        placed = sorted(area.slots, key=lambda slot: (slot.start, slot.end))
        for before, behind in pairwise(placed):
            if behind.start < before.end:
                yield f"%{before.name} and %{behind.name} overlap"
    yield from _walk(f, {slot.name: slot for slot in found.activations.slots})


def _walk(f: IRFunction, slots: dict[str, Slot]) -> Iterator[str]:
    alive: dict[str, Slot] = {}
    for inst in f.instructions:
        if isinstance(inst, AllocInst):
            value = inst.value
            slot = slots.get(value.name)
            if slot is None or slot.size != value.type.size:
                yield f"buffer %{value.name} of {value.type.size} bytes has no slot of that size"
                continue
            for other in alive.values():
                if slot.start < other.end and other.start < slot.end:
                    mine, theirs = f"({slot.start}..{slot.end})", f"({other.start}..{other.end})"
                    yield f"%{value.name} {mine} and %{other.name} {theirs} are alive together"
            alive[value.name] = slot
        elif isinstance(inst, DeallocInst):
            alive.pop(inst.buffer.name, None)
        else:
            for ref in inst.operands:
                base = ref.value.base
                if not isinstance(base, WeightVar) and base.name not in alive:
                    yield f"{inst.SCHEMA.mnemonic} uses %{ref.value.name} while its buffer is not alive"
