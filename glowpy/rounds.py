"""Rounds of a loop that a session runs: where it is, and how one round follows from another in what is compiled.

A backend that can, computes many rounds in one call of machine code. Whoever runs the loop computes the others one by
one, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, Protocol

import numpy as np

from glowpy.core.tensor import Array

__all__ = ["ENDLESS", "Do", "RoundStep", "Rounds", "RunsRounds", "Wiring"]

ENDLESS = (1 << 62) - 1
"""The most rounds of a loop that has no limit."""


@dataclass
class Rounds:
    """A loop between two of its rounds.

    Attributes:
        state: The values that the next round gets from the one before it: arrays, or what else a session knows.
        scanned: The arrays that have an element along their first axis for each round.
        mapped: Sequences of which each round takes an element, and arrays that all take; only in loops that are maps.
        stacked: The results of rounds, for each value that is stacked, with one axis more that counts these.
        round: How many rounds have been.
        most: How many there are at most.
        goes_on: Whether a round has ended the loop.
        counters: The shapes in which a round takes its number and that the loop goes on; none where it takes neither.
    """

    state: list[Any]
    scanned: Sequence[Array]
    stacked: list[list[Array]]
    most: int
    counters: Sequence[tuple[int, ...]]
    round: int = 0
    goes_on: bool = True
    mapped: Sequence[Any] = ()

    @property
    def is_over(self) -> bool:
        """Whether there is no round any more."""
        return not self.goes_on or self.round >= self.most

    def inputs(self) -> list[Any]:
        """Returns the inputs of the next iteration."""
        if self.mapped:
            return [item[self.round] if isinstance(item, list) else item for item in self.mapped]
        if not self.counters:
            return [*self.state, *(array[self.round, ...] for array in self.scanned)]
        number, truth = self.counters
        return [np.full(number, self.round, np.int64), np.full(truth, True), *self.state]


class Do(IntEnum):
    """Operations of a round. The first operand is the result but for CALL and jumps."""

    CALL = 0
    """Computes a network: its number, then the values that it takes and gives."""
    AT = 1
    """Takes an element of a list at a position: value, list, position."""
    INSERT = 2
    """Puts a value into a list, at a position or at the end: list, value, position."""
    ERASE = 3
    """Takes an element out of a list, at a position or the last one: list, position."""
    LENGTH = 4
    """Counts the elements of a list: value, list."""
    EMPTY = 5
    """Leaves nothing in a list: list."""
    LIST = 6
    """Copies a list, but not its elements: list, list."""
    VALUE = 7
    """Copies a value: value, value."""
    UNLESS = 8
    """Goes on at a step unless a value is true: value, step."""
    GOTO = 9
    """Goes on at a step."""


@dataclass(frozen=True)
class RoundStep:
    """A step of a round.

    Attributes:
        do: What it does.
        operands: The names of values and lists; an empty one stands for a position that is not given.
        gives: The names of the results of a network.
        ports: What the network calls its operands, and then its results.
        place: The number of a network, or the step that a jump leads to.
    """

    do: Do
    operands: tuple[str, ...]
    gives: tuple[str, ...] = ()
    ports: tuple[str, ...] = ()
    place: int = 0


@dataclass(frozen=True)
class Wiring:
    """A round as a program over named values and lists, and how the next round follows from it.

    What no step, no state and no scan gives is the same in all rounds.

    Attributes:
        steps: The steps of a round, in order.
        carried: Values of the state that change: their place, their name in a round, and what they are after it.
        lists: Lists of the state, in the same way. What they are after a round may be the same list.
        scanned: The values that are an element of an array in each round, in order.
        stacked: The values that are stacked.
        number: The value that is the number of the round.
        keep: The value that says whether there is another round; empty where there always is.
    """

    steps: tuple[RoundStep, ...]
    carried: tuple[tuple[int, str, str], ...]
    lists: tuple[tuple[int, str, str], ...]
    scanned: tuple[str, ...]
    stacked: tuple[str, ...]
    number: str
    keep: str


class RunsRounds(Protocol):
    """Code for many rounds of a loop in one call."""

    def advance(self, rounds: Rounds, values: Mapping[str, Any]) -> bool:
        """Computes the next rounds, as many as the code is for; False if there are none.

        Args:
            rounds: Where the loop is, and then where it is.
            values: The arrays and lists that the next round begins with, by name; those that are scanned, with all
                their elements.
        """
