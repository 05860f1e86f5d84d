"""Decides which instructions may be one run: computed element by element, together in one loop.

`glowpy.opt.ir.stack` brings them together, and `form_runs` makes them runs of the function, once, after all passes.
Everything after that reads `IRFunction.runs`: the verifier, the memory plan and its check, code generators, tools.
See docs/adr/0036-runs.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from glowpy.core.schema import Access, Trait
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AllocInst
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.run import Run, computes_elements, goes_in_order, is_in_order
from glowpy.ir.value import Value

__all__ = ["LONGEST", "RunBuilder", "form_runs", "in_registers", "misfits"]


LONGEST = 64
"""More instructions are not put in one run: LLVM takes more than linear time to compile a loop."""


def form_runs(f: IRFunction) -> None:
    """Makes runs of instructions that may be one loop, as many and as long as the rules of `RunBuilder` allow.

    A run is a head and, directly after it with no alloc, dealloc or view between, the element-wise
    instructions that `RunBuilder.admits`, up to the last one that is settled. Every other instruction stays a run of
    its own. Linear time: what is not settled is tried once more.
    """
    runs: list[Run] = []
    start = 0
    while start < len(f.instructions):
        if f.instructions[start].has(Trait.MEMORY):
            start += 1
            continue
        builder = RunBuilder(f.instructions[start])
        end = start + 1
        while end < len(f.instructions) and builder.admits(f.instructions[end]):
            builder.add(f.instructions[end])
            end += 1
        members = builder.settled
        if len(members) > 1:
            runs.append(Run.of(members))
        start += len(members)
    f.group(runs)


def misfits(run: Run) -> list[Instruction]:
    """The members that cannot be where they are in a run, up to the first one after which nothing can be said."""
    if run.head.has(Trait.MEMORY):
        return [run.head]
    builder = RunBuilder(run.head)
    for inst in run.following:
        if not builder.admits(inst):
            return [inst]
        builder.add(inst)
    return builder.members[len(builder.settled) :]


def in_registers(f: IRFunction) -> list[Value]:
    """The buffers that only the loop of one run writes and reads, element by element: it needs no memory for them.

    In the order of their allocs. Linear time.
    """
    loops: dict[Value, int] = {}
    in_memory: set[Value] = set()
    for number, run in enumerate(f.runs):
        written: dict[Value, list[Value]] = {}
        for inst in run.members:
            in_loop = run.is_loop and computes_elements(inst)
            result = inst.operands[0].value if in_loop else None
            for value in inst.reads():
                sources = written.get(value.base, ())  # a product, at the head, has none
                if not any(_same_elements(value, source) for source in sources):
                    in_memory.add(value.base)
            in_memory.update(value.base for value in inst.writes() if value is not result)
            if result is not None:
                written.setdefault(result.base, []).append(result)
        in_memory.update(base for base in written if loops.setdefault(base, number) != number)
    buffers = [inst.value for inst in f.instructions if isinstance(inst, AllocInst)]
    return [buffer for buffer in buffers if buffer in loops and buffer not in in_memory]


class RunBuilder:
    """A run that grows: instructions that may be computed element by element, together in one loop.

    - The head has the trait `epilogue` or `elementwise`. Other members are element-wise, and their
      results have as many elements as the head's.
    - An input that the run writes is read as exactly the elements written, in the same order.
    - What follows a product and does not depend on it is a member, such as the steps of an image that is added to it,
      if a later member needs both. So members after the last one that depends on the product are not settled.
    - Shapes need not be equal where an operand's elements are taken in order: all without gaps, or one
      for all. Other operands, which broadcast or are strided, belong to one shape only, the run's `shape`;
      after a product its last dimension is that of the product's result.
    - A result overwrites nothing the run has read, except element by element (in place), and nothing
      that a product at the head reads.
    - All members have the same predicate, or none, so that a backend can skip the run as one; no member writes to it.
    """

    def __init__(self, head: Instruction) -> None:
        self.members: list[Instruction] = []
        self._is_product = head.has(Trait.EPILOGUE)
        self._opens = computes_elements(head)
        result = next(head.writes(), None)
        self.shape: Shape = result.type.shape if self._opens and result is not None else ()
        """The shape of the loops: that of the members whose operands do not all go in order."""
        self._in_order = True
        self._written: dict[Value, dict[Value, None]] = {}
        self._touched: dict[Value, dict[Value, None]] = {}
        """Values touched, by base; what a product at the head reads or scratches is apart, in `_reserved`."""
        self._reserved: list[Value] = []
        self._dependent: dict[Value, dict[Value, None]] = {}
        """Values that a product at the head writes, and those computed from them; by base."""
        self._num_settled = 0
        self.add(head)

    @property
    def settled(self) -> list[Instruction]:
        """The members that stay in the run whatever follows."""
        return self.members[: self._num_settled]

    @property
    def is_settled(self) -> bool:
        """Whether all members stay in the run."""
        return self._num_settled == len(self.members)

    def add(self, inst: Instruction) -> None:
        """Makes `inst` the last member."""
        self.members.append(inst)
        if not self._opens:
            self._num_settled = 1
            return
        is_product = self._is_product and inst is self.members[0]
        self._settle(inst, is_product)
        result = next(inst.writes())
        if not goes_in_order(inst):
            self.shape, self._in_order = result.type.shape, False
        for ref in inst.operands:
            base = ref.value.base
            if ref.access.writes:
                self._written.setdefault(base, {})[ref.value] = None
            if is_product and ref.value is not result:
                self._reserved.append(ref.value)
            else:
                self._touched.setdefault(base, {})[ref.value] = None

    def _settle(self, inst: Instruction, is_product: bool) -> None:
        """Settles all members if the last one, `inst`, depends on the head."""
        depends = is_product or any(
            source.overlaps(value)
            for value in inst.reads()
            for source in self._dependent.get(value.base, ())
        )
        if depends or not self._is_product:
            self._num_settled = len(self.members)
        if depends:
            for value in inst.writes():
                self._dependent.setdefault(value.base, {})[value] = None

    def admits(self, inst: Instruction) -> bool:
        """Whether `inst` may be the next member, if only until it turns out that nothing joins it with a product.

        Linear in the values of the run that lie in the buffers of `inst`.
        """
        if not (self._opens and inst.has(Trait.ELEMENTWISE)) or len(self.members) >= LONGEST:
            return False
        predicate, result = self.members[0].predicate, next(inst.writes())
        if inst.predicate is not predicate or (predicate and result.overlaps(predicate)):
            return False
        if not self._fits(result.type.shape, [ref.value for ref in inst.operands]):
            return False
        for value in (ref.value for ref in inst.operands if ref.access is Access.IN):
            sources = [
                source for source in self._written.get(value.base, ()) if source.overlaps(value)
            ]
            if not all(_same_elements(source, value) for source in sources):
                return False
        return not any(result.overlaps(value) for value in self._reserved) and all(
            _same_elements(value, result) or not result.overlaps(value)
            for value in self._touched.get(result.base, ())
        )

    def _fits(self, shape: Shape, operands: Sequence[Value]) -> bool:
        """Whether one loop goes over the run's operands and those of an instruction over `shape`."""
        if shape == self.shape:
            return True
        if prod(shape) != prod(self.shape):
            return False
        if all(is_in_order(value, shape) for value in operands):
            return True
        same_rows = not self._is_product or shape[-1:] == self.shape[-1:]
        return self._in_order and same_rows

    def touches(self, value: Value) -> bool:
        """Whether a member reads or writes bytes of `value`."""
        near = (*self._reserved, *self._touched.get(value.base, ()))
        return any(other.overlaps(value) for other in near)


def _same_elements(a: Value, b: Value) -> bool:
    return a.same_memory(b) and a.type.kind is b.type.kind
