"""Cases of convolutions by Winograd's algorithm, of floats and of 8-bit integers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np

from glowpy.backends.cpu.byte_winograd import pack_byte_filter
from glowpy.backends.cpu.winograd import pack_winograd_filter
from glowpy.core.tensor import Array
from tests.libjit.kernel_cases import Attr, Case, Maker, specials
from tests.libjit.product_cases import OUTSIDE, Conv, convolve

__all__ = ["MAKERS"]


def _cpu_winograd(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Every size of patch, kernels of one to seven, images that patches do not fill, and each way to cut the work."""
    (suffix,) = suffixes
    sizes = [
        ((6, 6), (3, 3)),
        ((8, 8), (3, 3)),
        ((4, 8), (3, 3)),
        ((4, 4), (2, 3)),
        ((1, 6), (1, 3)),
        ((8, 1), (7, 1)),
    ]
    sizes += [((8, 6), (2, 5)), ((6, 6), (1, 4))]
    walks = [(3, 1, 6, 5, 1), (2, 2, 4, 2, 9), (5, 1, 99, 1, 2), (1, 1, 1, 4, 1), (4, 2, 4, 1, 9)]
    depths = [lanes, lanes + 3, 2 * lanes + 1]
    for number, ((patch, kernels), walk) in enumerate(itertools.product(sizes, walks)):
        height, width = kernels[0] + number % 9, kernels[1] + number % 13
        pads = (number % 3, number % 4, number % 2, number % 5)
        channels = (1, 2 * lanes, 3 * lanes + 2)[number % 3]
        conv = Conv(
            (height, width), depths[number % 3], channels, kernels, pads=pads, batch=1 + number % 2
        )
        yield _winograd_case(conv, conv.arrays(suffix), patch, walk, lanes)
    grouped = Conv(
        (7, 10), 3 * (lanes + 1), 3 * (2 * lanes + 1), (3, 3), pads=(1, 1, 1, 1), group=3, batch=2
    )
    for walk in walks:
        yield _winograd_case(grouped, grouped.arrays(suffix), (6, 6), walk, lanes)
    edgy = Conv((9, 11), lanes, 3, (3, 3), pads=(1, 1, 1, 1))
    yield _winograd_case(edgy, edgy.arrays(suffix), (6, 6), (3, 1, 3, 1, 1), lanes)
    even = Conv((12, 10), lanes + 3, 2 * lanes + 1, (3, 3), pads=(1, 1, 1, 1), batch=2)
    for patch, pool in (((6, 6), (2, 2)), ((4, 8), (1, 2)), ((8, 4), (3, 2))):
        yield _winograd_case(even, even.arrays(suffix), patch, (3, 1, 6, 5, 1), lanes, pool)


