"""Cheaper instructions for results nobody reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import MaxPoolInst, MaxPoolWithArgmaxInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import lifetimes
from glowpy.ir.value import WeightVar
from glowpy.passes import IRPass, PassContext

__all__ = ["PeepholePass"]


@dataclass(frozen=True)
class PeepholePass(IRPass):
    """Replaces an instruction by a cheaper one where a result of it is never read.

    Before:
        %x = weight f32[1x4x4x8] mutable
        %out = weight f32[1x2x2x8] mutable
        %argmax = alloc i64[1x2x2x8]
        max_pool_with_argmax @out %out, @out %argmax, @in %x
            {ceil=false, dilation=[1,1], kernels=[2,2], pads=[0,0,0,0], strides=[2,2]}
        dealloc @out %argmax
    After:
        %x = weight f32[1x4x4x8] mutable
        %out = weight f32[1x2x2x8] mutable
        %argmax = alloc i64[1x2x2x8]
        max_pool @out %out, @in %x
            {ceil=false, dilation=[1,1], kernels=[2,2], pads=[0,0,0,0], strides=[2,2]}
        dealloc @out %argmax
    """

    name: ClassVar[str] = "peephole"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Linear time."""
        del ctx
        if not any(isinstance(inst, MaxPoolWithArgmaxInst) for inst in f.instructions):
            return False
        lives = lifetimes(f)
        program: list[Instruction] = []
        for inst in f.instructions:
            if isinstance(inst, MaxPoolWithArgmaxInst):
                base = inst.argmax.base
                if not isinstance(base, WeightVar) and not lives[base].reads:
                    program.append(_max_pool(inst))
                    continue
            program.append(inst)
        changed = program != f.instructions
        f.replace_instructions(program)
        return changed


def _max_pool(inst: MaxPoolWithArgmaxInst) -> MaxPoolInst:
    return MaxPoolInst(
        (inst.result, inst.input),
        inst.attrs,
        name=inst.name,
        loc=inst.loc,
        predicate=inst.predicate,
    )
