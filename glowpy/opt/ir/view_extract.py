"""Extracts that need no copy."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.ir.insts_gen import ExtractTensorInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.opt.boxes import contiguous_offset
from glowpy.passes import IRPass, PassContext

__all__ = ["ViewExtractPass"]


@dataclass(frozen=True)
class ViewExtractPass(IRPass):
    """Turns the extraction of contiguous elements into a view of them.

    Before:
        %x = weight f32[4x8] mutable
        %out = weight f32[2x8] mutable
        %a = alloc f32[2x8]
        extract_tensor @out %a, @in %x {offsets=[1,0], steps=[1,1]}
        exp @out %out, @in %a
        dealloc @out %a
    After:
        %x = weight f32[4x8] mutable
        %out = weight f32[2x8] mutable
        %a = view f32[2x8], @in %x {offset=8}
        exp @out %out, @in %a
    """

    name: ClassVar[str] = "view-extract"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every extract once, in program order."""
        del ctx
        if not any(isinstance(inst, ExtractTensorInst) for inst in f.instructions):
            return False
        events = Events(f)
        changed = False
        for index, inst in enumerate(f.instructions):
            if not isinstance(inst, ExtractTensorInst) or not _stays(events, index, inst):
                continue
            offset = _offset(inst)
            if offset is None:
                continue
            result, source = inst.result, inst.input
            events.forget(index, inst)
            f.names.release(result.name)
            view = ViewInst(
                (source,),
                {"offset": offset},
                name=f.fresh_name(result.name),
                type=result.type,
                loc=inst.loc,
            )
            events.append(index, view)
            events.merge(result, view.value)
            changed = True
        if changed:
            f.replace_instructions(events.program)
        return changed


def _offset(inst: ExtractTensorInst) -> int | None:
    part, whole = inst.result.type.shape, inst.input.type.shape
    if any(step != 1 and size > 1 for step, size in zip(inst.steps, part, strict=True)):
        return None
    return contiguous_offset(whole, inst.offsets, part)


def _stays(events: Events, index: int, inst: ExtractTensorInst) -> bool:
    """Whether only this instruction writes the result, and the input stays until that dies."""
    result = inst.result
    if result not in events.alloc or events.used_before(result, index):
        return False
    if events.is_written_elsewhere(result, index):
        return False
    last = events.last(result)
    return not any(event.writes for event in events.within(inst.input, index + 1, last + 1))
