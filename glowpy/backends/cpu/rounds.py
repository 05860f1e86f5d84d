"""Many rounds of a loop in one call of machine code: libjit/src/rounds.c, and what it is told of a network.

What shapes are in a round follows from those of the round before, by what types say: dimensions become steps of a small
machine. Results have two memories, which rounds use in turn; one that is too small is replaced by one twice as large.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, TypeAlias, final

import numpy as np

from glowpy.backends.cpu.functions import load_functions
from glowpy.core.tensor import ALIGNMENT, Array, address_of, allocated
from glowpy.llvm.code_image import Functions
from glowpy.rounds import Rounds, Wiring
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.ports import Port
from glowpy.support.errors import InternalError, UserError
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

if TYPE_CHECKING:
    from glowpy.backends.cpu.target import CpuTarget

__all__ = ["Repetition", "RunRounds", "load_rounds", "repetition_of"]

_ENDED, _PAUSED, _OTHER_EXTENTS, _NO_ROOM, _WRONG_INDEX, _OTHER_ROWS, _FAILED = range(7)
"""Why rounds stop."""
_END, _CONSTANT, _EXTENT, _ADD, _MULTIPLY, _DIVIDE, _LEAST, _GREATEST = range(8)
"""The steps that dimensions are computed by."""
_DEPTH = 16
"""The number of values that have room on the stack of those steps."""

_PAUSE = 0.02
"""Seconds that rounds run at once take, about: Ctrl-C waits for them. It is one round at first, that says how long."""
_LEAST_ROOM = 1 << 11
"""Bytes that a memory has at first."""
_FEW_ROWS = 64
"""There is room for so many rows at first, if there may be as many."""

_TABLES = {
    "symbols": 1,
    "lows": 1,
    "highs": 1,
    "found": 1,
    "takes": 7,
    "gives": 11,
    "stacks": 8,
    "saying": 2,
    "checked": 2,
    "steps": 2,
    "before": 1,
    "dims": 1,
    "after": 1,
    "rows": 1,
    "tests": 1,
    "number": 1,
    "table": 1,
}
"""Parts that follow the words of the context, and the number of words of an entry; as libjit/src/rounds.c asserts."""
_COUNTED = ("found", "takes", "gives", "stacks", "saying", "checked", "tests")
_WORDS = [
    *("entry", "constants", "activations"),
    *(
        word
        for name in _TABLES
        for word in (name, f"num_{name}")
        if word == name or name in _COUNTED
    ),
    *("num_symbols", "keep", "round", "limit", "patience", "parity", "goes_on"),
]
"""The words of what libjit/src/rounds.c calls rounds_t."""
_AT = {name: place for place, name in enumerate(_WORDS)}

_Entries: TypeAlias = list[tuple[int, ...]]

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


class _Unfit(Exception):  # noqa: N818 - nothing is wrong
    """Rounds of this loop are calls of their own."""


def repetition_of(
    function: CompiledFunction,
    wiring: Wiring,
    table: Sequence[str],
    symbols: Sequence[Symbol],
    num_others: int,
) -> Repetition | None:
    """Creates a repetition: many iterations of a loop with this body in one call; None where each needs its own.

    The entry point's table has the arrays of the placeholders `table`, then what `symbols` are if there are any, and
    then so many other addresses.
    """
    try:
        return Repetition(function, wiring, table, symbols, num_others)
    except _Unfit:
        return None


@final
class Repetition:
    """Runs rounds of a loop whose body is a network. Immutable, and safe from several threads.

    Attributes:
        words: The words of the context that are known before any call.
        addresses: Which of the words are addresses, as bytes from the first word.
        starts: Where tables begin in these words.
        rooms: Where results are in the memory that all of them have at first.
        num_slots: How many arrays the table of the entry point has.
        num_symbols: How many symbols there are.
        ins: The ports that a round takes.
        outs: The ports that a round gives.
        givens: Places of these, by name.
        dtypes: The kinds of elements of both, by name.
        wiring: How rounds follow from each other.
    """

    def __init__(
        self,
        function: CompiledFunction,
        wiring: Wiring,
        table: Sequence[str],
        symbols: Sequence[Symbol],
        num_others: int,
    ) -> None:
        """Raises _Unfit where a round has to be looked at by whoever calls."""
        self.ins, self.outs, self.wiring = function.input_ports, function.output_ports, wiring
        self.num_slots, self.num_symbols = len(table), len(symbols)
        self.givens = {port.name: index for index, port in enumerate(self.outs)}
        self.dtypes = {port.name: port.type.kind.dtype for port in (*self.ins, *self.outs)}
        _check(wiring, self.ins, self.outs)
        self._slots = {name: slot for slot, name in enumerate(table)}
        self._places = {extent.name: place for place, extent in enumerate(symbols)}
        self._steps = _Steps(self._places)
        known = function.symbols
        bounds = {extent.name: extent.high for extent in symbols if extent.name not in known}
        takes, saying, checked = self._taken()
        if len(saying) < len(known):
            raise _Unfit
        gives, dims = self._given(bounds)
        tables: dict[str, _Entries] = {
            "symbols": [(extent.low,) for extent in symbols],
            "lows": [(extent.low,) for extent in symbols],
            "highs": [(extent.high,) for extent in symbols],
            "found": [(self._places[name],) for name in bounds],
            "takes": takes,
            "gives": gives,
            "stacks": self._stacks(),
            "saying": saying,
            "checked": checked,
            "steps": self._steps.steps,
            "before": [(0,)] * sum(len(port.type.shape) for port in self.ins),
            "dims": dims,
            "after": [(0,)] * len(dims),
            "rows": [(-1,)] * len(dims),
            "tests": [(self.givens[name],) for name in function.checks],
            "number": [(0,), (0,)],  # an int64: two words where a word has four bytes
            "table": [(0,)] * (len(table) + bool(symbols) + num_others),
        }
        words = [0] * len(_WORDS)
        self.starts: dict[str, int] = {}
        for name, entries in tables.items():
            self.starts[name] = len(words)
            words[_AT[name]] = len(words) * np.dtype(np.intp).itemsize
            if name in _COUNTED:
                words[_AT[f"num_{name}"]] = len(entries)
            words += [word for entry in entries for word in entry]
        words[_AT["num_symbols"]] = len(symbols)
        words[_AT["keep"]] = self.givens[wiring.keep] if wiring.keep else -1
        words[_AT["goes_on"]] = 1
        self.words = np.array(words, np.intp)
        self.addresses = np.array([_AT[name] for name in _TABLES])
        self.rooms = np.arange(2 * len(self.outs)).reshape(-1, 2) * _LEAST_ROOM

    def _taken(self) -> tuple[_Entries, _Entries, _Entries]:
        """Returns the inputs of an iteration, the extents that define symbols, and the extents to check."""
        takes: _Entries = []
        saying: _Entries = []
        checked: _Entries = []
        place, defined = 0, set[str]()
        for port in self.ins:
            maker = self.givens.get(self.wiring.makers.get(port.name, ""), -1)
            size, rank = port.type.kind.dtype.itemsize, len(port.type.shape)
            takes.append((0, self._slots[port.placeholder], maker, 0, rank, place, size))
            for dim in port.type.shape:
                extent = None if isinstance(dim, int) else dim.symbol
                if extent is not None and extent.name not in defined:
                    defined.add(extent.name)
                    saying.append((place, self._places[extent.name]))
                else:
                    checked.append((place, self._steps.place(dim)))
                place += 1
        return takes, saying, checked

    def _stacks(self) -> _Entries:
        """Returns what is stacked, and then what is appended to lists."""
        takens = {port.name: -1 - index for index, port in enumerate(self.ins)}
        sources = {**takens, **self.givens}
        lists = [name for _, names in self.wiring.appended for name in names]
        stacks: _Entries = [(0, sources[name], *[0] * 6) for name in self.wiring.stacked]
        return stacks + [(0, sources[name], 0, 0, 1, 0, 0, 0) for name in lists]

    def _given(self, most: Mapping[str, int]) -> tuple[_Entries, _Entries]:
        """Returns the outputs of an iteration, and their dimensions. `most` has the highest extents to be found."""
        gives: _Entries = []
        dims: _Entries = []
        places = {port.placeholder: index for index, port in enumerate(self.ins)}
        for port in self.outs:
            shape, size = port.type.shape, port.type.kind.dtype.itemsize
            room = self._steps.place(product(_largest(dim, most) for dim in shape) * size)
            slots = self._slots[port.placeholder], places.get(port.placeholder, -1)
            gives.append((0, 0, 0, 0, *slots, len(shape), len(dims), size, room, 0))
            dims += [(self._steps.place(dim),) for dim in shape]
        return gives, dims

    def advance(
        self,
        rounds: Rounds,
        values: Mapping[str, Array],
        run: RunRounds,
        areas: tuple[int, int, int],
        others: Sequence[int],
    ) -> bool:
        """Runs the next rounds, as many as this code is for; False if there are none.

        Args:
            rounds: Where the loop is, and then where it is.
            values: The inputs of the next round, by name; those that are scanned, with all their elements.
            run: Runs rounds.
            areas: Where the entry point, the constants and the working memory are.
            others: The rest of the entry point's table, after the addresses of arrays and of extents.
        """
        call = _Call(self, rounds, areas, others)
        return call.take(values) and call.repeat(run)


def _check(wiring: Wiring, ins: Sequence[Port], outs: Sequence[Port]) -> None:
    """Raises _Unfit for values that are not of one type from round to round but for their extents."""
    taken = {port.name: port.type for port in ins}
    given = {port.name: port.type for port in outs}
    names = [*wiring.stacked, *wiring.makers.values(), *(name for _, _, name in wiring.carried)]
    names += [wiring.keep] if wiring.keep else []
    appended = {name for _, listed in wiring.appended for name in listed}
    if not given.keys() >= {*names} or not {*given, *taken} >= appended:
        raise _Unfit
    if len({port.placeholder for port in outs}) < len(outs):
        raise _Unfit
    for own, name in wiring.makers.items():
        if own in taken:
            before, after = taken[own], given[name]
            if before.kind is not after.kind or before.rank != after.rank:
                raise _Unfit
    if wiring.keep:
        keep = given[wiring.keep]
        if keep.kind.dtype != np.bool_ or not keep.is_static or keep.count != 1:
            raise _Unfit


def _largest(dim: Dim, most: Mapping[str, int]) -> Dim:
    """Returns the largest extent of a dimension. Raises _Unfit where it is not known to grow with what is found."""
    if isinstance(dim, int) or symbols_of([dim]).keys().isdisjoint(most):
        return dim
    for atoms, factor in dim.terms:
        is_found = not symbols_of([Expr(((atoms, 1),))]).keys().isdisjoint(most)
        if is_found and (factor < 0 or not all(isinstance(atom, Symbol) for atom in atoms)):
            raise _Unfit
    return substituted(dim, most)


@final
class _Steps:
    """Dimensions as steps over a stack, each dimension once."""

    def __init__(self, places: Mapping[str, int]) -> None:
        self._places = places
        self._known: dict[Dim, int] = {}
        self.steps: _Entries = []

    def place(self, dim: Dim) -> int:
        """Returns the start of a dimension's steps. Raises _Unfit for one that is too deep."""
        if dim not in self._known:
            steps, depth = [*self._sum(dim)], 0
            for operation, _ in steps:
                depth += 1 if operation <= _EXTENT else -1
                if depth > _DEPTH:
                    raise _Unfit
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


