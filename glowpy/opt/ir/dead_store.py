"""Dead store elimination."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Access, Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst, DeallocInst, InsertTensorInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.opt.boxes import tiles
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
        """One walk from the end with the buffers whose content is needed. Linear but for `tiles`."""
        del ctx
        needed: set[Value] = {w for w in f.weights.values() if not w.is_constant}
        inserts: dict[Value, list[InsertTensorInst]] = {}
        kept: list[Instruction] = []
        for inst in reversed(f.instructions):
            if isinstance(inst, (AllocInst, DeallocInst, ViewInst)):
                kept.append(inst)
                continue
            writes = [value.base for value in inst.writes()]
            if writes and not inst.has(Trait.SIDE_EFFECT) and not needed.intersection(writes):
                continue
            kept.append(inst)
            _step(inst, needed, inserts)
        changed = len(kept) < len(f.instructions)
        f.replace_instructions(reversed(kept))
        return changed


def _step(
    inst: Instruction, needed: set[Value], inserts: dict[Value, list[InsertTensorInst]]
) -> None:
    """What is needed before `inst`, from what is needed behind it."""
    for ref in inst.operands:
        if ref.access is Access.OUT and ref.value.type.size == ref.value.base.type.size:
            needed.discard(ref.value.base)
            inserts.pop(ref.value.base, None)
    read = list(inst.reads())
    if isinstance(inst, InsertTensorInst):
        read.remove(inst.result)
        _insert(inst, needed, inserts)
    for value in read:
        needed.add(value.base)
        inserts.pop(value.base, None)


def _insert(
    inst: InsertTensorInst, needed: set[Value], inserts: dict[Value, list[InsertTensorInst]]
) -> None:
    """Collects inserts until they cover the buffer: then nothing before them matters."""
    base = inst.result.base
    parts = inserts.setdefault(base, [])
    parts.append(inst)
    same = all(part.result.type.shape == inst.result.type.shape for part in parts)
    whole = all(part.result.type.size == base.type.size for part in parts)
    boxes = [(part.offsets, part.input.type.shape) for part in parts]
    if same and whole and tiles(inst.result.type.shape, boxes):
        needed.discard(base)
        inserts.pop(base)
