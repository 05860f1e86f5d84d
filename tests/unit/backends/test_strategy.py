"""How products are tiled: what every decision has to keep to.

The problems are layers of networks; the machines are those of libjit/variants.toml.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import pytest

from glowpy.backends.cpu.strategy import product
from glowpy.backends.cpu.strategy.depthwise import MAX_DEPTHWISE_PIXELS, depthwise_decision
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import (
    MAX_PIXELS,
    MAX_SUMS,
    MAX_VECTORS,
    Problem,
    candidates,
    choose,
    conv_problem,
    fetched_ahead,
)
from glowpy.backends.cpu.variant import VARIANTS, for_processor, variant_named
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.llvm.variant import LIBJIT_FOLDER
from glowpy.support.symbolic import at_extents, highest, lowest, symbol

_MODELS = [
    *((variant.machine, variant.name) for variant in VARIANTS),
    *((variant.double_machine, f"{variant.name} in f64") for variant in VARIANTS),
    *((variant.byte_machine, f"{variant.name} in bytes") for variant in VARIANTS),
]
_FIRST = dict(reversed(_MODELS))
MACHINES = {name: machine for machine, name in reversed(_FIRST.items())}
"""Every model there is, by the first variant that has it."""
WIDE = variant_named("x86_64_v4").machine

# (input height, input channels, output channels, kernel, stride, pad)
Layer = tuple[int, int, int, int, int, int]
LAYERS: list[Layer] = [
    (224, 3, 64, 7, 2, 3),
    (56, 64, 64, 3, 1, 1),
    (56, 256, 512, 1, 2, 0),
    (28, 128, 128, 3, 1, 1),
    (14, 256, 1024, 1, 1, 0),
    (14, 512, 512, 3, 2, 1),
    (7, 512, 512, 3, 1, 1),
]
# (rows of the left operand, columns of the right one, length of the sums)
PRODUCTS = [
    *((1, 1000, 2048), (1, 4096, 9216), (49, 512, 2048), (128, 768, 768), (128, 3072, 768)),
    *((64, 64, 64), (17, 33, 65), (5, 7, 3), (1000, 16, 4096)),
]


def layer_problem(layer: Layer, group: int = 1) -> Problem:
    size, inputs, outputs, kernel, stride, pad = layer
    extent = (size + 2 * pad - kernel) // stride + 1
    result, image = (1, extent, extent, outputs), (1, size, size, inputs)
    lists = (kernel, kernel), (stride, stride), (pad,) * 4, (1, 1)
    return conv_problem(result, image, *lists, group)


def matmul_problem(rows: int, columns: int, depth: int) -> Problem:
    return Problem(1, rows, columns, 1, depth, depth)


PROBLEMS = {
    **{f"conv {layer}": layer_problem(layer) for layer in LAYERS},
    "conv (28, 64, 64, 3, 1, 1) of 4 groups": layer_problem((28, 64, 64, 3, 1, 1), 4),
    "conv (5, 8, 9, 3, 1, 2)": layer_problem((5, 8, 9, 3, 1, 2)),
    **{f"product {sizes}": matmul_problem(*sizes) for sizes in PRODUCTS},
}

on_every_machine = pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)


@on_every_machine
def test_tiles_fit_into_registers(machine: Machine) -> None:
    """The sums, the weights of a step, one input and, where multiplication is apart, a product; one is left over.

    Weights and input take as many as they are taken apart into.
    """
    for name, problem in PROBLEMS.items():
        for tile in candidates(problem, machine):
            used = (tile.pixels + machine.parts) * tile.vectors + machine.parts
            used += 0 if machine.fused else 1
            assert used < machine.vector_registers, (name, tile)


@on_every_machine
def test_tiles_keep_within_the_bounds_of_libjit(machine: Machine) -> None:
    """MAX_TILE_PIXELS, MAX_TILE_VECTORS and MAX_TILE_SUMS of tile.h, even if registers are no limit."""
    boundless = replace(machine, vector_registers=128, pointer_registers=128)
    for problem, model in itertools.product(PROBLEMS.values(), (machine, boundless)):
        for tile in candidates(problem, model):
            assert 1 <= tile.pixels <= 32
            assert 1 <= tile.vectors <= 8
            assert tile.pixels * tile.vectors <= 32


@on_every_machine
def test_pointers_of_scattered_tiles_fit_into_registers(machine: Machine) -> None:
    for layer in LAYERS:
        problem = layer_problem(layer)
        for tile in candidates(problem, machine):
            if any(problem.border) or (problem.height > 1 and tile.line != problem.width):
                assert tile.pixels <= machine.pointer_registers, (layer, tile)


@on_every_machine
def test_the_cheapest_candidate_is_taken(machine: Machine) -> None:
    for name, problem in PROBLEMS.items():
        decision = choose(problem, machine)
        tiles = list(candidates(problem, machine))
        cheapest = min(tile.cycles for tile in tiles)
        chosen = [
            tile.cycles
            for tile in tiles
            if (tile.pixels, tile.vectors, tile.line)
            == (decision.pixels, decision.vectors, decision.line)
        ]
        assert chosen == [cheapest], name


@on_every_machine
def test_lines_and_slabs_divide_the_pixels(machine: Machine) -> None:
    for name, problem in PROBLEMS.items():
        for tile in candidates(problem, machine):
            # Other lines could leave two sizes of tile over, of which tiles_t has but one.
            assert tile.line == tile.pixels or tile.line == problem.width > tile.pixels, name
        decision = choose(problem, machine)
        lines = -(-problem.pixels // decision.line)
        assert 1 <= decision.slab <= max(lines, 1), name


@on_every_machine
def test_what_is_fetched_ahead_is_the_next_block(machine: Machine) -> None:
    """All of it while a block is computed, once; and no prefetch takes a step beyond what it fetches."""
    for name, problem in PROBLEMS.items():
        decision = choose(problem, machine)
        if not decision.fetch:
            continue
        assert machine.prefetch_bytes, name
        block = decision.vectors * machine.lanes * machine.dot
        lines = -(-problem.pixels // decision.line)
        assert decision.slab == lines, f"{name}: a block comes again with the next slab"
        tiles = lines * -(-decision.line // decision.pixels)
        most = machine.prefetch_bytes // machine.element_bytes
        if tiles == 1:
            assert decision.fetch == block, f"{name}: what is read once is fetched as it is read"
            continue
        assert decision.fetch <= most, name
        assert decision.fetch * tiles >= min(block, tiles * most), name


@pytest.mark.parametrize("likely", [1, 37, 512])
def test_what_is_fetched_ahead_follows_from_the_rows_of_a_run(likely: int) -> None:
    """As for a constant number of rows in the same tiles, where that is one slab."""
    rows = symbol("rows", 0, 512, likely)
    problem = matmul_problem(likely, 3072, 768)
    decision = choose(problem, WIDE)
    fetch = fetched_ahead(problem, WIDE, decision, Type(ElemKind.F32, (rows, 3072)))
    block, most = decision.vectors * WIDE.lanes, WIDE.prefetch_bytes // WIDE.element_bytes
    assert (lowest(fetch), highest(fetch)) == (0, most)
    for count in (0, 1, 2, 37, 64, 512):
        tiles = -(-count // decision.pixels)
        expected = min(-(-block // min(tiles, decision.slab)), most) if tiles > 1 else 0
        assert at_extents(fetch, {"rows": count}) == expected
    same = fetched_ahead(problem, WIDE, decision, Type(ElemKind.F32, (likely, 3072)))
    assert same == decision.fetch


@on_every_machine
def test_weights_that_are_read_once_are_one_stream(machine: Machine) -> None:
    """A tile takes one packed block of them, unless it then waits for itself; those in a cache it reads as it likes."""
    problem = product.matmul_problem((1, 4096), 9216, 1)
    decision = choose(problem, machine)
    waits = product.step_limits(problem, machine, 1, decision.packed, decision.packed)
    bound = max(waits, key=lambda name: waits[name])
    assert decision.vectors == decision.packed or bound != "weights"


def test_some_weights_are_fetched_ahead_and_some_come_in_slabs() -> None:
    decisions = [choose(problem, WIDE) for problem in PROBLEMS.values()]
    assert any(decision.fetch for decision in decisions)
    assert any(
        decision.slab < -(-problem.pixels // decision.line)
        for problem, decision in zip(PROBLEMS.values(), decisions, strict=True)
    )


@pytest.mark.parametrize("layer", LAYERS)
def test_wide_target_keeps_multipliers_busy(layer: Layer) -> None:
    """Fewer than 8 sums wait for the latency of an addition; fewer than 2 vectors for loads."""
    tile = choose(layer_problem(layer), WIDE)
    assert tile.pixels * tile.vectors >= 8
    assert tile.vectors >= 2


def test_crowded_cache_sets_take_smaller_tiles() -> None:
    """1024 channels are 4096 bytes: all pixels of a tile compete for one set of the cache."""
    crowded = choose(matmul_problem(196, 256, 1024), WIDE)
    spread = choose(matmul_problem(196, 256, 1040), WIDE)
    assert crowded.pixels < spread.pixels


def test_narrow_image_is_not_tiled_by_rows() -> None:
    """Two columns by two vectors are four sums, half of what the latency asks for."""
    result = image = (1, 64, 2, 32)
    problem = conv_problem(result, image, (3, 3), (1, 1), (1,) * 4, (1, 1), 1)
    tile = choose(problem, WIDE)
    assert tile.pixels > 2
    assert tile.line == tile.pixels


def test_pixelwise_convolution_is_a_matrix_product() -> None:
    """That of a whole batch, with weights laid out for one image."""
    lists = (1, 1), (1, 1), (0,) * 4, (1, 1)
    problem = conv_problem((3, 7, 5, 512), (3, 7, 5, 2048), *lists, 1)
    assert problem == replace(matmul_problem(3 * 7 * 5, 512, 2048), usual_pixels=35)


@on_every_machine
def test_weights_are_laid_out_alike_for_every_size_of_a_batch(machine: Machine) -> None:
    lists = (1, 1), (1, 1), (0,) * 4, (1, 1)
    for height, depth, channels in ((56, 64, 256), (14, 1024, 256), (7, 512, 2048), (3, 40, 8)):
        shapes = [((n, height, height, channels), (n, height, height, depth)) for n in range(1, 9)]
        problems = [conv_problem(*shape, *lists, 1) for shape in shapes]
        assert len({choose(problem, machine).packed for problem in problems}) == 1
    rows = [product.matmul_problem((n, 1000), 2048, 1) for n in (1, 2, 3, 8, 9, 20, 64, 500)]
    assert len({choose(problem, machine).packed for problem in rows}) == 1


@pytest.mark.parametrize(
    ("strides", "pads"),
    [((1, 1), (1, 0, 1, 0)), ((2, 1), (0,) * 4), ((1, 2), (0,) * 4)],
    ids=["padded", "every other row", "every other column"],
)
def test_pixelwise_convolution_that_skips_or_adds_pixels_keeps_its_rows(
    strides: tuple[int, int], pads: tuple[int, ...]
) -> None:
    """Its pixels do not lie one after the other in the input."""
    problem = conv_problem((2, 3, 4, 16), (2, 7, 9, 64), (1, 1), strides, pads, (1, 1), 1)
    assert (problem.height, problem.width, problem.images) == (3, 4, 2)
    assert problem.pixel_step == 64 * strides[1]


@pytest.mark.parametrize("kernel", [1, 3, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_border_is_what_reaches_over_the_edge(kernel: int, stride: int, dilation: int) -> None:
    """Counted pixel by pixel."""
    span = (kernel - 1) * dilation + 1
    for width, left, right in itertools.product((1, 5, 8), (0, 1, 6), (0, 2, 7)):
        count = (width + left + right - span) // stride + 1
        if count <= 0 or (kernel == stride == 1 and not left + right):
            continue
        problem = conv_problem(
            (1, 1, count, 1), (1, 1, width, 1),
            (1, kernel), (1, stride), (0, left, 0, right), (1, dilation), 1,
        )  # fmt: skip
        begins = [pixel * stride - left for pixel in range(count)]
        over_left = sum(begin < 0 for begin in begins)
        over_right = sum(begin >= 0 and begin + span > width for begin in begins)
        assert problem.border == (over_left, over_right), (width, left, right)


def test_channels_decide_on_vectors() -> None:
    assert choose(matmul_problem(169, 48, 512), WIDE).vectors in (1, 3)  # 2 would compute 64
    assert choose(matmul_problem(169, 16, 512), WIDE).vectors == 1


def test_single_row_spreads_over_vectors() -> None:
    """One row has one sum per vector: it takes many to hide the latency."""
    tile = choose(matmul_problem(1, 4096, 4096), WIDE)
    assert tile.pixels == 1
    assert tile.vectors >= 4


def test_group_divides_the_channels() -> None:
    problem = layer_problem((28, 64, 64, 3, 1, 1), 4)
    assert (problem.channels, problem.depth, problem.images) == (16, 16, 4)
    assert choose(problem, WIDE).vectors == 1


def test_single_register_of_sums_still_works() -> None:
    tile = choose(matmul_problem(8, 8, 8), replace(MACHINES["wasm32"], vector_registers=3))
    assert (tile.pixels, tile.vectors) == (1, 1)


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("n", [0, 1, 17])
@pytest.mark.parametrize("k", [0, 1])
def test_degenerate_products_have_a_tile(m: int, n: int, k: int) -> None:
    for machine in MACHINES.values():
        tile = choose(matmul_problem(m, n, k), machine)
        assert min(tile.pixels, tile.vectors, tile.line, tile.slab) >= 1


def test_tiles_are_bounded_as_libjit_says() -> None:
    """Its buffers are so large, and what the strategy and the verifier allow must fit."""
    text = (LIBJIT_FOLDER / "include" / "tile.h").read_text(encoding="utf-8")
    bounds = {name: int(number) for name, number in re.findall(r"#define (MAX_\w+) (\d+)", text)}
    assert bounds == {
        "MAX_TILE_PIXELS": MAX_PIXELS,
        "MAX_TILE_VECTORS": MAX_VECTORS,
        "MAX_TILE_SUMS": MAX_SUMS,
        "MAX_DEPTHWISE_PIXELS": MAX_DEPTHWISE_PIXELS,
    }


@on_every_machine
def test_depthwise_tiles_of_a_row_are_about_equal(machine: Machine) -> None:
    """A sum for each pixel, weights, an input and a product fit into the registers."""
    for width in range(150):
        shape = (1, 5, width, 3)
        pixels = depthwise_decision(shape, (3, 3), (1, 1), (1, 1), machine).pixels
        assert 1 <= pixels <= MAX_DEPTHWISE_PIXELS
        assert pixels + 3 <= machine.vector_registers
        tiles = -(-width // pixels)
        assert tiles * pixels - width < max(tiles, 1), "one pixel less would do"


@on_every_machine
def test_rows_under_a_depthwise_tile_stay_in_the_first_cache(machine: Machine) -> None:
    """And there are units for threads, of lines that are not few."""
    for height, channels, stride in ((28, 32, 2), (20, 48, 1), (14, 96, 1), (7, 120, 1)):
        shape = (1, height, height, channels)
        chosen = depthwise_decision(shape, (3, 3), (stride, stride), (1, 1), machine)
        if (stride * height) ** 2 * channels * machine.element_bytes > machine.second_cache:
            continue
        cols = (chosen.pixels - 1) * stride + 3
        rows = 3 * cols * chosen.vectors * machine.lanes * machine.element_bytes
        assert chosen.vectors == 1 or rows <= 1.25 * machine.first_cache
        blocks = -(-channels // (chosen.vectors * machine.lanes))
        assert chosen.slab >= 4
        assert -(-height // chosen.slab) * blocks >= 8 or chosen.slab <= 7


@pytest.mark.parametrize("taps", [(3, 3), (5, 5), (7, 7)])
def test_far_images_and_large_windows_go_down_where_multiplying_is_fast(
    taps: tuple[int, int],
) -> None:
    """As it was measured: with two multiply-adds a cycle the second cache would hold up whole lines."""
    variant = variant_named("x86_64_v4_vnni")
    for cpu, goes_down in (("znver4", False), ("znver5", True)):
        machine = for_processor(variant, cpu).machine
        chosen = depthwise_decision((1, 112, 112, 192), taps, (1, 1), (1, 1), machine)
        assert (chosen.slab > 1, chosen.vectors < 192 / machine.lanes) == (goes_down, goes_down)
