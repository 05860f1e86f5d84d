"""Layouts of what libjit/src/rounds.c reads: words of a pointer's size, in one block, and the networks among them.

What shapes a network gives follows from those that it takes, by what types say: dimensions become steps of a small
machine.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, final

import numpy as np

from glowpy.core.type import MAX_RANK
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.ports import Port
from glowpy.support.symbolic import (
    Atom,
    Dim,
    Expr,
    Quotient,
    Symbol,
    product,
    substituted,
    symbols_of,
)

__all__ = ["TABLES", "WORDS", "Block", "Entries", "UnfitError", "add_network"]

Entries: TypeAlias = list[tuple[int, ...]]

_END, _CONSTANT, _EXTENT, _ADD, _MULTIPLY, _DIVIDE, _LEAST, _GREATEST = range(8)
"""The steps that dimensions are computed by."""
_DEPTH = 16
"""The number of values that have room on the stack of those steps."""

TABLES = {
    "sums": 2,
    "values": 10 + 2 * MAX_RANK,
    "items": 4,
    "lists": 4,
    "steps": 4,
    "takes": 4,
    "gives": 6,
    "saying": 2,
    "checked": 2,
    "carried": 2,
    "swapped": 2,
    "scanned": 2,
    "stacks": 6 + MAX_RANK,
    "done": 7,
}
"""How many words an entry of a table has, if it is not one; as libjit/src/rounds.c asserts."""

WORDS = {
    "network": (
        *("entry", "constants", "activations", "symbols", "lows", "highs", "found", "num_found"),
        *("takes", "num_takes", "gives", "num_gives", "saying", "num_saying", "checked"),
        *("num_checked", "sums", "before", "dims", "tests", "num_tests", "table", "num_symbols"),
    ),
    "rounds": (
        *("networks", "values", "num_values", "lists", "num_lists", "steps", "num_steps"),
        *("carried", "num_carried", "swapped", "num_swapped", "scanned", "num_scanned"),
        *("stacks", "num_stacks", "done", "num_done", "number", "next", "end", "wanted", "num_put"),
        *("keep", "round", "limit", "patience", "parity", "goes_on"),
    ),
}
"""The words of what libjit/src/rounds.c calls network_t and rounds_t."""


class UnfitError(Exception):
    """Rounds of a loop have to be computed one by one."""


@final
class Block:
    """Words under construction. Addresses are bytes from the first word, until it is known where that is.

    Attributes:
        words: The words.
        addresses: The places of words that are addresses.
    """

    def __init__(self) -> None:
        self.words: list[int] = []
        self.addresses: list[int] = []

    def add(self, name: str, tables: Mapping[str, Entries], **numbers: int) -> dict[str, int]:
        """Adds a structure and its tables; returns the places of its words, and `TABLE[]` for those of tables."""
        fields = WORDS[name]
        places = {field: len(self.words) + index for index, field in enumerate(fields)}
        self.words += [numbers.get(field, 0) for field in fields]
        for table, entries in tables.items():
            self.point(places[table], len(self.words))
            places[f"{table}[]"] = len(self.words)
            if f"num_{table}" in places and f"num_{table}" not in numbers:
                self.words[places[f"num_{table}"]] = len(entries)
            self.words += [word for entry in entries for word in entry]
        return places

    def point(self, place: int, target: int) -> None:
        """Makes a word the address of another one."""
        self.words[place] = target * np.dtype(np.intp).itemsize
        self.addresses.append(place)


def add_network(
    block: Block,
    function: CompiledFunction,
    value_of: Callable[[str], int],
    table: Sequence[str],
    symbols: Sequence[Symbol],
    num_others: int,
) -> dict[str, int]:
    """Adds a network to a block; returns the places of its words.

    The entry point's table has the arrays of the placeholders `table`, then what `symbols` are if there are any, and
    then so many other addresses. Raises UnfitError where a round has to be looked at by whoever calls.
    """
    network = _Network(function, value_of, table, symbols)
    has_symbols = bool(symbols)
    tables = network.tables()
    tables["table"] = [(0,)] * (len(table) + has_symbols + num_others)
    places = block.add("network", tables, num_symbols=len(symbols))
    if has_symbols:
        block.point(places["table[]"] + len(table), places["symbols[]"])
    return {**places, "others": places["table[]"] + len(table) + has_symbols}


@final
class _Network:
    def __init__(
        self,
        function: CompiledFunction,
        value_of: Callable[[str], int],
        table: Sequence[str],
        symbols: Sequence[Symbol],
    ) -> None:
        self._function, self._value_of, self._symbols = function, value_of, symbols
        self._ins, self._outs = function.input_ports, function.output_ports
        self._slots = {name: slot for slot, name in enumerate(table)}
        self._places = {extent.name: place for place, extent in enumerate(symbols)}
        self._sums = _Sums(self._places)
        ranks = [len(port.type.shape) for port in (*self._ins, *self._outs)]
        if len({port.placeholder for port in self._outs}) < len(ranks) - len(self._ins):
            raise UnfitError
        if max(ranks, default=0) > MAX_RANK:
            raise UnfitError

    def tables(self) -> dict[str, Entries]:
        """The tables, but for the entry point's."""
        known = self._function.symbols
        highs = {extent.name: extent.high for extent in self._symbols if extent.name not in known}
        takes, saying, checked = self._taken()
        if len(saying) < len(known):
            raise UnfitError
        gives, dims = self._given(highs)
        return {
            "symbols": [(extent.low,) for extent in self._symbols],
            "lows": [(extent.low,) for extent in self._symbols],
            "highs": [(extent.high,) for extent in self._symbols],
            "found": [(self._places[name],) for name in highs],
            "takes": takes,
            "gives": gives,
            "saying": saying,
            "checked": checked,
            "sums": self._sums.steps,
            "before": [(0,)] * sum(len(port.type.shape) for port in self._ins),
            "dims": dims,
            "tests": [(self._value_of(name),) for name in self._function.checks],
        }

    def _taken(self) -> tuple[Entries, Entries, Entries]:
        """Returns the inputs of a call, the extents that define symbols, and the extents to check."""
        takes: Entries = []
        saying: Entries = []
        checked: Entries = []
        place, defined = 0, set[str]()
        for port in self._ins:
            shape = port.type.shape
            value = self._value_of(port.name)
            takes.append((self._slots[port.placeholder], value, len(shape), place))
            for dim in shape:
                extent = None if isinstance(dim, int) else dim.symbol
                if extent is not None and extent.name not in defined:
                    defined.add(extent.name)
                    saying.append((place, self._places[extent.name]))
                else:
                    checked.append((place, self._sums.place(dim)))
                place += 1
        return takes, saying, checked

    def _given(self, highs: Mapping[str, int]) -> tuple[Entries, Entries]:
        """Returns the outputs of a call, and their dimensions. `highs` has the highest extents to be found."""
        gives: Entries = []
        dims: Entries = []
        taken = {port.placeholder: index for index, port in enumerate(self._ins)}
        for port in self._outs:
            shape = port.type.shape
            room = product(_largest(dim, highs) for dim in shape) * _size(port)
            slots = self._slots[port.placeholder], taken.get(port.placeholder, -1)
            value = self._value_of(port.name)
            gives.append((*slots, len(shape), len(dims), self._sums.place(room), value))
            dims += [(self._sums.place(dim),) for dim in shape]
        return gives, dims


