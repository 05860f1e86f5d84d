"""How attention is cut into blocks of queries and keys, and how their products are tiled."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import MAX_PIXELS, Problem, step_limits
from glowpy.support.symbolic import ceil_div

__all__ = ["FEW_QUERIES", "AttentionDecision", "KeyTile", "choose_attention", "key_tiles"]

FEW_QUERIES = 4
"""The number of queries of a head computed one by one, without tiles, at most; the kernel has the same number."""

_ROWS = 128
"""Queries of an item that share a block of keys and values, where not all of a head stay in the second-level cache."""

_MOST_KEYS = 128
"""Keys of a block: with the values they fill a fraction of the second-level cache."""

_MOST_TILE = 14
_VECTORS = 2
"""The number of vectors of queries in a group: as few as leave most registers for sums, whose rows take a broadcast."""

_LEAST_UNITS = 8


@dataclass(frozen=True, slots=True)
class AttentionDecision:
    """Decisions about attention.

    Attributes:
        units: Parts of the work, each with scratch memory of its own.
        rows: Queries of a head that a unit computes at a time.
        block: Keys that they meet at a time.
        tile_keys: Keys of a tile of scores.
        tile_rows: Queries of a tile of results.
        group: Queries that are in the lanes of a tile's vectors.
    """

    units: int
    rows: int
    block: int
    tile_keys: int
    tile_rows: int
    group: int


@dataclass(frozen=True, slots=True)
class KeyTile:
    """Tile of scores for a number of keys.

    Attributes:
        keys: Keys of a tile.
        vectors: Vectors of queries.
        cycles: The modelled cycles for the scores of a group of queries, with all keys.
        limit: The resource that decides how long a step takes.
    """

    keys: int
    vectors: int
    cycles: float
    limit: str


def key_tiles(queries: int, keys: int, depth: int, machine: Machine) -> list[KeyTile]:
    """All tiles of scores that fit into registers, the best first. The last keys are as many as those of others."""
    vectors = _VECTORS if queries > machine.lanes or machine.lanes == 1 else 1
    steps = ceil_div(depth, machine.dot)
    most = min((machine.vector_registers - vectors - 1) // vectors, _MOST_TILE, MAX_PIXELS)
    problem = Problem(1, keys, vectors * machine.lanes, 1, depth, depth)
    tiles = []
    for size in range(1, max(most, 1) + 1):
        limits = step_limits(problem, machine, size, vectors, vectors * machine.lanes)
        limit = max(limits, key=lambda name: limits[name])
        tile = steps * limits[limit] + machine.tile_overhead + size * vectors
        tiles.append(KeyTile(size, vectors, ceil_div(keys, size) * tile, limit))
    return sorted(tiles, key=lambda tile: (tile.cycles, -tile.keys))


def choose_attention(
    heads: int, queries: int, keys: int, depth: int, width: int, machine: Machine
) -> AttentionDecision:
    """Decides for heads, counted over a batch, with these numbers of queries and keys each; all are at least 1.

    `depth` and `width` are the elements of a key and a value. Where all of a head stay in the second-level cache, a
    group of queries is done with before the next, so that scratch memory is small; in bf16 keys and values are rounded
    for each item, so that it is always many queries. A block is some whole tiles of keys.
    """
    tiles = key_tiles(queries, keys, depth, machine)
    tile = tiles[0]
    group = tile.vectors * machine.lanes
    tiles_of_block = ceil_div(ceil_div(keys, tile.keys), ceil_div(keys, _MOST_KEYS))
    stays = (
        machine.dot == 1 and keys * (depth + width) * machine.element_bytes <= machine.second_cache
    )
    rows = group if stays else ceil_div(min(queries, _ROWS), group) * group
    items = heads * ceil_div(queries, rows)
    return AttentionDecision(
        ceil_div(items, max(items // _LEAST_UNITS, 1)),
        rows,
        min(tiles_of_block * tile.keys, keys),
        tile.keys,
        max(size for size in range(1, len(tiles) + 1) if group % size == 0),
        group,
    )
