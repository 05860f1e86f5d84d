"""Where each buffer is alive: the interval from its alloc to its dealloc, and the accesses inside it."""

from __future__ import annotations

from dataclasses import dataclass, field

from glowpy.ir.insts_gen import AllocInst, DeallocInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value

__all__ = ["Lifetime", "lifetimes"]


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
    """The lifetime of every weight and every allocated buffer; accesses through views count for the base. Linear time."""
    program = f.instructions
    found = {weight: Lifetime(-1, len(program)) for weight in f.weights.values()}
    lives: dict[Value, Lifetime] = dict(found)
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