@final
class _Call:
    """The rounds of one loop, in one call of machine code or several."""

    def __init__(
        self,
        plan: Repetition,
        rounds: Rounds,
        areas: tuple[int, int, int],
        others: Sequence[int],
    ) -> None:
        self._plan, self._rounds, self._first = plan, rounds, rounds.round
        self._words = words = plan.words.copy()
        self._address = address_of(words)
        words[plan.addresses] += self._address
        words[:3] = areas
        words[_AT["round"]], words[_AT["limit"]] = rounds.round, rounds.most
        table = plan.starts["table"] + plan.num_slots
        if plan.num_symbols:
            words[table] = words[_AT["symbols"]]
            table += 1
        words[table : table + len(others)] = others
        self._gives = self._entries("gives")
        self._shared = _memory(plan.rooms.size * _LEAST_ROOM)
        self._gives[:, :2] = plan.rooms + address_of(self._shared)
        self._gives[:, 2:4] = _LEAST_ROOM
        self._stacks = self._entries("stacks")
        self._arrays: list[Array] = []  # what the words have the addresses of
        self._memories: dict[
            tuple[int, int], Array
        ] = {}  # of results that need more, by place and turn
        self._areas: dict[int, Array] = {}  # of what is stacked
        self._extents: dict[int, Array] = {}  # of that which is appended to lists

    def _entries(self, name: str) -> Array:
        start, width = self._plan.starts[name], _TABLES[name]
        count = int(self._words[_AT[f"num_{name}"]])
        return self._words[start : start + count * width].reshape(count, width)

    def take(self, values: Mapping[str, Array]) -> bool:
        """Tells where what the first round takes is; False for what this code does not take."""
        plan, state = self._plan, self._rounds.state
        scanned, number = plan.wiring.scanned, plan.wiring.number
        for place, names in plan.wiring.appended:
            if {item.dtype for item in state[place]} - {plan.dtypes[name] for name in names}:
                return False  # an error that a call of its own tells
        extents: list[int] = []
        addresses: list[int] = []
        strides: list[int] = []
        for port in plan.ins:
            array = values[port.name]
            shape = array.shape[1:] if port.name in scanned else array.shape
            if array.dtype != port.type.kind.dtype or len(shape) != len(port.type.shape):
                return False
            extents += shape
            if port.name == number:
                addresses.append(int(self._words[_AT["number"]]))
                strides.append(0)
                continue
            if not (array.flags.c_contiguous and array.flags.aligned):
                array = array.copy()
            self._arrays.append(array)
            stride = 0
            if port.name in scanned:
                stride = array.strides[0]
                self._words[_AT["limit"]] = min(int(self._words[_AT["limit"]]), len(array))
            addresses.append(address_of(array) + self._first * stride)
            strides.append(stride)
        entries = self._entries("takes")
        entries[:, 0], entries[:, 3] = addresses, strides
        start = plan.starts["before"]
        self._words[start : start + len(extents)] = extents
        return True

    def repeat(self, run: RunRounds) -> bool:
        """Runs rounds until something stops them, and tells where the loop is then; False if none was run."""
        words, patience, reason = self._words, 1, _PAUSED
        while reason in (_PAUSED, _NO_ROOM):
            words[_AT["patience"]] = patience
            start = time.perf_counter()
            reason = run(self._address)
            seconds = time.perf_counter() - start
            if seconds >= _PAUSE:
                patience = max(1, int(patience * _PAUSE / seconds))
            elif reason == _PAUSED:
                patience *= 4
            if reason == _NO_ROOM:
                self._grow(int(words[_AT["parity"]]))
        if reason == _FAILED:
            raise InternalError("compiled code returned an error in a loop")
        if reason == _OTHER_ROWS:
            raise UserError("expected outputs of one shape in all rounds")
        if words[_AT["round"]] == self._first:
            return False  # an index that is wrong is told by a call of its own
        self._finish()
        return True

    def _grow(self, turn: int) -> None:
        """Gives what is too small for the next round twice the room that it needs then."""
        entries = self._gives.tolist()
        for place, (port, entry) in enumerate(zip(self._plan.outs, entries, strict=True)):
            room, needed = entry[2 + turn], entry[10]
            if room < needed:
                room = needed if port.type.is_static else 2 * needed
                self._memories[place, turn] = memory = _memory(room)
                self._gives[place, turn], self._gives[place, 2 + turn] = address_of(memory), room
        rounds = min(int(self._words[_AT["limit"]] - self._words[_AT["round"]]), _FEW_ROWS)
        for place, entry in enumerate(self._stacks.tolist()):
            _, source, room, used, is_list, _, extents, most = entry
            needed, rank = self._row(source)
            if room < used + needed:
                room = max(2 * room, used + needed * rounds)
                memory = _memory(room)
                if used:
                    memory[:used] = self._areas[place][:used]
                self._areas[place] = memory
                self._stacks[place, 0], self._stacks[place, 2] = address_of(memory), room
            if is_list and most < extents + rank:
                most = max(2 * most, extents + rank * rounds)
                numbers: Array = np.empty(most, np.intp)
                if extents:
                    numbers[:extents] = self._extents[place][:extents]
                self._extents[place] = numbers
                self._stacks[place, 5], self._stacks[place, 7] = address_of(numbers), most

    def _row(self, source: int) -> tuple[int, int]:
        """Returns the bytes that a stack needs for the next iteration, and the rank of what it gets."""
        if source >= 0:
            return int(self._gives[source, 10]), int(self._gives[source, 6])
        _, _, _, _, rank, first, size = self._entries("takes")[-1 - source].tolist()
        start = self._plan.starts["before"] + first
        return size * math.prod(self._words[start : start + rank].tolist()), rank

    def _finish(self) -> None:
        """Tells where the loop is."""
        rounds, plan = self._rounds, self._plan
        words = self._words[: len(_WORDS)].tolist()
        rounds.round, rounds.goes_on = words[_AT["round"]], bool(words[_AT["goes_on"]])
        turn = 1 - words[_AT["parity"]]
        for place, _, name in plan.wiring.carried:
            given = plan.givens[name]
            memory = self._memories.get((given, turn))
            if memory is None:
                start = int(plan.rooms[given, turn])
                memory = self._shared[start : start + _LEAST_ROOM]
            rounds.state[place] = self._array(given, (), memory)
        count = rounds.round - self._first
        for place, name in enumerate(plan.wiring.stacked):
            memory = self._areas.get(place, self._shared)  # there is none for no elements
            rounds.stacked[place].append(self._array(plan.givens[name], (count,), memory))
        stack = len(plan.wiring.stacked)
        for place, names in plan.wiring.appended:
            columns = [self._items(stack + column, count) for column in range(len(names))]
            stack += len(names)
            rounds.state[place] = [*rounds.state[place], *chain(*zip(*columns, strict=True))]

    def _items(self, place: int, count: int) -> list[Array]:
        """Returns the arrays that `count` iterations have appended to a list."""
        source = int(self._stacks[place, 1])
        type = self._plan.outs[source].type if source >= 0 else self._plan.ins[-1 - source].type
        dtype, rank = type.kind.dtype, len(type.shape)
        memory = self._areas.get(place, self._shared)
        if not rank:
            column = np.ndarray((count,), dtype, memory)
            return [column[index, ...] for index in range(count)]
        shapes = self._extents[place][: count * rank].reshape(count, rank)
        if (shapes == shapes[0]).all():
            return [*np.ndarray((count, *shapes[0].tolist()), dtype, memory)]
        sizes = shapes.prod(1) * dtype.itemsize
        starts = (np.cumsum(sizes) - sizes).tolist()
        return [
            np.ndarray(shape, dtype, memory, start)
            for shape, start in zip(shapes.tolist(), starts, strict=True)
        ]

    def _array(self, given: int, count: tuple[int, ...], memory: Array) -> Array:
        """Returns an output of the last iteration, or one of `count` iterations, as an array."""
        type = self._plan.outs[given].type
        start = self._plan.starts["after"] + int(self._gives[given, 7])
        shape = self._words[start : start + len(type.shape)].tolist()
        return np.ndarray((*count, *shape), type.kind.dtype, memory)


def _memory(size: int) -> Array:
    """Allocates bytes for anything, at a multiple of the memory plan's alignment."""
    block = allocated((size + ALIGNMENT,), np.uint8, zeros=False)
    start = -address_of(block) % ALIGNMENT
    return block[start : start + size]
