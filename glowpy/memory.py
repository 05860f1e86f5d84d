"""Memory planning: places every buffer of a program in one arena.

`glowpy.memory_check` proves a plan right, and shares no code with this. The plan itself, and its text, is
`glowpy.ir.plan`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from glowpy.ir.irfunction import IRFunction
from glowpy.ir.liveness import lifetimes
from glowpy.ir.plan import (
    Area,
    MemoryPlan,
    Slot,
    aligned,
    parse_plan,
    print_plan,
)
from glowpy.ir.runs import in_registers
from glowpy.ir.value import Value, WeightVar

__all__ = ["parse_plan", "plan", "print_plan"]


def plan(f: IRFunction) -> MemoryPlan:
    """Places every buffer, but those that are in registers of the loop of one run. Deterministic.

    Buffers are placed one by one at the lowest offset that is free during their life; this is done
    in several orders (by size, by size times length of life, by start), each of which is improved: the buffer that
    ends highest goes first. The smallest result is kept. An order is tried, and improved, only while the result so
    far is above what is alive at one instruction.
    """
    registers = dict.fromkeys(in_registers(f))
    buffers = [
        _Buffer(value.name, value.type.room, life.start, life.end)
        for value, life in lifetimes(f).items()
        if not isinstance(value, WeightVar) and value not in registers
    ]
    orders: tuple[Callable[[_Buffer], tuple[int, ...]], ...] = (
        lambda b: (-b.size, b.start),
        lambda b: (-b.size * (b.end - b.start), b.start),
        lambda b: (b.start - b.end, -b.size),
        lambda b: (b.start,),
    )
    bound = _most_alive(buffers)
    activations = _improved(sorted(buffers, key=orders[0]), bound)
    for order in orders[1:]:
        if activations.size > bound:
            other = _improved(sorted(buffers, key=order), bound)
            activations = min(activations, other, key=lambda area: area.size)
    constants = [w for w in f.weights.values() if w.is_constant]
    mutables = [w for w in f.weights.values() if not w.is_constant]
    names = tuple(value.name for value in registers)
    return MemoryPlan(f.name, activations, _consecutive(mutables), _consecutive(constants), names)


_MOST_PLACED = 20_000
"""An order is improved until so many buffers were placed, or it was a few times: large programs are planned quickly."""

_MOST_MOVES = 32


def _improved(order: list[_Buffer], bound: int) -> Area:
    """The smallest area found while the buffer that ends highest moves to the front of the order, again and again.

    A buffer that found no gap goes on top of all others; placed first, it lies at the bottom, and smaller ones fill the
    gaps. Hill climbing over orders is also how the allocator of Arm's Vela compiler works.
    """
    area = smallest = _place(order)
    moves = min(_MOST_MOVES, _MOST_PLACED // max(len(order), 1))
    while moves and smallest.size > bound:
        highest = max(area.slots, key=lambda slot: slot.end).name
        index = next(i for i, buffer in enumerate(order) if buffer.name == highest)
        order.insert(0, order.pop(index))
        area = _place(order)
        smallest = min(smallest, area, key=lambda placed: placed.size)
        moves -= 1
    return smallest


def _consecutive(values: Sequence[Value]) -> Area:
    slots, offset = [], 0
    for value in values:
        slots.append(Slot(value.name, offset, value.type.room))
        offset = aligned(offset + value.type.room)
    return Area(offset, tuple(slots))


@dataclass(frozen=True, slots=True)
class _Buffer:
    """A buffer to place, and the instructions from its alloc to its dealloc."""

    name: str
    size: int
    start: int
    end: int


def _most_alive(buffers: Sequence[_Buffer]) -> int:
    """The largest sum of aligned sizes alive at one instruction: no area can be smaller."""
    steps = [(buffer.start, aligned(buffer.size)) for buffer in buffers]
    steps += [(buffer.end + 1, -aligned(buffer.size)) for buffer in buffers]
    return max(accumulate(size for _, size in sorted(steps)), default=0)


def _place(buffers: Sequence[_Buffer]) -> Area:
    """First fit: each buffer goes to the lowest gap among the buffers placed before that are alive together with it.

    Two lives overlap iff one of them contains the start of the other, so that starts can stand for time.
    """
    starts = sorted(buffer.start for buffer in buffers)
    taken = _Taken(len(starts))
    slots: list[Slot] = []
    for buffer in buffers:
        first, last = bisect_left(starts, buffer.start), bisect_right(starts, buffer.end) - 1
        offset = taken.lowest_gap(first, last, aligned(buffer.size))
        if buffer.size:
            taken.add(first, last, offset, offset + aligned(buffer.size))
        slots.append(Slot(buffer.name, offset, buffer.size, (buffer.start, buffer.end)))
    size = aligned(max((slot.end for slot in slots), default=0))
    return Area(size, tuple(sorted(slots, key=lambda slot: (slot.start, slot.live))))


class _Taken:
    """Bytes that are taken over time: a segment tree (Bentley 1977), with two sets of bytes in each node.

    A node spans half of its parent's time. `_held` are bytes taken throughout its span by buffers that do not
    take them throughout the parent's; `_touched` are bytes taken at some time in its span by buffers that are
    not held further up. To add and to ask are O(log n) of such sets.
    """

    def __init__(self, steps: int) -> None:
        self._leaves = 1 << steps.bit_length()
        self._held: dict[int, _Bytes] = defaultdict(_Bytes)
        self._touched: dict[int, _Bytes] = defaultdict(_Bytes)

    def add(self, first: int, last: int, start: int, end: int) -> None:
        """Takes bytes from `start` up to `end` during the steps from `first` to `last`."""
        within, above = self._nodes(first, last)
        for node in within:
            self._held[node].add(start, end)
        for node in above.union(within):
            self._touched[node].add(start, end)

    def lowest_gap(self, first: int, last: int, size: int) -> int:
        """The lowest offset of `size` bytes that are free during the steps from `first` to `last`."""
        within, above = self._nodes(first, last)
        sets = [self._touched[node] for node in within if node in self._touched]
        sets += [self._held[node] for node in above if node in self._held]
        offset, before = 0, -1
        while offset != before:
            before = offset
            for taken in sets:
                offset = taken.next_gap(offset, size)
        return offset

    def _nodes(self, first: int, last: int) -> tuple[list[int], set[int]]:
        """The nodes whose spans together are the steps from `first` to `last`, and all that span either of the two."""
        left, right = first + self._leaves, last + self._leaves
        depth = range(left.bit_length())
        above = {node >> shift for node in (left, right) for shift in depth}
        within = []
        while left <= right:
            if left & 1:
                within.append(left)
            if not right & 1:
                within.append(right)
            left, right = (left + 1) >> 1, (right - 1) >> 1
        return within, above


class _Bytes:
    """A set of bytes, as sorted ranges with gaps between them."""

    def __init__(self) -> None:
        self._starts: list[int] = []
        self._ends: list[int] = []

    def add(self, start: int, end: int) -> None:
        """Adds the bytes from `start` up to `end`; ranges without a gap between become one."""
        first, last = bisect_left(self._ends, start), bisect_right(self._starts, end)
        if first < last:
            start, end = min(start, self._starts[first]), max(end, self._ends[last - 1])
        self._starts[first:last], self._ends[first:last] = [start], [end]

    def next_gap(self, offset: int, size: int) -> int:
        """The lowest place from `offset` on where `size` bytes are not in the set."""
        index = bisect_right(self._ends, offset)
        while index < len(self._starts) and self._starts[index] < offset + size:
            offset = self._ends[index]
            index += 1
        return offset
