"""Blocks while a function is read: steps over variables, and where they lead; `assembled` makes blocks of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import TypeAlias

from glowpy.frontends.python.code import (
    Block,
    Call,
    Change,
    Instruction,
    Item,
    Literal,
    Load,
    MakeCell,
    MakeTuple,
    Operand,
    Operation,
    Partial,
    Push,
    Return,
    Segment,
    Slot,
    Store,
    Switch,
    TailCall,
    slots_of,
)
from glowpy.support.errors import InternalError
from glowpy.support.loc import UNKNOWN, Loc

__all__ = [
    "Branch",
    "Jump",
    "Link",
    "Linking",
    "OpenBlock",
    "OpenReturn",
    "OpenTailCall",
    "Step",
    "assembled",
]


Linking: TypeAlias = Call | Change | Item | Load | MakeCell | MakeTuple | Partial
"""An instruction that may be a step of the machine."""


@dataclass(frozen=True)
class Link:
    """A step that the machine takes: pushes operands, does something with them, stores what is left on the stack.

    Without an instruction it moves values, all at once.
    """

    targets: tuple[str, ...]
    instruction: Linking | None
    operands: tuple[Operand, ...]
    loc: Loc

    @property
    def slots(self) -> Iterator[str]:
        """The slots that it reads."""
        return slots_of(self.operands)


Step: TypeAlias = Operation | Link


@dataclass(frozen=True)
class Jump:
    """The end of an open block that leads to one other."""

    to: OpenBlock


@dataclass(frozen=True)
class Branch:
    """The end of an open block that leads to one of two."""

    condition: Operand
    then: OpenBlock
    other: OpenBlock
    loc: Loc


@dataclass(frozen=True)
class OpenReturn:
    """The end of an open block that gives the result of the function."""

    result: Operand
    loc: Loc


@dataclass(frozen=True)
class OpenTailCall:
    """The end of an open block whose result is that of a call. The last arguments are given by their `names`."""

    callee: Operand
    arguments: tuple[Operand, ...]
    names: tuple[str, ...]
    loc: Loc


@dataclass(eq=False)
class OpenBlock:
    """A block to be: `block` is what it becomes."""

    block: Block
    steps: list[Step] = field(default_factory=list)
    end: Jump | Branch | OpenReturn | OpenTailCall | None = None
    parameters: tuple[str, ...] = ()
    """The parameters of a function's first block; other blocks have the variables that live on."""

    @property
    def followers(self) -> tuple[OpenBlock, ...]:
        """The open blocks it leads to."""
        match self.end:
            case Jump():
                return (self.end.to,)
            case Branch():
                return self.end.then, self.end.other
            case _:
                return ()


def _stored(step: Step) -> tuple[str, ...]:
    return step.targets if isinstance(step, Link) else (step.target,)


def _end_operands(open_block: OpenBlock) -> tuple[Operand, ...]:
    match open_block.end:
        case Branch():
            return (open_block.end.condition,)
        case OpenReturn():
            return (open_block.end.result,)
        case OpenTailCall():
            return open_block.end.callee, *open_block.end.arguments
        case _:
            return ()


def _before(open_block: OpenBlock, after: Iterable[str]) -> dict[str, None]:
    """The slots that an open block, or what comes after it, reads before it stores them."""
    live = dict.fromkeys([*slots_of(_end_operands(open_block)), *after])
    for step in reversed(open_block.steps):
        for slot in _stored(step):
            live.pop(slot, None)
        live.update(dict.fromkeys(step.slots))
    return live


def _live(open_blocks: Sequence[OpenBlock]) -> dict[OpenBlock, dict[str, None]]:
    """The slots that live when an open block begins, for each."""
    live: dict[OpenBlock, dict[str, None]] = {open_block: {} for open_block in open_blocks}
    changed = True
    while changed:
        changed = False
        for open_block in reversed(open_blocks):
            after = [slot for follower in open_block.followers for slot in live[follower]]
            before = _before(open_block, after)
            if before.keys() != live[open_block].keys():
                live[open_block], changed = before, True
    return live


