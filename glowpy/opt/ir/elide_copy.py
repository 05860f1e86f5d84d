"""Copy elision and copy propagation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Trait
from glowpy.ir.insts_gen import CopyInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Event, Events
from glowpy.ir.value import WeightVar
from glowpy.passes import IRPass, PassContext

__all__ = ["ElideCopyPass"]


@dataclass(frozen=True)
class ElideCopyPass(IRPass):
    """Removes copies: the producer writes into the result, or readers of the result read the input.

    A producer that works in place may read what the result held before.

    Before:
        %x, %out = weight f32[4] mutable
        %a = alloc f32[4]
        exp @out %a, @in %x
        copy @out %out, @in %a
        dealloc @out %a
    After:
        %x, %out = weight f32[4] mutable
        exp @out %out, @in %x
    """

    name: ClassVar[str] = "elide-copy"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Tries every copy once, in program order. Linear but for the events of copied buffers."""
        del ctx
        if not any(isinstance(inst, CopyInst) for inst in f.instructions):
            return False
        events = Events(f)
        changed = False
        for index, inst in enumerate(f.instructions):
            if not isinstance(inst, CopyInst):
                continue
            if inst.result.same_memory(inst.input):
                events.forget(index, inst)
            elif _retargets(events, index, inst):
                _retarget(f, events, index, inst)
            elif _propagates(events, index, inst):
                events.forget(index, inst)
                events.merge(inst.result, inst.input)
            else:
                continue
            changed = True
        if changed:
            f.replace_instructions(events.program)
        return changed


def _retargets(events: Events, index: int, copy: CopyInst) -> bool:
    """Whether the copied buffer can be the result, a weight, from its first event on."""
    result, buffer = copy.result, copy.input.base
    if not isinstance(result, WeightVar) or buffer not in events.alloc:
        return False
    if buffer.type.size != result.type.size or not copy.input.is_contiguous:
        return False
    last = max(events.last(buffer), index)
    earlier = events.within(result, events.first(buffer), index)
    if not all(_is_in_place(events, copy, event) for event in earlier):
        return False
    later = [
        *events.within(buffer, index + 1, last + 1),
        *events.within(result, index + 1, last + 1),
    ]
    return not any(event.writes for event in later)


def _is_in_place(events: Events, copy: CopyInst, event: Event) -> bool:
    """Whether an event is that the copied buffer is made of all that the result holds, which may happen in place."""
    buffer, result = copy.input, copy.result
    if event.writes or event.index != events.first(buffer) or buffer.type != result.type:
        return False
    (inst, *others) = events.slot(event.index)
    if others or not inst.has(Trait.INPLACE) or inst.predicate is not None:
        return False
    return inst.operands[0].value is buffer and event.value.same_memory(result)


def _retarget(f: IRFunction, events: Events, index: int, copy: CopyInst) -> None:
    """Puts the result in the place of the copied buffer, which becomes a view of the weight where types differ."""
    result, buffer = copy.result, copy.input.base
    events.forget(index, copy)
    if buffer.type == result.type:
        events.merge(buffer, result)
        return
    f.names.release(buffer.name)
    view = ViewInst((result,), {"offset": 0}, name=f.fresh_name(buffer.name), type=buffer.type)
    events.stand_in(buffer, view)
    events.merge(buffer, view.value)


def _propagates(events: Events, index: int, copy: CopyInst) -> bool:
    """Whether all readers of the result, which only the copy writes, may read the input."""
    result, source = copy.result, copy.input
    if result not in events.alloc or events.is_written_elsewhere(result, index):
        return False
    if not source.is_contiguous:
        return False
    if events.used_before(result, index):
        return False
    last = events.last(result)
    return not any(event.writes for event in events.within(source, index + 1, last + 1))
