"""Rounds of a loop that a session runs as programs for the backend: networks, and moves of elements of lists.

A graph can be one if all that the session itself computes in it are branches and operators on sequences. Names of the
graph become registers: a list is changed where it is if nothing reads any more what it was.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from glowpy.importer.host_plan import HostPlan, HostStep, Segment
from glowpy.importer.value_types import HostValue
from glowpy.rounds import Do, Rounds, RoundStep, Wiring

__all__ = ["BodyWiring", "wiring_of"]

Names = dict[str, str]
"""Registers, by the names that graphs have for them."""


@dataclass(frozen=True)
class BodyWiring:
    """The wiring of a graph, and where what a round begins with comes from.

    Attributes:
        wiring: What the backend is told.
        segments: The networks of its calls.
        constants: What registers hold in all rounds of all loops.
        outer: The values around the graph that registers hold, by their names there.
        state: The places of the state that registers hold.
        mapped: The places among the inputs of a map that registers hold.
        truth: The register that holds that the loop goes on; empty if there is none.
    """

    wiring: Wiring
    segments: tuple[Segment, ...]
    constants: Mapping[str, HostValue]
    outer: Mapping[str, str]
    state: Mapping[str, int]
    mapped: Mapping[str, int]
    truth: str

    def values(self, rounds: Rounds, outer: Mapping[str, HostValue]) -> dict[str, HostValue]:
        """Returns what registers hold when the next round begins; those that are scanned, with all their elements."""
        wiring = self.wiring
        values = {**self.constants}
        values.update({register: outer[name] for register, name in self.outer.items()})
        values.update({register: rounds.state[place] for register, place in self.state.items()})
        values.update({register: rounds.mapped[place] for register, place in self.mapped.items()})
        values.update(zip(wiring.scanned, rounds.scanned, strict=True))
        number, truth = rounds.counters or ((), ())
        values[wiring.number] = np.full(number, rounds.round, np.int64)
        values[self.truth] = np.full(truth, True)
        return values


def wiring_of(plan: HostPlan, rounds: Rounds, outer: Mapping[str, HostValue]) -> BodyWiring | None:
    """The wiring of a graph; None if it has steps that only the session computes."""
    try:
        return _Wirer(plan, rounds, outer).wired()
    except _UnfitError:
        return None


class _UnfitError(Exception):
    """There is more to a round than networks, branches and elements of lists."""


class _Wirer:
    def __init__(self, plan: HostPlan, rounds: Rounds, outer: Mapping[str, HostValue]) -> None:
        self._plan, self._rounds, self._around = plan, rounds, outer
        self._count = 0
        self._segments: list[Segment] = []
        self._constants: dict[str, HostValue] = {}
        self._outer: Names = {}
        self._state: dict[str, int] = {}
        self._mapped: dict[str, int] = {}
        self._lists: set[str] = set()
        self._changeable: set[str] = set()
        self._touched: set[str] = set()
        self._own: set[str] = set()
        """Values that a round makes: the next one may have them as state."""

    def wired(self) -> BodyWiring:
        """Returns the wiring. Raises _UnfitError where there is none."""
        plan, rounds = self._plan, self._rounds
        number, truth, keep = self._new("number"), "", ""
        inputs, results = [*plan.inputs], [*plan.outputs]
        names: Names = {}
        steps: list[RoundStep] = []
        if rounds.mapped:
            steps += self._take_elements(names, number)
        elif rounds.counters:
            truth = self._new("truth")
            names |= {inputs[0]: number, inputs[1]: truth}
            keep, *results = results
            inputs = inputs[2:]
        count = len(rounds.state)
        taken = [self._state_at(place) for place in range(count)]
        scanned: tuple[str, ...] = ()
        if not rounds.mapped:
            names |= dict(zip(inputs, taken, strict=False))
            scanned = tuple(map(self._new, inputs[count:]))
            names |= dict(zip(inputs[count:], scanned, strict=True))
        steps += self._graph((plan,), names, ())
        given = [self._register(name, names, (plan,)) for name in results]
        if not {*given[count:]}.isdisjoint(self._lists):
            raise _UnfitError
        if rounds.mapped:
            steps += [self._insert(*pair) for pair in zip(taken, given, strict=False)]
            given = taken
            self._touched.update(taken)
        carried, lists, copies = self._carried(taken, given[:count])
        kept = self._register(keep, names, (plan,)) if keep else ""
        if kept == truth or bool(np.all(self._constants.get(kept, False))):
            kept = ""  # it never ends the loop
        stacked = tuple(given[count:])
        placed = _placed([*steps, *copies])
        wiring = Wiring(placed, carried, lists, scanned, stacked, number, kept)
        segments = tuple(self._segments)
        fed = self._constants, self._outer, self._state, self._mapped
        return BodyWiring(wiring, segments, *fed, truth)

    def _new(self, name: str) -> str:
        """Returns a register for a value of a name, which may be one of several with that name."""
        self._count += 1
        return f"{self._count} {name}"

    def _new_list(self, name: str) -> str:
        register = self._new(name)
        self._lists.add(register)
        self._changeable.add(register)
        return register

    def _state_at(self, place: int) -> str:
        value = self._rounds.state[place]
        register = self._new_list("state") if isinstance(value, list) else self._new("state")
        self._state[register] = place
        return register

    def _register(self, name: str, names: Names, plans: Sequence[HostPlan]) -> str:
        """Returns where the value of a name is, which may be a constant, or be around the graph."""
        if name in names:
            return names[name]
        register = names[name] = self._new(name)
        for plan in reversed(plans):
            if name in plan.constants:
                self._constants[register] = plan.constants[name]
                return register
        self._outer[register] = name
        if isinstance(self._around[name], list):
            self._lists.add(register)
        return register

    def _take_elements(self, names: Names, number: str) -> list[RoundStep]:
        """Returns the steps by which a round of a map takes its elements of sequences."""
        steps = []
        for place, name in enumerate(self._plan.inputs):
            register = names[name] = self._new(name)
            source = register
            if isinstance(self._rounds.mapped[place], list):
                source = self._new(name)
                self._own.add(register)
                self._lists.add(source)
                steps.append(RoundStep(Do.AT, (register, source, number)))
            self._mapped[source] = place
        return steps

    def _carried(
        self, taken: Sequence[str], given: Sequence[str]
    ) -> tuple[tuple[tuple[int, str, str], ...], tuple[tuple[int, str, str], ...], list[RoundStep]]:
        """Returns what the next round has for state: values, lists, and the steps that copy some of them before."""
        carried, lists, steps = [], [], list[RoundStep]()
        used = {*taken}
        for place, (before, after) in enumerate(zip(taken, given, strict=True)):
            is_list = before in self._lists
            if is_list != (after in self._lists):
                raise _UnfitError
            source = after
            if is_list and after != before and (after in used or after not in self._changeable):
                source = self._new_list("copy")
                steps.append(RoundStep(Do.LIST, (source, after)))
            elif not is_list and after != before and after not in self._own:
                source = self._new("copy")
                steps.append(RoundStep(Do.VALUE, (source, after)))
            used.add(source)
            if is_list and (after != before or before in self._touched):
                lists.append((place, before, source))
            elif not is_list and after != before:
                carried.append((place, before, source))
        return tuple(carried), tuple(lists), steps

    # Steps.

    def _graph(
        self, plans: Sequence[HostPlan], names: Names, live: Collection[str]
    ) -> list[RoundStep]:
        """Returns the steps of the last of some graphs, which is in those before it.

        Registers that are `live` are read after it. Jumps say how many steps they go on.
        """
        plan = plans[-1]
        steps: list[RoundStep] = []
        for step, later in zip(plan.steps, _later(plan), strict=True):
            if isinstance(step, Segment):
                steps.append(self._call(step, names, plans))
                continue
            needed = {*live, *(names[name] for name in later if name in names)}
            sources = [self._register(name, names, plans) if name else "" for name in step.inputs]
            steps += self._host_step(step, sources, names, plans, needed)
        return steps

    def _call(self, segment: Segment, names: Names, plans: Sequence[HostPlan]) -> RoundStep:
        if segment.strings:
            raise _UnfitError
        taken = tuple(self._register(name, names, plans) for name in segment.inputs)
        given = tuple(map(self._new, segment.outputs))
        names.update(zip(segment.outputs, given, strict=True))
        self._own.update(given)
        self._segments.append(segment)
        ports = (*segment.inputs, *segment.outputs)
        return RoundStep(Do.CALL, taken, given, ports, len(self._segments) - 1)

    def _host_step(
        self,
        step: HostStep,
        sources: list[str],
        names: Names,
        plans: Sequence[HostPlan],
        live: Collection[str],
    ) -> list[RoundStep]:
        """Returns the steps of an operator of the session's, and adds its results to the names."""
        if step.problem is not None:
            raise _UnfitError
        result = step.outputs[0]
        first, *others = *sources, ""
        match step.operator:
            case "Identity":
                names[result] = first
                return []
            case "If":
                return self._branches(step, first, names, plans, live)
            case "SequenceAt" | "SequenceLength":
                names[result] = register = self._value(result)
                do = Do.AT if step.operator == "SequenceAt" else Do.LENGTH
                return [RoundStep(do, (register, self._list(first), *others[:-1]))]
            case "SequenceEmpty" | "SequenceConstruct":
                names[result] = register = self._new_list(result)
                items = [self._insert(register, item) for item in sources]
                return [RoundStep(Do.EMPTY, (register,)), *items]
            case "SequenceInsert":
                names[result], copies = self._changed(first, result, live)
                return [*copies, self._insert(names[result], *others[:2])]
            case "SequenceErase":
                names[result], copies = self._changed(first, result, live)
                return [*copies, RoundStep(Do.ERASE, (names[result], others[0]))]
            case _:
                raise _UnfitError

    def _value(self, name: str) -> str:
        register = self._new(name)
        self._own.add(register)
        return register

    def _list(self, register: str) -> str:
        if register not in self._lists:
            raise _UnfitError
        return register

    def _insert(self, sequence: str, item: str, position: str = "") -> RoundStep:
        if item in self._lists:
            raise _UnfitError
        return RoundStep(Do.INSERT, (sequence, item, position))

    def _changed(
        self, source: str, name: str, live: Collection[str]
    ) -> tuple[str, list[RoundStep]]:
        """Returns where a list becomes another one: in its place, or in that of a copy."""
        if self._list(source) in self._changeable and source not in live:
            self._touched.add(source)
            return source, []
        copy = self._new_list(name)
        return copy, [RoundStep(Do.LIST, (copy, source))]

    def _branches(
        self,
        step: HostStep,
        condition: str,
        names: Names,
        plans: Sequence[HostPlan],
        live: Collection[str],
    ) -> list[RoundStep]:
        """Returns the steps of two branches, and of copies of what they give to registers that both have."""
        both: list[list[RoundStep]] = []
        given: list[list[str]] = []
        for name in ("then_branch", "else_branch"):
            inner, plan = dict(names), step.bodies[name]
            both.append(self._graph((*plans, plan), inner, live))
            given.append([self._register(n, inner, (*plans, plan)) for n in plan.outputs])
        for name, *registers in zip(step.outputs, *given, strict=True):
            if registers[0] != registers[1]:
                are_lists = {register in self._lists for register in registers}
                if len(are_lists) > 1:
                    raise _UnfitError
                is_list = are_lists.pop()
                joined = self._new_list(name) if is_list else self._value(name)
                for steps, register in zip(both, registers, strict=True):
                    steps.append(RoundStep(Do.LIST if is_list else Do.VALUE, (joined, register)))
                registers[0] = joined
            names[name] = registers[0]
        taken, other = both
        if other:
            taken.append(RoundStep(Do.GOTO, (), place=len(other) + 1))
        return [RoundStep(Do.UNLESS, (condition,), place=len(taken) + 1), *taken, *other]


def _later(plan: HostPlan) -> list[set[str]]:
    """The names that are read after each step of a graph."""
    later = [{*plan.outputs}]
    for step in reversed(plan.steps[1:]):
        read = step.inputs if isinstance(step, Segment) else (*step.inputs, *step.outer)
        later.append(later[-1].union(read))
    return later[::-1][-len(plan.steps) :] if plan.steps else []


def _placed(steps: Sequence[RoundStep]) -> tuple[RoundStep, ...]:
    """Steps whose jumps say where they lead."""
    return tuple(
        replace(step, place=place + step.place) if step.do in (Do.UNLESS, Do.GOTO) else step
        for place, step in enumerate(steps)
    )
