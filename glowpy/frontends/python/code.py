"""Blocks of instructions that a Python function is read into, for a machine with a stack and named slots."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from glowpy.support.loc import UNKNOWN, Loc

__all__ = [
    "Argument",
    "Block",
    "Call",
    "Change",
    "Cut",
    "Instruction",
    "Item",
    "Literal",
    "Load",
    "MakeCell",
    "MakeTuple",
    "Operand",
    "Operation",
    "Pack",
    "Partial",
    "Push",
    "Return",
    "Segment",
    "Slot",
    "Store",
    "Switch",
    "TailCall",
    "slots_of",
]


@dataclass(frozen=True)
class Slot:
    """A variable, or something computed on the way, in the frame of a block."""

    name: str

    def __str__(self) -> str:
        return self.name


@dataclass(frozen=True, eq=False)
class Literal:
    """A value that is known while reading: a number, an array, a block, a tuple of such, or None."""

    value: Any

    def __str__(self) -> str:
        if isinstance(self.value, Block):
            return f"@{self.value.name}"
        if isinstance(self.value, type):
            return self.value.__name__
        shape = getattr(self.value, "shape", None)
        return repr(self.value) if not shape else f"{self.value.dtype}{list(shape)}"


Operand: TypeAlias = Slot | Literal
"""An operand of an instruction."""


@dataclass(frozen=True)
class Pack:
    """A tuple among the operands of an operator."""

    items: tuple[Argument, ...]

    def __str__(self) -> str:
        return f"({', '.join(map(str, self.items))})"


@dataclass(frozen=True)
class Cut:
    """A slice among the places of an index: where it begins and ends, and its step."""

    items: tuple[Operand, ...]

    def __str__(self) -> str:
        return f"slice({', '.join(map(str, self.items))})"


Argument: TypeAlias = Operand | Pack | Cut
"""An operand of an operator."""


@dataclass(frozen=True)
class Operation:
    """One operator of a straight-line segment: what it stores, and what it reads.

    Attributes:
        target: The slot that it stores.
        operator: Its name, as in `operators`.
        operands: The operands it reads.
        options: Arguments that shape what is compiled, such as an axis: what they are is known before.
        loc: The line of the source.
    """

    target: str
    operator: str
    operands: tuple[Argument, ...]
    options: Mapping[str, Argument] = field(default_factory=dict)
    loc: Loc = UNKNOWN

    @property
    def slots(self) -> Iterator[str]:
        """The slots that it reads."""
        return slots_of([*self.operands, *self.options.values()])

    def __str__(self) -> str:
        options = [f"{name}={value}" for name, value in self.options.items()]
        return f"{self.target} = {self.operator}({', '.join([*map(str, self.operands), *options])})"


def slots_of(operands: Iterable[Argument]) -> Iterator[str]:
    """The slots among operands."""
    for operand in operands:
        if isinstance(operand, Pack | Cut):
            yield from slots_of(operand.items)
        elif isinstance(operand, Slot):
            yield operand.name


@dataclass(eq=False)
class Segment:
    """Runs operators, which a backend compiles as one graph.

    Attributes:
        name: The name of the graph.
        operations: In order.
        inputs: The slots it reads.
        outputs: The slots it stores that something reads afterwards.
    """

    name: str
    operations: tuple[Operation, ...]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]

    def __str__(self) -> str:
        return f"segment {self.name}({', '.join(self.inputs)}) -> {', '.join(self.outputs)}"


@dataclass(frozen=True)
class Push:
    """Pushes what a slot holds, or a literal.

    Attributes:
        operand: The operand to push.
        loc: The line that reads it; unknown for variables that live on in the next block, which need not have a value.
    """

    operand: Operand
    loc: Loc = UNKNOWN

    def __str__(self) -> str:
        return f"push {self.operand}"


@dataclass(frozen=True)
class Store:
    """Pops what a slot is to hold."""

    slot: str

    def __str__(self) -> str:
        return f"store {self.slot}"


@dataclass(frozen=True)
class MakeTuple:
    """Pops `count` values, pushes a tuple of them."""

    count: int

    def __str__(self) -> str:
        return f"tuple {self.count}"


@dataclass(frozen=True)
class Item:
    """Pops a tuple of `count` values, pushes number `index` of them."""

    index: int
    count: int
    loc: Loc = UNKNOWN

    def __str__(self) -> str:
        return f"item {self.index} of {self.count}"


@dataclass(frozen=True)
class Partial:
    """Pops a function and `count` values, pushes the function with these as its first arguments."""

    count: int

    def __str__(self) -> str:
        return f"partial {self.count}"


@dataclass(frozen=True)
class Switch:
    """Pops a condition and two values, pushes the first of them where the condition holds, else the second."""

    loc: Loc = UNKNOWN

    def __str__(self) -> str:
        return "switch"


@dataclass(frozen=True)
class MakeCell:
    """Pushes a new cell: a place for one value, which several functions share."""

    def __str__(self) -> str:
        return "cell"


@dataclass(frozen=True)
class Load:
    """Pops a cell, pushes what it holds: the value of the variable `name`."""

    name: str
    loc: Loc

    def __str__(self) -> str:
        return "load"


@dataclass(frozen=True)
class Change:
    """Pops a cell and a value, which the cell holds from now on."""

    def __str__(self) -> str:
        return "change"


@dataclass(frozen=True)
class Call:
    """Pops a function and `count` arguments, runs the function in a frame of its own, pushes its result.

    The last arguments are given by their `names`, all others by position.
    """

    count: int
    names: tuple[str, ...] = ()
    loc: Loc = UNKNOWN

    def __str__(self) -> str:
        return " ".join(["call", str(self.count), *self.names])


@dataclass(frozen=True)
class TailCall:
    """A call whose result is the caller's: the frame takes the place of the caller's."""

    count: int
    names: tuple[str, ...] = ()
    loc: Loc = UNKNOWN

    def __str__(self) -> str:
        return " ".join(["tail_call", str(self.count), *self.names])


@dataclass(frozen=True)
class Return:
    """Pops the result of the function."""

    def __str__(self) -> str:
        return "return"


Instruction: TypeAlias = (
    Segment
    | Push
    | Store
    | MakeTuple
    | Item
    | MakeCell
    | Load
    | Change
    | Partial
    | Switch
    | Call
    | TailCall
    | Return
)


@dataclass(eq=False)
class Block:
    """Instructions that run one after the other; the last one is a tail call, or returns.

    A function is the block that it begins with, and those that this one leads to: branches and loops are tail calls,
    too, with the variables that live on as arguments.

    Attributes:
        name: The function's, with the line and the part of the statement it is.
        parameters: The slots that arguments are stored in.
        instructions: In order.
        defaults: The values of the last parameters if no argument is given.
    """

    name: str
    parameters: tuple[str, ...] = ()
    instructions: list[Instruction] = field(default_factory=list)
    defaults: tuple[Any, ...] = ()

    @property
    def leads_to(self) -> list[Block]:
        """The blocks that it pushes."""
        pushed = [i.operand for i in self.instructions if isinstance(i, Push)]
        return [o.value for o in pushed if isinstance(o, Literal) and isinstance(o.value, Block)]

    def all_blocks(self) -> list[Block]:
        """This block, and all that it leads to, in the order in which they are met."""
        reached = {self: None}
        for block in _growing(reached):
            reached.update(dict.fromkeys(block.leads_to))
        return list(reached)

    def __str__(self) -> str:
        lines = [f"{self.name}({', '.join(self.parameters)}):"]
        for instruction in self.instructions:
            lines.append(f"    {instruction}")
            if isinstance(instruction, Segment):
                lines += [f"        {operation}" for operation in instruction.operations]
        return "\n".join(lines)


def _growing(blocks: Mapping[Block, None]) -> Iterator[Block]:
    """Every block, those that are added meanwhile as well."""
    done: Sequence[Block] = []
    while len(done) < len(blocks):
        new = list(blocks)[len(done) :]
        yield from new
        done = [*done, *new]
