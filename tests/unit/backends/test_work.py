"""The units and the inner loops of products, against a walk over every tile, pixel and tap.

tests/libjit/product_runner.py compares the same numbers with what libjit calls.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

import pytest

from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuDepthwiseConvInst, CpuMatmulInst
from glowpy.backends.cpu.packing import packed_shape
from glowpy.backends.cpu.strategy.cut import UNIT_BYTES
from glowpy.backends.cpu.strategy.product import choose, conv_problem
from glowpy.backends.cpu.strategy.work import TileFunction, Work, sharing_open_tiles, work_of
from glowpy.backends.cpu.variant import VARIANTS
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.ir.insts_gen import CopyInst, MaxPoolInst
from glowpy.ir.value import Value
from glowpy.support.symbolic import Dim, static

Loop = tuple[str, int, int]
"""Kind, pixels and vectors."""


def values(*shapes: Sequence[Dim]) -> list[Value]:
    return [Value("v", Type(ElemKind.F32, tuple(shape))) for shape in shapes]


def cuts(extent: int, step: int) -> Iterator[range]:
    """Pieces of so many, and what is left."""
    for first in range(0, extent, step):
        yield range(first, min(first + step, extent))


@dataclass(frozen=True)
class Conv:
    """A convolution of images: attributes as those of the instruction."""

    batch: int
    image: tuple[int, int]
    channels: int
    outputs: int
    kernels: tuple[int, int]
    strides: tuple[int, int] = (1, 1)
    pads: tuple[int, int, int, int] = (0, 0, 0, 0)
    dilation: tuple[int, int] = (1, 1)
    group: int = 1

    @property
    def result(self) -> tuple[int, ...]:
        begins, ends = self.pads[:2], self.pads[2:]
        axes = zip(self.image, begins, ends, self.kernels, self.dilation, self.strides, strict=True)
        extents = [(n + b + e - (k - 1) * d - 1) // s + 1 for n, b, e, k, d, s in axes]
        return (self.batch, *(max(extent, 0) for extent in extents), self.outputs)

    @property
    def pointwise(self) -> bool:
        return prod(self.kernels) == prod(self.strides) == 1 and not any(self.pads)

    def inst(self, pixels: int, vectors: int, line: int, slab: int, lanes: int) -> CpuConvInst:
        block = vectors * lanes
        blocks = -(-self.outputs // self.group // block)
        depth = self.channels // self.group
        filter = (self.group, blocks, *self.kernels, depth, block)
        shapes = self.result, (self.batch, *self.image, self.channels), filter, (self.outputs,)
        return CpuConvInst(
            values(*shapes, (depth,)),
            {
                "kernels": self.kernels, "strides": self.strides, "pads": self.pads,
                "dilation": self.dilation, "group": self.group, "tile_pixels": pixels,
                "tile_vectors": vectors, "line": line, "slab": slab, "fetch": 0,
            },
        )  # fmt: skip


def walk(conv: Conv, inst: CpuConvInst, lanes: int) -> tuple[int, set[Loop]]:
    """How many units there are, and every inner loop that one of their tiles takes."""
    batch, height, width, outputs = conv.result
    pixels = height * width
    if conv.pointwise:
        pixels, batch = pixels * batch, 1
    loops, units = set(), 0
    (length,) = static([inst.line])
    lines = list(cuts(pixels, length))
    for slab in cuts(len(lines), inst.slab):
        for block in cuts(outputs // conv.group, inst.tile_vectors * lanes):
            units += batch * conv.group
            vectors = -(-len(block) // lanes)
            for line in (lines[number] for number in slab):
                for part in cuts(len(line), inst.tile_pixels):
                    tile = line[part.start : part.stop]
                    loops.add((kind(conv, tile, width), len(tile), vectors))
    return units, loops if units else set()


def kind(conv: Conv, tile: range, width: int) -> str:
    """Regular if the pixels lie in one row and no tap lies left or right of the image."""
    if conv.pointwise:
        return "regular"
    if len({pixel // width for pixel in tile}) > 1:
        return "scattered"
    for pixel in tile:
        for tap in range(conv.kernels[1]):
            place = pixel % width * conv.strides[1] - conv.pads[1] + tap * conv.dilation[1]
            if not 0 <= place < conv.image[1]:
                return "scattered"
    return "regular"


def check(
    inst: CpuConvInst | CpuMatmulInst, units: int, loops: set[Loop], lanes: int, whole: int = 0
) -> tuple[TileFunction | None, ...]:
    """The table has these loops and no others, each where libjit looks for its size.

    Vectors of a tile have `lanes`, and whole ones, if those are half ones, `whole`.
    """
    work, pixels, vectors = work_of(inst, whole or lanes), inst.tile_pixels, inst.tile_vectors
    assert work.units == units
    assert not units or work.block == vectors * lanes
    table = {}
    for place, loop in enumerate(work.tiles):
        if loop is None:
            continue
        assert loop.block == inst.operands[2].value.type.shape[-1]
        assert loop.halves == (0 < lanes < whole)
        scattered = loop.kind == "scattered"
        rests = loop.pixels < pixels, loop.vectors < vectors
        assert place == 4 * scattered + 2 * rests[0] + rests[1]
        table[loop.kind, loop.pixels, loop.vectors] = place
    if units:
        assert set(table) == loops
    return work.tiles


def random_convs(count: int) -> Iterator[Conv]:
    rng = random.Random(7)
    while count:
        group = rng.choice([1, 1, 1, 2, 3])
        conv = Conv(
            batch=rng.choice([1, 1, 3]),
            image=(rng.randint(1, 9), rng.randint(1, 20)),
            channels=group * rng.randint(1, 3),
            outputs=group * rng.randint(1, 40),
            kernels=(rng.randint(1, 4), rng.randint(1, 4)),
            strides=(rng.randint(1, 3), rng.randint(1, 3)),
            pads=(rng.randint(0, 3), rng.choice([0, 1, 5]), rng.randint(0, 3), rng.choice([0, 2, 9])),
            dilation=(rng.randint(1, 2), rng.randint(1, 3)),
            group=group,
        )  # fmt: skip
        if rng.random() < 0.2:
            plain: tuple[int, int, int, int] = (0, 0, 0, 0)
            conv = Conv(conv.batch, conv.image, conv.channels, conv.outputs, (1, 1), pads=plain)
        if prod(conv.result):
            yield conv
            count -= 1


@pytest.mark.parametrize("lanes", [4, 8])
def test_loops_of_convolutions_are_those_of_the_walk(lanes: int) -> None:
    rng = random.Random(lanes)
    for conv in random_convs(300):
        _, _, width, _ = conv.result
        tile = rng.randint(1, 9), rng.randint(1, 3)
        line = rng.choice([width, tile[0]])
        inst = conv.inst(*tile, line, rng.randint(1, 5), lanes)
        check(inst, *walk(conv, inst, lanes), lanes)


def test_loops_of_what_is_chosen_are_those_of_the_walk() -> None:
    """And the scattered ones have a register for each pointer."""
    machines = list(dict.fromkeys(variant.machine for variant in VARIANTS))
    for number, conv in enumerate(random_convs(100)):
        machine = machines[number % len(machines)]
        image = (conv.batch, *conv.image, conv.channels)
        lists = conv.kernels, conv.strides, conv.pads, conv.dilation
        decision = choose(conv_problem(conv.result, image, *lists, conv.group), machine)
        tile = decision.pixels, decision.vectors
        inst = conv.inst(*tile, decision.line, decision.slab, decision.lanes)
        for loop in check(inst, *walk(conv, inst, decision.lanes), decision.lanes, machine.lanes):
            if loop is not None and loop.kind == "scattered":
                assert loop.pixels <= machine.pointer_registers


@pytest.mark.parametrize(
    ("left", "right"),
    [
        ((7, 3), (3, 37)),
        ((2, 7, 3), (2, 3, 16)),
        ((2, 7, 3), (1, 3, 16)),
        ((7, 3), (2, 3, 5)),
        ((4, 1, 5, 3), (2, 3, 5)),
    ],
)
def test_loops_of_matrix_products_are_those_of_the_walk(
    left: tuple[int, ...], right: tuple[int, ...]
) -> None:
    """Rows that all meet the same right side are one long matrix."""
    lanes = 4
    shape = (*max(left[:-2], right[:-2], key=len), left[-2], right[-1])
    if len(left) == 4:
        shape = (4, 2, 5, 5)
    matrices, rows = prod(shape[:-2]), shape[-2]
    if prod(right[:-2]) == 1:
        matrices, rows = 1, matrices * rows
    for pixels in range(1, 10):
        for vectors in (1, 2, 3):
            packed = packed_shape(right, vectors * lanes)
            attrs = {"tile_pixels": pixels, "tile_vectors": vectors, "slab": 2, "fetch": 0}
            inst = CpuMatmulInst(values(shape, left, packed), attrs)
            blocks = [-(-len(block) // lanes) for block in cuts(shape[-1], vectors * lanes)]
            tiles = [len(tile) for tile in cuts(rows, pixels)]
            loops = {("regular", tile, block) for tile in tiles for block in blocks}
            units = matrices * len(list(cuts(len(tiles), 2))) * len(blocks)
            check(inst, units, loops, lanes)


def test_units_of_a_depthwise_convolution_are_slabs_of_lines_and_vectors() -> None:
    shapes = (2, 5, 6, 70), (2, 5, 6, 70), (3, 3, 1, 70), (70,)
    attrs = {"kernels": (3, 3), "strides": (1, 1), "pads": (1,) * 4, "dilation": (1, 1)}
    inst = CpuDepthwiseConvInst(
        values(*shapes), {**attrs, "tile_pixels": 3, "slab": 2, "vectors": 4, "single_edges": False}
    )
    assert work_of(inst, 8) == Work(2 * 3 * 3, 8)
    shapes = (2, 5, 6, 70), (2, 5, 6, 35), (3, 3, 1, 70), (70,)
    halves = CpuDepthwiseConvInst(values(*shapes), inst.attrs)
    assert work_of(halves, 5) == Work(2 * 3 * 5, 4), "a vector has two groups, and a lane left"


def test_open_tiles_that_differ_in_pixels_alone_are_one() -> None:
    def work(*tiles: tuple[str, int, int]) -> Work:
        functions = (TileFunction(*tile, 16 * tile[2], open_pixels=True) for tile in tiles)
        return Work(1, 16, (TileFunction("regular", 8, 2, 32), None, *functions))

    own = [
        work(("regular", 8, 2), ("scattered", 8, 2)),
        work(("regular", 14, 2), ("regular", 29, 1)),
    ]
    insts = [CopyInst(values((3,), (3,)), {}) for _ in own]
    shared = sharing_open_tiles(dict(zip(insts, own, strict=True)))
    assert list(shared.values()) == [
        work(("regular", 16, 2), ("scattered", 8, 2)),
        work(("regular", 16, 2), ("regular", 32, 1)),
    ]


def test_units_of_a_pool_are_rows_and_handed_out_together() -> None:
    window = {"kernels": (3, 3), "strides": (2, 2), "pads": (1,) * 4, "dilation": (1, 1)}
    for channels, together in ((256, 1), (16, 4)):
        pool = MaxPoolInst(
            values((3, 56, 56, channels), (3, 112, 112, channels)), {**window, "ceil": False}
        )
        assert work_of(pool, 8) == Work(168, 8, together=together)
        rows = 4 * channels * 56 * (1 + 4)
        assert together * rows >= UNIT_BYTES > (together - 1) * rows


def test_an_instruction_of_which_nobody_says_more_is_one_unit() -> None:
    assert work_of(CopyInst(values((3,), (3,)), {}), 8) == Work(1, 8)


def test_an_empty_result_is_no_work() -> None:
    for image, channels in (((4, 1), 3), ((1, 4), 3), ((4, 4), 0)):
        conv = Conv(1, image, 2, channels, (1, 2) if channels else (1, 1))
        if not prod(conv.result):
            assert work_of(conv.inst(2, 1, 2, 1, 4), 4).units == 0
