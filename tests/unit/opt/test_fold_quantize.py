"""Floats between stored integers that stay floats, or whose types are unusual."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import glowpy
from glowpy.core.tensor import Array
from glowpy.core.type import parse_type
from glowpy.engine import BACKENDS
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.quantization.optimized import optimized

Build = Callable[[Function, NodeValue], Node]

BYTES = "u8[2x6](s=0.05,o=120)"
STORED = np.linspace(0, 255, 12).astype(np.uint8).reshape(2, 6)
NUMBERS = (STORED.astype(np.float32) - 120) * np.float32(0.05)


def network(type: str, build: Build) -> Function:
    module = glowpy.Module()
    f = module.create_function("main")
    result = build(f, module.create_placeholder("x", parse_type(type)).value)
    f.create_save("save", result, module.create_placeholder("y", result.result.type))
    return f


def run(type: str, build: Build, x: Array, backend: str = "interpreter") -> Array:
    return np.asarray(glowpy.compile(network(type, build), backend)({"x": x})["y"])


def swish(f: Function, x: NodeValue) -> Node:
    """In two parts."""
    numbers = f.create_dequantize("numbers", parse_type("f32[2x6]"), x)
    return f.create_mul("swish", numbers, f.create_sigmoid("gate", numbers))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    "result",
    ["i16[2x6](s=0.001,o=3)", "i32[2x6](s=1e-05,o=0)", "u8[2x6](s=[0.05,0.1],o=[9,0],axis=0)"],
)
def test_functions_of_parts_that_have_no_table_of_bytes(result: str, backend: str) -> None:
    type = parse_type(result)
    got = run(BYTES, lambda f, x: f.create_quantize("q", type, swish(f, x)), STORED, backend)
    numbers = NUMBERS / (1 + np.exp(-NUMBERS.astype(float)))
    assert type.quant is not None
    scales, offsets = (
        np.array(part).reshape(-1, 1) for part in (type.quant.scales, type.quant.offsets)
    )
    expected = np.clip(np.rint(numbers / scales) + offsets, *type.kind.limits)
    assert np.abs(got - expected).max() <= 1


def test_what_is_reshaped_and_quantized_per_channel() -> None:
    type = parse_type("u8[2x3x2](s=[0.5,0.25,2.0],o=[1,2,3],axis=1)")

    def build(f: Function, x: NodeValue) -> Node:
        return f.create_quantize("q", type, f.create_reshape("r", parse_type("f32[2x3x2]"), x))

    x = np.arange(12, dtype=np.float32).reshape(2, 6)
    steps = x.reshape(2, 3, 2) / np.array([0.5, 0.25, 2], np.float32)[:, None]
    expected = np.rint(steps) + np.array([1, 2, 3])[:, None]
    np.testing.assert_array_equal(run("f32[2x6]", build, x), expected)


def test_there_may_be_no_channels() -> None:
    source, result = (parse_type(f"{kind}[3x0](s=[],o=[],axis=1)") for kind in ("u8", "i8"))
    got = run(
        "f32[3x0]",
        lambda f, x: f.create_rescale("r", result, f.create_quantize("q", source, x)),
        np.zeros((3, 0), np.float32),
    )
    assert got.shape == (3, 0)


def test_what_others_read_is_computed_once() -> None:
    """Neither floats that are an output as well, nor integers that are rescaled and read."""

    def build(f: Function, x: NodeValue) -> Node:
        numbers = f.create_dequantize("numbers", parse_type("f32[2x6]"), x)
        less = f.create_neg("less", numbers)
        f.create_save("floats", less, f.module.create_placeholder("floats", less.result.type))
        stored = f.create_quantize("q", parse_type("u8[2x6](s=0.1,o=99)"), less)
        product = f.create_mul("product", stored, stored, result_type=parse_type(BYTES))
        f.create_save("kept", product, f.module.create_placeholder("kept", product.result.type))
        return f.create_rescale("r", parse_type("u8[2x6](s=0.04,o=120)"), product)

    nodes = [node.SCHEMA.mnemonic for node in optimized(network(BYTES, build)).topological()]
    assert [nodes.count(name) for name in ("neg", "quantize", "mul", "rescale")] == [1, 1, 1, 1]


def test_what_is_rounded_twice_stays_so() -> None:
    """Bytes that are rescaled are rounded, unlike sums."""

    def build(f: Function, x: NodeValue) -> Node:
        coarse = f.create_rescale("coarse", parse_type("u8[2x6](s=0.4,o=120)"), x)
        return f.create_rescale("fine", parse_type("u8[2x6](s=0.05,o=120)"), coarse)

    steps = np.rint((STORED.astype(int) - 120) * np.float32(0.125)) * 8
    np.testing.assert_array_equal(run(BYTES, build, STORED), np.clip(steps + 120, 0, 255))