def _size(port: Port) -> int:
    """Bytes of an element."""
    return port.type.kind.dtype.itemsize


def _largest(dim: Dim, most: Mapping[str, int]) -> Dim:
    """Returns the largest extent of a dimension. Raises UnfitError where it is not known to grow with what is found."""
    if isinstance(dim, int) or symbols_of([dim]).keys().isdisjoint(most):
        return dim
    for atoms, factor in dim.terms:
        is_found = not symbols_of([Expr(((atoms, 1),))]).keys().isdisjoint(most)
        if is_found and (factor < 0 or not all(isinstance(atom, Symbol) for atom in atoms)):
            raise UnfitError
    return substituted(dim, most)


@final
class _Sums:
    """Dimensions as steps over a stack, each dimension once."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self._known: dict[Dim, int] = {}
        self.steps: Entries = []

    def place(self, dim: Dim) -> int:
        """Returns the start of a dimension's steps. Raises UnfitError for one that is too deep."""
        if dim not in self._known:
            steps, depth = [*self._sum(dim)], 0
            for operation, _ in steps:
                depth += 1 if operation <= _EXTENT else -1
                if depth > _DEPTH:
                    raise UnfitError
            self._known[dim] = len(self.steps)
            self.steps += [*steps, (_END, 0)]
        return self._known[dim]

    def _sum(self, dim: Dim) -> Iterator[tuple[int, int]]:
        if isinstance(dim, int):
            yield _CONSTANT, dim
            return
        for index, (atoms, factor) in enumerate(dim.terms):
            parts = [self._atom(atom) for atom in atoms]
            parts += [iter([(_CONSTANT, factor)])] if factor != 1 or not atoms else []
            for place, part in enumerate(parts):
                yield from part
                if place:
                    yield _MULTIPLY, 0
            if index:
                yield _ADD, 0

    def _atom(self, atom: Atom) -> Iterator[tuple[int, int]]:
        if isinstance(atom, Symbol):
            yield _EXTENT, self._places[atom.name]
            return
        operation = _DIVIDE
        if not isinstance(atom, Quotient):
            operation = _LEAST if atom.name == "min" else _GREATEST
        for index, part in enumerate(atom.parts):
            yield from self._sum(part)
            if index:
                yield operation, 0
