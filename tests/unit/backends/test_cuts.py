"""Every kernel that products do not use, in several units: the bits are the same however the units are shared."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np
import pytest

import glowpy.backends.cpu.operations  # noqa: F401 - the meaning of instructions
from glowpy import CpuBackend, CpuOptions
from glowpy.backend import Program
from glowpy.backends.cpu.insts_gen import (
    CpuGruInst,
    CpuLstmInst,
    CpuPackMatrixInst,
    CpuQuantizeBlocksInst,
    CpuRnnInst,
    CpuRowMatmulInst,
    CpuStrassenSumsInst,
    CpuWeightedGatherInst,
)
from glowpy.backends.cpu.kernels_gen import KERNELS
from glowpy.backends.cpu.strategy import cut, work
from glowpy.backends.cpu.strategy.cut import Along, cut_of
from glowpy.backends.cpu.strategy.work import work_of
from glowpy.backends.cpu.workers import Workers
from glowpy.core.schema import Access, Layout, Trait
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.ir import insts_gen as insts
from glowpy.ir.inst import Instruction
from glowpy.ir.irfunction import IRFunction
from glowpy.ir.value import Value
from glowpy.recipe import plan_memory
from glowpy.runtime.ports import Port, Ports
from glowpy.support.text import Attr
from tests.libjit.product_runner import partitions
from tests.unit.backends.test_strided import (
    Row,
    Spacing,
    channels_of,
    compute,
    holes,
    operand_of,
    plain,
    random_array,
)

_POOL: dict[str, Attr] = {
    "kernels": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1), "dilation": (1, 1), "ceil": False,
}  # fmt: skip
_LRN: dict[str, Attr] = {"size": 3, "alpha": 0.5, "beta": 0.75, "k": 1.0}
_CELL: dict[str, Attr] = {
    "limit": 2.0, "reverse": True, "tile_rows": 2, "tile_vectors": 1,
}  # fmt: skip
_SUMS: dict[str, Attr] = {"exclusive": False, "reverse": True}
_SAMPLE: dict[str, Attr] = {"order": 1, "aligned": False}
_BINS: dict[str, Attr] = {"height": 2, "width": 2, "scale": 1.0}
_REGIONS: dict[str, Attr] = {**_BINS, "ratio": 2, "largest": False, "half_pixel": True}
_COLUMNS: dict[str, Attr] = {
    "kernels": (2, 2), "strides": (1, 1), "pads": (0, 0, 0, 0), "dilation": (1, 1)
}  # fmt: skip

ROWS = [
    Row(insts.TransposeInst, "f32[12x3x16] f32[3x16x12]", {"shuffle": (2, 0, 1)}),
    Row(insts.TransposeInst, "f32[1x32x5x3] f32[1x5x3x32]", {"shuffle": (0, 3, 1, 2)}),
    Row(insts.BroadcastInst, "f32[4x6x16] f32[4x1x16]"),
    Row(insts.BroadcastInst, "f32[6x5x16] f32[1x5x16]"),
    Row(insts.InsertTensorInst, "f32[7x9x9] f32[6x5x8]", {"offsets": (1, 3, 0)}),
    Row(insts.ExtractTensorInst, "f32[8x5x8] f32[20x5x9]", {"offsets": (18, 0, 1), "steps": (-2, 1, 1)}),
    Row(insts.MaxPoolInst, "f32[2x4x4x9] f32[2x7x4x9]", _POOL),
    Row(insts.MaxPoolWithArgmaxInst, "f32[2x4x4x37] i64[2x4x4x37] f32[2x7x4x37]", _POOL),
    Row(insts.AvgPoolInst, "f32[2x4x4x9] f32[2x7x4x9]", {**_POOL, "count_include_pads": False}),
    Row(insts.SumPoolInst, "i32[2x4x4x37] u8[2x7x4x37]", _POOL),
    Row(insts.ReduceAddInst, "f32[6x1x5] f32[6x70x5]", {"axes": (1,)}),
    Row(insts.ReduceMulInst, "f32[1x4x64] f32[3x4x64]", {"axes": (0,)}),
    Row(insts.ReduceMaxInst, "f32[1x1x64] f32[5x3x64]", {"axes": (0, 1)}),
    Row(insts.ReduceMinInst, "i8[12x1] i8[12x150]", {"axes": (1,)}),
    Row(insts.ArgMaxInst, "i64[9x1x5] f32[9x20x5]", {"axis": 1, "last": True}),
    Row(insts.ArgMinInst, "i64[12x1] i8[12x150]", {"axis": 1, "last": False}),
    Row(insts.CumSumInst, "f32[6x7x16] f32[6x7x16]", {"axis": 1, **_SUMS}),
    Row(insts.CumProdInst, "f32[6x7x16] f32[6x7x16]", {"axis": 1, **_SUMS}),
    Row(insts.BitCastInst, "i32[6x70] f32[6x70]"),
    Row(insts.SoftmaxInst, "f32[3x4x70] f32[3x4x70]", {"axis": 2}),
    Row(insts.SoftmaxInst, "f32[6x64] f32[6x64]", {"axis": 0}),
    Row(insts.LogSoftmaxInst, "f32[8x4x5] f32[8x4x5]", {"axis": 1}),
    Row(insts.LocalResponseNormalizationInst, "f32[1x6x16] f32[1x6x16]", _LRN),
    Row(insts.GatherInst, "f32[8x3x9] f32[8x5x9] i32[3]", {"axis": 1}),
    Row(insts.GatherInst, "f32[12x20] f32[9x20] i64[12]", {"axis": 0}),
    Row(insts.LookupTableInst, "i8[40x9] i8[40x9] i8[256]"),
    Row(insts.LookupTableInst, "i8[300] u8[300] i8[256]"),
    Row(insts.FindInst, "i64[40x9] f64[40x9] f64[1]"),
    Row(
        insts.LinearAttentionInst,
        "f32[4x1x4x16] f32[4x2x6x16] f32[4x1x4x6] f32[4x1x2x6] f32[4x1x2x16] f32[4x1x2x1] f32[4x1x2] f32[4x2x6x16] "
        "f32[4x16]",
    ),
    Row(
        CpuLstmInst,
        "f32[3x5x6] f32[5x6] f32[5x6] f32[3x5x24] f32[4x1x6x16] f32[3x6] i32[5] f32[5x6] f32[5x6] f32[3x2] "
        "f32[5x4x1x16]",
        {**_CELL, "functions": (2, 1, 1), "coupled": False},
    ),
    Row(
        CpuGruInst,
        "f32[3x5x6] f32[5x6] f32[3x5x18] f32[3x1x6x16] f32[6] i32[5] f32[5x6] f32[2x2] f32[5x3x1x16]",
        {**_CELL, "functions": (2, 1), "reset_after": True},
    ),
    Row(
        CpuRnnInst,
        "f64[3x5x6] f64[5x6] f64[3x5x6] f64[1x1x6x16] i32[0] f64[5x6] f64[1x2] f64[5x1x1x16]",
        {**_CELL, "functions": (1,)},
    ),
    Row(CpuPackMatrixInst, "f32[6x2x5x16] f32[6x5x20]", {"block": 16}),
    Row(CpuWeightedGatherInst, "f32[6x8x9] f32[6x5x9] i64[8x2] f32[8x2]", {"axis": 1}),
    Row(CpuWeightedGatherInst, "f64[8x9] f64[5x9] i64[8x3] f64[8x3]", {"axis": 0}),
    Row(CpuRowMatmulInst, "f32[6x1x20] f32[6x1x7] f32[6x7x20]"),
    Row(CpuRowMatmulInst, "f64[8x1x9] f64[8x1x16] f64[8x16x9]"),
    Row(CpuRowMatmulInst, "f32[1x128] f32[1x37] f32[37x128]"),
    Row(CpuRowMatmulInst, "f32[1x193] f32[1x3] f32[3x193]"),
    Row(CpuRowMatmulInst, "f32[2x1x191] f32[2x1x70] f32[2x70x191]"),
    Row(CpuRowMatmulInst, "f64[1x135] f64[1x600] f64[600x135]"),
    Row(CpuRowMatmulInst, "f32[1x200] f32[1x5] f32[5x200]"),
    Row(CpuRowMatmulInst, "f32[3x1x129] f32[1x1x9] f32[3x9x129]"),
    Row(CpuRowMatmulInst, "f32[1x131] f32[1x600] f32[600x131]"),
    Row(CpuRowMatmulInst, "f32[1x193] f32[1x3] f32[3x193]"),
    Row(CpuStrassenSumsInst, "f32[4x40x96] f32[2x40x192]"),
    Row(
        CpuQuantizeBlocksInst, "i8[6x5x40] f32[6x5x2] i32[6x5x2] f32[6x5x37]", {"block": 32, "bits": 4}
    ),
    Row(CpuPackMatrixInst, "f32[4x5x16] f32[5x64]", {"block": 16}),
    Row(CpuPackMatrixInst, "f64[4x5x8] f64[5x32]", {"block": 8}),
    Row(insts.SampleInst, "f32[1x40x6] f32[1x4x5x6] f32[1x40x2x2]", {**_SAMPLE, "padding": 0}),
    Row(insts.SampleInst, "f32[8x9x2] f32[8x4x5x2] f32[8x9x1x2]", {**_SAMPLE, "padding": 2}),
    Row(insts.RoiAlignInst, "f32[6x2x2x5] f32[2x4x5x5] f32[6x4] i64[6]", _REGIONS),
    Row(insts.RoiMaxPoolInst, "f32[6x2x2x5] f32[2x4x5x5] f32[6x5]", _BINS),
    Row(insts.ColumnsToImageInst, "f32[1x4x5x5] f32[1x16x16]", _COLUMNS),
    Row(insts.ColumnsToImageInst, "i32[3x1x5x5] i32[3x4x16]", _COLUMNS),
    Row(insts.MatMulInst, "i64[8x5x7] i64[8x5x9] i64[9x7]"),
    Row(insts.MatMulInst, "i32[12x7] i32[12x9] i32[9x7]"),
]  # fmt: skip
LAYOUTS: list[tuple[Spacing, Spacing]] = [
    (plain, plain), (channels_of, plain), (plain, channels_of), (holes, channels_of), (channels_of, holes)
]  # fmt: skip

TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
PARALLEL_FOR = ctypes.CFUNCTYPE(
    None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t
)


class Ranges:
    """A team that computes the units of each task in ranges, one after the other."""

    def __init__(self) -> None:
        self.way = 0
        """Which of the ways to cut the units."""
        self.units: list[int] = []
        """Of every task."""
        self._function = PARALLEL_FOR(self._run)
        self.arguments = ctypes.cast(self._function, ctypes.c_void_p).value, 0

    def _run(self, context: int, task: int, pointers: int, units: int) -> None:
        del context
        self.units.append(units)
        _, ranges = list(partitions(units))[self.way]
        for first, last in ranges:
            if first < last:
                TASK(task)(pointers, first, last)


@pytest.fixture
def small_units(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (cut, work):
        monkeypatch.setattr(module, "UNIT_BYTES", 128)


def rows(layouts: Sequence[tuple[Spacing, Spacing]]) -> tuple[IRFunction, list[Instruction]]:
    """A program with every row, each in the next layout."""
    f, steps = IRFunction("main"), []
    for number, row in enumerate(ROWS):
        results, inputs = layouts[number % len(layouts)]
        operands = []
        for spec, text in zip(row.cls.SCHEMA.operands, row.types.split(" "), strict=True):
            layout = inputs if spec.access is Access.IN else results
            if spec.layout is Layout.DENSE:
                layout = plain
            elif spec.layout in (Layout.ROWS, Layout.TRANSPOSED) and layout is holes:
                layout = channels_of
            operands.append(operand_of(f, parse_type(text), layout))
        steps.append(f.add(row.cls(operands, row.attrs)))
    return f, steps


def test_every_kernel_has_a_row() -> None:
    known = {row.cls.SCHEMA.mnemonic for row in ROWS}
    products = {
        "cpu_block_matmul",
        "cpu_byte_block_matmul",
        "cpu_conv",
        "cpu_depthwise_conv",
        "cpu_matmul",
    }
    products |= {"cpu_attention", "cpu_byte_winograd", "cpu_standardize"}
    products |= {"cpu_strassen", "cpu_winograd"}
    plain = {"cpu_plain_conv", "cpu_plain_matmul"}  # small code has no units
    whole = {
        "quantization_profile",
        "couple_pairs",
        "random_bits",
        "determinant",
        "fourier_transform",
    }  # one histogram or matrix for all elements
    tables = {"tree_ensemble"}  # not of any numbers: tests/ops/test_ml.py
    found = {
        "dynamic_slice",
        "non_max_suppression",
        "non_zero",
        "top_k",
        "unique",
    }  # elements say what
    found |= {"scatter", "scatter_add", "scatter_max", "scatter_min", "scatter_mul"}
    assert known == KERNELS.keys() - products - plain - whole - found - tables


@pytest.mark.parametrize("shift", range(2))
def test_units_may_be_shared_in_any_way(
    shift: int, small_units: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is computed is right, too. Strided operands keep what lies in their gaps."""
    f, steps = rows(LAYOUTS[2 * shift :] + LAYOUTS[: 2 * shift])
    for inst in steps:
        assert work_of(inst, 8).units > 1, inst.SCHEMA.mnemonic
    arrays = {name: random_array(w.type, seed) for seed, (name, w) in enumerate(f.weights.items())}
    expected = {name: array.copy() for name, array in arrays.items()}
    for inst in steps:
        compute(inst, expected)
    team = Ranges()
    monkeypatch.setattr(Workers, "team", lambda self: team)
    ports = tuple(Port(name, name, weight.type) for name, weight in f.weights.items())
    program = Program(f, plan_memory(f), {}, Ports(ports, ports))
    compiled = CpuBackend(CpuOptions(threads=2)).function(program)
    alike: dict[str, Array] = {}
    for team.way in range(3):
        team.units = []
        outcome = compiled(arrays)
        assert len(team.units) == len(steps)
        alike = alike or dict(outcome)
        for name, array in outcome.items():
            assert array.tobytes() == alike[name].tobytes(), name
    for inst in steps:
        for ref in inst.operands:
            if ref.access is Access.SCRATCH:
                continue
            name = ref.value.base.name
            np.testing.assert_allclose(
                alike[name].astype(np.float64), expected[name], rtol=2e-6, atol=1e-6, err_msg=str(inst)
            )  # fmt: skip


