"""How many rows a depthwise convolution reads at a time of what a widening one has just computed."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.support.symbolic import ceil_div

__all__ = ["Band", "Window", "bands"]

_LARGE = 2
"""Larger than so many times what stays in the second-level cache is an image that is computed in bands: one that nearly
fits would gain little."""

_PART = 0.5
"""The part of that cache for one band: the band before, some rows of which are kept, is in it as well."""

_MOST_KEPT = 0.5
"""The largest part of a band's rows that it takes from the band before: they are copied."""

_MOST_BANDS = 128
"""The most bands: each is code of its own, which takes time to compile. A very large image leaves the cache instead."""


@dataclass(frozen=True, slots=True)
class Window:
    """Window of a convolution along one dimension of its input.

    Attributes:
        size: The extent of the input.
        reach: From the first to the last element that one of the result reads, both counted.
        stride: Between those that neighbours begin with.
        before: Padding.
    """

    size: int
    reach: int
    stride: int
    before: int


@dataclass(frozen=True, slots=True)
class Band:
    """Neighbouring rows of a result.

    Attributes:
        first: The first of the rows.
        last: The row after them.
        low: The first row of the input that they read.
        high: The row after those that they read.
        above: How many rows of padding they read before the input.
        below: How many after it.
    """

    first: int
    last: int
    low: int
    high: int
    above: int
    below: int


def bands(window: Window, rows: int, row_bytes: int, machine: Machine) -> list[Band]:
    """The bands of a result of `rows` rows, about equal.

    There are none where the rows of the input, each of so many bytes, had better be computed at once.
    """
    if window.size * row_bytes <= _LARGE * machine.second_cache:
        return []
    most = int(_PART * machine.second_cache) // (row_bytes * window.stride)
    overlap = max(window.reach - window.stride, 0)
    if most == 0 or overlap > _MOST_KEPT * most * window.stride:
        return []
    count = min(ceil_div(rows, most), _MOST_BANDS)
    ends = [rows * index // count for index in range(count + 1)]
    parts = [_band(window, first, last) for first, last in pairwise(ends)]
    highs = [0, *(part.high for part in parts[:-1])]
    # A band of padding alone would read nothing new, or nothing at all.
    reads = all(max(part.low, high) < part.high for part, high in zip(parts, highs, strict=True))
    return parts if reads else []


def _band(window: Window, first: int, last: int) -> Band:
    begin = first * window.stride - window.before
    end = (last - 1) * window.stride - window.before + window.reach
    low, high = max(begin, 0), min(end, window.size)
    return Band(first, last, low, high, low - begin, end - high)
