"""The rounds of one loop: what libjit/src/rounds.c is told of arrays and lists before, and what these are after it.

Results have two memories, which rounds use in turn; one that is too small is replaced by one twice as large. What is
put into lists is copied to chunks of memory, which stay where they are.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, final

import numpy as np

from glowpy.backends.cpu.round_layout import TABLES
from glowpy.core.tensor import ALIGNMENT, Array, address_of, allocated
from glowpy.core.type import MAX_RANK
from glowpy.rounds import Rounds
from glowpy.support.errors import InternalError, UserError

if TYPE_CHECKING:
    from glowpy.backends.cpu.rounds import CpuRounds, RunRounds

__all__ = ["BYTES", "RoundsCall"]

_ENDED, _PAUSED, _OTHER_EXTENTS, _NO_ROOM, _WRONG_INDEX, _OTHER_ROWS, _FAILED = range(7)
"""Why rounds stop."""

_PAUSE = 0.02
"""Seconds that rounds run at once take, about: Ctrl-C waits for them. It is one round at first, that says how long."""
_LEAST_ROOM = 1 << 11
"""Bytes that a memory has at first."""
_LEAST_CHUNK = 1 << 15
"""Bytes that the first chunk for elements of lists has."""
_MANY_ROWS = 512
"""Elements of lists are copied away from what lists have no more if that is more than so many."""
_FEW_ROWS = 64
"""There is room for so many rows at first, if there may be as many."""
_MOST_STACKED = 1 << 20
"""Bytes of the elements of a list that are copied to one array: that is faster than to look at each one."""

BYTES, _MEMORIES, _ROOMS, _NEEDED, _SHAPES = 3, 5, 7, 9, 10
"""The places of words in a value."""


@final
class RoundsCall:
    """The rounds of one loop, in one call of machine code or several."""

    def __init__(self, plan: CpuRounds, rounds: Rounds) -> None:
        self._plan, self._rounds, self._first = plan, rounds, rounds.round
        self._words = words = plan.words.copy()
        self._address = address_of(words)
        words[plan.addresses] += self._address
        self._say("round", rounds.round)
        self._say("limit", rounds.most)
        self._values, self._lists = self._entries("values"), self._entries("lists")
        self._stacks = self._entries("stacks")
        self._shared = _memory(2 * len(plan.own) * _LEAST_ROOM)
        rooms = np.arange(2 * len(plan.own)).reshape(-1, 2) * _LEAST_ROOM
        self._values[plan.own, _MEMORIES : _MEMORIES + 2] = rooms + address_of(self._shared)
        self._values[plan.own, _ROOMS : _ROOMS + 2] = _LEAST_ROOM
        self._keeping: list[Any] = []  # what the words have the addresses of
        self._memories: dict[int, Array] = {}  # of results, by address
        self._areas: dict[int, Array] = {}  # of what is stacked, by place
        self._items: dict[int, Array] = {}  # of lists, by address
        self._chunks: list[Array] = []  # for elements of lists
        self._begun: list[Array] = []  # elements that lists begin with
        self._dtypes = dict(plan.dtypes)
        if plan.inserts:
            self._begin_chunk(_LEAST_CHUNK)

    def _entries(self, name: str) -> Array:
        start, width = self._plan.starts[f"{name}[]"], TABLES[name]
        count = int(self._words[self._plan.starts[f"num_{name}"]])
        return self._words[start : start + count * width].reshape(count, width)

    def _say(self, word: str, number: int) -> None:
        self._words[self._plan.starts[word]] = number

    def _said(self, word: str) -> int:
        return int(self._words[self._plan.starts[word]])

    # Before the first round.

    def enter(
        self, places: Mapping[str, int], areas: tuple[int, int, int], others: Sequence[int]
    ) -> None:
        """Tells a network where its memory is."""
        self._words[places["entry"] : places["entry"] + 3] = areas
        self._words[places["others"] : places["others"] + len(others)] = others

    def take(self, values: Mapping[str, Any]) -> bool:
        """Tells where what the first round begins with is; False for what this code does not take."""
        plan, rounds = self._plan, self._rounds
        for name in plan.fed_lists:
            if not self._take_list(name, values[name]):
                return False
        values_at = self._said("values")
        scans = dict(zip(plan.wiring.scanned, self._entries("scanned"), strict=True))
        for name in plan.fed:
            array = values[name]
            if not isinstance(array, np.ndarray) or not self._is_kind(name, array.dtype):
                return False
            if array.ndim > MAX_RANK + (name in scans):
                return False
            if not (array.flags.c_contiguous and array.flags.aligned):
                array = array.copy()
            self._keeping.append(array)
            shape, address = array.shape, address_of(array)
            if name in scans:
                scans[name][1] = stride = array.strides[0]
                shape, address = shape[1:], address + rounds.round * stride
                self._say("limit", min(self._said("limit"), len(array)))
            kept = name != plan.wiring.number
            place = plan.values[name]
            row = self._values[place]
            extents = values_at + (place * row.size + _SHAPES) * row.itemsize
            address = address if kept else self._said("number")
            row[:5] = address, extents, len(shape), array.itemsize, kept
            row[_SHAPES : _SHAPES + len(shape)] = shape
        if plan.are_kinds_known:
            return True
        self._values[:, BYTES] = plan.sizes_of(self._dtypes)
        return plan.has_positions(self._dtypes)

    def _is_kind(self, name: str, dtype: np.dtype[Any]) -> bool:
        return (
            dtype.kind != "O" and self._dtypes.setdefault(self._plan.groups[name], dtype) == dtype
        )

    def _take_list(self, name: str, items: Any) -> bool:
        if not isinstance(items, list) or not all(t is np.ndarray for t in {*map(type, items)}):
            return False
        if not all(self._is_kind(name, dtype) for dtype in {item.dtype for item in items}):
            return False
        shapes = {item.shape for item in items}
        is_same = self._plan.is_state(name)
        table: Array = np.empty((max(len(items), _FEW_ROWS), 4), np.intp)
        self._hold(name, table, len(items))
        if not items:
            return True
        if len(shapes) == 1 and not is_same and len(items) * items[0].nbytes <= _MOST_STACKED:
            stack = np.array(items)
            addresses: Any = address_of(stack) + np.arange(len(items)) * (
                stack.strides[0] if stack.size else 0
            )
            self._keeping.append(stack)
            origins: Any = -1
        else:
            first = len(self._begun)
            read = [item if item.flags.c_contiguous else item.copy() for item in items]
            self._keeping.append(read)
            self._begun += items
            addresses = [address_of(item) for item in read]
            origins = np.arange(first, first + len(items)) if is_same else -1
        extents = {shape: np.array(shape, np.intp) for shape in shapes}
        self._keeping.append(extents)
        ranks = {shape: (address_of(numbers), len(shape)) for shape, numbers in extents.items()}
        table[: len(items), 0], table[: len(items), 3] = addresses, origins
        is_one = len(shapes) == 1
        table[: len(items), 1:3] = [ranks[item.shape] for item in (items[:1] if is_one else items)]
        return True

    def _hold(self, name: str, table: Array, count: int) -> None:
        """Gives a list memory for its items."""
        self._items[address_of(table)] = table
        self._lists[self._plan.lists[name], :3] = address_of(table), count, len(table)

    # Rounds.

    def repeat(self, run: RunRounds) -> bool:
        """Runs rounds until something stops them, and tells where the loop is then; False if none was run."""
        words, starts, patience, reason = self._words, self._plan.starts, 1, _PAUSED
        for name in self._plan.lists:
            if name not in self._plan.fed_lists:
                self._hold(name, np.empty((_FEW_ROWS, 4), np.intp), 0)
        while reason in (_PAUSED, _NO_ROOM):
            words[starts["patience"]] = patience
            start = time.perf_counter()
            reason = run(self._address)
            seconds = time.perf_counter() - start
            if seconds >= _PAUSE:
                patience = max(1, int(patience * _PAUSE / seconds))
            elif reason == _PAUSED:
                patience *= 4
            if reason == _NO_ROOM and not self._grow():
                break
        if reason == _FAILED:
            raise InternalError("compiled code returned an error in a loop")
        if reason == _OTHER_ROWS:
            raise UserError("expected outputs of one shape in all rounds")
        if words[starts["round"]] == self._first:
            return False  # an index that is wrong is told by a call of its own
        self._finish()
        return True

    def _grow(self) -> bool:
        """Gives what is too small for the next round twice the room that it needs then.

        False where most of what chunks have is in no list any more.
        """
        turn = self._said("parity")
        missing = np.flatnonzero(self._values[:, _NEEDED] > self._values[:, _ROOMS + turn])
        for place in missing.tolist():
            room = 2 * int(self._values[place, _ROOMS + turn])
            room = max(room, int(self._values[place, _NEEDED]))
            self._values[place, _ROOMS + turn] = room
            memory = _memory(room)
            self._memories[address_of(memory)] = memory
            self._values[place, _MEMORIES + turn] = address_of(memory)
        for place in np.flatnonzero(self._lists[:, 3] > self._lists[:, 2]).tolist():
            address, count, _, needed = self._lists[place].tolist()
            table: Array = np.empty((2 * needed, 4), np.intp)
            table[:count] = self._items.pop(address)[:count]
            self._items[address_of(table)] = table
            self._lists[place, 0], self._lists[place, 2] = address_of(table), len(table)
        rounds = max(1, min(self._said("limit") - self._said("round"), _FEW_ROWS))
        self._grow_stacks(rounds)
        return not self._said("wanted") or self._has_chunk(self._said("wanted"), rounds)

    def _grow_stacks(self, rounds: int) -> None:
        """Gives what is stacked room for so many rounds, if there is none for the next one."""
        for place, (_, _, room, used, needed, *_) in enumerate(self._stacks.tolist()):
            if room < used + needed:
                room = max(2 * room, used + needed * rounds)
                memory = _memory(room)
                if used:
                    memory[:used] = self._areas[place][:used]
                self._areas[place] = memory
                self._stacks[place, 0], self._stacks[place, 2] = address_of(memory), room

    def _has_chunk(self, wanted: int, rounds: int) -> bool:
        """Begins another chunk for elements of lists, unless the chunks before hold too little of them."""
        if self._is_sparse():
            return False
        self._begin_chunk(max(2 * self._chunks[-1].size, wanted * rounds))
        self._say("wanted", 0)
        return True

    def _begin_chunk(self, size: int) -> None:
        chunk = _memory(size)
        self._chunks.append(chunk)
        start = address_of(chunk)
        self._say("next", start)
        self._say("end", start + size)

    def _is_sparse(self) -> bool:
        """Whether more elements than not that were put into lists are in none any more."""
        states = {self._plan.lists[taken] for _, taken, _ in self._plan.wiring.lists}
        count = sum(int(self._lists[place, 1]) for place in states)
        return 2 * (count + _MANY_ROWS) < self._said("num_put")

    # After the last round.

    def _finish(self) -> None:
        """Tells where the loop is."""
        rounds, plan = self._rounds, self._plan
        rounds.round, rounds.goes_on = self._said("round"), bool(self._said("goes_on"))
        turn = 1 - self._said("parity")
        seen: set[str] = set()
        for place, taken, given in plan.wiring.carried:
            rounds.state[place] = self._state(taken, given, turn, seen)
        count = rounds.round - self._first
        for place, name in enumerate(plan.wiring.stacked):
            memory = self._areas.get(place, self._shared)  # there is none for no elements
            rank, *extents = self._stacks[place, 5:].tolist()
            dtype = self._dtypes[plan.groups[name]]
            rounds.stacked[place].append(np.ndarray((count, *extents[:rank]), dtype, memory))
        is_sparse = self._is_sparse()
        for place, taken, _ in plan.wiring.lists:
            address, length, _, _ = self._lists[plan.lists[taken]].tolist()
            rounds.state[place] = []
            if length:
                rows, dtype = self._items[address][:length], self._dtypes[plan.groups[taken]]
                rounds.state[place] = self._elements(rows, dtype, is_sparse=is_sparse)

    def _state(self, taken: str, given: str, turn: int, seen: set[str]) -> Array:
        """Returns a value that the next round takes as an array, which nothing else has.

        A round that was not finished may have given another one.
        """
        elements, extents, rank, _, kept = self._values[self._plan.values[taken], :5].tolist()
        shape, dtype = _words_at(extents, rank), self._dtypes[self._plan.groups[taken]]
        if kept or given in seen:
            return _copied(elements, shape, dtype)
        seen.add(given)
        row = self._values[self._plan.values[given]]
        memory = self._memories.get(int(row[_MEMORIES + turn]))
        if memory is None:
            start = elements - address_of(self._shared)
            memory = self._shared[start : start + _LEAST_ROOM]
        return np.ndarray(shape, dtype, memory)

    def _elements(self, rows: Array, dtype: np.dtype[Any], *, is_sparse: bool) -> list[Array]:
        """Returns the elements of a list: those that it began with, those in chunks, and copies of others."""
        if len(self._chunks) == 1 and not self._begun and not is_sparse:
            chunk = self._chunks[0]
            start, end = address_of(chunk), self._said("next")
            if start <= rows[:, 0].min() and rows[:, 0].max() <= end:
                few = chunk[: end - start]
                few = few.copy() if 2 * few.size < chunk.size else few  # which keeps less alive
                return _in_chunk(rows, few, start, dtype)
        chunks = sorted((address_of(chunk), index) for index, chunk in enumerate(self._chunks))
        starts = [start for start, _ in chunks]
        ends = np.array([0, *(start + self._chunks[index].size for start, index in chunks)])
        which = np.searchsorted(starts, rows[:, 0], "right")
        which *= (rows[:, 3] < 0) & (rows[:, 0] <= ends[which]) & (not is_sparse)
        edges = [0, *(np.flatnonzero(np.diff(which)) + 1).tolist(), len(rows)]
        elements: list[Array] = []
        for first, end in pairwise(edges):
            part, number = rows[first:end], int(which[first])
            if number:
                start, index = chunks[number - 1]
                elements += _in_chunk(part, self._chunks[index], start, dtype)
            else:
                elements += [self._element(row, dtype) for row in part.tolist()]
        return elements

    def _element(self, row: Sequence[int], dtype: np.dtype[Any]) -> Array:
        elements, extents, rank, origin = row
        if origin >= 0:
            return self._begun[origin]
        return _copied(elements, _words_at(extents, rank), dtype)


def _in_chunk(rows: Array, chunk: Array, start: int, dtype: np.dtype[Any]) -> list[Array]:
    """Returns elements in a chunk as parts of it: of one array, if they have one shape and are equally far apart."""
    words, places = chunk.view(np.intp), (rows[:, 1] - start) // rows.itemsize
    starts, ranks = (rows[:, 0] - start).tolist(), rows[:, 2]
    if len(rows) > 1 and (ranks == ranks[0]).all():
        shapes = words[places[:, np.newaxis] + np.arange(ranks[0])]
        steps = np.diff(rows[:, 0])
        if steps[0] >= 0 and (steps == steps[0]).all() and (shapes == shapes[0]).all():
            item: Array = np.ndarray(shapes[0].tolist(), dtype, chunk, starts[0])
            strides = int(steps[0]), *item.strides
            column: Array = np.ndarray((len(rows), *item.shape), dtype, chunk, starts[0], strides)
            return [*column] if item.ndim else [column[index, ...] for index in range(len(rows))]
    extents = zip(places.tolist(), ranks.tolist(), strict=True)
    return [
        np.ndarray(words[place : place + rank].tolist(), dtype, chunk, begin)
        for begin, (place, rank) in zip(starts, extents, strict=True)
    ]


def _words_at(address: int, count: int) -> tuple[int, ...]:
    """Returns words of memory."""
    return tuple((ctypes.c_ssize_t * count).from_address(address)) if count else ()


def _copied(address: int, shape: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Returns a copy of elements in memory."""
    copy = np.empty(shape, dtype)
    ctypes.memmove(copy.ctypes.data, address, math.prod(shape) * dtype.itemsize)
    return copy


def _memory(size: int) -> Array:
    """Allocates bytes for anything, at a multiple of the memory plan's alignment."""
    block = allocated((size + ALIGNMENT,), np.uint8, zeros=False)
    start = -address_of(block) % ALIGNMENT
    return block[start : start + size]
