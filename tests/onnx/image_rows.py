"""Rows of operators about images and signals: what samples, pools regions, puts columns together, transforms."""

from __future__ import annotations

import numpy as np

from glowpy.core.tensor import Array
from tests.onnx.opset_rows import EVERY, IMAGE, POOL, SQUARE, Row, i64, pooled, scalar

__all__ = ["IMAGE_ROWS"]

MIDDLES = (2 * np.arange(5, dtype=np.float32) + 1) / 5 - 1
"""Where five pixels lie between -1 and 1."""
GRID = np.stack(np.meshgrid(MIDDLES, MIDDLES), -1)[None].astype(np.float32)
CORNERS = np.stack(np.meshgrid(*[np.linspace(-1, 1, 5)] * 2), -1)[None].astype(np.float32)
SAME = np.eye(2, 3, dtype=np.float32)[None]
RAMP = np.broadcast_to(np.arange(8, dtype=np.float32), (1, 1, 8, 8)).copy()
REGION = np.array([[1, 1, 3, 3]], np.float32)
DOWN = np.stack([np.ones((5, 5)), np.zeros((5, 5))])[None].astype(np.float32)
BELOW = np.concatenate([IMAGE[:, :, 1:], np.zeros((1, 2, 1, 5), np.float32)], 2)
SIGNAL = np.cos(np.arange(12, dtype=np.float32) ** 2).reshape(1, 6, 2)
NUMBERS = SIGNAL[..., 0] + 1j * SIGNAL[..., 1]
REAL = SIGNAL[..., :1]
WINDOW = np.array([0.5, 1, 0.25], np.float32)
FRAMES = np.stack([REAL[0, start : start + 3, 0] for start in (0, 2)])

UNPOOLED = np.zeros((1, 1, 4, 4), np.float32)
UNPOOLED[0, 0, [0, 2, 3], [2, 0, 3]] = [1, 2, 3]
"""With the element 0 where one is."""


def parts(numbers: Array) -> Array:
    """Real and imaginary parts."""
    return np.stack([numbers.real, numbers.imag], -1).astype(np.float32)


BLOCKS = np.arange(16, dtype=np.float32).reshape(1, 4, 4)

