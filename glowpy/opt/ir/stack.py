"""Stacking: brings data-parallel instructions together, for a backend to compile as one loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Access, Trait
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst, DeallocInst, SplatInst, ViewInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.passes import IRPass, PassContext

__all__ = ["StackPass", "joins", "runs"]

_MEMORY = (AllocInst, DeallocInst, ViewInst)


def runs(f: IRFunction) -> list[list[Instruction]]:
    """Every instruction that is not about memory, in program order, in runs that may be one loop.

    A run is a head and, directly behind it with no alloc, dealloc or view between, the
    element-wise instructions that `joins` admits. An instruction that is neither element-wise nor
    able to run an epilogue is a run of its own.
    """
    found: list[list[Instruction]] = []
    contiguous = False
    for inst in f.instructions:
        if isinstance(inst, _MEMORY):
            contiguous = False
            continue
        if contiguous and joins(found[-1], inst):
            found[-1].append(inst)
        else:
            found.append([inst])
        contiguous = True
    return found


def joins(run: list[Instruction], inst: Instruction) -> bool:
    """Whether `inst` may be computed element by element together with `run`, which is before it.

    - The head has the trait `epilogue` or `elementwise`, `inst` is element-wise, and its result
      has the shape of the head's result.
    - An input that the run writes is read as exactly the elements written. Behind an epilogue
      there is at least one such input.
    - Any other input has the run's shape, has one element or broadcasts to it. Behind an epilogue
      it must have the run's shape, one element, or the last dimension only.
    - The result overwrites nothing the run has read, except element by element (in place), and
      nothing the head of an epilogue reads.

    Takes time linear in the length of the run, so finding a run takes quadratic time in its
    length. Predicates do not count: they only say where a result matters.
    """
    head = run[0]
    if not inst.has(Trait.ELEMENTWISE):
        return False
    if not (head.has(Trait.EPILOGUE) or head.has(Trait.ELEMENTWISE)):
        return False
    result, shape = _result(inst), _result(head).type.shape
    if result.type.shape != shape:
        return False
    written = [value for each in run for value in each.writes()]
    chained = False
    for value in _inputs(inst):
        sources = [source for source in written if source.overlaps(value)]
        if not all(_same_elements(source, value) for source in sources):
            return False
        if not sources and not _streams(value, shape, whole=not head.has(Trait.EPILOGUE)):
            return False
        chained |= bool(sources)
    if head.has(Trait.EPILOGUE) and not chained:
        return False
    return _writes_safely(run, result)


def _result(inst: Instruction) -> Value:
    return next(inst.writes())


def _inputs(inst: Instruction) -> list[Value]:
    return [ref.value for ref in inst.operands if ref.access is Access.IN]


def _same_elements(a: Value, b: Value) -> bool:
    return a.same_memory(b) and a.type.kind is b.type.kind and a.type.shape == b.type.shape


def _streams(value: Value, shape: Shape, *, whole: bool) -> bool:
    """Whether a loop over `shape` can read `value`; with `whole` any broadcast will do."""
    if value.type.shape == shape or value.type.count == 1:
        return True
    own = value.type.shape
    if whole:
        return all(
            mine in (1, theirs)
            for mine, theirs in zip(reversed(own), reversed(shape), strict=False)
        )
    return bool(own) and own[-1] == shape[-1] and value.type.count == own[-1]


def _writes_safely(run: list[Instruction], result: Value) -> bool:
    """Whether writing `result` changes nothing that earlier members, in one loop, read later."""
    head = run[0]
    for each in run:
        for ref in each.operands:
            if not result.overlaps(ref.value):
                continue
            free = each is not head or head.has(Trait.ELEMENTWISE) or ref.value is _result(head)
            if not (free and _same_elements(ref.value, result)):
                return False
    return True


@dataclass(frozen=True)
class StackPass(IRPass):
    """Moves allocs, views and deallocs out of runs of data-parallel instructions.

    Allocs and views move before the run, deallocs behind it.     A splat between two members
    moves before the run as well. This is the stacking of the Glow paper, section 5.2; a
    convolution or matrix product may head a run, and computes the rest of it as its epilogue.

    Before:
        %x, %out = weight f32[8] mutable
        %a = alloc f32[8]
        exp @out %a, @in %x
        %b = alloc f32[8]
        neg @out %b, @in %a
        dealloc @out %a
        add @out %out, @in %b, @in %x
        dealloc @out %b
    After:
        %x, %out = weight f32[8] mutable
        %a = alloc f32[8]
        %b = alloc f32[8]
        exp @out %a, @in %x
        neg @out %b, @in %a
        add @out %out, @in %b, @in %x
        dealloc @out %a
        dealloc @out %b
    """

    name: ClassVar[str] = "stack"

    def run(self, f: IRFunction, ctx: PassContext) -> bool:
        """Lays the program out run by run."""
        del ctx
        program: list[Instruction] = []
        stacked = _Layout()
        for inst in f.instructions:
            if stacked.takes(inst):
                continue
            program += stacked.done()
            stacked = _Layout(inst)
        program += stacked.done()
        changed = program != f.instructions
        f.replace_instructions(program)
        return changed


class _Layout:
    """One run under construction, and the instructions met behind its last member."""

    def __init__(self, head: Instruction | None = None) -> None:
        self._members = [head] if head is not None else []
        self._above: list[Instruction] = []
        self._below: list[Instruction] = []
        self._behind: list[Instruction] = []

    def takes(self, inst: Instruction) -> bool:
        """Takes in what may be part of this run or behind it; False if `inst` begins the next."""
        if isinstance(inst, _MEMORY):
            self._behind.append(inst)
            return True
        if not self._members:
            return False
        if isinstance(inst, SplatInst) and not self._touches(inst.result):
            self._behind.append(inst)
            return True
        if not joins(self._members, inst):
            return False
        self._above += [each for each in self._behind if not isinstance(each, DeallocInst)]
        self._below += [each for each in self._behind if isinstance(each, DeallocInst)]
        self._behind = []
        self._members.append(inst)
        return True

    def _touches(self, value: Value) -> bool:
        return any(ref.value.overlaps(value) for member in self._members for ref in member.operands)

    def done(self) -> Iterable[Instruction]:
        """The run in its final order."""
        return (*self._above, *self._members, *self._below, *self._behind)
