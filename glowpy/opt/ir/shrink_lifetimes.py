"""Shorter lives of buffers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import DeallocInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.passes import IRPass, PassContext

__all__ = ["ShrinkLifetimesPass"]


@dataclass(frozen=True)
class ShrinkLifetimesPass(IRPass):
    """Moves allocs and views to just before the first use and deallocs to just after the last.

    Buffers and views that are never used are removed.

    Before:
        %x, %out = weight f32[4] mutable
        %unused = alloc f32[4]
        %a = alloc f32[4]
        %b = alloc f32[4]
        exp @out %a, @in %x
        neg @out %b, @in %a
        exp @out %out, @in %b
        dealloc @out %a
        dealloc @out %b
        dealloc @out %unused
    After:
        %x, %out = weight f32[4] mutable
        %a = alloc f32[4]
        exp @out %a, @in %x
        %b = alloc f32[4]
        neg @out %b, @in %a
        dealloc @out %a
        exp @out %out, @in %b
        dealloc @out %b
    """

    name: ClassVar[str] = "shrink-lifetimes"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Linear time."""
        del ctx
        work = [i for i in f.instructions if not i.has(Trait.MEMORY)]
        deallocs = {i.buffer: i for i in f.instructions if isinstance(i, DeallocInst)}
        last: dict[Value, Instruction] = {}
        for inst in work:
            last.update((value.base, inst) for value in _named(inst))
        dying: dict[Instruction, list[DeallocInst]] = {}
        for buffer, inst in last.items():
            if buffer in deallocs:
                dying.setdefault(inst, []).append(deallocs[buffer])
        program: list[Instruction] = []
        defined: set[Value] = set(f.weights.values())
        for inst in work:
            for value in _named(inst):
                _make(value, defined, program)
            program += [inst, *dying.get(inst, [])]
        changed = program != f.instructions
        f.replace_instructions(program)
        return changed


def _named(inst: Instruction) -> list[Value]:
    values = [ref.value for ref in inst.operands]
    return values if inst.predicate is None else [*values, inst.predicate]


def _make(value: Value, defined: set[Value], program: list[Instruction]) -> None:
    """Appends the alloc and the views that make `value`, the innermost first."""
    chain: list[Value] = []
    inner: Value | None = value
    while inner is not None and inner not in defined:
        chain.append(inner)
        inner = inner.source
    for link in reversed(chain):
        assert link.definition is not None
        defined.add(link)
        program.append(link.definition)
