"""Decides which convolutions are computed by Winograd's algorithm, and how: a cost model beside that of `product`.

A patch of `size` pixels gives `size - kernel + 1` pixels of the result along each axis, for `size` multiplications
where the direct algorithm has `kernel` for each pixel. That is paid for in three ways, which the model counts: patches
reach over the end of an image, they are spread and collected before and after the products, and there are more weights,
which every slab reads from where they lie.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import product
from math import prod
from typing import overload

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import WORTH_TRYING, Candidate, Problem, candidates
from glowpy.support.symbolic import Dim, ceil_div

__all__ = [
    "BYTE_PATCHES",
    "MAX_BYTE_KERNEL",
    "PATCHES",
    "WinogradDecision",
    "choose_winograd",
    "convolved_shape",
    "count_patches",
    "fewer_units",
    "patch_steps",
    "winograd_decisions",
    "winograd_ways",
]

PATCHES = (4, 6, 8)
"""Pixels of a patch along an axis with a kernel of more than one: those that libjit/src/winograd.c knows."""

BYTE_PATCHES = (4, 6)
"""The same of 8-bit integers, whose points are exact."""
MAX_BYTE_KERNEL = 3
"""The longest kernel of theirs."""

_NO_POOL = (1, 1)

_CYCLES_PER_POINT = 3.0
"""Cycles to spread or collect a vector of channels at one point, measured on processors with vectors of 64 bytes."""
_LEAST_GAIN = 0.9
"""The share of the direct algorithm's cycles that is allowed: it is more exact, and has fewer weights."""
_ALIKE = 1.05
"""Decisions that take so many times as long as the best are as good, if they have fewer weights."""
_FROM_MEMORY = 0.6
"""Weights that no cache holds until the network is run again come at this part of `Machine.third_rate`."""
_EXPOSED = 0.5
"""The part of the time to read weights that products do not hide."""
_EXPOSED_OF_BYTES = 0.2
"""The same where they are of 16 bits, for 8-bit integers, as measured on a Zen 5."""
_NEAR = 1.03
"""Tiles that cost so many times as much as the cheapest are tried, for units that are more alike."""
_SECOND = 0.25
"""How much it counts that two threads are done at once, beside the time of one."""
_UNITS = 8
"""The number of units: enough for threads to share; an even number of equal ones, where there can be."""
_WORK = 4
"""Each unit has scratch memory of its own: all together as much as so many second-level caches, as input and result
have, or two units' worth."""
_WORK_OF_BYTES = 1
"""The same of 8-bit integers, or a quarter of their input and result: networks of theirs have as much less memory."""


@dataclass(frozen=True, slots=True)
class WinogradDecision:
    """All that is free about a convolution; see libjit/src/winograd.c.

    Attributes:
        patch: Pixels of a patch, along height and width; 1 along an axis that has a kernel of 1.
        pixels: Patches of a tile.
        vectors: Vectors of output channels of a tile; so many are packed together.
        slab: Patches that are spread and multiplied together.
        bands: How many parts the tiles of all images are cut into, which are about equal: their last slabs are smaller.
        blocks: Blocks of output channels of a unit.
        cycles: The modelled cost, for all images.
    """

    patch: tuple[int, int]
    pixels: int
    vectors: int
    slab: int
    bands: int
    blocks: int
    cycles: float


def patch_steps(
    patch: Sequence[int], kernels: Sequence[int], pool: Sequence[int] = _NO_POOL
) -> tuple[int, int]:
    """The pixels of the result that a patch gives, along height and width, of which a pool takes the largest."""
    high, wide = (
        (size - kernel + 1) // pooled
        for size, kernel, pooled in zip(patch, kernels, pool, strict=True)
    )
    return high, wide


@overload
def count_patches(
    pixels: Sequence[int], patch: Sequence[int], kernels: Sequence[int], pool: Sequence[int] = ...
) -> int: ...
@overload
def count_patches(
    pixels: Sequence[Dim], patch: Sequence[int], kernels: Sequence[int], pool: Sequence[int] = ...
) -> Dim: ...
def count_patches(
    pixels: Sequence[Dim],
    patch: Sequence[int],
    kernels: Sequence[int],
    pool: Sequence[int] = _NO_POOL,
) -> Dim:
    """How many patches give a result of so many pixels, in height and width."""
    high, wide = map(ceil_div, pixels, patch_steps(patch, kernels, pool))
    return high * wide


