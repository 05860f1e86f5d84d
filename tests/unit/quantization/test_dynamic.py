"""Products whose left side is quantized by the range it has at run time."""

from __future__ import annotations

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.engine import compilation
from glowpy.quantization import quantize_dynamic
from glowpy.support.errors import UserError

RNG = np.random.default_rng(7)
DEPTH, COLUMNS = 33, 20
WEIGHTS = RNG.normal(size=(DEPTH, COLUMNS)).astype(np.float32)
BIAS = RNG.normal(size=COLUMNS).astype(np.float32)


def network() -> glowpy.Module:
    """Two products of one value, and the product of both."""
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[6x33]"))
    weights = module.create_constant("weights", WEIGHTS)
    bias = module.create_constant("bias", BIAS)
    first = f.create_relu("first", f.create_fully_connected("dense", x, weights, bias))
    other = module.create_constant("other", WEIGHTS[:, ::-1])
    second = f.create_mat_mul("second", x, other)
    y = f.create_mat_mul("last", first, f.create_transpose("t", second, (1, 0))).result
    for name, value in (("first", first.result), ("y", y)):
        f.create_save(f"save_{name}", value, module.create_placeholder(f"out_{name}", value.type))
    return module


def dynamic(x: Array, weights: Array) -> Array:
    """A product as it is defined: u8 for the range of x with 0, i8 for each column of the weights."""
    low, high = np.minimum(x.min(), np.float32(0)), np.maximum(x.max(), np.float32(0))
    with np.errstate(invalid="ignore"):
        scale = np.float32((high - low) / np.float32(255))
        zero = np.nan_to_num(np.clip(np.rint(-low / scale), 0, 255))
        q = np.nan_to_num(np.clip(np.rint(x / scale) + zero, 0, 255)) - zero
    steps = (np.abs(weights).max(0) / 127).astype(np.float32)
    return np.asarray((q @ np.rint(weights / steps)) * (scale * steps))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_products_are_as_defined(backend: str) -> None:
    compiled = glowpy.compile(quantize_dynamic(network()).module, backend)
    for x in (RNG.normal(size=(6, DEPTH)), RNG.uniform(2, 3, (6, DEPTH)), np.zeros((6, DEPTH))):
        data = x.astype(np.float32)
        result = compiled({"x": data})["out_first"]
        expected = np.maximum(dynamic(data, WEIGHTS) + BIAS, 0)
        np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-5)


def test_nearly_the_same_as_in_floats() -> None:
    data = {"x": RNG.normal(size=(6, DEPTH)).astype(np.float32)}
    conversion = quantize_dynamic(network())
    computed = "it multiplies no known matrix by what is computed"
    assert [node.reason for node in conversion.nodes] == ["", "", computed]
    result = glowpy.compile(conversion.module)(data)["out_y"]
    expected = glowpy.compile(network())(data)["out_y"]
    assert 0 < np.linalg.norm(result - expected) < 0.03 * np.linalg.norm(expected)


def test_products_of_one_value_share_its_range_and_are_one_run_each() -> None:
    ir = compilation(quantize_dynamic(network()).module).ir
    mnemonics = [[inst.SCHEMA.mnemonic for inst in run.members] for run in ir.runs]
    assert mnemonics.count(["reduce_min"]) == mnemonics.count(["reduce_max"]) == 1
    products = [run for run in mnemonics if run[0] == "cpu_matmul"]
    assert ["cpu_matmul", "sub", "convert", "mul", "add", "max"] in products
    assert ["cpu_matmul", "sub", "convert", "mul"] in products


def test_what_is_kept_and_what_has_no_exact_sum_stays_in_floats() -> None:
    conversion = quantize_dynamic(network(), keep=("dense",))
    assert [node.reason for node in conversion.nodes][:2] == ["'dense' is to be kept", ""]
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1x40000]"))
    weights = module.create_constant("w", np.ones((40000, 1), np.float32))
    y = f.create_mat_mul("y", x, weights).result
    f.create_save("save", y, module.create_placeholder("out", y.type))
    (node,) = quantize_dynamic(module).nodes
    assert node.reason == "40000 products could overflow"


def test_weights_that_are_not_finite_stay_in_floats() -> None:
    module = glowpy.Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[1x2]"))
    weights = module.create_constant("w", np.array([[1], [np.inf]], np.float32))
    y = f.create_mat_mul("y", x, weights).result
    f.create_save("save", y, module.create_placeholder("out", y.type))
    (node,) = quantize_dynamic(module).nodes
    assert node.reason == "its constant has NaNs or infinities"


def test_what_there_is_not_is_refused() -> None:
    with pytest.raises(UserError, match="expected a name or a kind of a node to keep, got 'no'"):
        quantize_dynamic(network(), keep=("no",))
