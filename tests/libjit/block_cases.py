"""Products with right sides of 4 or 8 bits that have a scale for each block, and the rounding of their left sides."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from glowpy.core.tensor import Array
from tests.libjit.kernel_cases import Case, Maker, Shape, numbers
from tests.libjit.product_cases import PRODUCTS


def _cpu_block_matmul(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Integers of 8 bits, or of 4 bits in words of eight; with and without zeros. All sums are exact."""
    (suffix,) = suffixes
    word, columns = {"i8": 1, "u32": 8}[suffix], 4 * lanes
    pairs = [pair for pair in PRODUCTS if len(pair[1]) == 2 and 0 not in pair[0] + pair[1]]
    for number, (left, right) in enumerate([*pairs, ((2, 9, 70), (70, 67)), ((5, 64), (64, 65))]):
        block = (16, 1 << 20, 32)[number % 3]
        parameters = math.ceil(right[0] / block), right[1]
        lhs = numbers("f32", left, 1)
        stored = numbers("i8", right, 2) >> (4 if suffix == "u32" else 0)
        scales, zeros = numbers("f32", parameters, 3), numbers("i8", parameters, 4) >> 4
        has_zeros = number % 2 == 0
        if not has_zeros:
            zeros[...] = 0
        places = np.arange(right[0]) // block
        weights = (stored.astype(np.float64) - zeros[places]) * scales[places]
        result = np.einsum("...mk,kn->...mn", lhs.astype(np.float64), weights).astype(np.float32)
        rhs = _rows_in_columns(stored if word == 1 else _nibbles(stored), columns)
        operands = {
            "lhs": lhs,
            "rhs": rhs,
            "scales": _rows_in_columns(scales, columns),
            "zeros": _rows_in_columns(zeros, columns) if has_zeros else np.zeros(0, np.int8),
        }
        yield Case(operands, {"result": result}, {"block": block})


def _nibbles(stored: Array) -> Array:
    """Words with eight neighbours of a column, the first in the lowest bits."""
    words = np.zeros((math.ceil(len(stored) / 8), stored.shape[1]), np.uint32)
    for k, row in enumerate(stored):
        words[k // 8] |= (row & 15).astype(np.uint32) << np.uint32(4 * (k % 8))
    return words


def _rows_in_columns(matrix: Array, columns: int) -> Array:
    """[K, N] to [ceil(N / columns), K, columns], filled with zeros."""
    packed = np.zeros((math.ceil(matrix.shape[1] / columns), len(matrix), columns), matrix.dtype)
    for col in range(matrix.shape[1]):
        packed[col // columns, :, col % columns] = matrix[:, col]
    return packed


def _cpu_byte_block_matmul(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Right sides as above, of 8 bits in words of four neighbours in depth. All sums are exact."""
    (suffix,) = suffixes
    columns = 4 * lanes
    sizes: list[tuple[Shape, Shape]] = [((2, 9, 70), (70, 67)), ((5, 64), (64, 65)), ((3,), (3, 2))]
    sizes += [((11, 33), (33, 5)), ((7, 1), (1, 1)), ((8, 40), (40, 16))]
    for number, (left, right) in enumerate(sizes):
        left = (1, *left) if len(left) == 1 else left
        block = (16, 1 << 20, 32)[number % 3]
        parameters = math.ceil(right[0] / block), right[1]
        stored = numbers("i8", right, 2) >> (4 if suffix == "u32" else 0)
        scales, zeros = numbers("f32", parameters, 3), numbers("i8", parameters, 4) >> 4
        zeros *= number % 2 == 0
        rows = numbers("i8", left, 1) >> 3
        lhs_scales = numbers("f32", (*left[:-1], parameters[0]), 5)
        starts, places = np.arange(0, right[0], block), np.arange(right[0]) // block
        weights = (stored.astype(np.float64) - zeros[places]) * scales[places]
        result = (rows * lhs_scales[..., places].astype(np.float64)) @ weights
        packed = _nibbles(stored) if suffix == "u32" else _fours(stored)
        operands = {
            "lhs": _row_bytes(rows, apart=suffix == "u32"),
            "lhs_scales": lhs_scales,
            "lhs_sums": np.add.reduceat(rows.astype(np.int32), starts, axis=-1, dtype=np.int32),
            "rhs": _words_in_columns(packed, columns),
            "scales": _rows_in_columns(scales, columns),
            "zeros": np.zeros(0, np.int8) if number % 2 else _rows_in_columns(zeros, columns),
        }
        yield Case(operands, {"result": result.astype(np.float32)}, {"block": block})


def _fours(stored: Array) -> Array:
    """[K, N] to [ceil(K / 4), N, 4]."""
    padded = np.zeros((math.ceil(len(stored) / 4) * 4, stored.shape[1]), np.int8)
    padded[: len(stored)] = stored
    return padded.reshape(-1, 4, stored.shape[1]).transpose(0, 2, 1)


def _words_in_columns(words: Array, columns: int) -> Array:
    """Words of bits, or of four bytes, in blocks of columns."""
    if words.ndim == 2:
        return _rows_in_columns(words, columns)
    parts = [_rows_in_columns(words[..., i], columns) for i in range(words.shape[-1])]
    return np.stack(parts, axis=-1).reshape(*parts[0].shape[:2], -1)


def _row_bytes(rows: Array, *, apart: bool) -> Array:
    """Rows filled up to whole eights; even ones come before odd ones where they are `apart`."""
    depth = rows.shape[-1]
    result = np.zeros((*rows.shape[:-1], math.ceil(depth / 8) * 8), np.int8)
    for place in range(depth):
        eighth = place % 8
        to = place - eighth + eighth // 2 + 4 * (eighth % 2) if apart else place
        result[..., to] = rows[..., place]
    return result


def _cpu_quantize_blocks(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    """Rounded one by one; ties to even, and blocks of nothing but zeros, or of numbers as small as nothing."""
    (suffix,) = suffixes
    for number, shape in enumerate([(1,), (8,), (70,), (3, 33), (2, 3, 40), (0, 8)]):
        x = numbers(suffix, shape, number) * np.float32(1.7)
        if number == 4:
            x[0], x[1, 0] = 0, np.float32(1e-40)
        for bits, block in ((4, 32), (8, 16), (4, 1 << 20)):
            yield _rounded_case(x, block, bits)


def _rounded_case(x: Array, block: int, bits: int) -> Case:
    rows = np.zeros(x.shape, np.int8)
    count = math.ceil(x.shape[-1] / block)
    scales = np.zeros((*x.shape[:-1], count), np.float32)
    sums = np.zeros(scales.shape, np.int32)
    for index in np.ndindex(scales.shape):
        *row, place = index
        part = slice(place * block, (place + 1) * block)
        numbers_of = x[(*row, part)]
        scale = np.abs(numbers_of).max() / np.float32(127)
        inverse = np.float32(1) / scale if scale >= np.finfo(np.float32).tiny else np.float32(0)
        codes = np.rint(numbers_of * inverse).astype(np.int8)
        rows[(*row, part)], scales[index], sums[index] = codes, scale, codes.sum(dtype=np.int32)
    results = {"result": _row_bytes(rows, apart=bits == 4), "scales": scales, "sums": sums}
    return Case({"input": x}, results, {"block": block, "bits": bits})


MAKERS: dict[str, Maker] = {
    "cpu_block_matmul": _cpu_block_matmul,
    "cpu_byte_block_matmul": _cpu_byte_block_matmul,
    "cpu_quantize_blocks": _cpu_quantize_blocks,
}
"""The cases of each of them, as in product_cases.py."""
