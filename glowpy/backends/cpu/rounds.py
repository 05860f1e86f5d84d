"""Many rounds of a loop in one call of machine code: libjit/src/rounds.c, and what it is told of a round."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import accumulate, chain
from typing import TYPE_CHECKING, Any, TypeAlias, final

import numpy as np

from glowpy.backends.cpu.functions import load_functions
from glowpy.backends.cpu.round_call import BYTES, RoundsCall
from glowpy.backends.cpu.round_layout import (
    TABLES,
    Block,
    Entries,
    UnfitError,
    add_network,
)
from glowpy.core.tensor import Array
from glowpy.llvm.code_image import Functions
from glowpy.rounds import Do, Rounds, RoundStep, Wiring
from glowpy.runtime.compiled import CompiledFunction

if TYPE_CHECKING:
    from glowpy.backends.cpu.jit import JitFunction
    from glowpy.backends.cpu.target import CpuTarget

__all__ = ["CpuRounds", "RunRounds", "cpu_rounds", "load_rounds"]

_POSITIONS = np.dtype(np.int64), np.dtype(np.int32)
"""The kinds of positions."""

_RUN = ctypes.CFUNCTYPE(ctypes.c_ssize_t, ctypes.c_void_p)

RunRounds: TypeAlias = Callable[[int], int]
"""Runs rounds as a context at an address says, and returns why they stop."""


def load_rounds(identity: str, target: Callable[[], CpuTarget], *, use_cache: bool) -> RunRounds:
    """The function that runs rounds, compiled if the cache does not have it: see `load_functions`."""
    functions = {"run": "{dim} (ptr)"}
    external = {"memcpy": "ptr (ptr, ptr, {dim})"}
    code = load_functions("rounds", functions, external, identity, target, use_cache=use_cache)
    function = _RUN(code.address("rounds_run"))
    return partial(_called, code, function)


def _called(code: Functions, function: Callable[[int], int], context: int) -> int:
    """Calls a function of `code`, which is an argument for the sake of whoever binds it: that keeps the code loaded."""
    del code  # the name only: the partial that `load_rounds` returns has it, and is being called
    return function(context)


def cpu_rounds(
    wiring: Wiring, networks: Sequence[Sequence[JitFunction]], load: Callable[[], RunRounds]
) -> CpuRounds | None:
    """Makes code for rounds of a wiring, with the networks of each of its calls; None where each is its own call."""
    try:
        return CpuRounds(wiring, networks, load)
    except UnfitError:
        return None


def _is_list(step: RoundStep, place: int) -> bool:
    """Whether an operand of a step is a list."""
    if step.do in (Do.INSERT, Do.ERASE, Do.EMPTY):
        return place == 0
    return step.do is Do.LIST or (place == 1 and step.do in (Do.AT, Do.LENGTH))


@final
class _Kinds:
    """Kinds of elements: values and lists that have to have the same one are a group."""

    def __init__(self) -> None:
        self._parents: dict[str, str] = {}
        self.dtypes: dict[str, np.dtype[Any]] = {}

    def group(self, name: str) -> str:
        """Returns the name that stands for the group of a value or list."""
        while name in self._parents:
            name = self._parents[name]
        return name

    def join(self, left: str, right: str) -> None:
        """Makes one group of those of two names. Raises UnfitError for two kinds."""
        group, other = self.group(left), self.group(right)
        if group != other:
            self._parents[other] = group
            if other in self.dtypes:
                self.know(group, self.dtypes.pop(other))

    def know(self, name: str, dtype: np.dtype[Any]) -> None:
        """Says the kind of a name. Raises UnfitError if it is known to be another one."""
        if self.dtypes.setdefault(self.group(name), dtype) != dtype:
            raise UnfitError


@final
class CpuRounds:
    """Runs rounds of a loop whose body is some networks. Immutable, and safe from several threads.

    Attributes:
        wiring: How rounds follow from each other.
        networks: The networks, and the places of their words.
        words: The words of the context that are known before any call.
        addresses: Which of the words are addresses, as bytes from the first word.
        starts: Where tables begin in these words.
        values: The places of values, by name.
        lists: The places of lists, by name.
        fed: The values that a call begins with.
        fed_lists: The lists that a call begins with.
        groups: The groups of kinds of values and lists, by name.
        dtypes: The kinds of groups, as far as networks say them.
        own: The places of values with memory of their own.
        inserts: Whether something is put into lists.
        are_kinds_known: Whether networks say the kinds of all groups.
    """

    def __init__(
        self,
        wiring: Wiring,
        networks: Sequence[Sequence[JitFunction]],
        load: Callable[[], RunRounds],
    ) -> None:
        """Raises UnfitError where a round has to be looked at by whoever calls."""
        self.wiring, self.load = wiring, load
        self.values: dict[str, int] = {}
        self.lists: dict[str, int] = {}
        kinds = _Kinds()
        self._name(networks, kinds)
        written = {name for step in wiring.steps for name in (*step.gives, *_result(step))}
        own = [place for name, place in self.values.items() if name in written]
        own += [self.values[name] for name in self._hidden]
        self.fed = [name for name in self.values if name not in written | self._hidden]
        self.fed_lists = [name for name in self.lists if name not in written or self.is_state(name)]
        block = Block()
        self.starts = block.add("rounds", self._tables(networks), num_done=0, goes_on=1)
        self.networks: list[tuple[JitFunction, dict[str, int]]] = []
        for index, network in enumerate(chain(*networks)):
            block.point(self.starts["networks[]"] + index, len(block.words))
            value_of = partial(self._port, self._named[index])
            image = network.image
            known = image.table, image.symbols, network.num_others
            places = add_network(block, network, value_of, *known)
            self.networks.append((network, places))
        names = {*self.values, *self.lists}
        self.groups = {name: kinds.group(name) for name in names}
        self.dtypes = kinds.dtypes
        self.own = np.array(own, np.intp)
        self.inserts = any(step.do is Do.INSERT for step in wiring.steps)
        self.are_kinds_known = {*self.groups.values()} <= self.dtypes.keys()
        if not self.has_positions(self.dtypes):
            raise UnfitError
        self.words = np.array(block.words, np.intp)
        first, width = self.starts["values[]"], TABLES["values"]
        bytes_at = first + width * np.arange(len(self.values)) + BYTES
        self.words[bytes_at] = np.array(self.sizes_of(self.dtypes), np.intp)
        self.words[self.starts["keep"]] = self.values[wiring.keep] if wiring.keep else -1
        self.addresses = np.array(block.addresses)

    def sizes_of(self, dtypes: Mapping[str, np.dtype[Any]]) -> list[int]:
        """Returns the bytes of an element of each value, with the kinds of groups; 0 for an unknown one."""
        kinds = [dtypes.get(self.groups[name]) for name in self.values]
        return [0 if dtype is None else dtype.itemsize for dtype in kinds]

    def has_positions(self, dtypes: Mapping[str, np.dtype[Any]]) -> bool:
        """Whether positions are integers that the code reads, with the kinds of groups."""
        for step in self.wiring.steps:
            place = {Do.AT: 2, Do.INSERT: 2, Do.ERASE: 1}.get(step.do, len(step.operands))
            for name in filter(None, step.operands[place : place + 1]):
                if dtypes.get(self.groups[name]) not in (*_POSITIONS, None):
                    return False
        return True

    def is_state(self, name: str) -> bool:
        """Whether the next round may find a list changed."""
        return any(name == taken for _, taken, _ in self.wiring.lists)

    def _name(self, networks: Sequence[Sequence[JitFunction]], kinds: _Kinds) -> None:
        """Gives values and lists their places, and finds out what kinds of elements they have."""
        self._named: list[dict[str, str]] = []
        self._hidden: set[str] = set()
        calls = [step for step in self.wiring.steps if step.do is Do.CALL]
        for step in sorted(calls, key=lambda step: step.place):
            names = dict(zip(step.ports, (*step.operands, *step.gives), strict=True))
            for network in networks[step.place]:
                self._named.append(dict(names))
                self._name_ports(network, kinds)
        for step in self.wiring.steps:
            self._name_operands(step)
            for left, right in _alike(step):
                kinds.join(left, right)
            for name, kind in _kinds_said(step):
                kinds.know(name, np.dtype(kind))
        self._name_ends(kinds)

    def _name_operands(self, step: RoundStep) -> None:
        """Gives what a step reads and makes places."""
        for place, name in enumerate(step.operands):
            if name:
                places = self.lists if _is_list(step, place) else self.values
                places.setdefault(name, len(places))
        for name in step.gives:
            self.values.setdefault(name, len(self.values))

    def _name_ends(self, kinds: _Kinds) -> None:
        """Gives what a round begins and ends with places."""
        wiring = self.wiring
        for _, taken, given in (*wiring.carried, *wiring.lists):
            kinds.join(taken, given)
        for _, *names in wiring.lists:
            for name in names:
                self.lists.setdefault(name, len(self.lists))
        ends = [name for _, *names in wiring.carried for name in names]
        ends += [*wiring.scanned, *wiring.stacked, wiring.number, wiring.keep]
        for name in filter(None, ends):
            self.values.setdefault(name, len(self.values))
        kinds.know(wiring.number, np.dtype(np.int64))
        if wiring.keep:
            kinds.know(wiring.keep, np.dtype(np.bool_))

    def _name_ports(self, function: CompiledFunction, kinds: _Kinds) -> None:
        """Adds what a network takes and gives; what the wiring does not name is a value of its own."""
        index = len(self._named) - 1
        taken = {port.name for port in function.input_ports}
        if not taken <= self._named[index].keys():
            raise UnfitError
        for port in (*function.input_ports, *function.output_ports):
            if port.name not in self._named[index]:
                self._named[index][port.name] = name = f"\0{index} {port.name}"
                self._hidden.add(name)
            name = self._named[index][port.name]
            self.values.setdefault(name, len(self.values))
            kinds.know(name, port.type.kind.dtype)
        if not {*function.checks} <= self._named[index].keys():
            raise UnfitError

    def _port(self, names: Mapping[str, str], name: str) -> int:
        """Returns the place of the value that a port is."""
        return self.values[names[name]]

    def _tables(self, networks: Sequence[Sequence[JitFunction]]) -> dict[str, Entries]:
        """Returns the tables of the context. A value is a scalar until something says otherwise."""
        wiring, values, lists = self.wiring, self.values, self.lists
        changes = sum(step.do in (Do.INSERT, Do.ERASE) for step in wiring.steps)
        swapped: Entries = [(lists[t], lists[g]) for _, t, g in wiring.lists if t != g]
        counts = [*map(len, networks)]
        firsts = [0, *accumulate(counts)]
        steps: Entries = []
        for step in wiring.steps:
            places = [
                -1 if not name else lists[name] if _is_list(step, place) else values[name]
                for place, name in enumerate(step.operands)
            ]
            if step.do is Do.CALL:
                places = [firsts[step.place], counts[step.place], 0]
            elif step.do in (Do.UNLESS, Do.GOTO):
                places = [places[0] if places else -1, step.place]
            steps.append((step.do, *places, *[-1] * (3 - len(places))))
        return {
            "networks": [(0,)] * sum(counts),
            "values": [(0,) * TABLES["values"]] * len(values),
            "lists": [(0,) * TABLES["lists"]] * len(lists),
            "steps": steps,
            "carried": [(values[taken], values[given]) for _, taken, given in wiring.carried],
            "swapped": swapped,
            "scanned": [(values[name], 0) for name in wiring.scanned],
            "stacks": [(0, values[name], 0, 0, 0, -1, *[0] * 8) for name in wiring.stacked],
            "done": [(0,) * TABLES["done"]] * changes,
            "number": [(0,), (0,)],  # an int64: two words where a word has four bytes
        }

    def advance(self, rounds: Rounds, values: Mapping[str, Any]) -> bool:
        """Runs the next rounds, as many as this code is for; False if there are none.

        Args:
            rounds: Where the loop is, and then where it is.
            values: The arrays and lists that the next round begins with, by name; those that are scanned, with all
                their elements.
        """
        call = RoundsCall(self, rounds)
        if not call.take(values):
            return False
        memories: list[tuple[JitFunction, Array]] = []
        try:
            for network, places in self.networks:
                areas, others, memory = network.enter()
                memories.append((network, memory))
                call.enter(places, areas, others)
            return call.repeat(self.load())
        finally:
            for network, memory in memories:
                network.leave(memory)


def _result(step: RoundStep) -> tuple[str, ...]:
    """Returns the value or list that a step makes."""
    return () if step.do in (Do.CALL, Do.UNLESS, Do.GOTO) else step.operands[:1]


def _alike(step: RoundStep) -> Iterator[tuple[str, str]]:
    """Yields pairs of what a step moves elements between."""
    if step.do in (Do.AT, Do.INSERT, Do.LIST, Do.VALUE):
        yield step.operands[0], step.operands[1]


def _kinds_said(step: RoundStep) -> Iterator[tuple[str, type]]:
    """Yields the values whose kind a step says, with that."""
    if step.do is Do.LENGTH:
        yield step.operands[0], np.int64
    elif step.do is Do.UNLESS:
        yield step.operands[0], np.bool_