def _winograd_case(
    conv: Conv,
    arrays: tuple[Array, Array, Array],
    patch: tuple[int, int],
    walk: tuple[int, int, int, int, int],
    lanes: int,
    pool: tuple[int, int] = (1, 1),
) -> Case:
    x, weights, bias = arrays
    pixels, vectors, slab, bands, blocks = walk
    result = convolve(conv, x, weights, bias, 0)
    images, height, width, channels = result.shape
    windows = result.reshape(
        images, height // pool[0], pool[0], width // pool[1], pool[1], channels
    )
    result = windows.max(axis=(2, 4))
    steps = [size - kernel + 1 for size, kernel in zip(patch, conv.kernels, strict=True)]
    patches = math.ceil(height / steps[0]) * math.ceil(width / steps[1])
    slab = min(slab, patches)
    block = vectors * lanes
    packed = np.stack(list(pack_winograd_filter(weights, patch, block, conv.group)))
    points = patch[0] * patch[1]
    units = bands * math.ceil(math.ceil(channels // conv.group / block) / blocks)
    room = (
        points * (slab * (conv.channels // conv.group) + slab * block + 2 * lanes)
        + 4 * math.prod(steps) * block
    )
    attrs: dict[str, Attr] = {
        "kernels": conv.kernels, "pads": conv.pads, "group": conv.group, "patch": patch, "pool": pool,
        "tile_pixels": min(pixels, slab), "tile_vectors": vectors, "slab": slab, "bands": bands, "blocks": blocks,
    }  # fmt: skip
    work = np.zeros((units, room), x.dtype)
    operands = {"input": x, "filter": packed, "bias": bias, "work": work}
    scale = float(np.abs(result).max(initial=1))
    return Case(operands, {"result": result}, attrs, rtol=0, atol=1e-4 * scale)


def _cpu_byte_winograd(suffixes: tuple[str, ...], lanes: int) -> Iterator[Case]:
    """Every size of patch and kernel, of any integers, with any offset, and each way to cut the work."""
    (suffix,) = suffixes
    sizes = [
        ((6, 6), (3, 3)),
        ((4, 6), (3, 3)),
        ((4, 4), (2, 3)),
        ((1, 6), (1, 3)),
        ((6, 1), (2, 1)),
    ]
    walks = [(3, 1, 6, 5, 1), (2, 2, 4, 2, 9), (5, 1, 99, 1, 2), (4, 2, 4, 1, 9)]
    depths = [2 * lanes, 2 * lanes + 2, 4 * lanes]
    for number, ((patch, kernels), walk) in enumerate(itertools.product(sizes, walks)):
        image = kernels[0] + number % 9, kernels[1] + number % 13
        pads = (number % 3, number % 4, number % 2, number % 5)
        channels = (1, 2 * lanes, 3 * lanes + 2)[number % 3]
        conv = Conv(image, depths[number % 3], channels, kernels, pads=pads, batch=1 + number % 2)
        yield _byte_winograd_case(conv, conv.arrays(suffix), patch, walk, lanes)
    grouped = Conv((7, 10), 6 * lanes, 3 * (lanes + 1), (3, 3), pads=(1, 1, 1, 1), group=3)
    yield _byte_winograd_case(grouped, grouped.arrays(suffix), (6, 6), walks[0], lanes)
    edgy = Conv((9, 11), 2 * lanes, 3, (3, 3), pads=(1, 1, 1, 1))
    _, weights, bias = edgy.arrays(suffix)
    ends = specials(suffix, (1, 9, 11, 2 * lanes)), np.full_like(weights, -128), bias
    yield _byte_winograd_case(edgy, ends, (6, 6), walks[0], lanes)


def _byte_winograd_case(
    conv: Conv,
    arrays: tuple[Array, Array, Array],
    patch: tuple[int, int],
    walk: tuple[int, int, int, int, int],
    lanes: int,
) -> Case:
    x, weights, bias = arrays
    outside = OUTSIDE
    share = outside * weights.reshape(len(weights), -1).sum(axis=1, dtype=np.int64)
    result = convolve(conv, x, weights, (bias - share).astype(np.int32), outside)
    pixels, vectors, slab, bands, blocks = walk
    steps = [size - kernel + 1 for size, kernel in zip(patch, conv.kernels, strict=True)]
    patches = math.ceil(result.shape[1] / steps[0]) * math.ceil(result.shape[2] / steps[1])
    slab, block, points = min(slab, patches), vectors * lanes, math.prod(patch)
    packed = np.stack(list(pack_byte_filter(weights, patch, block, conv.group)))
    units = bands * math.ceil(math.ceil(conv.outputs // conv.group / block) / blocks)
    depth = conv.channels // conv.group
    room = points * (slab * (depth // 2 + block) + 2 * lanes) + 4 * math.prod(steps) * block
    attrs: dict[str, Attr] = {
        "kernels": conv.kernels, "pads": conv.attrs["pads"], "group": conv.group, "outside": outside, "patch": patch,
        "tile_pixels": min(pixels, slab), "tile_vectors": vectors, "slab": slab, "bands": bands, "blocks": blocks,
    }  # fmt: skip
    work = np.zeros((units, room), np.int32)
    operands = {"input": x, "filter": packed, "bias": bias, "work": work}
    return Case(operands, {"result": result}, attrs)


MAKERS: dict[str, Maker] = {
    "cpu_byte_winograd": _cpu_byte_winograd,
    "cpu_winograd": _cpu_winograd,
}
"""The cases of both, by mnemonic."""
