"""What the kernels of convolutions and matrix products are called with, and what they must answer.

Weights are packed as libjit/README.md says, which this file spells out once more.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import numpy as np

from glowpy.backends.cpu.strassen import left_sums, pack_pairs
from glowpy.core.tensor import Array
from glowpy.core.type import MAX_RANK
from tests.libjit.kernel_cases import DTYPES, LENGTHS, Attr, Case, Maker, Shape, numbers, specials

# ------------------------------------------------------------------------------------ matrix products

PRODUCTS: list[tuple[Shape, Shape]] = [
    *(((3, 5), (5, n)) for n in LENGTHS),
    *(((n, 4), (4, 9)) for n in LENGTHS),
    *(((2, n), (n, 17)) for n in LENGTHS),
    ((13, 31), (31, 67)),
    ((2, 3, 5), (2, 5, 4)),
    ((3, 5), (2, 5, 4)),
    ((2, 1, 3, 5), (4, 5, 2)),
    ((2, 1, 3, 5), (1, 3, 5, 2)),
    ((1, 2, 1, 1, 2, 1, 2, 3), (2, 1, 1, 3, 1, 1, 3, 1)),
    ((1, 2, 1, 1, 2, 1, 2, 3), (1, 1, 3, 1, 1, 3, 5)),
    ((0, 2, 3), (3, 2)),
    ((0, 0), (0, 0)),
]
_PACKEDPRODUCTS = [pair for pair in PRODUCTS if len(pair[1]) < MAX_RANK]
"""Packed matrices have a dimension more."""
_SLABS = (300, 256), (256, 20)
"""Large enough that the left side is walked in slabs."""


_SUMS = {"i8": "i32", "u8": "i32", "bf16": "f32"}
"""What products are sums of, where that is another kind than the input's."""
_WEIGHTS = {"u8": "i8"}
"""The kind of the weights, where that is another one."""


def _product(lhs: Array, rhs: Array) -> Array:
    """In f64, or modulo 2**64."""
    wide = np.int64 if lhs.dtype.kind in "iu" else np.float64
    left, right = lhs.astype(wide), rhs.astype(wide)
    # Not matmul: its BLAS may have threads, which do not survive a fork.
    sums = np.asarray(np.einsum("...mk,...kn->...mn", left, right))
    suffix = suffix_of(lhs)
    return sums.astype(DTYPES[_SUMS.get(suffix, suffix)])


def suffix_of(array: Array) -> str:
    """How kernels spell the kind of an array: f32, i8."""
    is_bf16 = array.dtype == DTYPES["bf16"]
    return "bf16" if is_bf16 else f"{array.dtype.kind}{8 * array.itemsize}"


