"""Constants of networks in this process: shared where they are large, and gone with the last network."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu import packing
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import LARGE, Array
from glowpy.core.type import Type
from glowpy.ir.plan import Area, MemoryPlan, Slot
from glowpy.llvm.constant_block import block_of
from glowpy.runtime.weights import _shared as weights_in_process


def product(rows: int, weights: Array) -> glowpy.Module:
    module = glowpy.Module()
    x = module.create_placeholder("x", Type(ElemKind.of(weights.dtype), (rows, len(weights))))
    f = module.create_function("main")
    product = f.create_mat_mul("p", x, module.create_constant("w", weights))
    f.create_save("save", product, module.create_placeholder("y", product.type))
    return module


def network(rows: int, weights: Array) -> glowpy.CompiledFunction:
    return glowpy.compile(product(rows, weights))


def test_networks_share_large_constants_as_long_as_one_is_there() -> None:
    weights = np.random.default_rng(5).standard_normal((200, 300)).astype(np.float32)
    before = len(weights_in_process)
    functions = [network(rows, weights) for rows in (1, 2, 9, 64, 200)]
    assert len(weights_in_process) == before + 1
    other = network(8, weights + 1)
    assert len(weights_in_process) == before + 2
    for function in functions:
        (shape,) = [type.extents for type in function.inputs.values()]
        x = np.ones(shape, np.float32)
        np.testing.assert_allclose(function({"x": x})["y"], x @ weights, rtol=1e-4, atol=1e-4)
    del function, functions, other
    assert len(weights_in_process) == before, "without the collector"


@pytest.mark.parametrize("rows", [20, 200])
def test_a_constant_stays_when_its_array_is_changed(rows: int) -> None:
    """Else a large one would be packed again under the key of what it was, and others that are that would find it."""
    weights, x = np.ones((rows, 300), np.float32), np.ones((1, rows), np.float32)
    module, options = product(1, weights), glowpy.CompileOptions(cache=False)
    glowpy.compile(module, options=options)
    weights[:] = 2
    later = glowpy.compile(module, options=options)
    ones = glowpy.compile(product(1, np.ones((rows, 300), np.float32)), options=options)
    np.testing.assert_array_equal(ones({"x": x})["y"], np.full((1, 300), rows))
    np.testing.assert_array_equal(later({"x": x})["y"], np.full((1, 300), rows))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("columns", [300, 130, 17])
def test_one_row_has_the_bits_it_has_among_many(dtype: type, columns: int) -> None:
    """With the same weights: a tile of one row takes several packed blocks, and the last it may take in part."""
    generator = np.random.default_rng(columns)
    weights: Array = generator.standard_normal((400, columns)).astype(dtype)
    x: Array = generator.standard_normal((40, 400)).astype(dtype)
    before = len(weights_in_process)
    functions = {rows: network(rows, weights) for rows in (40, 1, 2, 3, 7)}
    assert len(weights_in_process) <= before + 1
    many = functions[40]({"x": x})["y"]
    np.testing.assert_allclose(many, x.astype(np.float64) @ weights, rtol=1e-4, atol=1e-4)
    for rows, function in functions.items():
        np.testing.assert_array_equal(function({"x": x[:rows]})["y"], many[:rows])


def test_a_block_begins_with_the_addresses_of_large_constants() -> None:
    sizes = {"a": 12, "big": LARGE, "b": 64, "bigger": 3 * LARGE, "c": 0}
    slots = tuple(Slot(name, 0, size) for name, size in sizes.items())
    plan = MemoryPlan("main", Area(0, ()), Area(0, ()), Area(0, slots))
    block = block_of(plan, 8)
    assert [slot.name for slot in block.large] == ["big", "bigger"]
    assert [(slot.name, slot.start) for slot in block.small] == [("a", 64), ("b", 128), ("c", 192)]
    assert block.size == 192


@pytest.mark.parametrize("columns", [1, 8, 60, 64, 65])
@pytest.mark.parametrize("batch", [(), (2,), (2, 3)])
def test_packing_in_pieces(
    columns: int, batch: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    block, depth = 16, 5
    monkeypatch.setattr(packing, "_PIECE", 2 * depth * block * 4)
    matrix = np.arange(np.prod([*batch, depth, columns]), dtype=np.float32)
    matrix = matrix.reshape(*batch, depth, columns)
    pieces = list(packing.matrix_pieces(matrix, block))
    assert len(pieces) == np.prod(batch) * -(-columns // (2 * block))
    packed = packing.pack_matrix(matrix, block)
    assert packed.shape == packing.packed_shape(matrix.shape, block)
    np.testing.assert_array_equal(packing.unpack_matrix(packed, columns), matrix)
    rest = packed[..., -1, :, columns % block :] if columns % block else np.zeros(0)
    assert not rest.any()
