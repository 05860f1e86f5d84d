"""In-place computation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Access, Trait
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import Events
from glowpy.ir.value import Value, WeightVar
from glowpy.passes import IRPass, PassContext

__all__ = ["ShareBuffersPass"]


@dataclass(frozen=True)
class ShareBuffersPass(IRPass):
    """Lets `inplace` instructions write over an input that nobody needs afterwards.

    The input must be of exactly the result's type. Of several such inputs the one written last is
    taken: it comes from the instruction before, with which a backend may fuse this one. Constants
    are never written, and placeholders only as results.

    Before:
        %x, %out = weight f32[4] mutable
        %a = alloc f32[4]
        exp @out %a, @in %x
        %b = alloc f32[4]
        neg @out %b, @in %a
        dealloc @out %a
        max @out %out, @in %b, @in %x
        dealloc @out %b
    After:
        %x, %out = weight f32[4] mutable
        exp @out %out, @in %x
        neg @out %out, @in %out
        max @out %out, @in %out, @in %x
    """

    name: ClassVar[str] = "share-buffers"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Visits instructions in program order. Linear but for the events of merged buffers."""
        del ctx
        events = Events(f)
        changed = False
        for index, inst in enumerate(f.instructions):
            if not inst.has(Trait.INPLACE):
                continue
            result = inst.operands[0].value
            candidates = [v for v in _dying_inputs(events, index, inst) if v.type == result.type]
            candidates.sort(key=lambda value: events.last_write(value, index))
            while candidates and not _share(events, index, candidates[-1], result):
                candidates.pop()
            changed |= bool(candidates)
        if changed:
            f.replace_instructions(events.program)
        return changed


def _dying_inputs(events: Events, index: int, inst: Instruction) -> list[Value]:
    """Inputs that are all of a buffer that dies here, and that no other input overlaps in part."""
    inputs = [ref.value for ref in inst.operands if ref.access is Access.IN]
    if inst.predicate is not None:
        inputs.append(inst.predicate)
    return [
        value
        for value in dict.fromkeys(inputs)
        if value.base in events.alloc
        and value.is_contiguous
        and value.type.size == value.base.type.size
        and events.last(value) == index
        and all(value.same_memory(other) or not value.overlaps(other) for other in inputs)
    ]


def _share(events: Events, index: int, value: Value, result: Value) -> bool:
    """Merges `value` and `result` if nothing is in the way."""
    if value.base is result.base:
        return False
    if result in events.alloc:
        if events.first(result) != index or events.used_before(result, index):
            return False
        events.merge(result, value)
        return True
    if isinstance(result, WeightVar) and value in events.alloc:
        others = events.within(result, events.first(value), index + 1)
        if any(event.index < index or event.reads for event in others):
            return False
        events.merge(value, result)
        return True
    return False
