"""Extracts that need no copy."""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.strides import strides_of
from glowpy.core.type import Shape
from glowpy.ir.insts_gen import ExtractTensorInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.opt.moves import read_in_place
from glowpy.passes import IRPass, PassContext
from glowpy.support.symbolic import highest

__all__ = ["ViewExtractPass"]


@dataclass(frozen=True)
class ViewExtractPass(IRPass):
    """Turns the extraction of elements into a view of them.

    Where that has gaps, everything that touches the result must take strides. Elements in reverse are copied.

    Before:
        %x = weight f32[4x8] mutable
        %out = weight f32[2x8] mutable
        %a = alloc f32[2x8]
        extract_tensor @out %a, @in %x {offsets=[1,0], steps=[2,1]}
        exp @out %out, @in %a
        dealloc @out %a
    After:
        %x = weight f32[4x8] mutable
        %out = weight f32[2x8] mutable
        %a = view f32[2x8], @in %x {offset=8, strides=[16,1]}
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
            if not isinstance(inst, ExtractTensorInst):
                continue
            strides = _strides(inst)
            if strides is not None:
                changed |= read_in_place(f, events, index, inst, _offset(inst), strides)
        if changed:
            f.replace_instructions(events.program)
        return changed


def _strides(inst: ExtractTensorInst) -> Shape | None:
    """How far apart the elements are; None where some are in reverse."""
    part = inst.result.type.shape
    if 0 in part:
        return strides_of(part)
    if any(step < 1 and highest(size) > 1 for step, size in zip(inst.steps, part, strict=True)):
        return None
    return tuple(
        stride * step if highest(size) > 1 else stride
        for stride, step, size in zip(inst.input.strides, inst.steps, part, strict=True)
    )


def _offset(inst: ExtractTensorInst) -> int:
    return (
        0
        if 0 in inst.result.type.shape
        else sum(map(operator.mul, inst.offsets, inst.input.strides))
    )