@overload
def convolved_shape(result: Sequence[int], pool: Sequence[int]) -> tuple[int, int, int, int]: ...
@overload
def convolved_shape(result: Sequence[Dim], pool: Sequence[int]) -> tuple[Dim, Dim, Dim, Dim]: ...
def convolved_shape(result: Sequence[Dim], pool: Sequence[int]) -> tuple[Dim, Dim, Dim, Dim]:
    """Shape N, H, W, C of a convolution, of which `result` has the largest of each `pool` pixels."""
    images, height, width, channels = result
    return images, height * pool[0], width * pool[1], channels


@cache
def choose_winograd(
    result: tuple[int, ...],
    depth: int,
    kernels: tuple[int, ...],
    group: int,
    machine: Machine,
    direct: float,
) -> WinogradDecision | None:
    """The decision with the fewest weights of those that are about the cheapest; None where none is worth it.

    Args:
        result: Shape N, H, W, C of a convolution with neither strides nor dilation.
        depth: Input channels of a group.
        kernels: Height and width.
        group: How many groups the channels are in.
        machine: Whose cycles are counted.
        direct: The cycles that the direct algorithm is thought to take, for all images.
    """
    decisions = winograd_decisions(result, depth, kernels, group, machine)
    least = min((decision.cycles for decision in decisions), default=0.0)
    cheap = [decision for decision in decisions if decision.cycles <= _ALIKE * least]
    best = min(cheap, key=lambda decision: (prod(decision.patch), decision.cycles), default=None)
    return best if best is not None and best.cycles < _LEAST_GAIN * direct else None


