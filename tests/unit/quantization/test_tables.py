"""Embedding tables: stored as integers by row, computed with as any other value."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

import glowpy
from glowpy import quantization
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.graph.function import Function
from glowpy.quantization import Options, Profile
from tests.unit.quantization.test_convert import kinds, saved

ROWS, COLUMNS = 50, 20


@cache
def network(last: float = 1.0) -> glowpy.Module:
    """Rows of a table, whose last element is given, plus places, and what they are multiplied by."""
    module = glowpy.Module()
    words = module.create_placeholder("x", glowpy.parse_type("i64[7]"))
    f: Function = module.create_function("main")
    rng = np.random.default_rng(3)
    scales = rng.uniform(0.1, 3, (ROWS, 1))
    array = (scales * rng.normal(size=(ROWS, COLUMNS))).astype(np.float32)
    array[-1, -1] = last
    table = module.create_constant("table", array)
    places = module.create_constant("places", rng.normal(size=(7, COLUMNS)).astype(np.float32))
    total = f.create_add("total", f.create_gather("rows", table, words, 0), places)
    weights = module.create_constant("w", rng.normal(size=(COLUMNS, 4)).astype(np.float32))
    return saved(f, f.create_mat_mul("product", total, weights))


def samples() -> list[dict[str, Array]]:
    rng = np.random.default_rng(4)
    return [{"x": rng.integers(-1, ROWS, 7)} for _ in range(8)]


@cache
def profiled() -> Profile:
    return quantization.profile(network(), samples(), backend="interpreter")


def error(options: Options) -> float:
    """Of the results, relative to the largest."""
    module = quantization.quantize(network(), profiled(), options)
    before, after, compiled = (
        glowpy.compile(m, backend)
        for m, backend in ((network(), "cpu"), (module, "interpreter"), (module, "cpu"))
    )
    errors = []
    for sample in samples():
        expected, got = before(sample)["y"], after(sample)["y"]
        np.testing.assert_allclose(compiled(sample)["y"], got, rtol=1e-5, atol=1e-5)
        errors.append(float(np.abs(got - expected).max() / np.abs(expected).max()))
    return max(errors)


def test_rows_have_scales_of_their_own() -> None:
    result = quantization.convert(network(), profiled())
    assert {node.name: node.reason for node in result.nodes}["rows"] == ""
    tables = {c.name: c.type for c in result.module.constants}
    table = next(type for type in tables.values() if type.shape == (ROWS, COLUMNS))
    assert table.kind is ElemKind.I8
    assert result.bytes_before - result.bytes_after >= 3 * ROWS * COLUMNS - 5 * ROWS
    assert kinds(result.module)["dequantize_blocks"] == 1


@pytest.mark.parametrize(("tables", "limit"), [(None, 0.02), (8, 0.02), (4, 0.2)])
def test_tables_of_few_bits(tables: int | None, limit: float) -> None:
    assert error(Options(tables=tables)) < limit
    if tables is None:
        module = quantization.quantize(network(), profiled(), Options(tables=tables))
        assert kinds(module)["dequantize_blocks"] == 0


def test_a_table_that_is_kept_stays() -> None:
    result = quantization.convert(network(), profiled(), Options(keep=("gather",)))
    assert {node.name: node.reason for node in result.floats}["rows"] == "'gather' is to be kept"
    assert kinds(result.module)["dequantize_blocks"] == 0


def test_a_table_that_is_not_finite_stays() -> None:
    module = network(np.nan)  # in a row that no input asks for
    inputs = [{"x": np.minimum(sample["x"] % ROWS, ROWS - 2)} for sample in samples()]
    profile = quantization.profile(module, inputs, backend="interpreter")
    result = quantization.convert(module, profile)
    assert kinds(result.module)["dequantize_blocks"] == 0
    assert "rows" in {node.name for node in result.floats}


def test_other_bits_are_refused() -> None:
    with pytest.raises(glowpy.UserError, match="expected tables of 4 or 8 bits, got 2"):
        Options(tables=2)
