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
    Portion,
    Push,
    Return,
    Slot,
    Store,
    Switch,
    TailCall,
    slots_of,
)
from glowpy.support.errors import InternalError
from glowpy.support.loc import UNKNOWN, Loc

__all__ = ["Branch", "Draft", "Give", "Hand", "Jump", "Link", "Linking", "Step", "assembled"]


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
    """The end of a draft that leads to one other."""

    to: Draft


@dataclass(frozen=True)
class Branch:
    """The end of a draft that leads to one of two."""

    condition: Operand
    held: Draft
    other: Draft
    loc: Loc


@dataclass(frozen=True)
class Give:
    """The end of a draft that gives the result of the function."""

    result: Operand
    loc: Loc


@dataclass(frozen=True)
class Hand:
    """The end of a draft whose result is that of a call. The last arguments are given by their `names`."""

    callee: Operand
    arguments: tuple[Operand, ...]
    names: tuple[str, ...]
    loc: Loc


@dataclass(eq=False)
class Draft:
    """A block to be: `block` is what it becomes."""

    block: Block
    steps: list[Step] = field(default_factory=list)
    end: Jump | Branch | Give | Hand | None = None
    parameters: tuple[str, ...] = ()
    """The parameters of a function's first block; other blocks have the variables that live on."""

    @property
    def followers(self) -> tuple[Draft, ...]:
        """The drafts it leads to."""
        match self.end:
            case Jump():
                return (self.end.to,)
            case Branch():
                return self.end.held, self.end.other
            case _:
                return ()


def _stored(step: Step) -> tuple[str, ...]:
    return step.targets if isinstance(step, Link) else (step.target,)


def _end_operands(draft: Draft) -> tuple[Operand, ...]:
    match draft.end:
        case Branch():
            return (draft.end.condition,)
        case Give():
            return (draft.end.result,)
        case Hand():
            return draft.end.callee, *draft.end.arguments
        case _:
            return ()


def _before(draft: Draft, after: Iterable[str]) -> dict[str, None]:
    """The slots that a draft, or what comes after it, reads before it stores them."""
    live = dict.fromkeys([*slots_of(_end_operands(draft)), *after])
    for step in reversed(draft.steps):
        for slot in _stored(step):
            live.pop(slot, None)
        live.update(dict.fromkeys(step.slots))
    return live


def _live(drafts: Sequence[Draft]) -> dict[Draft, dict[str, None]]:
    """The slots that live when a draft begins, for each."""
    live: dict[Draft, dict[str, None]] = {draft: {} for draft in drafts}
    changed = True
    while changed:
        changed = False
        for draft in reversed(drafts):
            after = [slot for follower in draft.followers for slot in live[follower]]
            before = _before(draft, after)
            if before.keys() != live[draft].keys():
                live[draft], changed = before, True
    return live


def _beyond(draft: Draft) -> Draft:
    """The draft that one without steps leads to."""
    passed = {draft}
    while isinstance(draft.end, Jump) and not draft.steps and draft.end.to not in passed:
        draft = draft.end.to
        passed.add(draft)
    return draft


def _reached(first: Draft) -> list[Draft]:
    """A draft and those that it leads to, past such as do nothing, in the order in which they are met."""
    reached = {first: None}
    pending = [first]
    while pending:
        draft = pending.pop()
        match draft.end:
            case Jump():
                draft.end = Jump(_beyond(draft.end.to))
            case Branch():
                held, other = _beyond(draft.end.held), _beyond(draft.end.other)
                draft.end = Branch(draft.end.condition, held, other, draft.end.loc)
            case _:
                pass
        new = [follower for follower in draft.followers if follower not in reached]
        reached.update(dict.fromkeys(new))
        pending += reversed(new)
    return list(reached)


def assembled(all_drafts: Sequence[Draft]) -> None:
    """Fills the blocks of the drafts of one function, of which the first is where it begins."""
    drafts = _reached(all_drafts[0])
    live = _live(drafts)
    for draft in drafts:
        first = draft is drafts[0]
        draft.block.parameters = draft.parameters if first else tuple(sorted(live[draft]))
    for draft in drafts:
        draft.block.instructions = [*_steps(draft, live), *_end(draft)]


def _steps(draft: Draft, live: dict[Draft, dict[str, None]]) -> Iterator[Instruction]:
    after = dict.fromkeys(slot for follower in draft.followers for slot in live[follower])
    after.update(dict.fromkeys(slots_of(_end_operands(draft))))
    groups = [list(group) for _, group in groupby(draft.steps, lambda step: isinstance(step, Link))]
    count = 0
    for place, group in enumerate(groups):
        if isinstance(group[0], Link):
            for link in group:
                assert isinstance(link, Link)
                yield from _linked(link)
            continue
        read = {slot for later in groups[place + 1 :] for step in later for slot in step.slots}
        operations = tuple([step for step in group if isinstance(step, Operation)])
        yield _portion(f"{draft.block.name}.{count}", operations, {*read, *after})
        count += 1


def _portion(name: str, operations: tuple[Operation, ...], read: set[str]) -> Portion:
    stored: dict[str, None] = {}
    inputs: dict[str, None] = {}
    for operation in operations:
        inputs.update(dict.fromkeys(slot for slot in operation.slots if slot not in stored))
        stored[operation.target] = None
    return Portion(name, operations, tuple(inputs), tuple(slot for slot in stored if slot in read))


def _linked(link: Link) -> Iterator[Instruction]:
    for operand in link.operands:
        yield Push(operand, link.loc)
    if link.instruction is not None:
        yield link.instruction
    for target in reversed(link.targets):
        yield Store(target)


def _to(draft: Draft) -> Iterator[Instruction]:
    yield Push(Literal(draft.block))
    for slot in draft.block.parameters:
        yield Push(Slot(slot), UNKNOWN)


def _end(draft: Draft) -> Iterator[Instruction]:
    match draft.end:
        case Jump():
            yield from _to(draft.end.to)
            yield TailCall(len(draft.end.to.block.parameters))
        case Branch():
            yield Push(draft.end.condition, draft.end.loc)
            for follower in draft.followers:
                yield from _to(follower)
                yield Partial(len(follower.block.parameters))
            yield Switch(draft.end.loc)
            yield TailCall(0, loc=draft.end.loc)
        case Give():
            yield Push(draft.end.result, draft.end.loc)
            yield Return()
        case Hand():
            for operand in (draft.end.callee, *draft.end.arguments):
                yield Push(operand, draft.end.loc)
            yield TailCall(len(draft.end.arguments), draft.end.names, draft.end.loc)
        case None:
            raise InternalError(f"block {draft.block.name} has no end")
