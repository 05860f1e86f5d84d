"""Matrix products by Strassen's algorithm: when it is chosen, and that it computes what it should."""

from __future__ import annotations

import itertools
import re
from dataclasses import replace

import numpy as np
import pytest

import glowpy
from glowpy.backend import Operation
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuStrassenInst
from glowpy.backends.cpu.nodes_gen import create_cpu_strassen
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.packing import unpack_matrix
from glowpy.backends.cpu.passes import pack_products
from glowpy.backends.cpu.strassen import left_sums, pack_pairs, strassen_error
from glowpy.backends.cpu.strategy.strassen import choose_strassen, strassen_ways
from glowpy.backends.cpu.variant import variant_named
from glowpy.backends.cpu.verify import mismatch
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.graph.function import Module
from glowpy.graph.verifier import verify_module
from glowpy.measuring.roofline import efforts
from glowpy.support.errors import UserError
from glowpy.support.text import Attr
from tests.unit.backends.lowered_text import edited
from tests.unit.backends.test_packed import check, convolution, floats, product

MACHINE = variant_named("x86_64_v3").machine


def test_a_packed_right_side_is_the_right_side() -> None:
    for columns, blocks in ((3, 2), (16, 2), (17, 4)):
        matrix = floats(5, columns)
        packed = np.concatenate(list(pack_pairs(matrix, 8)))
        assert packed.shape == (blocks, 5, 8)
        np.testing.assert_array_equal(unpack_matrix(packed, columns), matrix)


def test_the_middle_row_is_in_both_halves() -> None:
    lhs = floats(1, 3, 4)
    upper, lower = lhs[0, :2], lhs[0, 1:]
    first, second, third, fourth = left_sums(lhs)
    np.testing.assert_allclose(first, lower[:, :2] + lower[:, 2:], rtol=1e-6)
    np.testing.assert_allclose(second, first - upper[:, :2], rtol=1e-6)
    np.testing.assert_allclose(third, upper[:, :2] - lower[:, :2], rtol=1e-6)
    np.testing.assert_allclose(fourth, upper[:, 2:] - second, rtol=1e-6)


def test_errors_are_measured_on_the_right_side() -> None:
    matrix = floats(256, 40)
    assert 1e-8 < strassen_error(matrix, 16) < 1e-5
    matrix[:128] *= 1e-6
    matrix[:, 16:] *= 1e-6
    assert strassen_error(matrix, 64) < 1e-5
    assert strassen_error(np.zeros_like(matrix), 16) == 0


def network(x: str, columns: int) -> Module:
    """A product of input `x` with a constant, with `y` added to it, none of it below zero."""
    module = Module()
    f = module.create_function("main")
    type = parse_type(x)
    depth = type.extents[-1]
    weights = module.create_constant("w", floats(depth, columns) / depth)
    dot = f.create_mat_mul("dot", module.create_placeholder("x", type), weights)
    y = module.create_placeholder("y", dot.result.type)
    total = f.create_relu("relu", f.create_add("sum", dot, y))
    f.create_save("save", total, module.create_placeholder("z", total.result.type))
    return module


def mnemonics(module: Module, backend: CpuBackend | None = None) -> list[str]:
    program = compilation(module, backend or CpuBackend()).program
    return [inst.SCHEMA.mnemonic for inst in program.ir.instructions]


@pytest.mark.parametrize(
    ("x", "columns"), [("f32[200x1120]", 1024), ("f32[3x67x1124]", 1021), ("f32[1x301x1600]", 768)]
)
def test_a_network_computes_the_same_on_any_number_of_threads(x: str, columns: int) -> None:
    module = network(x, columns)
    assert "cpu_strassen" in mnemonics(module)
    arrays = {p.name: floats(*p.type.extents) for p in module.placeholders if p.name != "z"}
    expected = glowpy.compile(module, "interpreter")(arrays)["z"]
    results = [
        glowpy.compile(module, CpuBackend(CpuOptions(threads=threads)))(arrays)["z"]
        for threads in (1, 2, 3, 7)
    ]
    scale = float(np.abs(expected).max())
    np.testing.assert_allclose(results[0], expected, rtol=0, atol=1e-5 * scale)
    assert len({result.tobytes() for result in results}) == 1


def test_a_convolution_of_single_pixels_is_a_product() -> None:
    module = convolution("f32[2x14x14x1120]", 1024, (1, 1))
    assert "cpu_strassen" in mnemonics(module)
    x = {"x": floats(2, 14, 14, 1120)}
    result, expected = (glowpy.compile(module, name)(x)["y"] for name in ("cpu", "interpreter"))
    np.testing.assert_allclose(result, expected, rtol=0, atol=1e-3)


def test_exact_code_has_all_multiplications() -> None:
    module = network("f32[200x1120]", 1024)
    assert "cpu_matmul" in mnemonics(module, CpuBackend(CpuOptions(exact=True)))
    assert "cpu_strassen" in mnemonics(module, CpuBackend(CpuOptions(low_memory=True)))


def test_infinite_weights_stay_in_their_columns() -> None:
    module = Module()
    f = module.create_function("main")
    weights = floats(1120, 1024).copy()
    weights[3, 200] = np.inf
    x = module.create_placeholder("x", parse_type("f32[200x1120]"))
    dot = f.create_mat_mul("dot", x, module.create_constant("w", weights))
    f.create_save("save", dot, module.create_placeholder("y", dot.result.type))
    assert "cpu_matmul" in mnemonics(module)


