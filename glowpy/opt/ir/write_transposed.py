"""Transpositions that need no copy, because who writes the elements does so by strides."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.strides import strides_of
from glowpy.core.type import Shape
from glowpy.ir.insts_gen import TransposeInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.ir.value import WeightVar
from glowpy.opt.moves import Moves, place, takes_fast
from glowpy.passes import IRPass, PassContext

__all__ = ["WriteTransposedPass"]


@dataclass(frozen=True)
class WriteTransposedPass(IRPass):
    """Lets the producer of a tensor write it straight to where a transposition moves its elements.

    Everything that touches the tensor must take the strides, and be no slower for them, as for `view-transpose`.

    Before:
        %x = weight f32[1x4x16x8] mutable
        %out = weight f32[1x16x4x8] mutable
        %a = alloc f32[1x4x16x8]
        softmax @out %a, @in %x {axis=3}
        transpose @out %out, @in %a {shuffle=[0,2,1,3]}
        dealloc @out %a
    After:
        %x = weight f32[1x4x16x8] mutable
        %out = weight f32[1x16x4x8] mutable
        %a = view f32[1x4x16x8], @in %out {offset=0, strides=[32,8,32,1]}
        softmax @out %a, @in %x {axis=3}
    """

    name: ClassVar[str] = "write-transposed"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every transposition once, in program order. Linear but for the events of merged buffers."""
        del ctx
        if not any(isinstance(inst, TransposeInst) for inst in f.instructions):
            return False
        events = Events(f)
        moves = Moves(events)
        changed = False
        for index, inst in enumerate(f.instructions):
            if not isinstance(inst, TransposeInst) or not _may_come_first(events, index, inst):
                continue
            move = moves.possible(
                inst.input.base,
                inst,
                inst.input.type.shape,
                inst.result,
                0,
                _places(inst),
                takes_fast,
            )
            if move is not None:
                place(f, events, index, inst, moves.enter(move))
                changed = True
        if changed:
            program = events.program
            moves.settle(program)
            f.replace_instructions(program)
        return changed


def _places(inst: TransposeInst) -> Shape:
    """How far apart in the result neighbours along each dimension of the input are."""
    steps = dict(zip(inst.shuffle, strides_of(inst.result.type.shape), strict=True))
    return tuple(steps[axis] for axis in range(len(steps)))


def _may_come_first(events: Events, index: int, inst: TransposeInst) -> bool:
    """Whether the result may hold the elements as long as the input's buffer does.

    The input is all of a buffer that nobody writes any more, and the result is nobody else's until that dies.
    """
    result, buffer = inst.result, inst.input.base
    if buffer not in events.alloc or buffer.type.size != inst.input.type.size:
        return False
    if not inst.input.is_contiguous or buffer.type.is_empty:
        return False
    if result not in events.alloc and not isinstance(result, WeightVar):
        return False
    first, last = events.first(buffer), events.last(buffer)
    if any(event.writes for event in events.between(buffer, index + 1, last + 1)):
        return False
    return not any(
        event.index < index or (event.index > index and event.writes)
        for event in events.between(result, first, last + 1)
    )
