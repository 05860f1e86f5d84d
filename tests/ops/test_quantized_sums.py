"""Quantized means, sums and softmax against numpy that says the same in other words, bit for bit, on every backend."""

from __future__ import annotations

import math

import numpy as np
import pytest

import glowpy
from glowpy.core.quantized import parameters
from glowpy.core.tensor import Array
from glowpy.core.type import Type, parse_type
from glowpy.engine import BACKENDS
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.support.symbolic import symbol
from tests.ops.test_quantized_arithmetic import (
    F32,
    integers,
    numbers,
    quantized,
    rounded,
    run,
    shaped,
)


def _means(type: Type, stored: Array, result: Type, counts: Array, sums: Array) -> Array:
    """Sums of stored integers, of `counts` pixels of `type`, in steps of the result."""
    offsets = shaped(type, parameters(type).offsets).astype(np.int64)
    scales = shaped(type, parameters(type).scales)
    divisors = np.float64(counts[1])
    ratio = (scales / (np.float64(parameters(result).scales[0]) * divisors)).astype(F32)
    return rounded(result, (sums - offsets * counts[0]).astype(F32) * ratio)


POOLED = [
    ("u8[2x5x6x17](s=0.03,o=131)", "u8[2x5x6x17](s=0.05,o=3)"),
    ("i8[2x5x6x17](s=0.03,o=-9)", "i8[2x5x6x17](s=0.01,o=-100)"),
    ("i16[2x5x6x3](s=[0.1,0.3,0.007],o=[1,0,5],axis=3)", "u8[2x5x6x3](s=9.0,o=128)"),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("count_pads", [False, True])
@pytest.mark.parametrize(("source", "target"), POOLED)
def test_average_pool_is_an_exact_sum(
    source: str, target: str, count_pads: bool, backend: str
) -> None:
    """Pads are zero; whether they count is seen at the edges alone."""
    type, result = parse_type(source), parse_type(target)
    stored = integers(type, 8)
    sums, inside = np.zeros(type.extents, np.int64), np.zeros((5, 6, 1), np.int64)
    for h, w in np.ndindex(5, 6):
        window = (slice(max(h - 1, 0), h + 2), slice(max(w - 1, 0), w + 2))
        part = stored[:, *window].astype(np.int64)
        inside[h, w], sums[:, h, w] = part.shape[1] * part.shape[2], part.sum(axis=(1, 2))
    counted = np.full_like(inside, 9) if count_pads else inside
    got = run(
        backend,
        lambda f, v: f.create_avg_pool(
            "p", v[0], (3, 3), (1, 1), (1, 1, 1, 1), (1, 1), False, count_pads, result_type=result
        ),
        (type, stored),
    )
    expected = _means(type, stored, result, np.array([inside, counted]), sums)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("axes", [(1,), (0, 2), ()])
@pytest.mark.parametrize(("source", "target"), POOLED)
def test_mean_is_an_exact_sum(
    source: str, target: str, axes: tuple[int, ...], backend: str
) -> None:
    type = parse_type(source)
    shape = tuple(1 if i in axes else size for i, size in enumerate(type.shape))
    result = parse_type(target).with_shape(shape)
    stored = integers(type, 9)
    sums = stored.astype(np.int64).sum(axis=axes, keepdims=True)
    count = np.array(math.prod(type.shape[axis] for axis in axes))
    got = run(
        backend,
        lambda f, v: f.create_reduce_mean("m", v[0], axes, result_type=result),
        (type, stored),
    )
    np.testing.assert_array_equal(got, _means(type, stored, result, np.array([count, count]), sums))


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("source", "target", "axes"),
    [
        ("u8[3x7x5](s=0.05,o=131)", "u8[3x7x1](s=0.21,o=120)", (2,)),
        ("i8[4x9x6](s=0.11,o=-9)", "i16[1x1x6](s=0.02,o=77)", (0, 1)),
        ("i16[2x33](s=0.001,o=-3000)", "i8[2x1](s=0.9,o=4)", (1,)),
        ("u8[3x0](s=0.5,o=9)", "i8[3x1](s=0.5,o=9)", (1,)),
    ],
)
def test_sums_are_exact_and_rescaled(
    source: str, target: str, axes: tuple[int, ...], backend: str
) -> None:
    type, result = parse_type(source), parse_type(target)
    stored = integers(type, 12)
    got = run(
        backend,
        lambda f, v: f.create_reduce_add("s", v[0], axes, result_type=result),
        (type, stored),
    )
    above = stored.astype(np.int64) - parameters(type).offsets[0]
    ratio = F32(F32(parameters(type).scales[0]) / F32(parameters(result).scales[0]))
    expected = rounded(result, above.sum(axes, keepdims=True).astype(F32) * ratio)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_sums_over_a_symbolic_dimension_are_the_same(backend: str) -> None:
    result = parse_type("u8[300x1](s=0.9,o=120)")
    symbols = {"n": symbol("n", 1, 64)}
    open_type = parse_type("u8[300 x n](s=0.05,o=131)", symbols)

    def build(f: Function, v: list[NodeValue]) -> Node:
        return f.create_reduce_add("s", v[0], (1,), result_type=result)

    for count in (1, 7, 64):
        type = parse_type(f"u8[300x{count}](s=0.05,o=131)")
        stored = integers(type, count)
        expected = run("interpreter", build, (type, stored))
        np.testing.assert_array_equal(run(backend, build, (open_type, stored)), expected)


