"""Convolutions by Winograd's algorithm: the matrices, when it is chosen, and that it computes what it should."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace
from math import prod

import numpy as np
import pytest

import glowpy
from glowpy.backend import CompileOptions, Operation
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuWinogradInst
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.passes import pack_products
from glowpy.backends.cpu.passes.pool_patches import PoolPatchesPass
from glowpy.backends.cpu.strategy import winograd as winograd_strategy
from glowpy.backends.cpu.strategy.winograd import PATCHES, choose_winograd, count_patches
from glowpy.backends.cpu.variant import variant_named
from glowpy.backends.cpu.verify import mismatch
from glowpy.backends.cpu.winograd import (
    matrices,
    pack_winograd_filter,
    relative_error,
    unpack_winograd_filter,
)
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.measuring.peaks import Peaks
from glowpy.measuring.roofline import efforts
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from glowpy.support.text import Attr
from tests.unit.backends.lowered_text import edited
from tests.unit.backends.test_packed import check, convolution, floats

MACHINE = variant_named("x86_64_v3").machine


@pytest.mark.parametrize(
    ("patch", "kernel"), [(size, kernel) for size in PATCHES for kernel in range(1, size)]
)
def test_the_matrices_give_a_correlation(patch: int, kernel: int) -> None:
    random = np.random.default_rng(patch * kernel)
    x, w = random.standard_normal(patch), random.standard_normal(kernel)
    spread, filter, collect = matrices(patch, kernel)
    result = collect @ ((spread @ x) * (filter @ w))
    np.testing.assert_allclose(result, np.correlate(x, w, "valid"), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("patch", "kernels"), [((6, 8), (3, 3)), ((1, 8), (1, 7)), ((6, 6), (5, 5)), ((8, 1), (3, 1))]
)
def test_a_packed_filter_is_the_filter(patch: tuple[int, int], kernels: tuple[int, int]) -> None:
    filter = floats(19, *kernels, 5)
    packed = np.stack(list(pack_winograd_filter(filter, patch, 8)))
    assert packed.shape == (3, patch[0] * patch[1], 5, 8)
    assert not packed[2, :, :, 3:].any()
    plain = unpack_winograd_filter(packed, 19, patch, kernels)
    np.testing.assert_allclose(plain, filter, rtol=0, atol=1e-6)


def test_errors_are_measured_on_the_filter() -> None:
    filter = floats(8, 3, 3, 16)
    errors = [relative_error(filter, patch) for patch in ((6, 6), (8, 8))]
    assert 1e-8 < errors[0] < errors[1] < 1e-5
    assert relative_error(np.zeros_like(filter), (6, 6)) == 0


@pytest.mark.parametrize("depth", [1, 67, 2048])
def test_no_product_that_measures_errors_takes_threads_of_blas(
    depth: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    products = []

    def matmul(left: Array, right: Array) -> Array:
        products.append(left.shape[-2] * left.shape[-1] * right.shape[-1])
        product: Array = plain(left, right)
        return product

    plain = np.matmul
    monkeypatch.setattr(np, "matmul", matmul)
    filter = floats(40, 3, 3, depth)
    assert 0 < relative_error(filter, (8, 8)) < 1e-4
    packed = next(pack_winograd_filter(filter[:, :, :, :67], (8, 8), 16))
    assert packed.shape[0] == 64
    assert max(products) <= 1 << 18


def network(
    x: str, outputs: int, kernels: tuple[int, int], pads: tuple[int, ...], group: int = 1
) -> Module:
    """A convolution of input `x`, with `y` added to it, none of it below zero."""
    module = Module()
    f = module.create_function("main")
    type = parse_type(x)
    depth = type.extents[-1] // group
    weights = module.create_constant("k", floats(outputs, *kernels, depth) / depth)
    bias = module.create_constant("b", floats(outputs))
    conv = f.create_convolution(
        "conv",
        module.create_placeholder("x", type),
        weights,
        bias,
        kernels,
        (1, 1),
        pads,
        (1, 1),
        group,
    )
    y = module.create_placeholder("y", conv.result.type)
    total = f.create_relu("relu", f.create_add("sum", conv, y))
    f.create_save("save", total, module.create_placeholder("z", total.result.type))
    return module


def mnemonics(module: Module, backend: CpuBackend | None = None) -> list[str]:
    program = compilation(module, backend or CpuBackend()).program
    return [inst.SCHEMA.mnemonic for inst in program.ir.instructions]


@pytest.mark.parametrize(
    ("x", "outputs", "kernels", "pads", "group"),
    [
        ("f32[1x14x14x64]", 48, (3, 3), (1, 1, 1, 1), 1),
        ("f32[1x7x7x512]", 512, (3, 3), (1, 1, 1, 1), 1),
        ("f32[3x23x17x33]", 40, (3, 3), (0, 2, 1, 0), 1),
        ("f32[1x12x60x32]", 33, (1, 7), (0, 3, 0, 3), 1),
        ("f32[2x16x9x32]", 32, (5, 5), (2, 2, 2, 2), 1),
        ("f32[2x13x21x99]", 105, (3, 3), (1, 1, 1, 1), 3),
    ],
)
def test_a_network_computes_the_same_on_any_number_of_threads(
    x: str, outputs: int, kernels: tuple[int, int], pads: tuple[int, ...], group: int
) -> None:
    module = network(x, outputs, kernels, pads, group)
    assert "cpu_winograd" in mnemonics(module)
    arrays = {p.name: floats(*p.type.extents) for p in module.placeholders if p.name != "z"}
    expected = glowpy.compile(module, "interpreter")(arrays)["z"]
    results = [
        glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))(arrays)["z"]
        for threads in (1, 2, 3)
    ]
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(results[0], expected, rtol=0, atol=1e-5 * scale)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def pooled(
    x: str,
    kernels: tuple[int, int],
    pads: tuple[int, ...],
    window: tuple[int, int],
    strides: tuple[int, int] | None = None,
    group: int = 1,
) -> Module:
    """The pool of a convolution of 48 channels, of which none is below zero or, in the second, above one."""
    module = Module()
    f = module.create_function("main")
    type = parse_type(x, {"n": symbol("n", 1, 4, 2)})
    depth = type.extents[-1] // group if type.is_static else 32
    weights = module.create_constant("k", floats(48, *kernels, depth) / depth)
    bias, image = module.create_constant("b", floats(48)), module.create_placeholder("x", type)
    conv = f.create_convolution("conv", image, weights, bias, kernels, (1, 1), pads, (1, 1), group)
    most = module.create_constant("most", np.linspace(0.1, 0.5, 48, dtype=np.float32))
    bounded = f.create_min("bounded", f.create_relu("relu", conv), most)
    pool = f.create_max_pool(
        "pool", bounded, window, strides or window, (0,) * 4, (1, 1), ceil=False
    )
    f.create_save("save", pool, module.create_placeholder("y", pool.result.type))
    return module


@pytest.mark.parametrize(
    "module",
    [
        pooled("f32[1x56x56x64]", (3, 3), (1, 1, 1, 1), (2, 2)),
        pooled("f32[3x22x18x33]", (3, 3), (1, 1, 1, 1), (2, 2)),
        pooled("f32[2x12x12x512]", (3, 3), (1, 1, 1, 1), (2, 1)),
        pooled("f32[1x14x60x32]", (1, 7), (0, 3, 0, 3), (1, 2)),
        pooled("f32[2x24x28x96]", (3, 3), (1, 1, 1, 1), (2, 2), group=3),
        pooled("f32[n x 16 x 16 x 32]", (5, 5), (2, 2, 2, 2), (2, 2)),
    ],
    ids=["whole", "edges", "columns", "rows", "groups", "open batch"],
)
def test_a_pool_is_taken_where_patches_are_collected(module: Module) -> None:
    assert "max_pool" not in mnemonics(module)
    extents = [
        extent if isinstance(extent, int) else 3 for extent in module.placeholders[0].type.shape
    ]
    x = floats(*extents)
    x[0, 3, 4, 5] = np.nan
    expected = glowpy.compile(module, "interpreter")({"x": x})["y"]
    results = [
        glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))({"x": x})["y"]
        for threads in (1, 2, 3)
    ]
    spoilt = np.isnan(results[0])
    assert spoilt[np.isnan(expected)].all()
    assert 0 < spoilt.mean() < 0.5
    # The convolution has numbers of up to 3 before they are bounded.
    np.testing.assert_allclose(results[0][~spoilt], expected[~spoilt], rtol=0, atol=3e-5)
    assert results[0].tobytes() == results[1].tobytes() == results[2].tobytes()


def test_a_pool_and_the_convolution_without_it_are_the_same_to_the_bit() -> None:
    module = pooled("f32[2x20x24x64]", (3, 3), (1, 1, 1, 1), (2, 2))
    together, apart = (
        glowpy.compile(module, "cpu", CompileOptions(disabled=disabled))
        for disabled in ((), (PoolPatchesPass.name,))
    )
    x = {"x": floats(2, 20, 24, 64)}
    assert together(x)["y"].tobytes() == apart(x)["y"].tobytes()


@pytest.mark.parametrize(
    "module",
    [
        pooled("f32[1x21x20x64]", (3, 3), (1, 1, 1, 1), (2, 2)),
        pooled("f32[1x20x20x64]", (3, 3), (1, 1, 1, 1), (3, 3), (2, 2)),
        pooled("f32[1x20x20x64]", (3, 3), (1, 1, 1, 1), (5, 5)),
    ],
    ids=["rows are left", "windows overlap", "windows lie in several patches"],
)
def test_other_pools_come_after_it(module: Module) -> None:
    assert {"cpu_winograd", "max_pool"} <= set(mnemonics(module))


def test_exact_code_has_all_multiplications() -> None:
    module = network("f32[1x14x14x64]", 48, (3, 3), (1, 1, 1, 1))
    assert "cpu_winograd" not in mnemonics(module, CpuBackend(CpuOptions(exact=True)))


def test_a_filter_that_makes_large_errors_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_products, "MOST_ERROR", 1e-9)
    assert "cpu_conv" in mnemonics(network("f32[1x14x14x64]", 48, (3, 3), (1, 1, 1, 1)))


def test_the_interpreter_runs_it() -> None:
    for group in (1, 2):
        module = convolution("f32[2x20x20x64]", 64, (3, 3), pads=(1, 1, 1, 1), group=group)
        check(module, CpuWinogradInst)


@pytest.mark.parametrize(
    "module",
    [
        convolution("f32[1x20x20x64]", 64, (3, 3), strides=(2, 2)),
        convolution("f32[1x20x20x64]", 64, (3, 3), dilation=(2, 1)),
        convolution("f32[1x20x20x96]", 96, (3, 3), group=8),
        convolution("f32[1x20x20x3]", 64, (3, 3)),
        convolution("f32[1x20x20x64]", 64, (1, 1)),
        convolution("f32[1x3x3x64]", 64, (3, 3)),
    ],
    ids=["strides", "dilation", "groups", "few channels", "one pixel", "one result"],
)
def test_what_it_does_not_fit_is_computed_directly(module: Module) -> None:
    check(module, CpuConvInst)


def test_decisions_keep_to_what_the_kernel_knows() -> None:
    """Tiles end where a slab does, slabs and blocks cover the work, and a machine without vectors has none of it."""
    sizes = itertools.product((6, 14, 57), (32, 64), (33, 128), ((3, 3), (1, 3), (5, 5)), (1, 3))
    for width, depth, channels, kernels, images in sizes:
        shape = images, width, width + 3, channels
        chosen = choose_winograd(shape, depth, kernels, 1, MACHINE, 1e12)
        assert chosen is not None
        steps = [size - kernel + 1 for size, kernel in zip(chosen.patch, kernels, strict=True)]
        patches = -(-shape[1] // steps[0]) * -(-shape[2] // steps[1])
        assert chosen.slab == patches or (
            chosen.slab % chosen.pixels == 0 and chosen.slab < patches
        )
        assert chosen.pixels * chosen.vectors <= 32
        slabs = images * -(-patches // chosen.slab)
        assert chosen.bands == 1 or chosen.bands % 2 == 0
        assert slabs <= chosen.bands or chosen.blocks * chosen.vectors * MACHINE.lanes >= channels
        assert choose_winograd(shape, depth, kernels, 1, MACHINE, chosen.cycles) is None
    alone = replace(MACHINE, lanes=1)
    assert choose_winograd((1, 56, 56, 64), 64, (3, 3), 1, alone, 1e12) is None


@pytest.mark.parametrize(
    ("shape", "depth"),
    [
        ((1, 56, 56, 256), 256),  # 14 tiles in slabs of 2, which would be 3 and 4
        ((1, 56, 56, 64), 64),
        ((1, 14, 14, 256), 256),  # one slab, 8 blocks
        ((1, 14, 14, 192), 512),
        ((1, 224, 224, 64), 64),
    ],
)
def test_units_are_for_two_threads(shape: tuple[int, ...], depth: int) -> None:
    """Half of the tiles and blocks is the work of half of the units, up to one tile."""
    chosen = choose_winograd(shape, depth, (3, 3), 1, MACHINE, 1e12)
    assert chosen is not None
    tiles = -(-count_patches(shape[1:3], chosen.patch, (3, 3)) // chosen.pixels)
    blocks = -(-shape[3] // (chosen.vectors * MACHINE.lanes))
    bands = [
        tiles * (band + 1) // chosen.bands - tiles * band // chosen.bands
        for band in range(chosen.bands)
    ]
    parts = [min(chosen.blocks, blocks - first) for first in range(0, blocks, chosen.blocks)]
    units = [band * part for band in bands for part in parts]
    half = len(units) // 2
    assert abs(sum(units[:half]) - sum(units[half:])) <= tiles % 2 * blocks


def test_two_threads_take_parts_in_turns() -> None:
    for count, share in itertools.product(range(24), range(1, 26)):
        times = [0, 0]
        for first in range(0, count, share):
            times[times.index(min(times))] += min(share, count - first)
        assert winograd_strategy._later(count, share) == max(times)


def test_few_patches_have_fewer_points() -> None:
    """Where an image has few pixels, the weights of large patches take longer to read than they save."""
    machine = variant_named("x86_64_v4").machine
    few, many = (
        choose_winograd((1, size, size, depth), depth, (3, 3), 1, machine, 1e12)
        for size, depth in ((7, 512), (56, 64))
    )
    assert few is not None
    assert many is not None
    assert prod(few.patch) < 36 <= prod(many.patch)


def test_weights_that_come_from_memory_are_read_by_larger_slabs() -> None:
    few, many = (
        choose_winograd((1, 28, 28, depth), depth, (3, 3), 1, MACHINE, 1e12) for depth in (64, 512)
    )
    assert few is not None
    assert many is not None
    assert few.slab * prod(few.patch) * 64 * 4 < MACHINE.second_cache
    assert many.slab * prod(many.patch) * 512 * 4 > MACHINE.second_cache


def test_what_was_decided_is_explained() -> None:
    text = compilation(network("f32[1x56x56x64]", 64, (3, 3), (1,) * 4), CpuBackend()).text(
        "strategy"
    )
    assert text.startswith(
        "%conv = cpu_winograd: height 56, width 56, channels 64, depth 64, direct "
    )
    assert re.search(r"direct [\d,]+ cycles,\s+4x4 [\d,]+ cycles,\s+4x6 ", text)
    assert re.search(r"^  patch=\(\d, \d\), tile_pixels=\d+, tile_vectors=\d+, slab=", text, re.M)
    assert re.search(r"^  \d+ units, inner loops: .*spread \dx\d, collect \dx\d$", text, re.M)
    assert "overridden" not in text


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (r"patch=\[\d,\d\]", "patch=[7,6]", "a patch of 1 for a kernel of 1, or one of"),
        (r"patch=\[\d,\d\]", "patch=[6]", "a patch, kernels and a pool in height and width"),
        (r"kernels=\[3,3\]", "kernels=[3,2]", "expected a result of"),
        (r"pool=\[1,1\]", "pool=[2,1]", r"expected a result of .* before the pool of \[2, 1\]"),
        (
            r"pool=\[1,1\]",
            "pool=[5,1]",
            "expected a pool that divides the . pixels that a patch gives",
        ),
        (r"pool=\[1,1\]", "pool=[0,1]", "got 0"),
        (r"pool=\[1,1\]", "pool=[1]", "a patch, kernels and a pool"),
        (r"tile_pixels=\d+", "tile_pixels=0", "expected tile_pixels from 1 to"),
        (r"(\bslab=)\d+([^}]*tile_pixels=)\d+", r"\g<1>6\g<2>4", "a slab that is a multiple of 4"),
        (r"tile_vectors=\d+", "tile_vectors=9", "expected tile_vectors from 1 to 8, got 9"),
        (r"bands=\d+", "bands=0", "expected bands of at least 1, got 0"),
        (r"blocks=\d+", "blocks=-1", "expected blocks of at least 1, got -1"),
        (r"slab=\d+", "slab=0", "expected slab of at least 1, got 0"),
    ],
)
def test_decisions_that_cannot_be_kept_to_are_refused(right: str, wrong: str, message: str) -> None:
    stages = compilation(network("f32[1x56x56x64]", 64, (3, 3), (1,) * 4), CpuBackend())
    with pytest.raises(UserError, match=message):
        _ = compilation(edited(stages, {right: wrong}), "cpu").program


def test_weights_packed_for_other_vectors_are_refused() -> None:
    attrs: dict[str, Attr] = {"tile_vectors": 2, "patch": (6, 6)}
    types = {"filter": parse_type("f32[1x36x64x16]"), "result": parse_type("f32[1x9x9x16]")}
    fitting, other = (variant_named(f"x86_64_v{level}") for level in (3, 4))
    assert not mismatch(Operation("cpu_winograd", types, attrs), fitting)
    assert "lower the model for this" in mismatch(Operation("cpu_winograd", types, attrs), other)


def test_a_batch_may_be_of_any_size() -> None:
    module = Module()
    f = module.create_function("main")
    type = parse_type("f32[n x 14 x 14 x 64]", {"n": symbol("n", 1, 4, 2)})
    weights = module.create_constant("k", floats(48, 3, 3, 64) / 64)
    bias, x = module.create_constant("b", floats(48)), module.create_placeholder("x", type)
    conv = f.create_convolution("conv", x, weights, bias, (3, 3), (1, 1), (1,) * 4, (1, 1), 1)
    f.create_save("save", conv, module.create_placeholder("y", conv.result.type))
    assert "cpu_winograd" in mnemonics(module)
    network, exact = (glowpy.compile(module, name) for name in ("cpu", "interpreter"))
    for images in (1, 3, 4):
        arrays = {"x": floats(images, 14, 14, 64)}
        np.testing.assert_allclose(network(arrays)["y"], exact(arrays)["y"], rtol=0, atol=1e-4)


def test_its_own_multiplications_are_counted() -> None:
    module = network("f32[2x56x56x64]", 48, (3, 3), (1,) * 4)
    program = compilation(module, CpuBackend()).program
    (effort,) = [e for e in efforts(program, {}) if isinstance(e.run.head, CpuWinogradInst)]
    (high, wide) = effort.run.head.attrs["patch"]
    patches = -(-56 // (high - 2)) * -(-56 // (wide - 2))
    assert effort.macs == 2 * patches * high * wide * 64 * 48
    assert [move.access for move in effort.steps] == ["read", "write", "read", "write"]
    assert [move.bytes for move in effort.steps] == [
        2 * pixels * channels * 4
        for channels, counts in (
            (64, (56 * 56, patches * high * wide)),
            (48, (patches * high * wide, 56 * 56)),
        )
        for pixels in counts
    ]
    rate = ((1 << 10, 1e9),)
    peaks = Peaks(1, 1e9, rate, rate)
    assert effort.computing(peaks) == pytest.approx(
        (2 * effort.macs + sum(move.bytes for move in effort.steps)) / 1e9
    )