def winograd_ways(
    result: tuple[int, ...],
    depth: int,
    kernels: tuple[int, ...],
    group: int,
    machine: Machine,
    direct: float,
) -> list[WinogradDecision]:
    """Returns decisions to try beside a direct algorithm: the best of each size of patch, and with half the slab."""
    every = winograd_decisions(result, depth, kernels, group, machine)
    decisions = sorted(
        (decision for decision in every if decision.cycles <= WORTH_TRYING * direct),
        key=lambda one: one.cycles,
    )
    smaller = [
        replace(decision, slab=ceil_div(decision.slab // 2, decision.pixels) * decision.pixels)
        for decision in decisions
        if decision.slab >= 2 * decision.pixels
    ]
    return decisions + smaller


def winograd_decisions(
    result: tuple[int, ...], depth: int, kernels: tuple[int, ...], group: int, machine: Machine
) -> list[WinogradDecision]:
    """Returns the best decision for each size of patch; none where channels are one number or no whole vectors."""
    if depth < machine.lanes * machine.dot or machine.lanes < 2:
        return []
    if depth % machine.dot or prod(kernels) == 1 or not prod(result):
        return []
    return [
        _decide(result, depth, kernels, group, patch, machine)
        for patch in _patches(kernels, machine)
    ]


def _patches(kernels: Sequence[int], machine: Machine) -> Iterator[tuple[int, ...]]:
    """Every size of patch of which at least two pixels of the result come along each axis with a kernel."""
    is_exact = machine.dot > 1
    if is_exact and max(kernels) > MAX_BYTE_KERNEL:
        return
    sizes = BYTE_PATCHES if is_exact else PATCHES
    yield from product(
        *((1,) if kernel == 1 else [size for size in sizes if size > kernel] for kernel in kernels)
    )


def _decide(
    result: tuple[int, ...],
    depth: int,
    kernels: Sequence[int],
    group: int,
    patch: tuple[int, ...],
    machine: Machine,
) -> WinogradDecision:
    """The best with one size of patch. A group is as an image of its own, but for its weights."""
    group_channels = result[3] // group
    patches = count_patches(result[1:3], patch, kernels)
    problem = Problem(1, patches, group_channels, 1, depth, depth, images=result[0] * group)
    tiles = list(candidates(problem, machine))
    limit = _NEAR * min(tile.cycles for tile in tiles)
    ways = (
        _with_slabs(problem, result, group, patch, machine, tile, slabs)
        for tile in tiles
        if tile.cycles <= limit
        for slabs in _slab_counts(ceil_div(patches, tile.pixels))
    )
    return min(ways, key=lambda way: way[0])[1]


def _slab_counts(tiles: int) -> Iterator[int]:
    """How many slabs there may be: as many as leave each two tiles, down to one, each count about a third smaller."""
    count = max(tiles // 2, 1)
    while count:
        yield count
        count = min(ceil_div(2 * count, 3), count - 1)


def _with_slabs(
    problem: Problem,
    result: tuple[int, ...],
    group: int,
    patch: tuple[int, ...],
    machine: Machine,
    tile: Candidate,
    slabs_of_image: int,
) -> tuple[float, WinogradDecision]:
    """The decision for a tile and about so many slabs of an image, and how bad it is."""
    points, patches, depth, images = prod(patch), problem.pixels, problem.depth, problem.images
    tiles = ceil_div(patches, tile.pixels)
    slab = min(ceil_div(tiles, slabs_of_image) * tile.pixels, patches)
    block = tile.vectors * machine.lanes
    all_blocks = max(ceil_div(problem.channels, block), 1)
    patch_bytes = points * (machine.element_bytes * depth + machine.lane_bytes * block)
    work = slab * patch_bytes
    is_of_bytes = machine.dot > 1
    ends = machine.element_bytes * prod(result[:3]) * (depth * group + result[3])
    most_work = (
        max(_WORK_OF_BYTES * machine.second_cache, ends // (2 * _WORK))
        if is_of_bytes
        else max(_WORK * machine.second_cache, ends)
    )
    units = _even(min(max(most_work // work, 2), _UNITS))
    slabs = images * ceil_div(patches, slab)
    bands = _even(min(slabs, units))
    blocks = all_blocks if slabs > bands else _share(all_blocks, units // bands)
    weights = points * depth * all_blocks * block * machine.element_bytes
    again = slabs - group if weights > machine.second_cache else 0
    exposed = _EXPOSED_OF_BYTES if is_of_bytes else _EXPOSED
    moved = exposed * weights * (group / _FROM_MEMORY + again)
    if work > machine.second_cache:
        # The points of a slab are written once and read by every block; what they give is moved, too.
        moved += images * patches * patch_bytes * (all_blocks + 1)
    vectors = ceil_div(depth, machine.lanes * machine.dot) + all_blocks * tile.vectors
    sums = patches * points * vectors * _CYCLES_PER_POINT
    cycles = images * (sums + points * tile.cycles) + moved / machine.third_rate
    later = _later(images * tiles, 1) if bands > 1 else _later(all_blocks, blocks)
    share = later / (images * tiles if bands > 1 else all_blocks)
    decision = WinogradDecision(
        (patch[0], patch[1]), tile.pixels, tile.vectors, slab, bands, blocks, cycles
    )
    return cycles * (1 - _SECOND + 2 * _SECOND * share) * max(work / most_work, 1), decision


def fewer_units(bands: int, share: int, count: int, most: int) -> tuple[int, int]:
    """Bands, and how many of `count` blocks a unit has of each, so that there are at most so many units.

    Blocks of a band are put together first: what a unit spreads is then spread once.
    """
    bands = min(bands, _even(most))
    return bands, max(share, _share(count, max(most // bands, 1)))


def _even(count: int) -> int:
    """The even number below one that is odd, but for 1."""
    return max(count - count % 2, 1)


def _share(count: int, most: int) -> int:
    """How much of `count` each of `most` parts gets, or fewer, so that two threads have as little as can be.

    Of shares that are as good it is the smallest, for more threads.
    """
    return min(range(ceil_div(count, most), count + 1), key=lambda share: _later(count, share))


def _later(count: int, share: int) -> int:
    """How much the later of two threads computes of `count` parts that are taken `share` at a time."""
    quotient, rest = divmod(count, share)
    rounds, odd = divmod(quotient, 2)  # in which each takes a share
    return rounds * share + (share if odd else rest)