def test_a_right_side_that_makes_large_errors_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pack_products, "MOST_ERROR", 1e-9)
    assert "cpu_matmul" in mnemonics(network("f32[200x1120]", 1024))


def network_of_one() -> Module:
    """A product of sums below one."""
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[201x1120]"))
    dot = f.create_mat_mul("dot", x, module.create_constant("w", floats(1120, 1024) / 1120))
    f.create_save("save", dot, module.create_placeholder("y", dot.result.type))
    return module


def test_the_interpreter_runs_it() -> None:
    check(network_of_one(), CpuStrassenInst)


@pytest.mark.parametrize(
    "module",
    [
        product((200, 1120), (1120, 1024), constant=False)[0],
        product((8, 1120), (1120, 1024), constant=True)[0],
        product((200, 1121), (1121, 1024), constant=True)[0],
        product((200, 16), (16, 512), constant=True)[0],
    ],
    ids=["computed", "few rows", "odd depth", "shallow"],
)
def test_what_it_does_not_fit_is_computed_directly(module: Module) -> None:
    assert "cpu_matmul" in mnemonics(module)


def test_a_convolution_with_strides_is_computed_directly() -> None:
    check(convolution("f32[1x40x40x32]", 32, (1, 1), strides=(2, 2)), CpuConvInst)


def test_decisions_keep_to_what_the_kernel_knows() -> None:
    """Tiles end where a slab does, slabs and pairs cover the work, and a machine without vectors has none of it."""
    sizes = itertools.product((2, 33, 128, 5001), (64, 768), (1, 33, 768))
    for rows, depth, columns in sizes:
        for way in strassen_ways(rows, depth, columns, MACHINE):
            half, block = -(-rows // 2), way.vectors * MACHINE.lanes
            assert way.slab == half or (way.slab % way.pixels == 0 and way.slab < half)
            assert way.pixels <= way.slab
            assert way.pixels * way.vectors <= 32
            assert way.bands <= -(-half // way.slab)
            parts = -(-columns // (2 * block)) / way.pairs
            assert way.bands * parts <= 16 or way.pairs == 1
            assert choose_strassen(rows, depth, columns, MACHINE, 0) is None
    assert not strassen_ways(128, 768, 768, replace(MACHINE, lanes=1))


def test_what_was_decided_is_explained() -> None:
    text = compilation(network("f32[200x1120]", 1024), CpuBackend()).text("strategy")
    assert text.startswith("%dot = cpu_strassen: rows 200, depth 1120, columns 1024, direct ")
    assert re.search(r"direct [\d,]+ cycles,\s+\d+x\d [\d,]+ cycles", text)
    assert re.search(r"^  tile_pixels=\d+, tile_vectors=\d+, slab=\d+, bands=", text, re.M)
    assert re.search(r"^  \d+ units, inner loops: chained \d+x\d", text, re.M)
    assert "overridden" not in text


@pytest.mark.parametrize(
    ("right", "wrong", "message"),
    [
        (r"tile_pixels=\d+", "tile_pixels=0", "expected tile_pixels from 1 to"),
        (r"tile_vectors=\d+", "tile_vectors=7", "expected"),
        (r"slab=\d+", "slab=0", "expected slab of at least 1, got 0"),
        (r"slab=\d+", "slab=101", "expected a slab of at most 100 rows, got 101"),
        (r"slab=\d+([^}]*tile_pixels=)\d+", r"slab=6\g<1>4", "a multiple of 4"),
        (r"bands=\d+", "bands=0", "expected bands of at least 1, got 0"),
        (r"pairs=\d+", "pairs=-1", "expected pairs of at least 1, got -1"),
    ],
)
def test_decisions_that_cannot_be_kept_to_are_refused(right: str, wrong: str, message: str) -> None:
    stages = compilation(network("f32[200x1120]", 1024), CpuBackend())
    with pytest.raises(UserError, match=message):
        _ = compilation(edited(stages, {right: wrong}), "cpu").program


def test_a_result_without_columns_is_refused() -> None:
    module = Module()
    f = module.create_function("main")
    types = map(parse_type, ("f32[64]", "f32[4x1x32]", "f32[2x64x16]"))
    operands = [module.create_placeholder(f"x{i}", type) for i, type in enumerate(types)]
    create_cpu_strassen(
        f, "n", parse_type("f32[]"), *operands,
        tile_pixels=1, tile_vectors=2, slab=1, bands=1, pairs=1,
    )  # fmt: skip
    with pytest.raises(UserError, match=r"expected a result of \[\] rows, got f32\[\]"):
        verify_module(module)


def test_weights_packed_for_other_vectors_are_refused() -> None:
    attrs: dict[str, Attr] = {"tile_vectors": 2}
    types = {"rhs": parse_type("f32[4x64x16]"), "result": parse_type("f32[9x64]")}
    fitting, other = (variant_named(f"x86_64_v{level}") for level in (3, 4))
    assert not mismatch(Operation("cpu_strassen", types, attrs), fitting)
    assert "lower the model for this" in mismatch(Operation("cpu_strassen", types, attrs), other)


def test_its_own_multiplications_are_counted() -> None:
    program = compilation(network("f32[201x1120]", 1024), CpuBackend()).program
    (effort,) = [e for e in efforts(program, {}) if isinstance(e.run.head, CpuStrassenInst)]
    assert effort.macs == 7 * 101 * 560 * 512