def _beyond(open_block: OpenBlock) -> OpenBlock:
    """The open block that one without steps leads to."""
    passed = {open_block}
    while (
        isinstance(open_block.end, Jump)
        and not open_block.steps
        and open_block.end.to not in passed
    ):
        open_block = open_block.end.to
        passed.add(open_block)
    return open_block


def _reached(first: OpenBlock) -> list[OpenBlock]:
    """An open block and those that it leads to, past such as do nothing, in the order in which they are met."""
    reached = {first: None}
    pending = [first]
    while pending:
        open_block = pending.pop()
        match open_block.end:
            case Jump():
                open_block.end = Jump(_beyond(open_block.end.to))
            case Branch():
                then, other = _beyond(open_block.end.then), _beyond(open_block.end.other)
                open_block.end = Branch(open_block.end.condition, then, other, open_block.end.loc)
            case _:
                pass
        new = [follower for follower in open_block.followers if follower not in reached]
        reached.update(dict.fromkeys(new))
        pending += reversed(new)
    return list(reached)


def assembled(all_open_blocks: Sequence[OpenBlock]) -> None:
    """Fills the blocks of the open blocks of one function, of which the first is where it begins."""
    open_blocks = _reached(all_open_blocks[0])
    live = _live(open_blocks)
    for open_block in open_blocks:
        first = open_block is open_blocks[0]
        open_block.block.parameters = (
            open_block.parameters if first else tuple(sorted(live[open_block]))
        )
    for open_block in open_blocks:
        open_block.block.instructions = [*_steps(open_block, live), *_end(open_block)]


def _steps(open_block: OpenBlock, live: dict[OpenBlock, dict[str, None]]) -> Iterator[Instruction]:
    after = dict.fromkeys(slot for follower in open_block.followers for slot in live[follower])
    after.update(dict.fromkeys(slots_of(_end_operands(open_block))))
    groups = [
        list(group) for _, group in groupby(open_block.steps, lambda step: isinstance(step, Link))
    ]
    count = 0
    for place, group in enumerate(groups):
        if isinstance(group[0], Link):
            for link in group:
                assert isinstance(link, Link)
                yield from _linked(link)
            continue
        read = {slot for later in groups[place + 1 :] for step in later for slot in step.slots}
        operations = tuple([step for step in group if isinstance(step, Operation)])
        yield _segment(f"{open_block.block.name}.{count}", operations, {*read, *after})
        count += 1


def _segment(name: str, operations: tuple[Operation, ...], read: set[str]) -> Segment:
    stored: dict[str, None] = {}
    inputs: dict[str, None] = {}
    for operation in operations:
        inputs.update(dict.fromkeys(slot for slot in operation.slots if slot not in stored))
        stored[operation.target] = None
    return Segment(name, operations, tuple(inputs), tuple(slot for slot in stored if slot in read))


def _linked(link: Link) -> Iterator[Instruction]:
    for operand in link.operands:
        yield Push(operand, link.loc)
    if link.instruction is not None:
        yield link.instruction
    for target in reversed(link.targets):
        yield Store(target)


def _to(open_block: OpenBlock) -> Iterator[Instruction]:
    yield Push(Literal(open_block.block))
    for slot in open_block.block.parameters:
        yield Push(Slot(slot), UNKNOWN)


def _end(open_block: OpenBlock) -> Iterator[Instruction]:
    match open_block.end:
        case Jump():
            yield from _to(open_block.end.to)
            yield TailCall(len(open_block.end.to.block.parameters))
        case Branch():
            yield Push(open_block.end.condition, open_block.end.loc)
            for follower in open_block.followers:
                yield from _to(follower)
                yield Partial(len(follower.block.parameters))
            yield Switch(open_block.end.loc)
            yield TailCall(0, loc=open_block.end.loc)
        case OpenReturn():
            yield Push(open_block.end.result, open_block.end.loc)
            yield Return()
        case OpenTailCall():
            for operand in (open_block.end.callee, *open_block.end.arguments):
                yield Push(operand, open_block.end.loc)
            yield TailCall(len(open_block.end.arguments), open_block.end.names, open_block.end.loc)
        case None:
            raise InternalError(f"block {open_block.block.name} has no end")
