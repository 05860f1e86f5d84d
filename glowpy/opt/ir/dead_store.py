"""Dead store elimination."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Access, Trait
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import InsertTensorInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.opt.boxes import Box, all_disjoint
from glowpy.passes import IRPass, PassContext

__all__ = ["DeadStorePass"]


@dataclass(frozen=True)
class DeadStorePass(IRPass):
    """Removes instructions that write only what is never read, or written over before.

    Before:
        %x, %y = weight f32[1x4] mutable
        %out = weight f32[2x4] mutable
        splat @out %out {value=0.0}
        insert_tensor @inout %out, @in %x {offsets=[0,0]}
        insert_tensor @inout %out, @in %y {offsets=[1,0]}
        %unread = alloc f32[1x4]
        exp @out %unread, @in %x
        dealloc @out %unread
    After:
        %x, %y = weight f32[1x4] mutable
        %out = weight f32[2x4] mutable
        insert_tensor @inout %out, @in %x {offsets=[0,0]}
        insert_tensor @inout %out, @in %y {offsets=[1,0]}
        %unread = alloc f32[1x4]
        dealloc @out %unread
    """

    name: ClassVar[str] = "dead-store"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """One walk from the end with the buffers whose content is needed. Linear but for `all_disjoint`."""
        del ctx
        needed: set[Value] = {w for w in f.weights.values() if not w.is_constant}
        inserts: dict[Value, _Inserts] = {}
        instructions: list[Instruction] = []
        for inst in reversed(f.instructions):
            if inst.has(Trait.MEMORY):
                instructions.append(inst)
                continue
            writes = [value.base for value in inst.writes()]
            if writes and not inst.has(Trait.SIDE_EFFECT) and needed.isdisjoint(writes):
                continue
            instructions.append(inst)
            _step(inst, needed, inserts)
        changed = len(instructions) < len(f.instructions)
        f.replace_instructions(reversed(instructions))
        return changed


class _Inserts:
    """Insertions into one buffer before it is read."""

    def __init__(self, shape: Shape) -> None:
        self._shape = shape
        self._missing = math.prod(shape)
        self._boxes: list[Box] = []

    def cover(self, inst: InsertTensorInst) -> bool:
        """Takes in one more insert; whether all so far are disjoint and cover the buffer."""
        is_whole = inst.result.is_contiguous and inst.result.type.size == inst.result.base.type.size
        if not is_whole or inst.result.type.shape != self._shape:
            self._missing = -1
        self._boxes.append((inst.offsets, inst.input.type.shape))
        self._missing -= inst.input.type.count
        if self._missing == 0 and not all_disjoint(self._boxes):
            self._missing = -1
        return self._missing == 0


def _step(inst: Instruction, needed: set[Value], inserts: dict[Value, _Inserts]) -> None:
    """Updates the values needed after `inst` to those needed before it."""
    for ref in inst.operands:
        if ref.access is Access.OUT and ref.value.type.size == ref.value.base.type.size:
            needed.discard(ref.value.base)
            inserts.pop(ref.value.base, None)
    read = list(inst.reads())
    if isinstance(inst, InsertTensorInst):
        read.remove(inst.result)
        base = inst.result.base
        parts = inserts.setdefault(base, _Inserts(inst.result.type.shape))
        if parts.cover(inst):
            needed.discard(base)
            del inserts[base]
    for value in read:
        needed.add(value.base)
        inserts.pop(value.base, None)
