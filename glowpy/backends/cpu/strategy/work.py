"""How an instruction's work is cut: into units, which may be computed in any order, and into tiles.

Units follow from the sizes and the decisions in the attributes, never from the number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from math import lcm, prod

from glowpy.backends.cpu.insts_gen import (
    CpuAttentionInst,
    CpuBlockMatmulInst,
    CpuByteBlockMatmulInst,
    CpuByteWinogradInst,
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuGruInst,
    CpuLstmInst,
    CpuMatmulInst,
    CpuPlainConvInst,
    CpuPlainMatmulInst,
    CpuQuantizeBlocksInst,
    CpuRnnInst,
    CpuRowMatmulInst,
    CpuStandardizeInst,
    CpuStrassenInst,
    CpuStrassenSumsInst,
    CpuWinogradInst,
)
from glowpy.backends.cpu.packing import dot_of, tile_lanes
from glowpy.backends.cpu.strategy.cut import UNIT_BYTES, Cut, cut_of
from glowpy.backends.cpu.strategy.depthwise import Group, lanes_of_groups
from glowpy.backends.cpu.strategy.walk import boxes_of, is_pointwise
from glowpy.backends.cpu.strategy.winograd import count_patches
from glowpy.core.elemkind import ElemKind
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import AvgPoolInst, MaxPoolInst, MaxPoolWithArgmaxInst, SumPoolInst
from glowpy.ir.value import Value
from glowpy.support.rules import Rules
from glowpy.support.symbolic import Dim, Expr, ceil_div, greatest, highest, product, static

__all__ = [
    "PatchFunction",
    "TileFunction",
    "Work",
    "group_of",
    "has_pads",
    "sharing_open_tiles",
    "work_of",
]


@dataclass(frozen=True, slots=True)
class TileFunction:
    """One inner loop: its kind and its constants, as libjit/src/tile.c calls them."""

    kind: str
    pixels: int
    vectors: int
    block: int
    open_pixels: bool = False
    """Whether it is called for any number of pixels below `pixels`, which depends on symbolic extents."""
    open_vectors: bool = False
    """Whether it is called for any number of vectors below `vectors`."""
    halves: bool = False
    """The vectors are halves of whole ones."""

    @property
    def name(self) -> str:
        """The kind, pixels and whole vectors, for people."""
        return f"{self.kind} {self.pixels}x{self.vectors / (2 if self.halves else 1):g}"


@dataclass(frozen=True, slots=True)
class PatchFunction:
    """Transformation of patches of one size before or after the products, by the name in libjit/src/winograd.c."""

    kind: str
    patch: tuple[int, ...]
    kernels: tuple[int, ...]
    pool: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        """The kind and the pixels of a patch, for people."""
        return f"{self.kind} {self.patch[0]}x{self.patch[1]}"


@dataclass(frozen=True, slots=True)
class Work:
    """The work of one instruction.

    Attributes:
        units: How many there are.
        block: Columns of the result that most calls of the epilogue are about; `ld` of those tiles.
        only_blocks: Whether all calls are about so many.
        tiles: The fields of `tiles_t` in libjit/include/tile.h, in order; None where nothing calls them.
        finished: Which of the tiles may be one function with its epilogue, if any.
        patches: The functions of patches, which a kernel has after its tiles.
        tile_kind: What tiles read, where that is not the kind of the input.
        together: So many units are handed out at once, where one is too little.
        cut: How the instruction is cut, if its kernel knows nothing of units.
    """

    units: Dim
    block: int
    tiles: tuple[TileFunction | None, ...] = ()
    finished: TileFunction | None = None
    patches: tuple[PatchFunction, ...] = ()
    tile_kind: ElemKind | None = None
    together: int = 1
    cut: Cut | None = None
    only_blocks: bool = False


_rules: Rules[Callable[..., Work]] = Rules("work")


def has_pads(pads: Sequence[Dim]) -> bool:
    """Whether there may be pads, which symbolic ones are taken to be."""
    return any(pad != 0 for pad in pads)


def work_of(inst: Instruction, lanes: int) -> Work:
    """The work of an instruction on a machine with so many elements in a vector; one unit where nobody says more.

    There is none where the result of a product or pool has no elements.
    """
    rule = _rules.get(type(inst))
    if rule is None:
        cut = cut_of(inst)
        return Work(cut.units if cut is not None else 1, lanes, cut=cut)
    return rule(inst, lanes) if not inst.operands[0].value.type.is_empty else Work(0, lanes)


def sharing_open_tiles(works: Mapping[Instruction, Work]) -> dict[Instruction, Work]:
    """Returns the work where tiles of open sizes that differ only in the pixels of a whole one are one function.

    What is left of a line is computed in tiles of the same few sizes whatever a whole one has, and an open tile has
    code for each size: it is the longest to compile of all inner loops. That for the most pixels serves all, and is
    called that of a round number of pixels, so that it serves other networks too.
    """
    most: dict[TileFunction, int] = {}
    for work in works.values():
        for tile in work.tiles:
            if tile is not None and tile.open_pixels:
                alike = replace(tile, pixels=0)
                most[alike] = max(_round_pixels(tile), most.get(alike, 0))

    def widest(tile: TileFunction | None) -> TileFunction | None:
        if tile is None or not tile.open_pixels:
            return tile
        return replace(tile, pixels=most[replace(tile, pixels=0)])

    return {
        inst: replace(work, tiles=tuple(map(widest, work.tiles))) for inst, work in works.items()
    }


def _round_pixels(tile: TileFunction) -> int:
    """The most pixels of an open tile that is the same function: sizes are 16, 8, and all below 8."""
    if tile.pixels <= 8:
        return tile.pixels
    return 16 if tile.pixels <= 16 else 32


@_rules(CpuConvInst)
def _conv(inst: CpuConvInst, lanes: int) -> Work:
    images, height, width, channels = boxes_of(inst)[0].shape
    pixels, channels = height * width, channels // inst.group
    sizes: set[tuple[str, Dim]]
    if is_pointwise(inst) and height == 1:
        sizes = {("regular", count) for count in _lengths(pixels, inst.line, inst.tile_pixels)}
    elif inst.result.type.is_static and inst.input.type.is_static:
        sizes = _kinds(inst, prod(inst.result.type.extents[1:3]))
    else:
        open_ones = _lengths(pixels, inst.line, inst.tile_pixels) | {inst.tile_pixels, _OPEN}
        sizes = {(kind, count) for kind in ("regular", "scattered") for count in open_ones}
    blocks = _blocks(inst.tile_vectors, channels, inst.filter, lanes)
    tiles = _tiles(sizes, inst.tile_pixels, blocks)
    slabs = ceil_div(ceil_div(pixels, inst.line), inst.slab)
    units = images * inst.group * slabs * ceil_div(channels, blocks.size)
    return Work(units, blocks.size, tiles, tiles[0], only_blocks=blocks.are_whole)


def _kinds(inst: CpuConvInst, pixels: int) -> set[tuple[str, Dim]]:
    """The kind and the pixels of every tile: regular where all lie in one row, with windows between the edges.

    Floats are zeros above and below the image, so that rows of a window there do not matter.
    """
    width, stride, left = inst.result.type.extents[2], inst.strides[1], static(inst.pads)[1]
    span = (inst.kernels[1] - 1) * inst.dilation[1]
    rows = _rows_inside(inst)
    sizes: set[tuple[str, Dim]] = set()
    (step,) = static([inst.line])
    # Rows and tiles begin together again after so many pixels.
    period = min(pixels, lcm(width, step)) if inst.input.type.kind.is_float else pixels
    lines = [*range(0, period, step), pixels // step * step]
    for line in lines:
        length = min(step, pixels - line)
        for first in range(line, line + length, inst.tile_pixels):
            col, count = first % width, min(inst.tile_pixels, line + length - first)
            begin = col * stride - left
            end = begin + (count - 1) * stride + span
            regular = col + count <= width and begin >= 0 and end < inst.input.type.extents[2]
            regular &= first // width in rows
            sizes.add(("regular" if regular else "scattered", count))
    return sizes


def _rows_inside(inst: CpuConvInst) -> range:
    """The rows of the result whose windows lie between the upper and the lower edge, as far as that matters."""
    height, stride, top = inst.result.type.extents[1], inst.strides[0], static(inst.pads)[0]
    if inst.input.type.kind.is_float:
        return range(height)
    span = (inst.kernels[0] - 1) * inst.dilation[0]
    return range(ceil_div(top, stride), (inst.input.type.extents[1] - 1 - span + top) // stride + 1)


_OPEN = -1
"""Stands for any number of pixels below that of a whole tile."""


@dataclass(frozen=True)
class _Blocks:
    """Channels in blocks of `vectors`; the last may have fewer. Weights are packed for so many of them at a time."""

    vectors: int
    channels: Dim
    lanes: int
    packed: int
    halves: bool

    @property
    def size(self) -> int:
        """Channels of a whole block."""
        return self.vectors * self.lanes

    @property
    def are_whole(self) -> bool:
        """Whether no block has fewer channels."""
        return not isinstance(self.channels, Expr) and self.channels % self.size == 0

    @property
    def heights(self) -> tuple[int, int]:
        """Vectors of a whole block and of a smaller one; 0 where there is none, _OPEN for any number below a whole."""
        if isinstance(self.channels, Expr):
            return self.vectors, _OPEN if self.vectors > 1 else 0
        last = ceil_div(self.channels % self.size, self.lanes)
        are_whole = self.channels >= self.size or last == self.vectors
        return self.vectors if are_whole else 0, last if last != self.vectors else 0


def _blocks(vectors: int, channels: Dim, weights: Value, lanes: int) -> _Blocks:
    """The blocks of tiles for packed weights, where whole vectors have so many lanes."""
    (length,), own = static([weights.type.shape[-1]]), tile_lanes(weights.type, lanes)
    return _Blocks(vectors, channels, own, length // dot_of(weights.type.kind), own < lanes)


def _lengths(pixels: Dim, line: Dim, tile: int) -> set[Dim]:
    """The pixels of the tiles of lines, and of what is left of a line at the end; _OPEN for any number."""
    if isinstance(pixels, Expr) or isinstance(line, Expr):
        return {tile, _OPEN} if tile > 1 else {tile}
    lines = min(pixels, line), pixels % line
    return {count for length in lines for count in (min(length, tile), length % tile) if count}


def _tiles(
    sizes: set[tuple[str, Dim]], pixels: int, blocks: _Blocks
) -> tuple[TileFunction | None, ...]:
    """The table of `tiles_t`: regular and scattered, whole and remaining pixels, whole and remaining vectors."""
    rests = [count for _, count in sizes if count != pixels]
    rest = _OPEN if _OPEN in rests else next(iter(rests), 0)

    def tile(kind: str, count: Dim, vectors: int) -> TileFunction | None:
        if not vectors or (kind, count) not in sizes:
            return None
        open_pixels, open_vectors = count == _OPEN, vectors == _OPEN
        (size,) = static([pixels if open_pixels else count])
        columns = blocks.vectors if open_vectors else vectors
        return TileFunction(
            kind, size, columns, blocks.packed, open_pixels, open_vectors, blocks.halves
        )

    return tuple(
        tile(kind, count, vectors)
        for kind in ("regular", "scattered")
        for count in (pixels, rest)
        for vectors in blocks.heights
    )


@_rules(CpuMatmulInst)
def _matmul(inst: CpuMatmulInst, lanes: int) -> Work:
    *batch, rows, channels = boxes_of(inst)[0].shape
    sizes = {("regular", count) for count in _lengths(rows, inst.tile_pixels, inst.tile_pixels)}
    blocks = _blocks(inst.tile_vectors, channels, inst.rhs, lanes)
    tiles = _tiles(sizes, inst.tile_pixels, blocks)
    slabs = ceil_div(ceil_div(rows, inst.tile_pixels), inst.slab)
    units = product(batch) * slabs * ceil_div(channels, blocks.size)
    return Work(units, blocks.size, tiles, tiles[0], only_blocks=blocks.are_whole)


@_rules(CpuWinogradInst)
def _winograd(inst: CpuWinogradInst, lanes: int) -> Work:
    return _patches(inst, inst.pool, lanes)


@_rules(CpuByteWinogradInst)
def _byte_winograd(inst: CpuByteWinogradInst, lanes: int) -> Work:
    return replace(_patches(inst, (1, 1), lanes), tile_kind=ElemKind.I16)


def _patches(
    inst: CpuWinogradInst | CpuByteWinogradInst, pool: tuple[int, ...], lanes: int
) -> Work:
    _, *pixels, channels = inst.result.type.shape
    patches = count_patches(pixels, inst.patch, inst.kernels, pool)
    sizes = {("regular", count) for count in _lengths(patches, inst.slab, inst.tile_pixels)}
    blocks = _blocks(inst.tile_vectors, channels // inst.group, inst.filter, lanes)
    tiles = _tiles(sizes, inst.tile_pixels, blocks)
    patch = inst.patch, inst.kernels
    functions = PatchFunction("spread", *patch), PatchFunction("collect", *patch, pool)
    units = inst.bands * ceil_div(inst.filter.type.shape[0] // inst.group, inst.blocks)
    block = inst.tile_vectors * lanes
    is_whole = blocks.are_whole and blocks.size == block
    return Work(units, block, tiles, patches=functions, only_blocks=is_whole)


@_rules(CpuStrassenInst)
def _strassen(inst: CpuStrassenInst, lanes: int) -> Work:
    """All tiles have whole blocks of columns: those that are left are filled with zeros."""
    whole, vectors, block = inst.tile_pixels, inst.tile_vectors, inst.tile_vectors * lanes
    lengths = _lengths(inst.sums.type.shape[1], inst.slab, whole)
    sizes = whole, next(iter(static(lengths - {whole})), 0)
    tiles = [
        TileFunction("chained", size, vectors, block) if size in lengths else None for size in sizes
    ]
    units = inst.bands * ceil_div(inst.rhs.type.shape[0] // 2, inst.pairs)
    return Work(units, block, (tiles[0], None, tiles[1], None))


@_rules(CpuStrassenSumsInst)
def _strassen_sums(inst: CpuStrassenSumsInst, lanes: int) -> Work:
    """A unit is a row of each half."""
    _, rows, half = inst.result.type.shape
    return Work(
        rows, lanes, together=ceil_div(UNIT_BYTES, 8 * highest(half) * inst.result.type.kind.size)
    )


@_rules(CpuBlockMatmulInst)
def _block_matmul(inst: CpuBlockMatmulInst, lanes: int) -> Work:
    """A unit is a block of columns of all rows that meet it."""
    del lanes
    images = product(boxes_of(inst)[0].shape[:-2])
    blocks, steps, columns = inst.rhs.type.extents
    size = steps * columns * inst.rhs.type.kind.size
    return Work(images * blocks, columns, together=ceil_div(UNIT_BYTES, size))


@_rules(CpuByteBlockMatmulInst)
def _byte_block_matmul(inst: CpuByteBlockMatmulInst, lanes: int) -> Work:
    """A unit is a block of columns of all rows; where there are many rows, they are computed half a block at a time."""
    del lanes
    blocks, steps, _ = inst.rhs.type.extents
    columns, rows = inst.scales.type.extents[-1], prod(inst.result.type.likely[:-1])
    size = steps * columns * ElemKind.U32.size
    together = ceil_div(UNIT_BYTES, max(size, 1))
    return Work(blocks, columns // 2 if rows >= _MANY_ROWS else columns, together=together)


_MANY_ROWS = 8
"""ROWS of libjit/src/rounded.c where vectors are wide."""


@_rules(CpuQuantizeBlocksInst)
def _quantize_blocks(inst: CpuQuantizeBlocksInst, lanes: int) -> Work:
    """A unit is a row."""
    *rows, depth = inst.input.type.shape
    size = highest(depth) * inst.input.type.kind.size
    return Work(product(rows), lanes, together=ceil_div(UNIT_BYTES, max(size, 1)))


_ROW_COLUMNS = 64
"""The columns of a unit of a row times a matrix; UNIT_COLUMNS in libjit/src/matmul.c is the same number."""


@_rules(CpuRowMatmulInst)
def _row_matmul(inst: CpuRowMatmulInst, lanes: int) -> Work:
    """A unit is some columns of one matrix; the last one takes what is left as well."""
    *matrices, _, columns = inst.result.type.shape
    depth, size = highest(inst.lhs.type.shape[-1]), inst.result.type.kind.size
    unit = max(depth * min(highest(columns), _ROW_COLUMNS) * size, 1)
    return Work(
        product(matrices) * greatest(columns // _ROW_COLUMNS, 1),
        lanes,
        together=ceil_div(UNIT_BYTES, unit),
    )


@_rules(CpuStandardizeInst)
def _standardize(inst: CpuStandardizeInst, lanes: int) -> Work:
    """A unit is a row, and the epilogue takes a vector of it at a time."""
    *rows, length = inst.result.type.shape
    size = 2 * highest(length) * inst.result.type.kind.size
    return Work(product(rows), lanes, together=ceil_div(UNIT_BYTES, size))


def group_of(inst: CpuDepthwiseConvInst) -> Group:
    """The channels of a group: of the input, and of the result."""
    *_, depth, outputs = inst.filter.type.extents
    return depth, outputs * depth // static([inst.input.type.shape[-1]])[0]


@_rules(CpuDepthwiseConvInst)
def _depthwise(inst: CpuDepthwiseConvInst, lanes: int) -> Work:
    images, height, _, channels = inst.result.type.shape
    vector = lanes_of_groups(*group_of(inst), lanes)
    blocks = ceil_div(channels, inst.vectors * vector)
    return Work(images * ceil_div(height, inst.slab) * blocks, vector)


@_rules(CpuPlainConvInst, CpuPlainMatmulInst)
def _plain(inst: CpuPlainConvInst | CpuPlainMatmulInst, lanes: int) -> Work:
    """The epilogue is called for one number after the other."""
    del inst, lanes
    return Work(1, 1)


@_rules(CpuAttentionInst)
def _attention(inst: CpuAttentionInst, lanes: int) -> Work:
    """The decision says how many there are: each has scratch memory."""
    return Work(inst.units, lanes)


@_rules(CpuLstmInst, CpuGruInst, CpuRnnInst)
def _cell(inst: CpuLstmInst | CpuGruInst | CpuRnnInst, lanes: int) -> Work:
    """A unit is a tile of sequences, for all steps."""
    return Work(ceil_div(inst.result.type.shape[1], inst.tile_rows), lanes)


@_rules(MaxPoolInst, MaxPoolWithArgmaxInst, AvgPoolInst, SumPoolInst)
def _pool(
    inst: MaxPoolInst | MaxPoolWithArgmaxInst | AvgPoolInst | SumPoolInst, lanes: int
) -> Work:
    rows = product(inst.result.type.shape[:-2])
    row = sum(ref.value.type.room for ref in inst.operands) // max(highest(rows), 1)
    return Work(rows, lanes, together=ceil_div(UNIT_BYTES, max(row, 1)))