IMAGE_ROWS = [
    Row("GridSample", EVERY, [IMAGE, GRID], [IMAGE]),
    Row("GridSample", EVERY, [IMAGE, CORNERS], [IMAGE], {"align_corners": 1}, "corners"),
    Row(
        "GridSample",
        EVERY,
        [IMAGE, GRID * 3],
        [IMAGE[:, :, [0, 0, 2, 4, 4]][..., [0, 0, 2, 4, 4]]],
        {"mode": "nearest", "padding_mode": "border"},
        "nearest",
    ),
    Row("AffineGrid", EVERY, [SAME, i64(1, 1, 5, 5)], [GRID]),
    Row("AffineGrid", EVERY, [SAME, i64(1, 1, 5, 5)], [CORNERS], {"align_corners": 1}, "corners"),
    Row(
        "RoiAlign",
        (10,),
        [RAMP, REGION, i64(0)],
        [np.full((1, 1, 1, 1), 2, np.float32)],
        {},
        "middles",
    ),
    Row("RoiAlign", (16, 22), [RAMP, REGION, i64(0)], [np.full((1, 1, 1, 1), 1.5, np.float32)]),
    Row(
        "RoiAlign",
        (16, 22),
        [RAMP, REGION * 2, i64(0)],
        [np.full((1, 1, 2, 1), 0.5 * 0.75 * 3, np.float32)],  # of weighted pixels
        {"mode": "max", "output_height": 2, "sampling_ratio": 1, "spatial_scale": 0.75},
        "max",
    ),
    Row(
        "RoiAlign",
        (10,),
        [RAMP, REGION * 3, i64(0)],
        [np.full((1, 1, 1, 2), [2.25, 3.75], np.float32)],
        {"output_width": 2, "spatial_scale": 0.5},
        "bins",
    ),
    Row(
        "MaxRoiPool",
        EVERY,
        [IMAGE, np.array([[0, 1, 1, 3, 3]], np.float32)],
        [IMAGE[:, :, 1:4, 1:4].max((2, 3), keepdims=True)],
        {"pooled_shape": [1, 1]},
    ),
    Row(
        "DeformConv",
        EVERY,
        [IMAGE, np.ones((1, 2, 1, 1), np.float32), DOWN],
        [BELOW.sum(1)[:, None]],
    ),
    Row(
        "DeformConv",
        EVERY,
        [IMAGE, np.ones((2, 1, 1, 1), np.float32), DOWN, np.ones(2, np.float32), DOWN[:, :1] / 2],
        [BELOW / 2 + 1],
        {"group": 2, "offset_group": 1},
        "mask",
    ),
    Row(
        "Col2Im",
        EVERY,
        [BLOCKS, i64(4, 4), i64(2, 2)],
        [BLOCKS.reshape(2, 2, 2, 2).transpose(2, 0, 3, 1).reshape(1, 1, 4, 4)],
        {"strides": [2, 2]},
    ),
    Row(
        "LpPool",
        EVERY,
        [IMAGE],
        [pooled(lambda windows, axis: np.sqrt((windows**2).sum(axis)), 0)],
        POOL,
    ),
    Row(
        "LpPool",
        (2, 11, 18, 22),
        [IMAGE],
        [pooled(lambda windows, axis: np.cbrt((abs(windows) ** 3).sum(axis)), 0)],
        {**POOL, "p": 3},
        "cubes",
    ),
    Row("LpPool", (1,), [IMAGE], [abs(IMAGE)], {"kernel_shape": [1, 1], "p": 1.5}, "real"),
    Row("GlobalLpPool", EVERY, [IMAGE], [np.sqrt((IMAGE**2).sum((2, 3), keepdims=True))]),
    Row("GlobalLpPool", (2, 22), [IMAGE], [abs(IMAGE).sum((2, 3), keepdims=True)], {"p": 1}, "sum"),
    Row(
        "MaxUnpool",
        EVERY,
        [BLOCKS[:, :1, :].reshape(1, 1, 2, 2), i64(5, 2, 8, 15).reshape(1, 1, 2, 2)],
        [UNPOOLED],
        {"kernel_shape": [2, 2], "strides": [2, 2]},
    ),
    Row(
        "MaxUnpool",
        EVERY,
        [
            BLOCKS[:, :1, :].reshape(1, 1, 2, 2),
            i64(5, 2, 8, 15).reshape(1, 1, 2, 2),
            i64(1, 1, 4, 6),
        ],
        [np.pad(UNPOOLED, ((0, 0), (0, 0), (0, 0), (0, 2)))],
        {"kernel_shape": [4, 4], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        "larger",
    ),
    Row(
        "MelWeightMatrix",
        EVERY,
        [i64(1)[0], i64(8)[0], i64(8)[0], scalar(0), scalar(4.1)],
        [np.array([[0], [1], [0.5], [0], [0]], np.float32)],
    ),
    Row("DFT", (17,), [SIGNAL], [parts(np.fft.fft(NUMBERS, axis=1))]),
    Row("DFT", (20,), [SIGNAL], [parts(np.fft.fft(NUMBERS, axis=-1))]),
    Row(
        "DFT",
        (17,),
        [SIGNAL[..., None, :].transpose(0, 2, 1, 3), i64(4)[0]],
        [parts(np.fft.ifft(NUMBERS[:, None], 4, axis=2))],
        {"axis": -2, "inverse": 1},
        "inverse",
    ),
    Row(
        "DFT",
        (20,),
        [REAL.reshape(2, 3, 1), i64(7)[0], i64(0)[0]],
        [parts(np.fft.rfft(REAL.reshape(2, 3), 7, axis=0))],
        {"onesided": 1},
        "half",
    ),
    Row(
        "DFT",
        (20,),
        [SIGNAL[:, :4]],
        [np.fft.irfft(NUMBERS[:, :4], 6).astype(np.float32)[..., None]],
        {"onesided": 1, "inverse": 1},
        "back",
    ),
    Row(
        "DFT",
        EVERY,
        [SIGNAL, i64(53)[0]],
        [parts(np.fft.fft(NUMBERS, 53, axis=1))],
        {},
        "prime",
    ),
    Row("STFT", EVERY, [REAL, i64(2)[0], WINDOW], [parts(np.fft.rfft(FRAMES * WINDOW))[None]]),
    Row(
        "STFT",
        EVERY,
        [REAL[..., 0], i64(2)[0], WINDOW],
        [parts(np.fft.rfft(FRAMES * WINDOW))[None]],
        title="a signal of rank 2",
    ),
    Row(
        "STFT",
        EVERY,
        [REAL, i64(2)[0], None, i64(3)[0]],
        [parts(np.fft.fft(FRAMES))[None]],
        {"onesided": 0},
        "whole",
    ),
    Row("Det", EVERY, [SQUARE], [np.linalg.det(SQUARE)]),
]
