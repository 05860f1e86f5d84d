"""Transpositions that need no copy, because who reads the elements does so by strides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.ir.insts_gen import TransposeInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.opt.moves import read_in_place, takes_fast
from glowpy.passes import IRPass, PassContext

__all__ = ["ViewTransposePass"]


@dataclass(frozen=True)
class ViewTransposePass(IRPass):
    """Turns a transposition into a view of its input.

    Everything that touches the result must take the strides, and be no slower for them: neighbours along the last
    dimension lie together, or the kernel is made for any order.

    Before:
        %x = weight f32[1x16x4x8] mutable
        %out = weight f32[1x4x16x1] mutable
        %a = alloc f32[1x4x16x8]
        transpose @out %a, @in %x {shuffle=[0,2,1,3]}
        reduce_add @out %out, @in %a {axes=[3]}
        dealloc @out %a
    After:
        %x = weight f32[1x16x4x8] mutable
        %out = weight f32[1x4x16x1] mutable
        %a = view f32[1x4x16x8], @in %x {offset=0, strides=[32,8,32,1]}
        reduce_add @out %out, @in %a {axes=[3]}
    """

    name: ClassVar[str] = "view-transpose"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every transposition once, in program order."""
        del ctx
        if not any(isinstance(inst, TransposeInst) for inst in f.instructions):
            return False
        events = Events(f)
        changed = False
        for index, inst in enumerate(f.instructions):
            if isinstance(inst, TransposeInst):
                strides = tuple(inst.input.strides[axis] for axis in inst.shuffle)
                changed |= read_in_place(f, events, index, inst, 0, strides, takes_fast)
        if changed:
            f.replace_instructions(events.program)
        return changed
