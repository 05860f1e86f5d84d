"""The machine: runs blocks, whose straight-line segments are machine code."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

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
    Partial,
    Push,
    Return,
    Segment,
    Store,
    Switch,
    TailCall,
)
from glowpy.frontends.python.segment import Runner, Trace
from glowpy.support.errors import InternalError, UserError
from glowpy.support.loc import UNKNOWN, Loc

__all__ = ["MAX_DEPTH", "Closure", "bound", "fresh", "run", "shown"]

MAX_DEPTH = 1 << 16
"""Frames that wait for a call to return: more is taken for a recursion without an end. Tail calls need none."""


@dataclass(frozen=True, eq=False)
class Closure:
    """A function of which the first arguments are given already."""

    block: Block
    arguments: tuple[Any, ...]


class _Frame:
    """A block that runs: what its slots and its stack hold, and which instruction comes next."""

    __slots__ = ("block", "next", "slots", "stack")

    def __init__(self, block: Block, arguments: Sequence[Any]) -> None:
        self.block = block
        self.slots = {
            name: argument
            for name, argument in zip(block.parameters, arguments, strict=True)
            if argument is not _NOTHING
        }
        self.stack: list[Any] = []
        self.next = 0


class _Nothing:
    """The value of an unset slot that is handed to another block: only reading it is an error."""


_NOTHING = _Nothing()


@dataclass(eq=False)
class _Cell:
    """A variable that several functions share."""

    value: Any = _NOTHING


def run(
    block: Block,
    arguments: Sequence[Any],
    runner: Callable[[Segment], Runner],
    tape: list[Trace] | None = None,
) -> Any:
    """The result of a function.

    Args:
        block: The one it begins with.
        arguments: One for each parameter: arrays, numbers, functions, tuples of such.
        runner: The runner of segments.
        tape: Segments are noted in it as they run.

    Raises UserError where a value is not what an instruction expects, with the line of the source.
    """
    frames = [_Frame(block, arguments)]
    while True:
        frame = frames[-1]
        instruction = frame.block.instructions[frame.next]
        frame.next += 1
        match instruction:
            case Segment():
                trace = runner(instruction).run(frame.slots)
                if tape is not None:
                    tape.append(trace)
            case TailCall():
                frames[-1] = _entered(frame, instruction)
            case Call():
                if len(frames) == MAX_DEPTH:
                    raise UserError(
                        f"expected a recursion of at most {MAX_DEPTH} calls", loc=instruction.loc
                    )
                frames.append(_entered(frame, instruction))
            case Return():
                result = frame.stack.pop()
                frames.pop()
                if not frames:
                    return result
                frames[-1].stack.append(result)
            case _:
                _move(frame, instruction)


def _move(frame: _Frame, instruction: Instruction) -> None:
    """Instructions that move values between slots and the stack."""
    stack = frame.stack
    match instruction:
        case Push():
            stack.append(_pushed(frame, instruction))
        case Store():
            frame.slots[instruction.slot] = stack.pop()
        case MakeTuple():
            stack.append(tuple(_popped(stack, instruction.count)))
        case Item():
            stack.append(_item(stack.pop(), instruction))
        case Partial():
            given = _popped(stack, instruction.count)
            stack.append(Closure(stack.pop(), tuple(given)))
        case MakeCell():
            stack.append(_Cell())
        case Load():
            stack.append(_loaded(stack.pop(), instruction))
        case Change():
            cell, value = _popped(stack, 2)
            cell.value = value
        case Switch():
            condition, held, other = _popped(stack, 3)
            stack.append(held if _truth(condition, instruction) else other)
        case _:
            raise InternalError(f"expected an instruction that moves values, got {instruction}")


def _pushed(frame: _Frame, push: Push) -> Any:
    if isinstance(push.operand, Literal):
        return fresh(push.operand.value)
    value = frame.slots.get(push.operand.name, _NOTHING)
    if value is _NOTHING and push.loc:
        raise UserError(f"'{push.operand}' has no value here", loc=push.loc)
    return value


def fresh(literal: Any) -> Any:
    """A literal whose arrays are copies, which the caller may change."""
    if isinstance(literal, tuple):
        return tuple([fresh(item) for item in literal])
    return literal.copy() if isinstance(literal, np.ndarray) else literal


def _loaded(cell: _Cell, load: Load) -> Any:
    if cell.value is _NOTHING:
        raise UserError(f"'{load.name}' has no value here", loc=load.loc)
    return cell.value


def _popped(stack: list[Any], count: int) -> list[Any]:
    values = stack[len(stack) - count :]
    del stack[len(stack) - count :]
    return values


def _item(value: Any, instruction: Item) -> Any:
    count = len(value) if isinstance(value, tuple) else None
    if count != instruction.count:
        got = "no tuple" if count is None else f"one of {count}"
        raise UserError(f"expected a tuple of {instruction.count}, got {got}", loc=instruction.loc)
    return value[instruction.index]


def _truth(condition: Any, instruction: Switch) -> bool:
    if not isinstance(condition, np.ndarray) or condition.size == 1:
        return bool(condition)
    got = f"a tensor of shape {condition.shape}"
    raise UserError(
        f"expected a condition of one element, got {got}",
        loc=instruction.loc,
        note="np.where chooses element by element",
    )


def _entered(frame: _Frame, call: Call | TailCall) -> _Frame:
    """The frame of what is called."""
    given = _popped(frame.stack, call.count)
    callee = frame.stack.pop()
    captured = callee.arguments if isinstance(callee, Closure) else ()
    block = callee.block if isinstance(callee, Closure) else callee
    if not isinstance(block, Block):
        raise UserError(f"expected a function to call, got {shown(callee)}", loc=call.loc)
    by_place = call.count - len(call.names)
    named = dict(zip(call.names, given[by_place:], strict=True))
    return _Frame(block, bound(block, captured, given[:by_place], named, call.loc))


def bound(
    block: Block,
    captured: Sequence[Any],
    given: Sequence[Any],
    named: Mapping[str, Any],
    loc: Loc = UNKNOWN,
) -> list[Any]:
    """Returns a function's parameters: its captured values, the arguments by place and by name, else the defaults.

    Raises UserError for arguments that do not fit.
    """
    values = [*captured, *given]
    parameters = block.parameters
    if len(values) == len(parameters) and not named:
        return values
    defaults = dict(zip(reversed(parameters), reversed(block.defaults), strict=False))
    rest = parameters[len(values) :]
    missing = [name for name in rest if name not in named and name not in defaults]
    if missing or len(values) > len(parameters) or not named.keys() <= set(rest):
        expected = ", ".join(parameters[len(captured) :]) or "no arguments"
        got = ", ".join([*map(shown, given), *named]) or "none"
        name = block.name.rpartition(".")[2]
        raise UserError(f"{name}: expected {expected}, got {got}", loc=loc)
    return values + [named[name] if name in named else fresh(defaults[name]) for name in rest]


def shown(value: Any) -> str:
    """Describes a value in messages."""
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    if isinstance(value, Block | Closure):
        return "a function"
    return "None" if value is None else type(value).__name__
