"""How rounds of a loop that a session runs follow from each other, where all that is computed in one is one network.

Beside it a round may read elements of sequences, and append to them: that takes no call of Python either.

- A sequence that no round changes, and that is read at the number of the round, is scanned as one array.
- A list that each round appends the same number of elements to is stacked, whatever extents these have.
- The last element of such a list is what the round before has appended, and its length is known for each round.
- A SequenceMap reads and appends nothing but elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.host_plan import HostPlan, Segment
from glowpy.importer.value_types import HostValue
from glowpy.rounds import Rounds, Wiring

__all__ = ["BodyWiring", "wiring_of"]

_FEW_LENGTHS = 1 << 10
"""Lengths of a list are listed for so many rounds, or as many as there were."""


@dataclass(frozen=True)
class BodyWiring:
    """The wiring of a body, and what its network reads of sequences.

    Attributes:
        wiring: What the backend is told.
        scanned: The inputs of the graph that are scanned.
        mapped: The inputs of the graph of a SequenceMap.
        elements: The sequence whose element at the number of the round a value is, by the value's name.
        latest: The place in the state of the list whose last element a value is, by the value's name.
        lengths: The place of the list whose length a value is before the round.
    """

    wiring: Wiring
    scanned: tuple[str, ...]
    mapped: tuple[str, ...]
    elements: Mapping[str, str]
    latest: Mapping[str, int]
    lengths: Mapping[str, int]

    def add_elements(self, values: dict[str, HostValue], rounds: Rounds) -> dict[str, Array] | None:
        """Adds to `values` what the next round reads of sequences; the arrays that rounds scan, by name.

        None where a sequence has no such element, or its elements differ.
        """
        stacks = dict(zip(self.scanned, rounds.scanned, strict=True))
        sequences = dict(zip(self.mapped, rounds.mapped, strict=True)) or values
        for name, sequence in self.elements.items():
            stack = rounds.stack(sequence, sequences[sequence])
            if stack is None or rounds.round >= len(stack):
                return None
            values[name] = stack[rounds.round, ...]
            stacks[name] = stack
        for name, place in self.latest.items():
            if not rounds.state[place]:
                return None
            values[name] = rounds.state[place][-1]
        growth = {place: len(names) for place, names in self.wiring.appended}
        for name, place in self.lengths.items():
            more, first = growth.get(place, 0), len(rounds.state[place])
            numbers = np.arange(rounds.round + max(rounds.round, _FEW_LENGTHS)) - rounds.round
            stacks[name] = numbers * more + first
            values[name] = stacks[name][rounds.round, ...]
        return stacks


def wiring_of(plan: HostPlan, segment: Segment, rounds: Rounds) -> BodyWiring | None:
    """The wiring of a graph whose only network is a segment; None if there is more to a round."""
    if not rounds.mapped:
        return _Wirer(plan, segment, rounds).wired()
    given = (*plan.outputs[: len(rounds.state)],)
    lists = {
        name
        for name, item in zip(plan.inputs, rounds.mapped, strict=True)
        if isinstance(item, list)
    }
    if plan.host_steps or not {*given} <= {*segment.outputs, *lists & {*segment.inputs}}:
        return None
    appended = tuple((place, (name,)) for place, name in enumerate(given))
    wiring = Wiring((), tuple(sorted(lists)), (), "", "", appended)
    return BodyWiring(wiring, (), plan.inputs, {name: name for name in lists}, {}, {})


class _Wirer:
    def __init__(self, plan: HostPlan, segment: Segment, rounds: Rounds) -> None:
        self._plan, self._segment, self._rounds = plan, segment, rounds
        self._inputs, self._results = [*plan.inputs], [*plan.outputs]
        self._number = self._truth = self._keep = ""
        if rounds.counters:
            self._number, self._truth, *self._inputs = self._inputs
            self._keep, *self._results = self._results
        self._makers = {step.outputs[0]: step for step in plan.host_steps}
        self._explained: set[int] = set()
        self._copies = dict(self._identities())

    def _identities(self) -> Iterator[tuple[str, str]]:
        for step in self._plan.host_steps:
            if step.operator == "Identity":
                self._explained.add(id(step))
                yield step.outputs[0], step.inputs[0]

    def _source(self, name: str) -> str:
        """Returns the value that a value is a copy of."""
        while name in self._copies:
            name = self._copies[name]
        return name

    def wired(self) -> BodyWiring | None:
        """Returns the wiring."""
        count = len(self._rounds.state)
        keep, segment = self._source(self._keep), self._segment
        if keep == self._truth or bool(np.all(self._plan.constants.get(keep, False))):
            keep = ""  # it never ends the loop
        carried, appended = [], {}
        pairs = zip(self._inputs, self._results[:count], strict=False)
        for place, (taken, result) in enumerate(pairs):
            given = self._source(result)
            if isinstance(self._rounds.state[place], list):
                appended[place] = self._appended(taken, given)
            elif given != taken:
                carried.append((place, taken if taken in segment.inputs else "", given))
        growing = {place: tuple(names) for place, names in appended.items() if names}
        stacked = tuple(map(self._source, self._results[count:]))
        elements, latest, lengths = self._read({p for p, names in appended.items() if names == []})
        last = {name: growing.get(place, ("",))[-1] for name, place in latest.items()}
        needed = {*stacked, *(given for _, _, given in carried), *last.values(), keep} - {""}
        names = {name for listed in growing.values() for name in listed}
        is_whole = len(self._explained) == len(self._plan.host_steps)
        if not is_whole or None in appended.values() or "" in last.values():
            return None
        if not needed <= {*segment.outputs} or not names <= {*segment.outputs, *segment.inputs}:
            return None
        if not {*segment.inputs}.isdisjoint(self._copies):
            return None
        scanned = tuple(self._inputs[count:])
        wiring = Wiring(
            tuple(carried),
            (*scanned, *elements, *lengths),
            stacked,
            self._number,
            keep,
            tuple(growing.items()),
            tuple(last.items()),
        )
        return BodyWiring(wiring, scanned, (), elements, latest, lengths)

    def _appended(self, taken: str, given: str) -> list[str] | None:
        """Returns what a round appends to a list, in order; None if it does something else to it."""
        items: list[str] = []
        while given != taken:
            step = self._makers.get(given)
            if step is None or step.operator != "SequenceInsert" or any(step.inputs[2:]):
                return None
            self._explained.add(id(step))
            given = self._source(step.inputs[0])
            items.append(self._source(step.inputs[1]))
        return items[::-1]

    def _read(self, same: set[int]) -> tuple[dict[str, str], dict[str, int], dict[str, int]]:
        """Returns the values that are elements of sequences, the last ones of lists, and lengths of lists.

        Lists at places that are the `same` after a round are sequences.
        """
        elements: dict[str, str] = {}
        latest: dict[str, int] = {}
        lengths: dict[str, int] = {}
        lists = self._inputs[: len(self._rounds.state)]
        unchanged = {*self._plan.outer, *(self._inputs[place] for place in same)}
        for step in self._plan.host_steps:
            if step.operator == "SequenceLength" and self._source(step.inputs[0]) in lists:
                lengths[step.outputs[0]] = lists.index(self._source(step.inputs[0]))
                self._explained.add(id(step))
            if step.operator != "SequenceAt":
                continue
            sequence, position = map(self._source, step.inputs)
            (name,) = step.outputs
            if sequence in unchanged and position == self._number:
                elements[name] = sequence
            elif sequence in lists and self._is_last(position):
                latest[name] = lists.index(sequence)
            else:
                continue
            self._explained.add(id(step))
        return elements, latest, lengths

    def _is_last(self, position: str) -> bool:
        number = self._plan.constants.get(position)
        return isinstance(number, np.ndarray) and number.size == 1 and number.item() == -1
