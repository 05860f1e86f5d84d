"""`IRFunction`: the weights a program works on, and its instructions in order."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

from glowpy.core.extents import (
    Extents,
    attr_at,
    dims_of_attr,
    symbols_of_attrs,
    symbols_of_types,
    type_at,
)
from glowpy.core.schema import Trait
from glowpy.core.type import Type
from glowpy.ir.builder_gen import IRBuilder
from glowpy.ir.inst import Instruction, ValueInstruction
from glowpy.ir.insts_gen import DefineInst
from glowpy.ir.run import Run
from glowpy.ir.value import Mutability, Value, WeightVar
from glowpy.support.names import UniqueNames
from glowpy.support.symbolic import Dim, Symbol, symbols_of

__all__ = ["IRFunction", "dims_needed", "symbols_needed"]

I = TypeVar("I", bound=Instruction)  # noqa: E741 - the instruction


class IRFunction(IRBuilder):
    """A straight-line program over named memory. `create_x` methods (generated) append instructions.

    Passes replace `instructions` as a whole; a value instruction must stand before every use of its
    value. After all passes, `group` says which instructions are computed together: see `runs`.

    Attributes:
        takes: The weights that callers bind, by name and in order, of a function that others call.
        gives: Those of them and others that callers read; empty for a function that no other calls.
        callees: The functions that it needs, each after those that it needs itself. Its constants are theirs, too.
    """

    def __init__(self, name: str, takes: Sequence[str] = (), gives: Sequence[str] = ()) -> None:
        self.name = name
        self.takes = tuple(takes)
        self.gives = tuple(gives)
        self.callees: dict[str, IRFunction] = {}
        self.weights: dict[str, WeightVar] = {}
        self.instructions: list[Instruction] = []
        self.names = UniqueNames()
        self._groups: tuple[Run, ...] = ()

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
        """Makes `instructions` the program, ungrouped, and frees the names of values that are no longer made."""
        replacement = list(instructions)
        alive = {inst.value.name for inst in replacement if isinstance(inst, ValueInstruction)}
        for inst in self.instructions:
            if isinstance(inst, ValueInstruction) and inst.value.name not in alive:
                self.names.release(inst.value.name)
        self.instructions = replacement
        self.group(())

    def group(self, runs: Iterable[Run]) -> None:
        """Says which instructions are computed together, in the order of the program; each of the others by itself."""
        self._groups = tuple(runs)

    @property
    def groups(self) -> tuple[Run, ...]:
        """The runs that `group` was told of, which the text shows."""
        return self._groups

    @property
    def runs(self) -> list[Run]:
        """Instructions that are computed together: each that is not about memory is in one run, in program order."""
        groups = {run.head: run for run in self._groups}
        inner = {inst for run in self._groups for inst in run.following}
        return [
            groups.get(inst) or Run.of([inst])
            for inst in self.instructions
            if not (inst.has(Trait.MEMORY) or inst in inner)
        ]

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols on which the program depends, by name: weights' first, then in program order."""
        symbols: dict[str, Symbol] = {}
        for f in (self, *self.callees.values()):
            symbols |= f.own_symbols
        return symbols

    @property
    def own_symbols(self) -> dict[str, Symbol]:
        """Symbols of the function, which names those that functions it calls depend on, but not those of others."""
        symbols = symbols_of_types(value.type for value in self.values)
        for inst in self.instructions:
            symbols |= symbols_of_attrs(inst.attrs)
        return symbols

    @property
    def definitions(self) -> dict[str, DefineInst]:
        """The symbols that the program finds while it runs, each with the first instruction that says what it is."""
        definitions: dict[str, DefineInst] = {}
        for inst in self.instructions:
            if isinstance(inst, DefineInst):
                definitions = dict.fromkeys(symbols_of(inst.symbols), inst) | definitions
        return definitions

    @property
    def found(self) -> dict[str, Symbol]:
        """The symbols that the program and what it calls find, by name."""
        return symbols_of(
            dim
            for f in (self, *self.callees.values())
            for inst in f.instructions
            if isinstance(inst, DefineInst)
            for dim in inst.symbols
        )

    def at(self, extents: Extents) -> IRFunction:
        """The program for these extents of its symbols, with values of its own; itself if it has none."""
        if not self.symbols:
            return self
        f = IRFunction(self.name, self.takes, self.gives)
        f.callees = self.callees
        values: dict[Value, Value] = {
            weight: f.create_weight(name, type_at(weight.type, extents), weight.mutability)
            for name, weight in self.weights.items()
        }
        for inst in self.instructions:
            operands = [values[ref.value] for ref in inst.operands if ref.value in values]
            attrs = {name: attr_at(value, extents) for name, value in inst.attrs.items()}
            if isinstance(inst, ValueInstruction):
                type = type_at(inst.value.type, extents)
                name = f.fresh_name(inst.value.name)
                twin = f.add(inst.__class__(operands, attrs, name=name, type=type, loc=inst.loc))
                values[inst.value] = twin.value
                continue
            predicate = None if inst.predicate is None else values[inst.predicate]
            copy = inst.__class__(operands, attrs, loc=inst.loc, predicate=predicate)
            copy.name = inst.name
            f.add(copy)
        twins = dict(zip(self.instructions, f.instructions, strict=True))
        f.group(Run(run.name, tuple(twins[inst] for inst in run.members)) for run in self._groups)
        return f

    @property
    def values(self) -> list[Value]:
        """Weights, then allocated buffers and views in program order."""
        values = [inst.value for inst in self.instructions if isinstance(inst, ValueInstruction)]
        return [*self.weights.values(), *values]


def dims_needed(inst: Instruction) -> Iterator[Dim]:
    """The dimensions that say where the elements are that an instruction works on, and what else it has to know."""
    for ref in inst.operands:
        yield from (*ref.value.type.shape, ref.value.byte_offset, *ref.value.strides)
    for attr in inst.attrs.values():
        yield from dims_of_attr(attr)


def symbols_needed(inst: Instruction) -> dict[str, Symbol]:
    """The symbols on which these depend."""
    return symbols_of(dims_needed(inst))
