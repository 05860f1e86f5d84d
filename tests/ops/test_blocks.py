"""Stored integers with a scale for each block, as numbers and as right sides of products."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.block_weights import pack_integers, pack_words, signed, unpack_integers
from glowpy.backends.cpu.insts_gen import CpuBlockMatmulInst
from glowpy.core.elemkind import ElemKind
from glowpy.core.four_bits import columns_of_4_bits, rows_of_columns
from glowpy.core.quantized import offsets_of, scales_of
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Quant, Type
from glowpy.engine import BACKENDS, compilation
from glowpy.graph.nodes_gen import DequantizeBlocksNode, RoundBlocksNode
from glowpy.support.errors import UserError
from tests.ops.harness import bound

TESTED = (DequantizeBlocksNode, RoundBlocksNode)


@dataclass(frozen=True)
class Blocks:
    """Stored integers [K, N] with their parameters, or along another axis."""

    integers: Array
    scales: Array
    zeros: Array
    block: int
    bits: int
    axis: int = 0

    def numbers(self) -> Array:
        """What they stand for, in f64."""
        places = np.arange(self.integers.shape[self.axis]) // self.block
        steps = self.integers.astype(np.float64) - np.take(self.zeros, places, self.axis)
        return np.asarray(steps * np.take(self.scales, places, self.axis))

    def node(self, f: glowpy.Function, *, known: bool = True) -> glowpy.NodeValue:
        """The node, of constants or of inputs."""
        values: list[glowpy.NodeValue] = []
        for name, array in zip("qsz", (self.integers, self.scales, self.zeros), strict=True):
            if known:
                values.append(f.module.create_constant(name, array).value)
            else:
                type = Type(ElemKind.of(array.dtype), array.shape)
                values.append(f.module.create_placeholder(name, type).value)
        input, scale, zero = values
        return f.create_dequantize_blocks(
            "w", input, scale, zero, axis=self.axis, block=self.block, bits=self.bits
        ).result


def blocks_of(
    shape: tuple[int, ...], block: int, bits: int, dtype: type, *, axis: int = 0, zeros: bool = True
) -> Blocks:
    """Random integers over the whole of their range."""
    rng = np.random.default_rng([*shape, block, bits])
    half = 1 << (bits - 1)
    low = -half if dtype is np.int8 else 0
    count = -(-shape[axis] // block)
    parameters = (*shape[:axis], count, *shape[axis + 1 :])
    middle = low + half
    offsets = (
        rng.integers(low, low + 2 * half, parameters) if zeros else np.full(parameters, middle)
    )
    return Blocks(
        rng.integers(low, low + 2 * half, shape).astype(dtype),
        rng.uniform(0.01, 0.1, parameters).astype(np.float32),
        offsets.astype(dtype),
        block,
        bits,
        axis,
    )


def product_of(lhs: Array, blocks: Blocks, *, rounded: int = 0) -> glowpy.Function:
    """A network that multiplies the weights by x, which is rounded in blocks of so many if there are any."""
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, lhs.shape)).value
    if rounded:
        x = f.create_round_blocks("rows", x, block=rounded).result
    result = f.create_mat_mul("y", x, blocks.node(f))
    output = module.create_placeholder("out", result.result.type)
    f.create_save("save", result, output)
    return f


def multiplied(lhs: Array, blocks: Blocks, backend: str, *, rounded: int = 0) -> Array:
    """lhs times the weights, as a network."""
    f = product_of(lhs, blocks, rounded=rounded)
    return np.asarray(glowpy.compile(f, bound(backend))({"x": lhs})["out"])


def rounded_numbers(x: Array, block: int) -> Array:
    """What `round_blocks` makes of rows, in f64 but for the scales."""
    result = np.zeros(x.shape)
    for first in range(0, x.shape[-1], block):
        part = x[..., first : first + block]
        scale = np.abs(part).max(axis=-1, keepdims=True) / np.float32(127)
        counts = scale >= np.finfo(np.float32).tiny
        inverse = np.where(counts, np.float32(1) / np.where(counts, scale, 1), np.float32(0))
        result[..., first : first + block] = np.rint(part * inverse) * scale.astype(np.float64)
    return result


SHAPES = [
    ((1, 96), 70),
    ((3, 40), 5),
    ((7, 77), 129),
    ((2, 3, 33), 64),
    ((5, 1), 1),
    ((4, 300), 16),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("bits", "dtype"), [(4, np.int8), (4, np.uint8), (8, np.int8), (8, np.uint8)]
)
def test_products_with_stored_weights(bits: int, dtype: type, backend: str) -> None:
    for number, ((shape, columns), block) in enumerate(product(SHAPES, (32, 128))):
        blocks = blocks_of((shape[-1], columns), block, bits, dtype, zeros=number % 3 > 0)
        lhs = np.random.default_rng(number).normal(size=shape).astype(np.float32)
        numbers = blocks.numbers()
        result = multiplied(lhs, blocks, backend)
        bound_of_error = 1e-5 * (np.abs(lhs) @ np.abs(numbers)) + 1e-5 * bits * np.abs(lhs).sum()
        assert np.all(np.abs(result - lhs @ numbers) <= bound_of_error), (shape, columns, block)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [4, 8])
def test_products_of_rounded_rows(bits: int, backend: str) -> None:
    """The result is that of the rounded numbers, and not further from that of the others than the documents say."""
    for number, ((shape, columns), block) in enumerate(product(SHAPES, (32, 128))):
        blocks = blocks_of((shape[-1], columns), block, bits, np.uint8, zeros=number % 3 > 0)
        lhs = np.random.default_rng(number).normal(size=shape).astype(np.float32)
        numbers, rows = blocks.numbers(), rounded_numbers(lhs, block)
        result = multiplied(lhs, blocks, backend, rounded=block)
        assert np.all(
            np.abs(result - rows @ numbers) <= 2e-6 * (np.abs(rows) @ np.abs(numbers)) + 1e-6
        )
        most = np.zeros((*shape[:-1], columns))
        for first in range(0, shape[-1], block):
            part = slice(first, first + block)
            largest = np.abs(lhs[..., part]).max(axis=-1, keepdims=True)
            most += largest / 254 * np.abs(numbers[part]).sum(axis=0)
        assert np.all(np.abs(result - lhs @ numbers) <= 1.001 * most + 1e-5)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shape", [(40,), (2, 3, 33), (3, 64)])
def test_rows_are_rounded(shape: tuple[int, ...], backend: str) -> None:
    """Also where no product reads them; a block of zeros, or of numbers as small as nothing, is zeros."""
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    module = glowpy.Module()
    f = module.create_function("main")
    rows = f.create_round_blocks(
        "rows", module.create_placeholder("x", Type(ElemKind.F32, shape)), block=32
    )
    f.create_save("save", rows, module.create_placeholder("out", rows.type))
    for factor in (1, 0, 1e-40):
        scaled = (x * np.float32(factor)).astype(np.float32)
        result = glowpy.compile(f, bound(backend))({"x": scaled})["out"]
        np.testing.assert_array_equal(result, rounded_numbers(scaled, 32).astype(np.float32))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("bits", [4, 8])
def test_what_is_not_finite_makes_its_row_nan(bits: int, backend: str) -> None:
    """Nothing is left of the others in its block; rows beside it are what they are without it."""
    blocks = blocks_of((64, 5), 32, bits, np.uint8)
    lhs = np.random.default_rng(0).normal(size=(4, 64)).astype(np.float32)
    plain = multiplied(lhs, blocks, backend, rounded=32)
    lhs[0, 5], lhs[1, 40], lhs[2, 3] = np.inf, -np.inf, np.nan
    result = multiplied(lhs, blocks, backend, rounded=32)
    assert np.isnan(result[:3]).all()
    assert np.array_equal(result[3], plain[3])


def test_integers_are_multiplied_where_the_blocks_are_the_same() -> None:
    lhs = np.zeros((2, 96), np.float32)
    for bits, rounded, expected in (
        (4, 32, {"cpu_quantize_blocks", "cpu_byte_block_matmul"}),
        (8, 32, {"cpu_quantize_blocks", "cpu_byte_block_matmul"}),
        (4, 64, {"cpu_block_matmul"}),
        (4, 0, {"cpu_block_matmul"}),
    ):
        f = product_of(lhs, blocks_of((96, 5), 32, bits, np.uint8), rounded=rounded)
        assert expected <= set(instructions_of(f))


def test_sums_of_long_blocks_do_not_wrap() -> None:
    """As far above their zero as they can be, 70,000 weights take more than 32 bits."""
    depth = 70_000
    scales, zeros = np.full((1, 1), 0.5, np.float32), np.full((1, 1), 255, np.uint8)
    blocks = Blocks(np.zeros((depth, 1), np.uint8), scales, zeros, depth, 8)
    result = multiplied(np.ones((1, depth), np.float32), blocks, "cpu", rounded=depth)
    np.testing.assert_allclose(result, [[-127.5 * depth]], rtol=1e-4)


def test_products_share_the_rounding_of_their_rows() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 64)))
    rows = f.create_round_blocks("rows", x, block=32)
    for seed in range(3):
        y = f.create_mat_mul("y", rows, blocks_of((64, 5 + seed), 32, 4, np.uint8).node(f))
        f.create_save("save", y, module.create_placeholder(f"out{seed}", y.result.type))
    assert instructions_of(f).count("cpu_quantize_blocks") == 1


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("shape", "axis", "block"), [((5, 3), 0, 2), ((2, 3, 9), 2, 4), ((4, 2), 1, 8)]
)
def test_numbers(shape: tuple[int, ...], axis: int, block: int, backend: str, known: bool) -> None:
    """Bit for bit: both operations are rounded once."""
    blocks = blocks_of(shape, block, 8, np.uint8, axis=axis)
    module = glowpy.Module()
    f = module.create_function("main")
    numbers = blocks.node(f, known=known)
    f.create_save("save", numbers, module.create_placeholder("out", numbers.type))
    arrays = {"q": blocks.integers, "s": blocks.scales, "z": blocks.zeros}
    result = glowpy.compile(f, bound(backend))({} if known else arrays)["out"]
    assert np.array_equal(result, blocks.numbers().astype(np.float32))


def instructions_of(f: glowpy.Function) -> list[str]:
    """Mnemonics of what the CPU runs."""
    return [inst.SCHEMA.mnemonic for inst in compilation(f, bound("cpu")).ir.instructions]


def test_weights_stay_stored_where_products_read_them() -> None:
    """A table of which rows are gathered, and whose transpose is a right side: integers are in memory."""
    module = glowpy.Module()
    f = module.create_function("main")
    table = blocks_of((50, 64), 32, 4, np.int8, axis=1, zeros=False)
    numbers = table.node(f)
    rows = module.create_placeholder("rows", Type(ElemKind.I64, (2,)))
    x = f.create_gather("x", numbers, rows, 0)
    y = f.create_mat_mul("y", x, f.create_transpose("t", numbers, (1, 0))).result
    f.create_save("save", y, module.create_placeholder("out", y.type))
    program = compilation(f, bound("cpu")).program
    sizes = sorted(tensor.type.size for tensor in program.constants.values())
    assert sum(sizes) < 50 * 64 * 4
    assert "cpu_block_matmul" in instructions_of(f)
    picked = np.array([3, 49])
    result = glowpy.compile(f, bound("cpu"))({"rows": picked})["out"]
    expected = table.numbers()[picked] @ table.numbers().T
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


def test_what_no_product_reads_as_stored_becomes_floats() -> None:
    """Blocks that are no whole words of 4 bits, and those along columns: the product is one of floats."""
    for block, axis in ((12, 0), (32, 1)):
        blocks = blocks_of((64, 40), block, 4, np.uint8, axis=axis)
        module = glowpy.Module()
        f = module.create_function("main")
        x = module.create_placeholder("x", Type(ElemKind.F32, (2, 64)))
        y = f.create_mat_mul("y", x, blocks.node(f)).result
        f.create_save("save", y, module.create_placeholder("out", y.type))
        assert instructions_of(f) == ["cpu_matmul"]
        lhs = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
        result = glowpy.compile(f, bound("cpu"))({"x": lhs})["out"]
        np.testing.assert_allclose(result, lhs @ blocks.numbers(), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("rounded", [0, 32])
def test_a_row_is_computed_as_it_is_among_others(rounded: int) -> None:
    """As a decoder's steps of several tokens, and of several texts, have to be."""
    blocks = blocks_of((160, 70), 32, 4, np.uint8)
    lhs = np.random.default_rng(0).normal(size=(15, 160)).astype(np.float32)
    together = multiplied(lhs, blocks, "cpu", rounded=rounded)
    for index in (0, 7, 8, 11, 12, 14):
        alone = multiplied(lhs[index : index + 1], blocks, "cpu", rounded=rounded)
        assert np.array_equal(alone[0], together[index])


