"""Decides which matrix products are computed by Strassen's algorithm, and how: a cost model beside that of `product`.

Seven products of quarters take the place of eight. That is paid for in sums before and after them, which the model
counts: those of the left side, once for all columns, and those of the right side, for each slab of rows, which the
first tile of a slab reads from the second-level cache and writes to it. So it needs long rows, and not too few.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import Problem, candidates, estimate
from glowpy.support.symbolic import ceil_div

__all__ = ["StrassenDecision", "choose_strassen", "strassen_ways"]

_LEFT_CYCLES = 24.0
"""Divided by the multiply-adds that start in a cycle: to compute the four sums of a vector of each quarter of the left
side, where they stay in the second-level cache."""
_SUM_CYCLES = 160.0
"""Cycles to begin tiles, store products and add them up, for a vector of each quarter of the result."""
_DIFFERENCES = 4
"""Quarters of the right side that are differences; each takes a step two reads and a write of its weights."""
_IN_PLACE = 3
"""The number of the seven products whose left side is a quarter as it lies, with rows of its whole depth."""
_LEAST_GAIN = 0.975
"""The share of the direct algorithm's cycles that is allowed. Weights are no fewer, but rounding is less."""
_UNITS = 16
"""The number of units: enough for threads to share, each with scratch memory of its own."""
_ROOM = 4
"""Four sums of all rows of a slab are to take at most this part of the second-level cache."""


@dataclass(frozen=True, slots=True)
class StrassenDecision:
    """All that is free about a product; see libjit/src/strassen.c.

    Attributes:
        pixels: Rows of a tile.
        vectors: Vectors of columns of a tile; so many are packed together.
        slab: Rows of each half that are multiplied together.
        bands: How many parts the slabs are cut into.
        pairs: Pairs of blocks of columns of a unit.
        cycles: The modelled cost.
    """

    pixels: int
    vectors: int
    slab: int
    bands: int
    pairs: int
    cycles: float


def choose_strassen(
    rows: int, depth: int, columns: int, machine: Machine, direct: float
) -> StrassenDecision | None:
    """The cheapest decision; None where none is worth it.

    Args:
        rows: Rows of the left side.
        depth: Its columns.
        columns: Columns of the right side.
        machine: Whose cycles are counted.
        direct: The cycles that the direct algorithm is thought to take.
    """
    best = min(strassen_ways(rows, depth, columns, machine), key=_cycles, default=None)
    return best if best is not None and best.cycles < _LEAST_GAIN * direct else None


def _cycles(decision: StrassenDecision) -> float:
    return decision.cycles


@cache
def strassen_ways(
    rows: int, depth: int, columns: int, machine: Machine
) -> tuple[StrassenDecision, ...]:
    """Returns the best decision for each number of vectors; none for an odd depth, or half of one below a vector."""
    half = depth // 2
    if depth % 2 or half < machine.lanes or machine.lanes < 2 or rows < 2 or not columns:
        return ()
    problem = Problem(1, ceil_div(rows, 2), ceil_div(columns, 2), 1, half, half)
    best: dict[int, StrassenDecision] = {}
    for tile in candidates(problem, machine):
        decision = _decide(problem, columns, tile.pixels, tile.vectors, machine)
        if tile.vectors not in best or decision.cycles < best[tile.vectors].cycles:
            best[tile.vectors] = decision
    return tuple(sorted(best.values(), key=_cycles))


def _decide(
    problem: Problem, columns: int, pixels: int, vectors: int, machine: Machine
) -> StrassenDecision:
    """A tile for one of seven products, with the slabs and units that go with it."""
    rows, half, block = problem.pixels, problem.depth, vectors * machine.lanes
    all_pairs = ceil_div(columns, 2 * block)
    slab = _slab(rows, pixels, block, machine)
    slabs = ceil_div(rows, slab)
    bands = min(slabs, _UNITS)
    pairs = ceil_div(all_pairs, max(_UNITS // bands, 1))

    whole = replace(problem, channels=all_pairs * block)
    apart = replace(whole, pixel_step=2 * half)
    cycles = _IN_PLACE * estimate(apart, machine, pixels, vectors, pixels).cycles
    cycles += (7 - _IN_PLACE) * estimate(whole, machine, pixels, vectors, pixels).cycles
    step = pixels * vectors / machine.multiplies
    read = 3 * block * machine.element_bytes / machine.second_rate
    cycles += _DIFFERENCES * slabs * all_pairs * half * max(read - step, 0)
    moved = 8 * machine.lanes * machine.element_bytes  # four quarters and their sums
    stays = rows * ceil_div(half, machine.lanes) * moved <= machine.second_cache
    left = _LEFT_CYCLES / machine.multiplies
    left = left if stays else max(moved / machine.third_rate, left)
    cycles += rows * ceil_div(half, machine.lanes) * left
    cycles += rows * all_pairs * vectors * _SUM_CYCLES / machine.multiplies
    return StrassenDecision(pixels, vectors, slab, bands, pairs, cycles)


def _slab(rows: int, pixels: int, block: int, machine: Machine) -> int:
    """Returns as many rows as have their sums in cache, in whole tiles; all slabs are about equal."""
    room = machine.second_cache // _ROOM
    most = max(room // (4 * block * machine.element_bytes) // pixels, 1)
    tiles = ceil_div(rows, pixels)
    return min(ceil_div(tiles, ceil_div(tiles, most)) * pixels, rows)
