"""Which register tile a convolution or a matrix product runs with: a cost model over all tiles that fit.

A tile is `rows` x `cols` output pixels times `vectors` vectors of output channels;
libjit/include/tile.h walks a grid of them. A matrix product is a grid of one row, whose pixels are
the rows of the left operand. So is a convolution that looks at one pixel at a time.

The model counts processor cycles. For one step of the reduction a tile of p pixels and v vectors
takes the largest of

* p * v / 2, as two fused multiply-adds start in a cycle;
* (p + v) / 2, as two loads do: v vectors of weights, p elements of input;
* 4.5, the latency of an addition to the same register, with what is lost where nothing else is left
  to do: small tiles wait for themselves;
* the bytes of weights / 24 if a block of weights is too big for the first-level cache, / 13 if it is
  too big for the second one.

Pixels that lie a multiple of 4096 bytes apart compete for the same few lines of the first-level
cache, with the weights as well: from the ninth on each makes a step 3 % longer.

Setting up and storing a tile takes a cycle for each of its vectors, and some more for the loops
around it. The tiles at the end of a row, of a column and of the channels are smaller; they are
counted as what they are. Each differently sized tile is code of its own, which costs time to
compile, hence a small price on each.

* p * v sums, v weights and one element of input have to fit into the registers and leave one free,
  or LLVM does not manage without the stack: a tile that spills is slower than any that does not.
* The choice depends on nothing but the arguments.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import gcd, prod

__all__ = ["ConvTile", "MatmulTile", "choose_conv_tile", "choose_matmul_tile"]

_MULTIPLIES_PER_CYCLE = 2
_LOADS_PER_CYCLE = 2
_LATENCY = 4.5
_FIRST_CACHE_WEIGHTS = 16 * 1024
_SECOND_CACHE_WEIGHTS = 700 * 1024
_SECOND_CACHE_BYTES_PER_CYCLE = 24
_THIRD_CACHE_BYTES_PER_CYCLE = 13
_CACHE_SET_PERIOD = 4096
_LINES_IN_A_SET = 8
_PRICE_OF_A_LINE = 0.03
_CYCLES_PER_TILE = 20
_PRICE_OF_A_VARIANT = 0.01

# The bounds of libjit/include/tile.h.
_MAX_PIXELS = 32
_MAX_VECTORS = 8


@dataclass(frozen=True, slots=True)
class ConvTile:
    """Output pixels and vectors of output channels that are computed at once."""

    rows: int
    cols: int
    vectors: int


@dataclass(frozen=True, slots=True)
class MatmulTile:
    """Rows of the left operand and vectors of columns of the right one that are computed at once."""

    rows: int
    vectors: int


@dataclass(frozen=True, slots=True)
class _Grid:
    """What is cut into tiles: pixels, channels, and the length of the sum for each element.

    `pixel_bytes` lie between the inputs of two neighbouring pixels.
    """

    height: int
    width: int
    channels: int
    depth: int
    pixel_bytes: int
    lanes: int


def choose_conv_tile(
    result_shape: Sequence[int],
    input_channels: int,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    group: int,
    *,
    vector_registers: int,
    lanes: int,
) -> ConvTile:
    """The tile for a packed convolution.

    Args:
        result_shape: N, H, W, C of the result.
        input_channels: Channels of the input, of all groups together.
        kernels: Height and width of the filter.
        strides: Vertical and horizontal stride.
        pads: Top, left, bottom, right.
        group: Number of groups.
        vector_registers: Registers of the target variant.
        lanes: Floats in one of them.
    """
    images, height, width, channels = result_shape
    if prod(kernels) == 1 and prod(strides) == 1 and not any(pads):
        height, width = 1, images * height * width
    depth = prod(kernels) * (input_channels // group)
    pixel_bytes = input_channels * strides[1] * 4
    grid = _Grid(height, width, channels // group, depth, pixel_bytes, lanes)
    return _best(grid, vector_registers)


def choose_matmul_tile(m: int, n: int, k: int, *, vector_registers: int, lanes: int) -> MatmulTile:
    """The tile for M x K times a packed K x N, on a target with so many registers of so many floats."""
    tile = _best(_Grid(1, m, n, k, k * 4, lanes), vector_registers)
    return MatmulTile(tile.cols, tile.vectors)


@cache
def _best(grid: _Grid, registers: int) -> ConvTile:
    """The cheapest tile; of equally cheap ones that with fewer rows, then with more columns."""
    return min(
        _feasible(grid, registers),
        key=lambda tile: (_cost(grid, tile), tile.rows, -tile.cols, tile.vectors),
    )


def _feasible(grid: _Grid, registers: int) -> Iterator[ConvTile]:
    """Every tile that fits into the registers and is not larger than the grid; 1 x 1 x 1 at least."""
    most = max(min(_MAX_VECTORS, _blocks(grid.channels, grid.lanes)), 1)
    for vectors in range(1, most + 1):
        fitting = min((registers - 2) // vectors - 1, _MAX_PIXELS)
        pixels = max(fitting, 1 if vectors == 1 else 0)
        for rows in range(1, min(pixels, max(grid.height, 1)) + 1):
            for cols in range(1, min(pixels // rows, max(grid.width, 1)) + 1):
                yield ConvTile(rows, cols, vectors)


def _cost(grid: _Grid, tile: ConvTile) -> float:
    """Modelled cycles for the whole grid."""
    block = tile.vectors * grid.lanes
    row_parts = _parts(grid.height, tile.rows)
    col_parts = _parts(grid.width, tile.cols)
    channel_parts = _parts(grid.channels, block)
    cycles = 0.0
    for rows, row_count in row_parts:
        for cols, col_count in col_parts:
            for channels, channel_count in channel_parts:
                vectors = _blocks(channels, grid.lanes)
                per_tile = _tile_cycles(rows, cols, vectors, block, grid)
                cycles += row_count * col_count * channel_count * per_tile
    variants = len(row_parts) * len(col_parts) * len(channel_parts)
    return cycles * (1 + _PRICE_OF_A_VARIANT * (variants - 1))


def _tile_cycles(rows: int, cols: int, vectors: int, block: int, grid: _Grid) -> float:
    """Modelled cycles for one tile, whose weights lie `block` floats apart."""
    pixels = rows * cols
    step = max(
        pixels * vectors / _MULTIPLIES_PER_CYCLE,
        (pixels + vectors) / _LOADS_PER_CYCLE,
        _LATENCY,
    )
    if grid.height * grid.width > pixels:  # else weights are read once, and no tile changes that
        step = max(step, _weight_cycles(vectors * grid.lanes * 4, grid.depth * block * 4))
    crowded = max(_lines_in_one_set(rows, cols, grid.pixel_bytes) - _LINES_IN_A_SET, 0)
    step *= 1 + _PRICE_OF_A_LINE * crowded
    return grid.depth * step + pixels * vectors + _CYCLES_PER_TILE


def _weight_cycles(weights: int, block: int) -> float:
    """Cycles to fetch so many bytes of weights out of a block of so many bytes."""
    if block <= _FIRST_CACHE_WEIGHTS:
        return 0.0
    if block <= _SECOND_CACHE_WEIGHTS:
        return weights / _SECOND_CACHE_BYTES_PER_CYCLE
    return weights / _THIRD_CACHE_BYTES_PER_CYCLE


def _lines_in_one_set(rows: int, cols: int, pixel_bytes: int) -> int:
    """How many pixels of a tile lie in the same set of the first-level cache."""
    if not pixel_bytes:
        return 1
    period = _CACHE_SET_PERIOD // gcd(pixel_bytes, _CACHE_SET_PERIOD)
    return rows * cols if period == 1 else _blocks(cols, period)


def _parts(extent: int, step: int) -> list[tuple[int, int]]:
    """The sizes that `extent` is cut into by `step`, each with how often it occurs."""
    whole, rest = divmod(extent, step)
    return [part for part in ((step, whole), (rest, 1)) if part[0] and part[1]]


def _blocks(extent: int, step: int) -> int:
    return -(-extent // step)