KNOWN = [
    (Quant((0.25, 0.5, 0.125), (0, 3, -2), 1), "i8", ["cpu_block_matmul"]),
    (Quant((0.25,), (130,)), "u8", ["cpu_block_matmul"]),
    (Quant(tuple(np.linspace(0.1, 1, 64)), (0,) * 64, 0), "i8", ["cpu_matmul"]),
    (Quant((0.25,), (7,)), "i16", ["cpu_matmul"]),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("quant", "kind", "expected"), KNOWN)
def test_known_integers_are_not_dequantized_at_run_time(
    quant: Quant, kind: str, expected: list[str], backend: str
) -> None:
    """Of weights with a scale for each column the depth is one block; others are floats when it runs."""
    type = Type(ElemKind(kind), (64, 3), quant)
    integers = np.random.default_rng(1).integers(0, 100, (64, 3)).astype(type.kind.dtype)
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 64)))
    weights = module.create_constant("w", Tensor(type, integers))
    numbers = f.create_dequantize("d", Type(ElemKind.F32, (64, 3)), weights)
    y = f.create_mat_mul("y", x, numbers).result
    f.create_save("save", y, module.create_placeholder("out", y.type))
    assert instructions_of(f) == expected
    lhs = np.random.default_rng(0).normal(size=(2, 64)).astype(np.float32)
    steps = integers.astype(np.float64) - offsets_of(type)
    result = glowpy.compile(f, bound(backend))({"x": lhs})["out"]
    np.testing.assert_allclose(result, lhs @ (steps * scales_of(type)), rtol=1e-4, atol=1e-2)


