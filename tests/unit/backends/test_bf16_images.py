"""Products in bf16 of images: pixels in pairs, and the largest of what is rounded."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import glowpy
from glowpy.engine import compilation
from glowpy.graph.function import Function
from glowpy.graph.node import Operand
from glowpy.support.symbolic import symbol
from tests.libjit.product_cases import Conv, convolve
from tests.unit.backends.test_bf16 import backend, check, convolution, floats, network, rounded

CONVS = [
    Conv((7, 8), 3, 5, (7, 7), strides=(2, 2), pads=(3, 3, 3, 3)),
    Conv((9, 10), 3, 33, (3, 3), strides=(2, 2), pads=(0, 0, 1, 1), batch=2),
    Conv((6, 12), 1, 7, (3, 4), strides=(1, 4), pads=(1, 2, 0, 3), dilation=(2, 1)),
    Conv((5, 6), 5, 4, (1, 1), strides=(2, 2)),
    Conv((4, 8), 3, 4, (2, 3), strides=(2, 2), pads=(0, 5, 0, 6)),
    Conv((16,), 3, 4, (5,), strides=(2,), pads=(2, 2)),
]


@pytest.mark.parametrize("conv", CONVS, ids=str)
def test_pixels_in_pairs(conv: Conv) -> None:
    """No channels are appended to images of an odd number of them where strides are even."""
    x = floats(conv.batch, *conv.image, conv.channels)
    filter = floats(conv.outputs, *conv.kernels, conv.channels, seed=1)
    bias = floats(conv.outputs, seed=2)

    def make() -> glowpy.Module:
        return network(
            {"x": f"f32[{'x'.join(map(str, x.shape))}]"}, {"w": filter, "b": bias},
            lambda f, *operands: convolution(conv, f, *operands),
        )  # fmt: skip

    check(make, {"x": x}, convolve(conv, rounded(x), rounded(filter), bias.astype(np.float64)))
    program = compilation(make(), backend()).program
    (product,) = (i for i in program.ir.instructions if i.SCHEMA.mnemonic == "cpu_conv")
    assert product.operands[1].value.type.shape[-1] == 2 * conv.channels
    assert {"splat", "insert_tensor"}.isdisjoint(i.SCHEMA.mnemonic for i in program.ir.instructions)


@pytest.mark.parametrize("width", [7, 9])
def test_rows_of_an_odd_length_are_taken_alone(width: int) -> None:
    conv = Conv((6, width), 3, 5, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    x, filter, bias = floats(1, 6, width, 3), floats(5, 3, 3, 3, seed=1), floats(5, seed=2)
    check(
        lambda: network(
            {"x": f"f32[1x6x{width}x3]"}, {"w": filter, "b": bias},
            lambda f, *operands: convolution(conv, f, *operands),
        ),
        {"x": x},
        convolve(conv, rounded(x), rounded(filter), bias.astype(np.float64)),
    )  # fmt: skip


@pytest.mark.parametrize("channels", [3, 8])
def test_images_of_any_size(channels: int) -> None:
    """How many pixels there are may be found when it runs: there is one program for all."""
    height, width = symbol("h", 3, 40), symbol("w", 3, 40)
    filter, bias = floats(9, 3, 3, channels, seed=1), floats(9, seed=2)
    type = glowpy.parse_type(f"f32[1x1x1x{channels}]").with_shape((1, height, width, channels))
    conv = Conv((0, 0), channels, 9, (3, 3), strides=(2, 2), pads=(1, 1, 1, 1))
    module = network(
        {"x": type}, {"w": filter, "b": bias},
        lambda f, *operands: convolution(conv, f, *operands),
    )  # fmt: skip
    own = backend()
    function = glowpy.compile(module, own)
    for size in ((3, 4), (17, 40), (40, 9)):
        x = floats(1, *size, channels)
        sized = replace(conv, image=size)
        expected = convolve(sized, rounded(x), rounded(filter), bias.astype(np.float64))
        np.testing.assert_allclose(function({"x": x})["y"], expected, rtol=1e-5, atol=1e-4)


def pooled(f: Function, x: Operand, w: Operand, b: Operand, *, reads: bool) -> Any:
    """A product of the largest of some pixels, to which these are added if something else `reads` them in f32."""
    window = (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), False
    relu = f.create_relu("relu", x)
    best = f.create_max_pool("pool", relu, *window)
    lists = ((1, 1), (1, 1), (0, 0, 0, 0), (1, 1), 1)
    product = f.create_convolution("conv", best, w, b, *lists)
    return f.create_add("sum", product, best) if reads else product


@pytest.mark.parametrize("reads", [False, True], ids=["rounded", "exact"])
def test_the_largest_of_what_is_rounded(reads: bool) -> None:
    """Rounding keeps the order of numbers; where something reads the largest in f32, they are not rounded."""
    x, filter, bias = floats(1, 6, 7, 40), floats(40, 1, 1, 40, seed=1), floats(40, seed=2)
    x[0, 2, 3, :4] = np.nan, np.inf, -np.inf, -np.nan

    def make() -> glowpy.Module:
        return network(
            {"x": "f32[1x6x7x40]"}, {"w": filter, "b": bias},
            lambda f, *operands: pooled(f, *operands, reads=reads),
        )  # fmt: skip

    program = compilation(make(), backend()).program
    (pool,) = (i for i in program.ir.instructions if i.SCHEMA.mnemonic == "max_pool")
    assert pool.operands[0].value.type.kind.value == ("f32" if reads else "bf16")
    padded = np.pad(np.maximum(x, 0), ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))
    best = windows.max(axis=(-2, -1))
    with np.errstate(all="ignore"):
        expected = rounded(best) @ rounded(filter[:, 0, 0].T) + bias
    result = glowpy.compile(make(), backend())({"x": x})["y"]
    np.testing.assert_allclose(result, expected + best if reads else expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_the_largest_of_halves_is_found_without_floats(kind: str) -> None:
    """Negative ones, zeros, infinities and NaN of either sign: what numpy says, and no conversion."""
    type = f"{kind}[1x6x9x37]"

    def make() -> glowpy.Module:
        return network(
            {"x": type}, {}, lambda f, x: f.create_max_pool("p", x, (3, 2), (2, 1), (1, 0, 1, 1), (1, 1), False)
        )  # fmt: skip

    dtype = np.float16 if kind == "f16" else ml_dtypes.bfloat16
    x = (8 * floats(1, 6, 9, 37)).astype(dtype)
    x[0, :, :, 0] = -np.inf
    x[0, 3, 4, 1:5] = np.array([np.nan, np.copysign(np.nan, -1), np.inf, -0.0], dtype)
    own = glowpy.CpuBackend()
    assert "convert" not in {
        i.SCHEMA.mnemonic for i in compilation(make(), own).program.ir.instructions
    }
    got = glowpy.compile(make(), own)({"x": x})["y"].astype(np.float32)
    expected = glowpy.compile(make(), "interpreter")({"x": x})["y"].astype(np.float32)
    np.testing.assert_array_equal(got, expected)
    assert np.isnan(got[0, 1:, 3:5, 1:3]).any()