@pytest.mark.parametrize("backend", BACKENDS)
def test_mean_of_nothing_is_the_lowest(backend: str) -> None:
    """It is no number."""
    type, result = parse_type("u8[3x0](s=0.5,o=9)"), parse_type("i8[3x1](s=0.5,o=9)")
    got = run(
        backend,
        lambda f, v: f.create_reduce_mean("m", v[0], (1,), result_type=result),
        (type, integers(type)),
    )
    assert got.tolist() == [[-128]] * 3


@pytest.mark.parametrize("source", ["i32[2](s=0.5,o=0)", "u8[8421505](s=0.5,o=0)"])
def test_mean_whose_sum_overflows_is_refused(source: str) -> None:
    type, result = parse_type(source), parse_type("i8[1](s=0.5,o=0)")
    with pytest.raises(glowpy.UserError, match="reduce_mean: expected so few integers that i32"):
        run(
            "interpreter",
            lambda f, v: f.create_reduce_mean("m", v[0], (0,), result_type=result),
            (type, np.zeros(type.extents, type.kind.dtype)),
        )


SOFTMAX = [
    ("u8[3x7x5](s=0.05,o=131)", "u8[3x7x5](s=0.00390625,o=0)", 1),
    ("i8[3x200](s=0.11,o=-9)", "i8[3x200](s=0.00390625,o=-128)", 1),
    ("u8[2x4096](s=0.003,o=3)", "i16[2x4096](s=0.00001,o=0)", 1),
    ("i8[0x4](s=0.1,o=0)", "u8[0x4](s=0.1,o=0)", 0),
]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(("source", "target", "axis"), SOFTMAX)
def test_softmax_divides_by_an_exact_sum(source: str, target: str, axis: int, backend: str) -> None:
    """Of powers in fixed point: 23 bits, or as many as a sum in 31 leaves."""
    type, result = parse_type(source), parse_type(target)
    stored = integers(type, 12)
    got = run(
        backend, lambda f, v: f.create_softmax("s", v[0], axis, result_type=result), (type, stored)
    )
    wide = stored.astype(np.int64)
    below = wide - wide.max(axis=axis, keepdims=True, initial=-128)
    powers = np.exp(below * parameters(type).scales[0])
    bits = min(23, 30 - max(type.extents[axis] - 1, 0).bit_length())
    fixed = np.rint(powers * 2.0**bits).astype(np.int64)
    sums = fixed.sum(axis=axis, keepdims=True)
    expected = quantized(result, fixed.astype(F32) / sums.astype(F32))
    np.testing.assert_array_equal(got, expected)
    exact = powers / powers.sum(axis=axis, keepdims=True)
    assert np.abs(numbers(result, got) - exact).max(initial=0) <= parameters(result).scales[0]


def test_long_softmax_is_refused() -> None:
    """Its sums would leave too few bits; in a file it stays one of floats."""
    type = parse_type("u8[4097](s=0.1,o=0)")
    with pytest.raises(glowpy.UserError, match="or at most 4096 of 8"):
        run(
            "interpreter",
            lambda f, v: f.create_softmax("s", v[0], 0, result_type=type),
            (type, integers(type)),
        )
