"""Stacking: brings data-parallel instructions together, for a backend to compile as one loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import DeallocInst, SplatInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.runs import RunBuilder
from glowpy.passes import IRPass, PassContext

__all__ = ["StackPass"]


@dataclass(frozen=True)
class StackPass(IRPass):
    """Moves allocs, views and deallocs out of runs of data-parallel instructions.

    Allocs and views move before the run, deallocs after it. A splat between two members
    moves before the run as well. This is the stacking of the Glow paper, section 5.2; a
    convolution or matrix product may head a run, and computes the rest of it as its epilogue.

    Before:
        %x, %out = weight f32[8] mutable
        %a = alloc f32[8]
        exp @out %a, @in %x
        %b = alloc f32[8]
        neg @out %b, @in %a
        dealloc @out %a
        add @out %out, @in %b, @in %x
        dealloc @out %b
    After:
        %x, %out = weight f32[8] mutable
        %a = alloc f32[8]
        %b = alloc f32[8]
        exp @out %a, @in %x
        neg @out %b, @in %a
        add @out %out, @in %b, @in %x
        dealloc @out %a
        dealloc @out %b
    """

    name: ClassVar[str] = "stack"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Lays the program out run by run."""
        del ctx
        program: list[Instruction] = []
        start = 0
        while start < len(f.instructions):
            layout = _Layout(f.instructions[start])
            end = start + 1
            while end < len(f.instructions) and layout.takes(f.instructions[end]):
                end += 1
            program += layout.program
            start += len(layout.program)
        changed = program != f.instructions
        f.replace_instructions(program)
        return changed


class _Layout:
    """One run under construction, and the instructions met after the last member that is settled."""

    def __init__(self, head: Instruction) -> None:
        self._run = None if head.has(Trait.MEMORY) else RunBuilder(head)
        self._alone = [head]
        self._above: list[Instruction] = []
        self._below: list[Instruction] = []
        self._others: list[Instruction] = []
        """Allocs, views, splats and deallocs of which it is not known yet whether a member follows."""

    def takes(self, inst: Instruction) -> bool:
        """Takes in what may be part of this run or after it; False if `inst` ends it."""
        if self._run is None:
            return False
        if inst.has(Trait.MEMORY) or (
            isinstance(inst, SplatInst) and not self._run.touches(inst.result)
        ):
            self._others.append(inst)
            return True
        if not self._run.admits(inst):
            return False
        self._run.add(inst)
        if self._run.is_settled:
            self._above += [other for other in self._others if not isinstance(other, DeallocInst)]
            self._below += [other for other in self._others if isinstance(other, DeallocInst)]
            self._others = []
        return True

    @property
    def program(self) -> list[Instruction]:
        """The run in its final order, which is as many instructions of the old program."""
        members = self._run.settled if self._run is not None else self._alone
        return [*self._above, *members, *self._below]
