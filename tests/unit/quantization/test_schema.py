"""Schemas: zero is exact, the range is covered, and what cannot be is refused."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowpy import ElemKind, Type, UserError
from glowpy.core.tensor import Array
from glowpy.core.type import Quant
from glowpy.quantization import Schema, quant_of_bias, quant_of_range, quant_of_weights

KINDS = st.sampled_from([ElemKind.I8, ElemKind.U8, ElemKind.I16, ElemKind.I32])
ENDS = st.floats(-(2.0**100), 2.0**100, width=32).filter(lambda end: not 0 < abs(end) < 2.0**-80)


def through(number: float, quant: Quant, kind: ElemKind) -> float:
    """What becomes of a number."""
    low, high = kind.limits
    stored = round(number / quant.scales[0]) + quant.offsets[0]
    return quant.scales[0] * (min(max(stored, low), high) - quant.offsets[0])


@given(ENDS, ENDS, KINDS, st.sampled_from(Schema), st.floats(0, 1))
def test_a_range_is_covered(
    a: float, b: float, kind: ElemKind, schema: Schema, share: float
) -> None:
    low, high = min(a, b), max(a, b)
    quant = quant_of_range(low, high, kind, schema)
    Type(kind, (2,), quant)  # legal
    assert through(0.0, quant, kind) == 0
    scale = quant.scales[0]
    assert float(np.float32(scale)) == scale
    number = min(low, 0) + share * (max(high, 0) - min(low, 0))
    # A step at the ends, where zero is moved to an integer, and what f32 rounds off a scale.
    assert abs(through(number, quant, kind) - number) <= 1.001 * scale + abs(number) * 2**-23


@given(ENDS, ENDS, KINDS)
def test_symmetric(a: float, b: float, kind: ElemKind) -> None:
    low, high = min(a, b), max(a, b)
    quant = quant_of_range(low, high, kind, Schema.SYMMETRIC)
    lowest, highest = kind.limits
    assert quant.offsets == (0 if lowest else 128,)
    if reach := max(-low, high):
        assert quant.scales[0] * (highest - quant.offsets[0]) == pytest.approx(reach)


@given(ENDS, ENDS, KINDS)
def test_power_of_two(a: float, b: float, kind: ElemKind) -> None:
    """The smallest that covers the range."""
    low, high = min(a, b), max(a, b)
    (scale,) = quant_of_range(low, high, kind, Schema.POWER_OF_TWO).scales
    assert math.frexp(scale)[0] == 0.5
    steps = kind.limits[1] - (0 if kind.limits[0] else 128)
    if reach := max(-low, high, 0):
        assert scale * steps >= reach or math.isclose(scale * steps, reach)
        assert scale / 2 * steps < reach


@pytest.mark.parametrize(
    ("low", "high", "kind", "schema", "scale", "offset"),
    [
        (-1.0, 3.0, "i8", Schema.ASYMMETRIC, 4 / 255, -64),
        (-1.0, 3.0, "u8", Schema.ASYMMETRIC, 4 / 255, 64),
        (0.0, 3.0, "i8", Schema.ASYMMETRIC, 3 / 255, -128),
        (2.0, 3.0, "u8", Schema.ASYMMETRIC, 3 / 255, 0),
        (-3.0, -2.0, "u8", Schema.ASYMMETRIC, 3 / 255, 255),
        (-1.0, 3.0, "i8", Schema.SYMMETRIC, 3 / 127, 0),
        (-1.0, 3.0, "u8", Schema.SYMMETRIC, 3 / 127, 128),
        (-4.0, 3.0, "i16", Schema.SYMMETRIC, 4 / 32767, 0),
        (0.0, 3.0, "i16", Schema.ASYMMETRIC, 3 / 65535, -32768),
        (-3.0, 0.0, "i16", Schema.ASYMMETRIC, 3 / 65280, 32512),
        (-1e-9, 3.0, "i16", Schema.ASYMMETRIC, 3 / (65535 - 256), -32768 + 256),
        (-1.0, 1.0, "i16", Schema.ASYMMETRIC, 1 / 32767, 0),
        (0.0, 3.0, "i8", Schema.SYMMETRIC_U8, 3 / 255, -128),
        (0.0, 3.0, "u8", Schema.SYMMETRIC_U8, 3 / 255, 0),
        (-1.0, 3.0, "i8", Schema.SYMMETRIC_U8, 3 / 127, 0),
        (-1.0, 3.0, "i8", Schema.POWER_OF_TWO, 1 / 32, 0),
        (-127.0, 3.0, "i8", Schema.POWER_OF_TWO, 1.0, 0),
        (0.0, 0.0, "i8", Schema.ASYMMETRIC, 1.0, 0),
        (0.0, 0.0, "u8", Schema.SYMMETRIC, 1.0, 128),
        (0.0, 1e-44, "i8", Schema.ASYMMETRIC, 2.0**-126, -128),
    ],
)
def test_known(
    low: float, high: float, kind: str, schema: Schema, scale: float, offset: int
) -> None:
    quant = quant_of_range(low, high, ElemKind(kind), schema)
    assert quant == Quant((float(np.float32(scale)),), (offset,))


@pytest.mark.parametrize("ends", [(0, math.inf), (-math.inf, 0), (math.nan, 1), (0, math.nan)])
def test_a_range_that_is_not_finite_is_refused(ends: tuple[float, float]) -> None:
    with pytest.raises(UserError, match="expected a finite range to quantize"):
        quant_of_range(*ends, ElemKind.I8)


def test_other_ranges_and_kinds_are_refused() -> None:
    with pytest.raises(UserError, match="expected a range from low to high, got 1 to -1"):
        quant_of_range(1, -1, ElemKind.I8)
    with pytest.raises(UserError, match=r"expected one of the kinds i8, u8, i16, i32 .*, got f32"):
        quant_of_range(0, 1, ElemKind.F32)


def test_the_widest_range_of_f32() -> None:
    largest = float(np.finfo(np.float32).max)
    for schema in Schema:
        quant = quant_of_range(-largest, largest, ElemKind.I8, schema)
        assert through(largest, quant, ElemKind.I8) == pytest.approx(largest, rel=0.02)


# ----------------------------------------------------------------------------------------------- weights


def _weights() -> Array:
    weights = np.random.default_rng(0).normal(size=(4, 3, 5)).astype(np.float32)
    weights[2] = 0
    weights[3] *= 100
    return weights


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_channels_have_parameters_of_their_own(axis: int) -> None:
    weights = _weights()
    quant = quant_of_weights(weights, ElemKind.I8, axis=axis)
    assert quant.axis == axis
    for channel, (scale, offset) in enumerate(zip(quant.scales, quant.offsets, strict=True)):
        part = weights.take(channel, axis)
        alone = quant_of_weights(part, ElemKind.I8)
        assert (scale, offset) == (alone.scales[0], alone.offsets[0])
        stored = np.clip(np.rint(part / scale), -127, 127)
        assert np.abs(stored * scale - part).max() <= 0.501 * scale


def test_weights_as_a_whole() -> None:
    weights = _weights()
    quant = quant_of_weights(weights, ElemKind.I8, Schema.ASYMMETRIC)
    assert quant == quant_of_range(
        float(weights.min()), float(weights.max()), ElemKind.I8, Schema.ASYMMETRIC
    )


def test_odd_weights_are_refused() -> None:
    weights = _weights()
    with pytest.raises(UserError, match="expected a channel axis below 3, got 3"):
        quant_of_weights(weights, ElemKind.I8, axis=3)
    weights[0, 0, 0] = np.nan
    with pytest.raises(UserError, match="expected finite weights to quantize"):
        quant_of_weights(weights, ElemKind.I8)


def test_no_weights() -> None:
    assert quant_of_weights(np.empty((2, 0), np.float32), ElemKind.I8) == Quant((1.0,), (0,))


# -------------------------------------------------------------------------------------------------- bias

INPUT = Quant((0.02,), (5,))
CHANNELS = Quant((0.5, 0.25, 2.0**-40), (0, 0, 0), 3)


def test_a_bias_counts_in_the_steps_of_the_sums() -> None:
    bias = np.array([1.0, -100.0, 0.0], np.float32)
    steps, weights = quant_of_bias(bias, INPUT, CHANNELS)
    assert weights == CHANNELS
    assert steps == Quant((0.02 * 0.5, 0.02 * 0.25, 0.02 * 2.0**-40), (0, 0, 0), 0)
    whole = Quant((0.5,), (0,))
    assert quant_of_bias(bias, INPUT, whole) == (Quant((0.02 * 0.5,), (0,)), whole)


@pytest.mark.parametrize("bias", [1.0, -1.0, 12345.678, -1e20])
def test_weights_get_larger_steps_where_a_bias_has_too_many(bias: float) -> None:
    numbers = np.array([1.0, 1.0, bias], np.float32)
    steps, weights = quant_of_bias(numbers, INPUT, CHANNELS)
    assert weights.scales[:2] == CHANNELS.scales[:2]
    assert weights.axis == 3
    assert weights.scales[2] > CHANNELS.scales[2]
    assert steps.scales == tuple(0.02 * scale for scale in weights.scales)
    count = abs(numbers[2]) / steps.scales[2]
    assert 0.99 * 2**30 < count <= 2**30 * (1 + 2**-23)


def test_a_small_bias_has_a_range_of_its_own() -> None:
    bias = np.array([1.0, -100.0, 0.0], np.float32)
    for kind in (ElemKind.I8, ElemKind.I16):
        assert quant_of_bias(bias, INPUT, CHANNELS, kind) == (
            quant_of_weights(bias, kind),
            CHANNELS,
        )


@pytest.mark.parametrize(
    ("bias", "input", "kind", "message"),
    [
        ([1.0, 2.0], INPUT, "i32", r"one number for each channel, got shape \(2,\)"),
        ([[1.0, 2.0, 3.0]], INPUT, "i32", r"for each channel, got shape \(1, 3\)"),
        ([1.0, 2.0, math.nan], INPUT, "i32", "expected a finite bias"),
        ([1.0, 2.0, 3.0], INPUT, "u8", "one of the kinds i8, i16, i32 for a bias, got u8"),
        ([1.0, 2.0, 3.0], Quant((1.0, 2.0), (0, 0), 0), "i32", "an input quantized as a whole"),
    ],
)
def test_a_bias_is_refused(bias: list[float], input: Quant, kind: str, message: str) -> None:
    with pytest.raises(UserError, match=message):
        quant_of_bias(np.array(bias), input, CHANNELS, ElemKind(kind))
