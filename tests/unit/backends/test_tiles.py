"""The cost model that chooses register tiles."""

from __future__ import annotations

import difflib
import itertools
from collections.abc import Iterator
from pathlib import Path

import pytest

from glowpy.backends.cpu.tiles import ConvTile, MatmulTile, choose_conv_tile, choose_matmul_tile

# (input height, input channels, output channels, kernel, stride, pad)
RESNET_LAYERS = [
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
    *((64, 2304, 768), (64, 64, 64), (17, 33, 65), (5, 7, 3), (1000, 16, 4096)),
]
TARGETS = [(32, 16), (32, 4), (16, 8), (16, 4), (8, 4)]


def conv_tile(
    layer: tuple[int, int, int, int, int, int], registers: int, lanes: int, group: int = 1
) -> ConvTile:
    size, inputs, outputs, kernel, stride, pad = layer
    extent = (size + 2 * pad - kernel) // stride + 1
    return choose_conv_tile(
        (1, extent, extent, outputs),
        inputs,
        (kernel, kernel),
        (stride, stride),
        (pad,) * 4,
        group,
        vector_registers=registers,
        lanes=lanes,
    )


def registers_of(pixels: int, vectors: int) -> int:
    return pixels * vectors + vectors + 1


@pytest.mark.parametrize(("registers", "lanes"), TARGETS)
@pytest.mark.parametrize("layer", RESNET_LAYERS)
def test_tile_fits_into_registers(
    layer: tuple[int, int, int, int, int, int], registers: int, lanes: int
) -> None:
    tile = conv_tile(layer, registers, lanes)
    assert registers_of(tile.rows * tile.cols, tile.vectors) < registers


@pytest.mark.parametrize("layer", RESNET_LAYERS)
def test_wide_target_keeps_multipliers_busy(
    layer: tuple[int, int, int, int, int, int],
) -> None:
    """Fewer than 8 sums wait for the latency of an addition; fewer than 2 vectors for loads."""
    tile = conv_tile(layer, 32, 16)
    assert tile.rows * tile.cols * tile.vectors >= 8
    assert tile.vectors >= 2


def test_tile_divides_the_image_where_it_can() -> None:
    for layer, extent in (((56, 64, 64, 3, 1, 1), 56), ((7, 512, 512, 3, 1, 1), 7)):
        tile = conv_tile(layer, 32, 16)
        assert extent % tile.cols == 0
        assert extent % tile.rows == 0


def test_crowded_cache_sets_take_smaller_tiles() -> None:
    """1024 channels are 4096 bytes: all pixels of a tile compete for one set of the cache."""
    crowded = choose_matmul_tile(196, 256, 1024, vector_registers=32, lanes=16)
    spread = choose_matmul_tile(196, 256, 1040, vector_registers=32, lanes=16)
    assert crowded.rows < spread.rows


def test_huge_sums_keep_blocks_of_weights_small() -> None:
    """Four vectors of 4608 weights do not stay in the second-level cache, two do."""
    tile = choose_conv_tile(
        (1, 6, 6, 512), 512, (3, 3), (1, 1), (1, 1, 1, 1), 1, vector_registers=32, lanes=16
    )
    assert tile.vectors < 4


def test_narrow_image_takes_several_rows() -> None:
    """Two columns by two vectors are four sums, half of what the latency asks for."""
    tile = choose_conv_tile(
        (1, 64, 2, 32), 32, (3, 3), (1, 1), (1, 1, 1, 1), 1, vector_registers=32, lanes=16
    )
    assert tile.rows > 1


def test_pixelwise_convolution_is_one_row() -> None:
    tile = conv_tile((7, 512, 2048, 1, 1, 0), 32, 16)
    assert tile.rows == 1
    matmul = choose_matmul_tile(49, 2048, 512, vector_registers=32, lanes=16)
    assert matmul == MatmulTile(tile.cols, tile.vectors)


@pytest.mark.parametrize(
    ("strides", "pads"),
    [((1, 1), (1, 0, 1, 0)), ((2, 1), (0,) * 4), ((1, 2), (0,) * 4)],
    ids=["padded", "every other row", "every other column"],
)
def test_pixelwise_convolution_that_skips_or_adds_pixels_keeps_its_rows(
    strides: tuple[int, int], pads: tuple[int, ...]
) -> None:
    """libjit walks it as an image: its pixels do not lie one after the other."""
    tile = choose_conv_tile(
        (1, 3, 1, 16), 64, (1, 1), strides, pads, 1, vector_registers=32, lanes=16
    )
    assert tile.rows == 3


def test_channels_decide_on_vectors() -> None:
    few = choose_matmul_tile(169, 48, 512, vector_registers=32, lanes=16)
    assert few.vectors in (1, 3)  # 2 would compute 64 columns for 48
    assert choose_matmul_tile(169, 16, 512, vector_registers=32, lanes=16).vectors == 1


def test_single_row_spreads_over_vectors() -> None:
    """One row has one sum per vector: it takes many to hide the latency."""
    tile = choose_matmul_tile(1, 4096, 4096, vector_registers=32, lanes=16)
    assert tile.rows == 1
    assert tile.vectors >= 4


def test_group_divides_the_channels() -> None:
    tile = choose_conv_tile(
        (1, 28, 28, 64), 64, (3, 3), (1, 1), (1, 1, 1, 1), 4, vector_registers=32, lanes=16
    )
    assert tile.vectors == 1


def test_single_register_of_sums_still_works() -> None:
    tile = choose_matmul_tile(8, 8, 8, vector_registers=3, lanes=4)
    assert tile == MatmulTile(1, 1)


@pytest.mark.parametrize("m", [0, 1, 3])
@pytest.mark.parametrize("n", [0, 1, 17])
@pytest.mark.parametrize("k", [0, 1])
def test_degenerate_products_have_a_tile(m: int, n: int, k: int) -> None:
    tile = choose_matmul_tile(m, n, k, vector_registers=16, lanes=8)
    assert tile.rows >= 1
    assert tile.vectors >= 1


def test_bounds_of_the_kernel_hold() -> None:
    """MAX_TILE_PIXELS and MAX_TILE_VECTORS of libjit/include/tile.h, however many registers there are."""
    for m, n in itertools.product((1, 7, 500), (4, 64, 1000)):
        tile = choose_matmul_tile(m, n, 64, vector_registers=128, lanes=4)
        assert tile.rows <= 32
        assert tile.vectors <= 8


def choices() -> Iterator[str]:
    """What is chosen for layers of networks, on every target."""
    for registers, lanes in TARGETS:
        yield f"{registers} registers of {lanes} floats"
        for layer in RESNET_LAYERS:
            tile = conv_tile(layer, registers, lanes)
            yield f"  conv {layer}: {tile.rows} x {tile.cols} pixels, {tile.vectors} vectors"
        for m, n, k in PRODUCTS:
            product = choose_matmul_tile(m, n, k, vector_registers=registers, lanes=lanes)
            yield f"  product {m, n, k}: {product.rows} rows, {product.vectors} vectors"


def test_choices_are_those_that_were_measured(request: pytest.FixtureRequest) -> None:
    """A change of the model shows here; measure it (tools/bench.py), then accept it with --bless."""
    golden = Path(__file__).with_name("tiles.txt")
    if request.config.getoption("--bless", default=False):
        golden.write_text("".join(f"{line}\n" for line in choices()), encoding="utf-8")
        return
    before = golden.read_text(encoding="utf-8").splitlines()
    difference = list(
        difflib.unified_diff(before, list(choices()), "tiles.txt", "now", lineterm="")
    )
    assert not difference, "\n".join(difference)
