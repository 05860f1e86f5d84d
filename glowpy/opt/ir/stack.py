"""Stacking: brings data-parallel instructions together, for a backend to compile as one loop."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from glowpy.core.schema import Access, Trait
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import DeallocInst, SplatInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.passes import IRPass, PassContext

__all__ = ["LONGEST", "Run", "StackPass", "runs"]


LONGEST = 64
"""More instructions are not put in one run: LLVM takes more than linear time to compile a loop."""


def runs(f: IRFunction) -> list[list[Instruction]]:
    """Every instruction that is not about memory, in program order, in runs that may be one loop.

    A run is a head and, directly after it with no alloc, dealloc or view between, the element-wise
    instructions that `Run.admits`. An instruction that is neither element-wise nor able to run an
    epilogue is a run of its own. Linear time.
    """
    stacks: list[Run] = []
    contiguous = False
    for inst in f.instructions:
        if inst.has(Trait.MEMORY):
            contiguous = False
            continue
        if contiguous and stacks[-1].admits(inst):
            stacks[-1].add(inst)
        else:
            stacks.append(Run(inst))
        contiguous = True
    return [run.members for run in stacks]


class Run:
    """Instructions that may be computed element by element, together in one loop.

    - The head has the trait `epilogue` or `elementwise`. Other members are element-wise, and their
      results have the shape of the head's.
    - An input that the run writes is read as exactly the elements written. Behind an epilogue every
      member has at least one such input.
    - Any other input has the run's shape, has one element or broadcasts to it. Behind an epilogue it
      must have the run's shape, one element, or the last dimension only, and nothing is strided.
    - A result overwrites nothing the run has read, except element by element (in place), and nothing
      the head of an epilogue reads.

    Predicates do not count: they only say where a result matters.
    """

    def __init__(self, head: Instruction) -> None:
        self.members: list[Instruction] = []
        self._epilogue = head.has(Trait.EPILOGUE)
        self._opens = self._epilogue or head.has(Trait.ELEMENTWISE)
        self._written: dict[Value, dict[Value, None]] = {}
        self._touched: dict[Value, dict[Value, None]] = {}
        """By base; what the head of an epilogue reads or scratches is apart, in `_reserved`."""
        self._reserved: list[Value] = []
        self.add(head)

    @property
    def _result(self) -> Value:
        return next(self.members[0].writes())

    def add(self, inst: Instruction) -> None:
        """Makes `inst` the last member."""
        self.members.append(inst)
        if not self._opens:
            return
        result = self._result
        for ref in inst.operands:
            base = ref.value.base
            if ref.access.writes:
                self._written.setdefault(base, {})[ref.value] = None
            if self._epilogue and inst is self.members[0] and ref.value is not result:
                self._reserved.append(ref.value)
            else:
                self._touched.setdefault(base, {})[ref.value] = None

    def admits(self, inst: Instruction) -> bool:
        """Whether `inst` may be the next member.

        Linear in the values of the run that lie in the buffers of `inst`.
        """
        if not (self._opens and inst.has(Trait.ELEMENTWISE)) or len(self.members) >= LONGEST:
            return False
        result, shape = next(inst.writes()), self._result.type.shape
        if result.type.shape != shape:
            return False
        if self._epilogue and not all(ref.value.is_contiguous for ref in inst.operands):
            return False
        chained = False
        for value in (ref.value for ref in inst.operands if ref.access is Access.IN):
            sources = [
                source for source in self._written.get(value.base, ()) if source.overlaps(value)
            ]
            if not all(_same_elements(source, value) for source in sources):
                return False
            if not sources and not _streams(value, shape, whole=not self._epilogue):
                return False
            chained |= bool(sources)
        if self._epilogue and not chained:
            return False
        return not any(result.overlaps(value) for value in self._reserved) and all(
            _same_elements(value, result) or not result.overlaps(value)
            for value in self._touched.get(result.base, ())
        )

    def touches(self, value: Value) -> bool:
        """Whether a member reads or writes bytes of `value`."""
        near = (*self._reserved, *self._touched.get(value.base, ()))
        return any(other.overlaps(value) for other in near)


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


@dataclass(frozen=True)
class StackPass(IRPass):
    """Moves allocs, views and deallocs out of runs of data-parallel instructions.

    Allocs and views move before the run, deallocs after it. A splat between two members
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
    """One run under construction, and the instructions met after its last member."""

    def __init__(self, head: Instruction | None = None) -> None:
        self._run = Run(head) if head is not None else None
        self._above: list[Instruction] = []
        self._below: list[Instruction] = []
        self._after_run: list[Instruction] = []

    def takes(self, inst: Instruction) -> bool:
        """Takes in what may be part of this run or after it; False if `inst` begins the next."""
        if inst.has(Trait.MEMORY):
            self._after_run.append(inst)
            return True
        if self._run is None:
            return False
        if isinstance(inst, SplatInst) and not self._run.touches(inst.result):
            self._after_run.append(inst)
            return True
        if not self._run.admits(inst):
            return False
        self._above += [inst for inst in self._after_run if not isinstance(inst, DeallocInst)]
        self._below += [inst for inst in self._after_run if isinstance(inst, DeallocInst)]
        self._after_run = []
        self._run.add(inst)
        return True

    def done(self) -> Iterable[Instruction]:
        """The run in its final order."""
        members = self._run.members if self._run is not None else []
        return (*self._above, *members, *self._below, *self._after_run)
