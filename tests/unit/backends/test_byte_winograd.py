"""Winograd's algorithm for 8-bit integers: its sums are those of the direct one to the last bit, or it is not taken."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy import CpuBackend, CpuOptions
from glowpy.backends.cpu.byte_winograd import (
    has_exact_sums,
    pack_byte_filter,
    unpack_byte_filter,
)
from glowpy.backends.cpu.insts_gen import CpuByteWinogradInst
from glowpy.backends.cpu.strategy.winograd import choose_winograd, winograd_decisions
from glowpy.backends.cpu.variant import VARIANTS, variant_named
from glowpy.backends.interpreter.backend import InterpreterBackend
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Shape, Type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.measuring.roofline import efforts
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol
from tests.unit.backends.lowered_text import edited

taken = pytest.mark.skipif(
    CpuBackend().target.variant.word_machine is None,
    reason="bytes are multiplied far faster than words here",
)
"""For what the backend of this machine has to compute by the algorithm."""
WORDS = variant_named("x86_64_v4_vnni").machine_for(ElemKind.I16)


def integers(kind: str, *shape: int) -> Array:
    low, high = ElemKind(kind).limits
    array = np.random.default_rng(list(shape)).integers(low, high + 1, shape)
    return array.astype(ElemKind(kind).dtype)


def network(
    image: Shape,
    filter: Array,
    kind: str = "u8",
    offset: int = 3,
    *,
    strides: tuple[int, int] = (1, 1),
    group: int = 1,
    weight_offset: int = 0,
) -> Module:
    """A convolution with edges of one pixel, whose sums are rescaled to floats."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind(kind), image, Quant((0.5,), (offset,))))
    scales = Type(ElemKind.I8, filter.shape, Quant((0.25,), (weight_offset,)))
    outputs = len(filter)
    steps = Quant((0.125,), (0,))
    bias = Tensor(Type(ElemKind.I32, (outputs,), steps), integers("i8", outputs).astype(np.int32))
    height, width = (-(-size // stride) for size, stride in zip(image[1:3], strides, strict=True))
    conv = f.create_convolution(
        "conv", x, module.create_constant("w", Tensor(scales, filter)),
        module.create_constant("b", bias), (3, 3), strides, (1,) * 4, (1, 1), group,
        result_type=Type(ElemKind.I32, (image[0], height, width, outputs), steps),
    )  # fmt: skip
    f.create_save("save", conv, module.create_placeholder("y", conv.result.type))
    return module


def mnemonics(module: Module, options: CpuOptions | None = None) -> list[str]:
    program = compilation(module, CpuBackend(options)).program
    return [inst.SCHEMA.mnemonic for inst in program.ir.instructions]


@taken
@pytest.mark.parametrize(
    ("image", "outputs", "group", "kind", "offset"),
    [
        ((1, 28, 28, 64), 64, 1, "u8", 0),
        ((2, 17, 30, 128), 70, 1, "u8", 130),
        ((1, 20, 20, 128), 128, 2, "i8", -5),
        ((1, 33, 16, 64), 96, 1, "i8", 127),
    ],
)
def test_sums_are_those_of_the_direct_algorithm(
    image: tuple[int, ...], outputs: int, group: int, kind: str, offset: int
) -> None:
    filter = integers("i8", outputs, 3, 3, image[-1] // group)

    def made() -> Module:
        return network(image, filter, kind, offset, group=group)

    inputs = {"x": integers(kind, *image)}
    stages = compilation(made(), CpuBackend())
    assert any(isinstance(inst, CpuByteWinogradInst) for inst in stages.program.ir.instructions)
    result = stages.backend.function(stages.program)(inputs)["y"]
    direct = glowpy.compile(made(), CpuBackend(CpuOptions(exact=True)))(inputs)["y"]
    np.testing.assert_array_equal(result, direct)
    meaning = InterpreterBackend().function(stages.program)(inputs)["y"]
    np.testing.assert_array_equal(result, meaning)


def _with_sum(total: int, outputs: int, depth: int) -> Array:
    """Filters whose weights add up to a number, and filters of its opposite."""
    flat = np.zeros((outputs, 9 * depth), np.int8)
    flat[:, : total // 127] = 127
    flat[:, total // 127] = total % 127
    flat[1::2] *= -1
    return flat.reshape(outputs, 3, 3, depth)


LARGEST = (1 << 25) // 255
"""Weights may add up to so much, where inputs are 255 at most: patches of 6 x 6 shift six bits out."""


@taken
def test_the_largest_sums_are_exact() -> None:
    filter = _with_sum(LARGEST, 64, 128)
    inputs = {"x": np.full((1, 28, 28, 128), 255, np.uint8)}

    def made() -> Module:
        return network((1, 28, 28, 128), filter, offset=0)

    assert "cpu_byte_winograd" in mnemonics(made())
    result, direct = (
        glowpy.compile(made(), CpuBackend(CpuOptions(exact=exact)))(inputs)["y"]
        for exact in (False, True)
    )
    np.testing.assert_array_equal(result, direct)
    assert abs(int(np.abs(direct).max()) - (1 << 25)) < 1024


def test_sums_with_more_bits_are_not_taken_so() -> None:
    for total, kind, offset, exact in (
        (LARGEST, ElemKind.U8, 0, True),
        (LARGEST + 1, ElemKind.U8, 0, False),
        (LARGEST + 1, ElemKind.U8, 128, True),
        (LARGEST, ElemKind.I8, -128, True),
        (LARGEST + 1, ElemKind.I8, -128, False),
    ):
        filter = _with_sum(total, 1, 128)
        assert has_exact_sums(filter, (6, 6), kind, offset) == exact
        assert has_exact_sums(-filter, (6, 6), kind, offset) == exact
        assert has_exact_sums(filter, (4, 6), kind, offset)
    assert "cpu_byte_winograd" not in mnemonics(
        network((1, 28, 28, 512), np.full((64, 3, 3, 512), 127, np.int8))
    )


@pytest.mark.parametrize("options", [CpuOptions(exact=True), CpuOptions(low_memory=True)])
def test_options_decline_it(options: CpuOptions) -> None:
    module = network((1, 28, 28, 64), integers("i8", 64, 3, 3, 64))
    assert "cpu_byte_winograd" not in mnemonics(module, options)


def test_what_it_does_not_compute_is_left_alone() -> None:
    filter = integers("i8", 64, 3, 3, 64)
    for module in (
        network((1, 28, 28, 64), filter, strides=(2, 2)),
        network((1, 28, 28, 64), filter, weight_offset=4),
        network((1, 3, 3, 64), filter),
    ):
        assert "cpu_byte_winograd" not in mnemonics(module)


@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize(
    ("patch", "kernels"), [((6, 6), (3, 3)), ((4, 6), (2, 3)), ((1, 6), (1, 3)), ((4, 1), (3, 1))]
)
def test_packing_is_undone(patch: tuple[int, int], kernels: tuple[int, int], group: int) -> None:
    filter = integers("i8", 2 * 19, *kernels, 6)
    filter[0] = -128
    packed = np.stack(list(pack_byte_filter(filter, patch, 8, group)))
    assert packed.shape == (group * -(-38 // group // 8), patch[0] * patch[1], 3, 16)
    plain = unpack_byte_filter(packed, 38, patch, kernels, group)
    np.testing.assert_array_equal(plain, filter)


def test_a_batch_may_be_of_any_size() -> None:
    filter = integers("i8", 48, 3, 3, 64)

    def made() -> Module:
        return network((symbol("n", 1, 3, 2), 14, 14, 64), filter)

    network_of_any, exact = (glowpy.compile(made(), name) for name in ("cpu", "interpreter"))
    for images in (1, 3):
        inputs = {"x": integers("u8", images, 14, 14, 64)}
        np.testing.assert_array_equal(network_of_any(inputs)["y"], exact(inputs)["y"])


@taken
@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (r"patch=\[\d, ?\d\]", "patch=[8, 8]", r"expected patches of \(1, 4, 6\)"),
        (r"tile_vectors=\d+", "tile_vectors=9", "expected tile_vectors from 1 to 8, got 9"),
        (r"bands=\d+", "bands=0", "expected bands of at least 1, got 0"),
        (r"slab=\d+", "slab=0", "expected slab of at least 1, got 0"),
    ],
)
def test_what_it_cannot_keep_to_is_refused(right: str, wrong: str, message: str) -> None:
    stages = compilation(network((1, 28, 28, 64), integers("i8", 64, 3, 3, 64)), CpuBackend())
    with pytest.raises(UserError, match=message):
        _ = compilation(edited(stages, {right: wrong}), "cpu").program


def test_it_is_for_processors_whose_bytes_are_not_far_faster() -> None:
    assert {variant.name for variant in VARIANTS if variant.word_machine is not None} == {
        variant.name for variant in VARIANTS if variant.family == "x86_64"
    }
    for depth, fits in ((32, True), (34, True), (33, False), (16, False)):
        ways = winograd_decisions((1, 56, 56, 64), depth, (3, 3), 1, WORDS)
        assert bool(ways) == fits
    assert not winograd_decisions((1, 56, 56, 64), 64, (5, 5), 1, WORDS)
    chosen = choose_winograd((1, 56, 56, 64), 64, (3, 3), 1, WORDS, 1e12)
    assert chosen is not None
    assert chosen.patch == (6, 6)


@taken
def test_its_multiplications_count_as_what_bytes_could_do_meanwhile() -> None:
    module = network((1, 28, 28, 64), integers("i8", 48, 3, 3, 64))
    program = compilation(module, CpuBackend()).program
    (effort,) = [e for e in efforts(program, {}) if isinstance(e.run.head, CpuByteWinogradInst)]
    high, wide = effort.run.head.attrs["patch"]
    patches = -(-28 // (high - 2)) * -(-28 // (wide - 2))
    assert effort.macs == 2 * patches * high * wide * 64 * 48
    assert effort.direct_macs == 28 * 28 * 9 * 64 * 48
    points = patches * high * wide
    moved = [28 * 28 * 64, 2 * points * 64, 4 * points * 48, 4 * 28 * 28 * 48]
    assert [move.bytes for move in effort.steps] == moved