def _word(dtype: np.dtype[Any]) -> int:
    """How many neighbours in depth lie together."""
    return max(4 // dtype.itemsize, 1) if dtype.itemsize < 4 else 1


def _whole_words(*sides: tuple[Array, int]) -> list[Array]:
    """Arrays with zeros at the end of the axes that are summed over, up to whole words."""
    whole = []
    for array, axis in sides:
        more = [(0, 0)] * array.ndim
        more[axis] = (0, -array.shape[axis] % _word(array.dtype))
        whole.append(np.pad(array, more))
    return whole


def _mat_mul(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    for left, right in [*PRODUCTS, _SLABS]:
        lhs, rhs = numbers(suffixes[0], left, 1), numbers(suffixes[0], right, 2)
        yield Case({"lhs": lhs, "rhs": rhs}, {"result": _product(lhs, rhs)})
    lhs, rhs = specials(suffixes[0], (7, 5), 1), specials(suffixes[0], (5, 19), 2)
    yield Case({"lhs": lhs, "rhs": rhs}, {"result": _product(lhs, rhs)})


def _pack_matrix(matrix: Array, block: int) -> Array:
    """[..., K, N] to [..., ceil(N / NR), ceil(K / D), NR * D]: NR is `block`, D the elements of a word."""
    word = _word(matrix.dtype)
    (matrix,) = _whole_words((matrix, -2))
    *batch, depth, cols = matrix.shape
    steps = depth // word
    packed = np.zeros((*batch, math.ceil(cols / block), steps, block, word), matrix.dtype)
    for col in range(cols):
        packed[..., col // block, :, col % block, :] = matrix[..., col].reshape(*batch, steps, word)
    return packed.reshape(*packed.shape[:-2], block * word)


_FETCHED = (9, 700), (700, 100)
"""So many weights that they are fetched ahead."""
_TILES = [(1, 1), (6, 2), (12, 2), (12, 1), (3, 8), (4, 8), (31, 1), (5, 3)]
"""Pixels and vectors."""


def _half_tiles(suffix: str, lanes: int) -> list[tuple[int, int]]:
    """Tiles of vectors half as long, where the kernels have any: an odd number of them."""
    return [(9, 3), (4, 5), (29, 1)] if suffix == "f32" and lanes == 16 else []


def _walk(number: int, lines: int) -> dict[str, Attr]:
    """How to walk so many lines, in turns: all at once, one by one, in slabs that leave a rest; with prefetching."""
    slab = (lines, 1, lines * 2 // 3)[number % 3]
    return {"slab": max(slab, 1), "fetch": (0, 16)[number // 3 % 2]}


def _cpu_matmul(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    (suffix,) = suffixes
    attrs: dict[str, Attr]
    runs = [(pair, tile) for pair in _PACKEDPRODUCTS for tile in _TILES]
    runs += [(_SLABS, (7, 1)), (_SLABS, (12, 2)), (_FETCHED, (4, 1))]
    runs = _share(runs, suffix)
    for number, ((left, right), (rows, vectors)) in enumerate(runs):
        lhs, rhs = _sides(suffix, left, right)
        operands = {"lhs": lhs, "rhs": _pack_matrix(rhs, vectors * lanes)}
        result = _product(lhs, rhs)
        walk = _walk(number, math.ceil(math.prod(result.shape[:-1]) / rows))
        yield Case(
            operands, {"result": result}, {"tile_pixels": rows, "tile_vectors": vectors, **walk}
        )
    for rows, vectors in _half_tiles(suffix, lanes):
        lhs, rhs = numbers(suffix, (11, 9)), numbers(suffix, (9, 45))
        operands = {"lhs": lhs, "rhs": _pack_matrix(rhs, vectors * lanes // 2)}
        attrs = {"tile_pixels": rows, "tile_vectors": vectors, "slab": 1, "fetch": 0}
        yield Case(operands, {"result": _product(lhs, rhs)}, attrs)
    lhs, rhs = specials(suffix, (7, 8), 1), specials(_WEIGHTS.get(suffix, suffix), (8, 19), 2)
    operands = {"lhs": lhs, "rhs": _pack_matrix(rhs, lanes)}
    attrs = {"tile_pixels": 3, "tile_vectors": 1, "slab": 2, "fetch": 0}
    yield Case(operands, {"result": _product(lhs, rhs)}, attrs)
    if suffix in ("i8", "u8"):
        # The largest products there are, so many that their sum is beyond i32.
        limits = np.iinfo(lhs.dtype)
        for extreme in (limits.min, limits.max):
            lhs = np.full((3, 1 << 18), extreme, lhs.dtype)
            rhs = np.full((1 << 18, 3), -128, np.int8)
            operands = {"lhs": lhs, "rhs": _pack_matrix(rhs, lanes)}
            yield Case(operands, {"result": _product(lhs, rhs)}, attrs)


Run = TypeVar("Run")


def _share(runs: list[Run], suffix: str) -> list[Run]:
    """All of them; of 8-bit integers, with and without a sign, and of bf16 two thirds each, all in turns."""
    kind = {"i8": 0, "u8": 1, "bf16": 2}.get(suffix)
    return [run for number, run in enumerate(runs) if kind is None or number % 3 != kind]


def _sides(suffix: str, left: Shape, right: Shape) -> list[Array]:
    """Both sides of a product, in whole words."""
    lhs, rhs = numbers(suffix, left, 1), numbers(_WEIGHTS.get(suffix, suffix), right, 2)
    return _whole_words((lhs, -1), (rhs, -2))


def _cpu_plain_matmul(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    """The right side lies in memory by columns, or by rows."""
    (suffix,) = suffixes
    for left, right in PRODUCTS:
        lhs, rhs = numbers(suffix, left, 1), numbers(_WEIGHTS.get(suffix, suffix), right, 2)
        columns = np.ascontiguousarray(rhs.swapaxes(-1, -2))
        for transposed in (columns, rhs.swapaxes(-1, -2)):
            yield Case({"lhs": lhs, "rhs": transposed}, {"result": _product(lhs, rhs)})


def _cpu_row_matmul(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    """Right sides that lie by rows, by columns, and with gaps between either."""
    (suffix,) = suffixes
    shapes = (3, 5), (1, 1), (2, 64, 33), (2, 3, 7, 130), (20, 37), (600, 35), (5, 129), (0, 70)
    for *batch, depth, columns in shapes:
        lhs, rhs = (
            numbers(suffix, (*batch, 1, depth), 1),
            numbers(suffix, (*batch, depth, columns), 2),
        )
        by_columns = np.ascontiguousarray(rhs.swapaxes(-1, -2)).swapaxes(-1, -2)
        between, apart = (np.zeros((*batch, depth + 1, 2 * columns), rhs.dtype) for _ in range(2))
        between[..., :depth, :columns] = apart[..., :depth, ::2] = rhs
        for matrix in (rhs, by_columns, between[..., :depth, :columns], apart[..., :depth, ::2]):
            yield Case({"lhs": lhs, "rhs": matrix}, {"result": _product(lhs, rhs)})


def _cpu_pack_matrix(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Matrices whose rows lie in memory one after the other, or whose columns do."""
    shapes = dict.fromkeys(right for _, right in _PACKEDPRODUCTS)
    for by_columns, shape, vectors in itertools.product((False, True), shapes, (1, 2, 5)):
        matrix, block = numbers(suffixes[0], shape), vectors * lanes
        if by_columns:
            matrix = np.ascontiguousarray(matrix.swapaxes(-1, -2)).swapaxes(-1, -2)
        yield Case({"input": matrix}, {"result": _pack_matrix(matrix, block)}, {"block": block})


# --------------------------------------------------------------------------------------- convolutions


@dataclass(frozen=True)
class Conv:
    """One convolution: sizes and attributes, the plainest ones where none are given."""

    image: Shape
    channels: int
    outputs: int
    kernels: Shape
    strides: Shape = ()
    pads: Shape = ()
    dilation: Shape = ()
    group: int = 1
    batch: int = 1

    @property
    def attrs(self) -> dict[str, Attr]:
        return {
            "kernels": self.kernels,
            "strides": self.strides or (1,) * len(self.image),
            "pads": self.pads or (0,) * (2 * len(self.image)),
            "dilation": self.dilation or (1,) * len(self.image),
        }

    def arrays(self, suffix: str) -> tuple[Array, Array, Array]:
        """Input, filter, bias."""
        filter = (self.outputs, *self.kernels, self.channels // self.group)
        bias = _SUMS.get(suffix, suffix)
        return (
            numbers(suffix, (self.batch, *self.image, self.channels), 1),
            numbers(_WEIGHTS.get(suffix, suffix), filter, 2),
            numbers(bias, (self.outputs,), 3),
        )

    @property
    def zeros(self) -> int:
        """How many zeros the packed kernels read outside of the image; none if nobody looks there."""
        return self.channels // self.group if any(self.pads) else 0


def convolve(conv: Conv, x: Array, weights: Array, bias: Array, outside: int = 0) -> Array:
    """Tap by tap in f64; integers wrap."""
    rank, group = len(conv.image), conv.group
    pads = conv.pads or (0,) * (2 * rank)
    strides, dilation = conv.strides or (1,) * rank, conv.dilation or (1,) * rank
    around = [(0, 0), *zip(pads[:rank], pads[rank:], strict=True), (0, 0)]
    padded = np.pad(x.astype(np.float64), around, constant_values=outside)
    axes = list(zip(padded.shape[1:-1], conv.kernels, strides, dilation, strict=True))
    counts = [(size - (k - 1) * d - 1) // s + 1 for size, k, s, d in axes]
    depth, per_group = conv.channels // group, conv.outputs // group
    total = np.zeros((conv.batch, *counts, group, per_group))
    for tap in np.ndindex(conv.kernels):
        spatial = [
            slice(t * d, t * d + n * s, s)
            for t, n, (_, _, s, d) in zip(tap, counts, axes, strict=True)
        ]
        seen = padded[(slice(None), *spatial, slice(None))]
        seen = seen.reshape(conv.batch, *counts, group, depth)
        with_ = weights[(slice(None), *tap, slice(None))].astype(np.float64)
        total += np.einsum("...gi,goi->...go", seen, with_.reshape(group, per_group, depth))
    result = np.asarray(total.reshape(conv.batch, *counts, conv.outputs) + bias)
    if bias.dtype.kind == "i":
        result = result.astype(np.int64)
    return result.astype(bias.dtype)


_PLANE = [
    Conv((5, 7), 3, 4, (3, 3), pads=(1, 1, 1, 1)),
    Conv((9, 8), 6, 5, (2, 3), strides=(3, 2), pads=(2, 0, 1, 3), dilation=(2, 1), batch=2),
    Conv((7, 6), 5, 7, (3, 2), dilation=(1, 3), batch=2),
    Conv((11, 10), 3, 33, (5, 4), strides=(2, 3), pads=(0, 2, 3, 0)),
    Conv((1, 1), 1, 1, (3, 3), pads=(1, 1, 1, 1)),
    Conv((3, 3), 2, 3, (5, 5), pads=(2, 2, 2, 2), strides=(4, 4)),
    Conv((3, 5), 4, 3, (1, 1), pads=(1, 0, 0, 2), batch=2),
    Conv((2, 3), 3, 5, (3, 3), pads=(4, 5, 3, 6)),
    Conv((3, 2), 2, 4, (2, 3), strides=(2, 3), pads=(5, 7, 6, 4), dilation=(3, 2), batch=2),
    Conv((5, 16), 2, 3, (3, 3), strides=(1, 2), pads=(1, 1, 1, 1), dilation=(2, 1)),
    Conv((6, 5), 4, 6, (1, 1), strides=(2, 2), batch=2),
    Conv((6, 6), 8, 12, (3, 3), pads=(1, 1, 1, 1), group=4),
    Conv((5, 6), 6, 51, (2, 2), group=3, dilation=(2, 1), batch=2),
    Conv((4, 4), 3, 2, (3, 3), batch=0),
    Conv((4, 4), 0, 2, (3, 3), pads=(1, 1, 1, 1)),
    Conv((4, 4), 3, 0, (1, 1)),
    Conv((4, 4), 4, 0, (2, 2), group=2),
    Conv((4, 1), 3, 5, (1, 2), strides=(1, 2)),
    Conv((1, 4), 3, 5, (2, 1)),
]
_CHANNELS = [Conv((3, 4), 2, n, (2, 2), pads=(0, 1, 1, 0)) for n in LENGTHS]
_PIXELS = [Conv((3, n), 3, 5, (1, 1)) for n in LENGTHS if n]


def _pack_filter(weights: Array, group: int, block: int) -> Array:
    """O x KH x KW x I to [G][ceil(O/G / NR)][KH][KW][I / D][NR * D]: NR is `block`, D the elements of a word."""
    outputs, height, width, inputs = weights.shape
    per_group, word = outputs // group, _word(weights.dtype)
    steps = inputs // word
    blocks = math.ceil(per_group / block)
    packed = np.zeros((group, blocks, height, width, steps, block, word), weights.dtype)
    for o in range(outputs):
        column = weights[o].reshape(height, width, steps, word)
        packed[o // per_group, o % per_group // block, :, :, :, o % per_group % block] = column
    return packed.reshape(*packed.shape[:-2], block * word)


OUTSIDE = 7
"""What lies outside of an image of integers."""


def _outside(x: Array) -> int:
    return OUTSIDE if x.dtype.kind in "iu" else 0


def _cpu_conv(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    (suffix,) = suffixes
    convs = [_in_words(conv, suffix) for conv in (*_PLANE, *_CHANNELS, *_PIXELS)]
    runs = list(itertools.product(convs, _TILES, (True, False)))
    for number, (conv, tile, by_rows) in enumerate(_share(runs, suffix)):
        yield _packed_case(conv, conv.arrays(suffix), lanes, tile, by_rows, number)
    halved = Conv((7, 9), 6, 2 * 29, (3, 3), pads=(1, 1, 1, 1), group=2)
    for tile in _half_tiles(suffix, lanes):
        yield _packed_case(halved, halved.arrays(suffix), lanes // 2, tile, tile[1] == 5, 1)
    # Slabs of rows, slabs of pixels, and weights that are fetched ahead.
    large = Conv((32, 41), 8, 20, (3, 3), strides=(2, 2))
    yield _packed_case(large, large.arrays(suffix), lanes, (6, 1), True, 2)
    long = Conv((33, 34), 64, 20, (1, 1))
    yield _packed_case(long, long.arrays(suffix), lanes, (5, 1), False, 2)
    deep = Conv((4, 4), 88, 90, (3, 3))
    yield _packed_case(deep, deep.arrays(suffix), lanes, (1, 1), True, 3)
    edgy = Conv((5, 9), 4, 3, (3, 3), pads=(1, 1, 1, 1), batch=2)
    special = specials(suffix, (2, 5, 9, 4)), *edgy.arrays(suffix)[1:]
    for by_rows in (True, False):
        yield _packed_case(edgy, special, lanes, (4, 1), by_rows, 0)


def _in_words(conv: Conv, suffix: str) -> Conv:
    """With as many channels as are whole words in every group."""
    word = _word(DTYPES[suffix])
    depth = -(-conv.channels // conv.group // word) * word
    return replace(conv, channels=depth * conv.group)


def _cpu_plain_conv(suffixes: tuple[str, ...], _: int) -> Iterator[Case]:
    (suffix,) = suffixes
    for conv in [*_PLANE, *_depthwise_convs()]:
        x, weights, bias = conv.arrays(suffix)
        result = convolve(conv, x, weights, bias, _outside(x))
        operands = {"input": x, "filter": weights, "bias": bias}
        attrs: dict[str, Attr] = {**conv.attrs, "group": conv.group, "outside": _outside(x)}
        yield Case(operands, {"result": result}, attrs)


def _packed_case(
    conv: Conv,
    arrays: tuple[Array, Array, Array],
    lanes: int,
    tile: tuple[int, int],
    by_rows: bool,
    number: int,
) -> Case:
    """Rows of the image are tiled by themselves, or all pixels one after the other."""
    x, weights, bias = arrays
    pixels, vectors = tile
    result = convolve(conv, x, weights, bias, _outside(x))
    _, height, width, _ = result.shape
    line = max(width, 1) if by_rows else pixels
    operands = {
        "input": x,
        "filter": _pack_filter(weights, conv.group, vectors * lanes),
        "bias": bias,
        "zeros": np.full(conv.zeros, _outside(x), x.dtype),
    }
    decision = {"tile_pixels": pixels, "tile_vectors": vectors, "line": line}
    walk = _walk(number, math.ceil(height * width / line))
    return Case(
        operands, {"result": result}, {**conv.attrs, "group": conv.group, **decision, **walk}
    )


def _depthwise_convs() -> Sequence[Conv]:
    convs = [Conv((3, 5), n, n, (2, 2), pads=(0, 1, 1, 0), group=n) for n in LENGTHS if n]
    convs += [Conv((2, n), 3, 3, (1, 1), group=3) for n in LENGTHS if n]
    return [
        *convs,
        Conv((9, 9), 16, 16, (3, 3), pads=(1, 1, 1, 1), group=16),
        Conv((9, 10), 33, 33, (5, 3), strides=(2, 1), pads=(2, 1, 2, 1), group=33, batch=2),
        Conv((6, 5), 7, 7, (3, 3), dilation=(2, 2), pads=(1, 2, 3, 2), group=7),
        Conv((7, 13), 5, 5, (2, 3), strides=(3, 2), dilation=(1, 2), group=5, batch=2),
        Conv((1, 1), 17, 17, (3, 3), pads=(1, 1, 1, 1), group=17),
        Conv((2, 3), 3, 3, (3, 3), pads=(4, 5, 3, 6), dilation=(1, 2), group=3),
        Conv((3, 40), 2, 2, (1, 3), pads=(0, 9, 0, 2), group=2),
        Conv((2, 40), 2, 2, (2, 3), strides=(1, 2), pads=(1, 0, 0, 20), group=2),
        Conv((4, 4), 3, 3, (3, 3), group=3, batch=0),
        Conv((4, 1), 3, 3, (1, 2), group=3),
        Conv((1, 4), 3, 3, (2, 1), group=3),
    ]


def _convs_of_small_groups(lanes: int) -> Iterator[Conv]:
    """Groups of which a vector holds several, whole or with lanes that are left: as large as their results or not."""
    image = Conv((4, 7), 0, 0, (3, 2), strides=(1, 2), pads=(1, 0, 1, 1), batch=2)
    for depth, width in ((2, 2), (3, 3), (8, 8), (1, 2), (3, 1), (5, 7)):
        if max(depth, width) <= lanes:
            for group in (2, lanes // width + 3):
                yield replace(image, channels=depth * group, outputs=width * group, group=group)


def _cpu_depthwise_conv(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    (suffix,) = suffixes
    for conv in [*_depthwise_convs(), *_convs_of_small_groups(lanes)]:
        x, weights, bias = conv.arrays(suffix)
        yield from _depthwise_cases(conv, x, weights, bias)
    conv = Conv((5, 9), 3, 3, (3, 3), pads=(1, 1, 1, 1), group=3)
    yield from _depthwise_cases(conv, specials(suffix, (1, 5, 9, 3)), *conv.arrays(suffix)[1:])


def _depthwise_cases(conv: Conv, x: Array, weights: Array, bias: Array) -> Iterator[Case]:
    """With every number of pixels that tile.h allows, units of several sizes, and edges by tiles and one by one."""
    packed = np.zeros((*weights.shape[1:], conv.outputs), weights.dtype)
    for channel in range(conv.outputs):
        packed[..., channel] = weights[channel]
    operands = {"input": x, "filter": packed, "bias": bias}
    result = convolve(conv, x, weights, bias, _outside(x))
    for pixels in range(1, 9):
        unit: dict[str, Attr] = {
            "tile_pixels": pixels,
            "slab": 1 + pixels % 5,
            "vectors": 1 + pixels % 3,
        }
        attrs: dict[str, Attr] = {**conv.attrs, "outside": _outside(x), **unit}
        for single in (False, True):
            yield Case(operands, {"result": result}, {**attrs, "single_edges": single})


def _cpu_strassen(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Odd and even rows, blocks and columns, a depth of any vectors, and each way to cut the work."""
    (suffix,) = suffixes
    rows = [
        ((2,), 1, 1),
        ((7,), 2, 4),
        ((3, 11), 5, 17),
        ((24,), 3, 6),
        ((2, 3, 5), 4, 8),
        ((41,), 6, 12),
    ]
    cuts = [(1, 1), (2, 1), (1, 2), (9, 3)]
    sizes = itertools.product(rows, (2 * lanes, 2 * lanes + 2, 6 * lanes + 4))
    for number, ((left, pixels, slab), depth) in enumerate(sizes):
        vectors, (bands, pairs) = 1 + number % 3, cuts[number % 4]
        columns = (1, 2 * lanes, 4 * lanes + 3, 7 * lanes)[number % 4]
        lhs, rhs = _sides(suffix, (*left, depth), (depth, columns))
        packed = np.concatenate(list(pack_pairs(rhs, vectors * lanes)))
        units = bands * math.ceil(len(packed) / 2 / pairs)
        room = (4 * slab + depth // 2) * vectors * lanes
        attrs: dict[str, Attr] = {
            "tile_pixels": pixels, "tile_vectors": vectors, "slab": slab, "bands": bands, "pairs": pairs
        }  # fmt: skip
        result = _product(lhs, rhs)
        operands = {
            "lhs": lhs,
            "sums": left_sums(lhs),
            "rhs": packed,
            "work": np.zeros((units, room), lhs.dtype),
        }
        scale = float(np.abs(result).max(initial=1))
        yield Case(operands, {"result": result}, attrs, rtol=0, atol=1e-5 * scale)


def _cpu_strassen_sums(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    (suffix,) = suffixes
    for left in ((1,), (2,), (5,), (3, 4), (3, 3)):
        for depth in (2 * lanes, 4 * lanes + 2):
            lhs = numbers(suffix, (*left, depth), depth)
            yield Case({"lhs": lhs}, {"result": left_sums(lhs)}, {})


MAKERS: dict[str, Maker] = {
    "mat_mul": _mat_mul,
    "cpu_conv": _cpu_conv,
    "cpu_depthwise_conv": _cpu_depthwise_conv,
    "cpu_matmul": _cpu_matmul,
    "cpu_plain_conv": _cpu_plain_conv,
    "cpu_plain_matmul": _cpu_plain_matmul,
    "cpu_pack_matrix": _cpu_pack_matrix,
    "cpu_row_matmul": _cpu_row_matmul,
    "cpu_strassen": _cpu_strassen,
    "cpu_strassen_sums": _cpu_strassen_sums,
}
"""The cases of each product, by mnemonic, for its suffixes and so many of its elements in a vector."""