def values(types: str) -> list[Value]:
    return [Value("v", parse_type(text)) for text in types.split(" ")]


def test_small_instructions_are_one_unit() -> None:
    for types in ("f32[32x1] f32[32x16]", "f32[8x0] f32[8x0]"):
        assert cut_of(insts.ReduceAddInst(values(types), {"axes": (1,)})) is None


def test_parts_are_worth_handing_out_and_as_many_as_that_allows() -> None:
    softmax = insts.SoftmaxInst(values("f32[1x12x128x128] f32[1x12x128x128]"), {"axis": 3})
    chosen = cut_of(softmax)
    assert chosen is not None
    assert (chosen.units, chosen.part, chosen.dimension) == (12, 1, (Along(1), Along(1)))
    few = insts.SoftmaxInst(values("f32[1x2x256x128] f32[1x2x256x128]"), {"axis": 3})
    chosen = cut_of(few)
    assert chosen is not None
    assert (chosen.units, chosen.dimension) == (8, (Along(2), Along(2)))
    assert chosen.part == 32
    assert chosen.shape(1, few.input) == (1, 2, 32, 128)
    assert chosen.distance(1, few.input) == 32 * 128


def test_channels_are_cut_at_cache_lines() -> None:
    for channels, part in ((4096, 512), (4090, None)):
        inst = insts.ReduceAddInst(values(f"f32[1x{channels}] f32[31x{channels}]"), {"axes": (0,)})
        chosen = cut_of(inst)
        assert (chosen and chosen.part) == part


def test_divisors() -> None:
    for number in range(1, 200):
        assert cut._divisors(number) == [n for n in range(1, number + 1) if number % n == 0]


def test_large_primes_are_not_cut_nor_searched_through() -> None:
    inst = insts.TransposeInst(values("f32[10000000019] f32[10000000019]"), {"shuffle": (0,)})
    assert cut_of(inst) is None


def test_what_has_no_gaps_is_cut_outermost_only() -> None:
    inst = insts.GatherInst(values("f32[4x512x64] f32[4x9x64] i32[512]"), {"axis": 1})
    chosen = cut_of(inst)
    assert chosen is not None
    assert chosen.dimension == (Along(0), Along(0), None)


def test_operands_with_units_of_their_own_are_not_cut() -> None:
    for cls in insts.INSTS:
        if Trait.UNITS in cls.SCHEMA.traits:
            assert cut._rules.get(cls) is None, cls.SCHEMA.mnemonic
