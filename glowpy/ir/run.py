"""`Run`: instructions that are computed together. A run is one launch: of a loop, or of a kernel with its epilogue.

`glowpy.ir.runs` says which instructions may be one, and puts them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import prod

from glowpy.core.schema import Trait
from glowpy.core.type import Shape
from glowpy.ir.inst import Instruction, OperandRef
from glowpy.ir.value import Value
from glowpy.support.loc import UNKNOWN, Loc

__all__ = ["Run", "computes_elements", "goes_in_order", "is_in_order"]


@dataclass(frozen=True)
class Run:
    """Consecutive instructions of a program, none of them about memory, that are computed together.

    Attributes:
        name: Names its function in machine code; several runs may have the same.
        members: The head, then the element-wise instructions that are computed with it, in order.
    """

    name: str
    members: tuple[Instruction, ...]

    @classmethod
    def of(cls, members: Sequence[Instruction]) -> Run:
        """The run of these instructions, named after the first."""
        head = members[0]
        return cls(head.name or head.SCHEMA.mnemonic, tuple(members))

    @property
    def head(self) -> Instruction:
        """The first instruction: a product, if there is one in the run."""
        return self.members[0]

    @property
    def following(self) -> tuple[Instruction, ...]:
        """The members after the head: after a product, its epilogue."""
        return self.members[1:]

    @property
    def is_loop(self) -> bool:
        """Whether several instructions are computed together, element by element."""
        return len(self.members) > 1

    @property
    def result(self) -> Value:
        """The result of its last member."""
        return self.members[-1].operands[0].value

    def operands_beside(self, registers: Iterable[str]) -> list[OperandRef]:
        """The operands of all members that are in memory, in order: all but those whose buffers are `registers`."""
        names = set(registers)
        operands = (ref for inst in self.members for ref in inst.operands)
        return [ref for ref in operands if ref.value.base.name not in names]

    @property
    def predicate(self) -> Value | None:
        """Says where the results matter: the predicate of every member."""
        return self.head.predicate

    @property
    def loc(self) -> Loc:
        """Place in the user's input that it comes from: that of its first member that has one."""
        return next((inst.loc for inst in self.members if inst.loc), UNKNOWN)

    @property
    def shape(self) -> Shape:
        """The shape of the loops: that of the members whose operands do not all go in order."""
        result = next(self.head.writes(), None)
        if result is None or not computes_elements(self.head):
            return ()
        shape = result.type.shape
        for inst in self.following:
            if not goes_in_order(inst):
                shape = next(inst.writes()).type.shape
        return shape


def computes_elements(inst: Instruction) -> bool:
    """Whether what `inst` computes is in a register before it is stored."""
    return inst.has(Trait.ELEMENTWISE) or inst.has(Trait.EPILOGUE)


def goes_in_order(inst: Instruction) -> bool:
    """Whether a loop over the result's shape takes in order what an instruction reads and writes element by element."""
    result = next(inst.writes())
    streams = [result] if inst.has(Trait.EPILOGUE) else [ref.value for ref in inst.operands]
    return all(is_in_order(value, result.type.shape) for value in streams)


def is_in_order(value: Value, shape: Shape) -> bool:
    """Whether a loop over `shape` takes the elements of `value` one after the other, or the same one always."""
    return value.type.count == 1 or (value.is_contiguous and value.type.count == prod(shape))