@pytest.mark.parametrize(
    ("limits", "offset", "kind"), [((-8, 7), 0, "u32"), ((-8, 8), 0, "i8"), ((-8, 7), 8, "i8")]
)
def test_what_needs_4_bits_takes_4(limits: tuple[int, int], offset: int, kind: str) -> None:
    """Eight are a word, if their offset is as small."""
    type = Type(ElemKind.I8, (64, 3), Quant((0.5,), (offset,)))
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", Type(ElemKind.F32, (2, 64)))
    integers = np.resize(np.array(limits, np.int8), type.extents)
    weights = module.create_constant("w", Tensor(type, integers))
    y = f.create_mat_mul("y", x, f.create_dequantize("d", Type(ElemKind.F32, (64, 3)), weights))
    f.create_save("save", y, module.create_placeholder("out", y.result.type))
    (inst,) = compilation(f, bound("cpu")).ir.instructions
    assert isinstance(inst, CpuBlockMatmulInst)
    assert inst.rhs.type.kind.value == kind


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"block": 0}, "expected a block of at least 1, got 0"),
        ({"bits": 5}, "expected 4 or 8 bits, got 5"),
        ({"axis": 2}, "axis"),
        ({"block": 1}, r"expected a scale of type f32\[64x3\], got f32\[2x3\]"),
    ],
)
def test_what_does_not_fit_is_refused(change: dict[str, int], message: str) -> None:
    blocks = blocks_of((64, 3), 32, 4, np.int8)
    f = glowpy.Module().create_function("main")
    input, scale, zero = (
        f.module.create_constant("c", array)
        for array in (blocks.integers, blocks.scales, blocks.zeros)
    )
    attrs = {"axis": 0, "block": 32, "bits": 4, **change}
    with pytest.raises(UserError, match=message):
        f.create(DequantizeBlocksNode, "w", [input, scale, zero], attrs)


@pytest.mark.parametrize("depth", [64, 77])
def test_words_are_packed_as_they_are_in_files(depth: int) -> None:
    """The same bits as from integers one by one; what fills up the last block of a row is left out."""
    rng = np.random.default_rng(depth)
    rows = Tensor.of(rng.integers(0, 256, (1100, 48), np.uint8, endpoint=False))
    codes = columns_of_4_bits(rows, depth)
    assert rows_of_columns(codes) is rows
    assert np.array_equal(
        codes.array[:3, 5], [rows.array[5, 0] & 15, rows.array[5, 0] >> 4, rows.array[5, 1] & 15]
    )
    expected = np.concatenate(list(pack_integers(codes.array, 4, 64)))
    packed = np.concatenate(list(pack_words(rows.array, depth, 64)))
    assert np.array_equal(packed, expected)
    assert np.array_equal(unpack_integers(packed, depth, 1100), signed(codes.array, 4))
