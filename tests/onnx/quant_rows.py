"""Rows of quantization, whose numbers are exact in f32: conversions, and products of stored integers."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array
from tests.onnx.opset_rows import EVERY, Row, X, scalar

__all__ = ["QUANT_ROWS"]

STEP, ZERO = scalar(0.25), scalar(3, np.uint8)
CODES = np.arange(24, dtype=np.uint8).reshape(2, 3, 4)
CHANNELS = np.array([0.25, 0.5, 2], np.float32)
OFFSETS = np.array([3, 0, 1], np.uint8)
LEFT, RIGHT = CODES[0], np.arange(8, dtype=np.int8).reshape(4, 2) - np.int8(3)
SUMS = (LEFT.astype(np.int32) - 3) @ (RIGHT.astype(np.int32) - 1)
ONE = scalar(1, np.int8)
PLANE, KERNEL = CODES[:1, :, None], np.array([[[[1]], [[-2]], [[3]]]], np.int8)
WEIGHTED = ((PLANE.astype(np.int32) - 3) * KERNEL.reshape(1, 3, 1, 1)).sum(
    1, keepdims=True, dtype=np.int32
)


def stored(x: Array, scale: Array, zero: Array) -> Array:
    return np.asarray(np.clip(np.rint(x / scale) + zero, 0, 255), np.uint8)


def numbers(x: Array, scale: Array, zero: Array) -> Array:
    return np.asarray((x.astype(np.float32) - zero) * scale)


LATER = (13, 19, 21, 23, 24, 25, 28)
ODD = np.array([-0.25, np.inf, np.nan], np.float32)
"""Scales that are no steps: what they give is arithmetic."""
SCALES, ZEROS = CHANNELS.reshape(3, 1), OFFSETS.reshape(3, 1)
QUANT_ROWS = [
    Row("QuantizeLinear", EVERY, [X, STEP, ZERO], [stored(X, STEP, ZERO)]),
    Row("QuantizeLinear", EVERY, [X, STEP], [stored(X, STEP, scalar(0))], {}, "no zero point"),
    Row(
        "QuantizeLinear", LATER, [X, CHANNELS, OFFSETS], [stored(X, SCALES, ZEROS)], {}, "channels"
    ),
    Row("DequantizeLinear", EVERY, [CODES, STEP, ZERO], [numbers(CODES, STEP, ZERO)]),
    Row("DequantizeLinear", EVERY, [CODES, STEP], [numbers(CODES, STEP, scalar(0))], {}, "zero"),
    Row(
        "DequantizeLinear",
        LATER,
        [CODES, CHANNELS, OFFSETS],
        [numbers(CODES, SCALES, ZEROS)],
        title="channels",
    ),
    Row("QuantizeLinear", EVERY, [X, -STEP, ZERO], [stored(X, -STEP, ZERO)], {}, "negative scale"),
    Row(
        "QuantizeLinear",
        EVERY,
        [np.array([-3, 0.5, 7], np.float32), scalar(0), ZERO],
        [np.array([0, 255, 255], np.uint8)],
        title="scale of zero",
    ),
    Row(
        "QuantizeLinear",
        LATER,
        [X, ODD[[0, 1, 0]], OFFSETS],
        [stored(X, ODD[[0, 1, 0], None], ZEROS)],
        title="odd channels",
    ),
    Row(
        "DequantizeLinear",
        EVERY,
        [CODES, scalar(0), ZERO],
        [0 * numbers(CODES, STEP, ZERO)],
        {},
        "scale of zero",
    ),
    Row(
        "DequantizeLinear",
        LATER,
        [CODES, ODD, OFFSETS],
        [numbers(CODES, ODD[:, None], ZEROS)],
        title="odd channels",
    ),
    Row(
        "DynamicQuantizeLinear",
        EVERY,
        [np.array([-255, 0, 255], np.float32)],
        [np.array([0, 128, 255], np.uint8), scalar(2), scalar(128, np.uint8)],
    ),
    Row("MatMulInteger", EVERY, [LEFT, RIGHT, ZERO, ONE], [SUMS]),
    Row(
        "QLinearMatMul",
        EVERY,
        [LEFT, STEP, ZERO, RIGHT, STEP, ONE, scalar(0.5), ZERO],
        [stored(SUMS / 16, scalar(0.5), ZERO)],
    ),
    Row("ConvInteger", EVERY, [PLANE, KERNEL, ZERO], [WEIGHTED]),
    Row(
        "QLinearConv",
        EVERY,
        [PLANE, STEP, ZERO, KERNEL, STEP, scalar(0, np.int8), STEP, ZERO],
        [stored(WEIGHTED / 16, STEP, ZERO)],
    ),
]
