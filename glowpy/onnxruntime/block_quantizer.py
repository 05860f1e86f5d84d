"""Weights in blocks of few bits, as onnxruntime's quantizers of matrix products ask its extension module for them.

The arrays of results are the caller's. A block is a run of rows of one column: K rows by N columns.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from glowpy.core.tensor import Array

__all__ = [
    "quantize_matmul_2bits",
    "quantize_matmul_4bits",
    "quantize_matmul_8bits",
    "quantize_matmul_bnb4",
    "quantize_qdq_matmul_2bits",
    "quantize_qdq_matmul_4bits",
]


def _blocks(weights: Array, block: int) -> list[Array]:
    return [weights[start : start + block] for start in range(0, len(weights), block)]


def _away(numbers: Array) -> Array:
    """Rounds to the nearest integer, halves away from zero."""
    rounded: Array = np.trunc(numbers + np.copysign(np.float32(0.5), numbers))
    return rounded


def _divided(dividend: Array, divisor: Array) -> Array:
    """Quotients; 0 where the divisor is 0."""
    return np.divide(dividend, divisor, out=np.zeros_like(divisor), where=divisor != 0)


def _quantized(
    weights: Array, block: int, bits: int, symmetric: bool, kind: Any
) -> tuple[Array, Array, Array]:
    """The integers [K, N], and scales and zero points [blocks, N]."""
    most, half = (1 << bits) - 1, 1 << (bits - 1)
    integers, scales, zeros = [], [], []
    for part in _blocks(weights.astype(np.float32), block):
        low, high = np.minimum(part.min(0), 0), np.maximum(part.max(0), 0)
        extreme = np.where(np.abs(high) > np.abs(low), high, low)
        exact = extreme / np.float32(-half) if symmetric else (high - low) / np.float32(most)
        scale = exact.astype(kind)
        zero = np.full_like(exact, half)
        if not symmetric:
            zero = np.clip(_away(_divided(-low, exact)), 0, most)
        steps = _divided(np.ones_like(exact), scale.astype(np.float32))
        integers.append(np.clip(_away(part * steps + zero), 0, most).astype(np.uint8))
        scales.append(scale)
        zeros.append(zero.astype(np.uint8))
    return np.concatenate(integers), np.stack(scales), np.stack(zeros)


def _packed(numbers: Array, bits: int) -> Array:
    """Rows of numbers of few bits in bytes, from the lowest bits on."""
    each = 8 // bits
    apart = numbers.reshape(*numbers.shape[:-1], -1, each).astype(np.uint16)
    shifts = np.arange(each, dtype=np.uint16) * bits
    packed: Array = (apart << shifts).sum(-1).astype(np.uint8)
    return packed


def _filled(numbers: Array, count: int, value: int) -> Array:
    """Rows that are filled up to a multiple of `count`."""
    return np.pad(
        numbers, [(0, 0)] * (numbers.ndim - 1) + [(0, -numbers.shape[-1] % count)],
        constant_values=value,
    )  # fmt: skip


def _in_columns(
    bits: int, dst: Array, src: Array, scale: Array, zero_points: Array, block: int, symmetric: bool
) -> None:
    """Quantizes for MatMulNBits: columns one after the other, each cut into blocks."""
    integers, scales, zeros = _quantized(src, block, bits, symmetric, src.dtype)
    middle, each = 1 << (bits - 1), 8 // bits
    columns = _filled(integers.T, each, middle if symmetric else 0)
    if not symmetric and columns.shape[1] > len(integers):
        columns[:, len(integers) :] = zeros[-1:].T
    packed = _packed(columns, bits)
    flat = np.zeros((packed.shape[0], dst[0].size), np.uint8)
    flat[:, : packed.shape[1]] = packed
    dst[...] = flat.reshape(dst.shape)
    scale[...] = scales.T.reshape(scale.shape)
    if not symmetric:
        zero_points[...] = _packed(_filled(zeros.T, each, middle), bits).reshape(zero_points.shape)


def quantize_matmul_2bits(
    dst: Array, src: Array, scale: Array, zero_points: Array,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> None:  # fmt: skip
    """Weights [K, N] of 2 bits for MatMulNBits: bytes [N, blocks, size], scales and zero points [N, blocks]."""
    _in_columns(2, dst, src.reshape(rows, columns), scale, zero_points, block_size, is_symmetric)


def quantize_matmul_4bits(
    dst: Array, src: Array, scale: Array, zero_points: Array,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> None:  # fmt: skip
    """Weights [K, N] of 4 bits for MatMulNBits: bytes [N, blocks, size], scales and zero points [N, blocks]."""
    _in_columns(4, dst, src.reshape(rows, columns), scale, zero_points, block_size, is_symmetric)


def quantize_matmul_8bits(
    dst: Array, src: Array, scale: Array, zero_points: Array,
    block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> None:  # fmt: skip
    """Weights [K, N] of 8 bits for MatMulNBits: bytes [N, blocks, size], scales and zero points [N, blocks]."""
    _in_columns(8, dst, src.reshape(rows, columns), scale, zero_points, block_size, is_symmetric)


def _in_rows(
    bits: int, dst: Array, src: Array, scale: Array, zero_points: Array, block: int, symmetric: bool
) -> bool:
    """Quantizes for DequantizeLinear: in the order of the weights, signed if symmetric."""
    integers, scales, zeros = _quantized(src, block, bits, symmetric, src.dtype)
    middle, each = 1 << (bits - 1), 8 // bits
    if symmetric:
        integers = integers ^ middle
    dst.reshape(-1)[...] = _packed(_filled(integers.reshape(-1), each, 0), bits)
    scale[...] = scales.reshape(scale.shape)
    if not symmetric:
        zero_points.reshape(-1)[...] = _packed(_filled(zeros.reshape(-1), each, 0), bits)
    return symmetric


def quantize_qdq_matmul_2bits(
    dst: Array, src: Array, scale: Array, zero_points: Array,
    quant_block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> bool:  # fmt: skip
    """Weights [K, N] of 2 bits for DequantizeLinear, and whether they are signed."""
    return _in_rows(
        2, dst, src.reshape(rows, columns), scale, zero_points, quant_block_size, is_symmetric
    )


def quantize_qdq_matmul_4bits(
    dst: Array, src: Array, scale: Array, zero_points: Array,
    quant_block_size: int, columns: int, rows: int, is_symmetric: bool,
) -> bool:  # fmt: skip
    """Weights [K, N] of 4 bits for DequantizeLinear, and whether they are signed."""
    return _in_rows(
        4, dst, src.reshape(rows, columns), scale, zero_points, quant_block_size, is_symmetric
    )


def quantize_matmul_bnb4(
    dst: Array, src: Array, absmax: Array, block_size: int, quant_type: int, columns: int, rows: int
) -> None:
    """Weights of 4 bits for MatMulBnb4: the nearest of 16 levels times the largest magnitude of a block."""
    del columns, rows
    codes = np.zeros(src.size, np.uint8)
    for index, part in enumerate(_blocks(src.reshape(-1).astype(np.float32), block_size)):
        largest = np.abs(part).max()
        absmax.reshape(-1)[index] = largest
        inverse = np.float32(1) / largest if largest else np.float32(0)
        start = index * block_size
        codes[start : start + len(part)] = _nearest(part * inverse, quant_type)
    pairs = _filled(codes, 2, int(_nearest(np.zeros(1, np.float32), quant_type)[0])).reshape(-1, 2)
    dst.reshape(-1)[...] = pairs[:, 0] << 4 | pairs[:, 1]


_PIVOTS = (0.00260417, 0.0859375, 0.20833333, 0.29166667, 0.4166667, 0.583333, 0.8333333)
"""The limits between magnitudes of FP4: the middles, rounded as bitsandbytes and onnxruntime have them."""


def _nearest(numbers: Array, quant_type: int) -> Array:
    """The codes of the nearest levels; FP4 has a sign, which is its highest bit."""
    from glowpy.importer import FOUR_BIT_LEVELS  # noqa: PLC0415 - ONNX

    levels, sign = FOUR_BIT_LEVELS[quant_type], np.zeros(numbers.shape, np.uint8)
    if quant_type == 0:
        levels, sign = levels[:8], np.where(numbers < 0, 8, 0).astype(np.uint8)
        numbers = np.abs(numbers)
    order = np.argsort(levels)
    ends = levels[order].astype(np.float64)
    pivots = ((ends[1:] + ends[:-1]) / 2).astype(np.float32)
    if quant_type == 0:
        pivots = np.array(_PIVOTS, np.float32)
    codes: Array = order[np.searchsorted(pivots, numbers)].astype(np.uint8) + sign
    return codes
