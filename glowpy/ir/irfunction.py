"""`IRFunction`: the weights a program works on, and its instructions in order."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

from glowpy.core.type import Type
from glowpy.ir.builder_gen import IRBuilder
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.value import Mutability, Value, WeightVar
from glowpy.support.names import UniqueNames

__all__ = ["IRFunction"]

I = TypeVar("I", bound=Instruction)  # noqa: E741 - the instruction


class IRFunction(IRBuilder):
    """A straight-line program over named memory. `create_x` methods (generated) append instructions.

    Passes replace `instructions` as a whole; a value instruction must stand before every use of its
    value.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.weights: dict[str, WeightVar] = {}
        self.instructions: list[Instruction] = []
        self.names = UniqueNames()

    def fresh_name(self, name: str) -> str:
        """A name no value has yet."""
        return self.names.take(name)

    def create_weight(self, name: str, type: Type, mutability: Mutability) -> WeightVar:
        """Declares a weight under exactly this name, which must be free."""
        weight = WeightVar(self.names.take(name), type, mutability)
        self.weights[weight.name] = weight
        return weight

    def add(self, inst: I) -> I:
        """Appends an instruction."""
        self.instructions.append(inst)
        return inst

    def replace_instructions(self, instructions: Iterable[Instruction]) -> None:
        """Makes `instructions` the program and frees the names of values that are no longer made."""
        kept = list(instructions)
        alive = {inst.value.name for inst in kept if isinstance(inst, ValueInstruction)}
        for inst in self.instructions:
            if isinstance(inst, ValueInstruction) and inst.value.name not in alive:
                self.names.release(inst.value.name)
        self.instructions = kept

    @property
    def values(self) -> list[Value]:
        """Weights, then allocated buffers and views in program order."""
        values = [inst.value for inst in self.instructions if isinstance(inst, ValueInstruction)]
        return [*self.weights.values(), *values]
