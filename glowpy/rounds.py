"""Rounds of a loop that a session runs: where it is, and how one round follows from another in what is compiled.

A backend that can, computes many rounds in one call of machine code. Whoever runs the loop computes the others one by
one, and the bits are the same.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from glowpy.core.tensor import Array

__all__ = ["ENDLESS", "Rounds", "Wiring"]

ENDLESS = (1 << 62) - 1
"""The most rounds of a loop that has no limit."""


@dataclass
class Rounds:
    """A loop between two of its rounds.

    Attributes:
        state: The values that the next round gets from the one before it: arrays, or what else a session knows.
        scanned: The arrays that have an element along their first axis for each round.
        mapped: Sequences of which each round takes an element, and arrays that all take; only in loops that are maps.
        stacks: Sequences of which a round reads the element at its number as arrays of that kind, by name; None for
            those whose elements have several shapes or kinds.
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
    stacks: dict[str, Array | None] = field(default_factory=dict)

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

    def stack(self, name: str, items: Sequence[Array]) -> Array | None:
        """Returns a sequence, which no round changes, as one array; None if its elements differ in shape or kind."""
        if name not in self.stacks:
            is_uniform = len({(item.shape, item.dtype) for item in items}) == 1
            self.stacks[name] = np.array(items) if is_uniform else None
        return self.stacks[name]


@dataclass(frozen=True)
class Wiring:
    """How a round follows from the one before it, by the names of what compiled code takes and gives.

    Attributes:
        carried: The names of changing state: its place, its input in a round, if there is one, and its output.
        scanned: The inputs that take an element in each round, in order; empty for what no round reads.
        stacked: The outputs that are stacked.
        appended: The places of lists in the state, and what each round appends to them, in order: outputs or inputs.
        latest: Inputs that are what the round before has appended to a list, with the output that this is.
        number: The input that takes the number of the round; empty if none does.
        keep: The output that says whether there is another round; empty where there always is.
    """

    carried: tuple[tuple[int, str, str], ...]
    scanned: tuple[str, ...]
    stacked: tuple[str, ...]
    number: str
    keep: str
    appended: tuple[tuple[int, tuple[str, ...]], ...] = ()
    latest: tuple[tuple[str, str], ...] = ()
    makers: Mapping[str, str] = field(init=False, compare=False)
    """Outputs of the iteration before, by the inputs that they become."""

    def __post_init__(self) -> None:
        makers = {taken: given for _, taken, given in self.carried if taken}
        object.__setattr__(self, "makers", {**makers, **dict(self.latest)})
