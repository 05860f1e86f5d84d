"""Winograd's algorithm for convolutions, as matrices: what its instruction means, its weights, and how exact it is.

The pixels x of a patch become `spread @ x @ spread.T`, a filter w becomes `filter @ w @ filter.T`, and their products p
at all points become the pixels `collect @ p @ collect.T` of the result: see Lavin and Gray, "Fast Algorithms for
Convolutional Neural Networks". The points are 0, infinity, 1 and -1, of a patch of six or eight pixels also 2 and -2,
of one of eight 1/2 and -1/2.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from itertools import product
from math import prod
from typing import Any, NamedTuple

import numpy as np

from glowpy.backends.cpu.insts_gen import CpuByteWinogradInst, CpuWinogradInst
from glowpy.backends.cpu.nodes_gen import CpuByteWinogradNode, CpuWinogradNode
from glowpy.backends.cpu.strategy.winograd import (
    PATCHES,
    convolved_shape,
    count_patches,
    patch_steps,
)
from glowpy.backends.cpu.verify import tile_problems
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst
from glowpy.irgen import scratch
from glowpy.support.symbolic import ceil_div

__all__ = [
    "COLLECTED",
    "MOST_ERROR",
    "Matrices",
    "matrices",
    "multiplied",
    "pack_winograd_filter",
    "relative_error",
    "unpack_winograd_filter",
    "winograd_problems",
]

MOST_ERROR = 1e-4
"""Part of the largest result: where a filter makes larger errors, the convolution is computed directly."""

_Winograd = CpuWinogradNode | CpuWinogradInst
_AnyWinograd = _Winograd | CpuByteWinogradNode | CpuByteWinogradInst
COLLECTED = 4
"""Patches whose pixels are collected together; libjit/src/winograd.c has the same number."""

_ONE_THREAD = 1 << 18
"""Multiplications of a product that BLAS starts no threads for."""

_MEASURED_PATCHES = 16
_MEASURED_OUTPUTS = 64

# For each size of patch: its points but infinity, with factors for the filter. They are such that the matrix of patches
# has whole numbers where it can.
_POINTS = {
    4: ((0, 1), (1, 1 / 2), (-1, 1 / 2)),
    6: ((0, 1 / 4), (1, -1 / 6), (-1, -1 / 6), (2, 1 / 24), (-2, 1 / 24)),
    8: (
        (0, 1),
        (1, -2 / 9),
        (-1, -2 / 9),
        (2, 1 / 90),
        (-2, 1 / 90),
        (0.5, 32 / 45),
        (-0.5, 32 / 45),
    ),
}


class Matrices(NamedTuple):
    """Matrices of the transformations along one axis.

    Attributes:
        spread: [patch, patch], for the pixels of a patch.
        filter: [patch, kernel], for the filter.
        collect: [patch - kernel + 1, patch], for the products at all points.
    """

    spread: Array
    filter: Array
    collect: Array


@cache
def matrices(patch: int, kernel: int) -> Matrices:
    """The matrices in f64 for so many pixels of a patch and elements of a kernel; those of 1 and 1 change nothing."""
    if patch == 1:
        return Matrices(*(np.ones((1, 1)) for _ in range(3)))
    points, factors = (
        np.array(numbers, np.float64) for numbers in zip(*_POINTS[patch], strict=True)
    )

    def powers(count: int) -> Array:
        """The powers of every point, and of infinity the last one."""
        last = np.zeros((1, count))
        last[0, -1] = 1
        return np.concatenate([points[:, np.newaxis] ** np.arange(count), last])

    collect = powers(patch - kernel + 1).T
    filter = powers(kernel) * np.append(factors, 1)[:, np.newaxis]
    # A kernel of one element tells the matrix of patches from the two others: all pixels of a patch are results.
    whole = powers(patch).T * np.append(factors, 1)
    return Matrices(np.linalg.inv(whole), filter, collect)


def pack_winograd_filter(
    filter: Array, patch: Sequence[int], block: int, group: int = 1
) -> Iterator[Array]:
    """A filter O x KH x KW x I at all points, in parts: [points][I][block], of each group ceil(O / group / block).

    The last one of a group has zeros at the end.
    """
    outputs, high, wide, depth = filter.shape
    rows, columns = matrices(patch[0], high).filter, matrices(patch[1], wide).filter
    points = np.kron(rows, columns)
    of_group = outputs // group
    for member, first in product(range(group), range(0, of_group, block)):
        rows_of_part = slice(
            member * of_group + first, member * of_group + min(first + block, of_group)
        )
        part = filter[rows_of_part].reshape(-1, high * wide, depth).transpose(1, 2, 0)
        packed = np.zeros((len(points), depth, block), filter.dtype)
        packed[:, :, : part.shape[2]] = multiplied(points, part.astype(np.float64, order="C"))
        yield packed


def unpack_winograd_filter(
    packed: Array, outputs: int, patch: Sequence[int], kernels: Sequence[int], group: int = 1
) -> Array:
    """The filter O x KH x KW x I that was packed, but for what rounding took."""
    blocks, _, depth, block = packed.shape
    rows, columns = (matrices(*axis).filter for axis in zip(patch, kernels, strict=True))
    inverse = np.linalg.pinv(np.kron(rows, columns))
    taps = np.einsum("kp,bpcn->bnkc", inverse, packed.astype(np.float64), optimize=True)
    groups = taps.reshape(group, blocks // group * block, *kernels, depth)[:, : outputs // group]
    return np.asarray(groups.reshape(outputs, *kernels, depth), packed.dtype)


def relative_error(filter: Array, patch: Sequence[int]) -> float:
    """The largest error that a filter O x KH x KW x I makes in f32, as a part of the largest result.

    It is measured with the filter's first channels on a few patches of random numbers, against the same sums in f64.
    """
    depth = filter.shape[-1]
    outputs = min(max(_ONE_THREAD // (_MEASURED_PATCHES * depth), 1), _MEASURED_OUTPUTS)
    weights = filter[:outputs]
    kernels = tuple(weights.shape[1:3])
    axes = [matrices(*axis) for axis in zip(patch, kernels, strict=True)]
    points, collect = (np.kron(*parts) for parts in list(zip(*axes, strict=True))[1:])
    taps = weights.reshape(len(weights), -1, depth).transpose(1, 2, 0)
    packed = multiplied(points, taps.astype(np.float64, order="C")).astype(np.float32)
    at_points = _sample(tuple(patch), kernels, depth)

    def results(dtype: np.dtype[Any]) -> Array:
        """The pixels of the patches, computed as the kernel does it, in one kind of float."""
        return multiplied(collect.astype(dtype), np.matmul(at_points[dtype], packed.astype(dtype)))

    exact = results(np.dtype(np.float64))
    largest = np.abs(exact).max(initial=0)
    error = np.abs(results(np.dtype(np.float32)) - exact).max(initial=0)
    return float(error / largest) if largest else 0.0


@lru_cache(maxsize=1)
def _sample(
    patch: tuple[int, ...], kernels: tuple[int, ...], depth: int
) -> Mapping[np.dtype[Any], Array]:
    """Random patches at all points, in f64 and in f32: [points, patches, depth]. Neighbouring layers share them."""
    axes = [matrices(*axis).spread for axis in zip(patch, kernels, strict=True)]
    random = np.random.default_rng(0)
    shape = prod(patch), _MEASURED_PATCHES, depth
    pixels = random.standard_normal(shape).astype(np.float32)
    dtypes = np.dtype(np.float64), np.dtype(np.float32)
    return {d: multiplied(np.kron(*axes).astype(d), pixels.astype(d)) for d in dtypes}


def multiplied(left: Array, right: Array) -> Array:
    """The product of a matrix [M, K] and `right` [K, ...], as [M, ...].

    It is made of products so small that BLAS computes each by one thread: several spend most of their time waiting for
    each other, and what sums round to would depend on how many there are.
    """
    columns = right[0].size
    step = next(n for n in range(min(_ONE_THREAD // left.size, columns), 0, -1) if columns % n == 0)
    pieces = right.reshape(len(right), columns // step, step).transpose(1, 0, 2)
    product: Array = np.matmul(left, pieces).transpose(1, 0, 2)
    return product.reshape(len(left), *right.shape[1:])


@scratch(CpuWinogradNode)
def _work(n: CpuWinogradNode) -> tuple[Type, ...]:
    """Scratch memory of a unit: a slab's points, their results for a block of channels, and pixels of a few patches."""
    all_blocks, points, depth, block = n.filter.type.extents
    lanes = block // n.tile_vectors
    spread, sums = n.slab * depth + lanes, n.slab * block + lanes
    pixels = COLLECTED * prod(patch_steps(n.patch, n.kernels, n.pool)) * block
    return (
        n.type.with_shape(
            (n.bands * ceil_div(all_blocks // n.group, n.blocks), points * (spread + sums) + pixels)
        ),
    )


@verify(CpuWinogradNode)
@verify_inst(CpuWinogradInst)
def _verify(n: _Winograd) -> Iterator[str]:
    if any(value.type.kind is not ElemKind.F32 for value in (n.input, n.filter, n.bias, n.result)):
        yield f"expected f32, got {n.input.type}, {n.filter.type}, {n.bias.type} and {n.result.type}"
        return
    yield from tile_problems(n.tile_pixels, n.tile_vectors)
    yield from winograd_problems(n, n.pool, 1)


def winograd_problems(n: _AnyWinograd, pool: Sequence[int], dot: int) -> Iterator[str]:
    """Yields what is wrong with sizes, of whatever elements, of which `dot` neighbours in depth are packed together."""
    if n.tile_pixels > n.slab:
        yield f"expected tile_pixels of at most a slab, {n.slab}, got {n.tile_pixels}"
    for name, number in (
        ("group", n.group),
        ("slab", n.slab),
        ("bands", n.bands),
        ("blocks", n.blocks),
    ):
        if number < 1:
            yield f"expected {name} of at least 1, got {number}"
    if min(n.group, n.slab, n.bands, n.blocks, n.tile_pixels, n.tile_vectors) >= 1:
        yield from _patch(n, pool, dot)


def _patch(n: _AnyWinograd, pool: Sequence[int], dot: int) -> Iterator[str]:
    """Yields mismatches between patch, kernel, and shapes."""
    if {len(n.kernels), len(n.patch), len(pool)} != {2} or (len(n.pads), n.input.type.rank) != (
        4,
        4,
    ):
        yield f"expected images, and a patch, kernels and a pool in height and width, got {n.input.type}"
        return
    for size, kernel in zip(n.patch, n.kernels, strict=True):
        if not (size == kernel == 1 or (size in PATCHES and 1 <= kernel < size)):
            yield f"expected a patch of 1 for a kernel of 1, or one of {PATCHES} above it, got {size} for {kernel}"
            return
    for step, pooled in zip(patch_steps(n.patch, n.kernels), pool, strict=True):
        if pooled < 1 or step % pooled:
            yield f"expected a pool that divides the {step} pixels that a patch gives, got {pooled}"
            return
    images, height, width, _ = n.input.type.shape
    top, left, bottom, right = n.pads
    shape = (
        images,
        height + top + bottom - n.kernels[0] + 1,
        width + left + right - n.kernels[1] + 1,
    )
    if n.result.type.rank != 4 or convolved_shape(n.result.type.shape, pool)[:3] != shape:
        yield f"expected a result of {list(shape)} and channels before the pool of {list(pool)}, got {n.result.type}"
        return
    patches = count_patches(shape[1:], n.patch, n.kernels)
    if isinstance(patches, int) and n.slab < patches and n.slab % n.tile_pixels:
        yield f"expected a slab that is a multiple of {n.tile_pixels} (tile_pixels), got {n.slab}"
    yield from _groups(n, dot)


def _groups(n: _AnyWinograd, dot: int) -> Iterator[str]:
    """Yields mismatches between the channels of a group and the packed filter."""
    channels, inputs = n.result.type.shape[3], n.input.type.shape[3]
    if any(isinstance(count, int) and count % n.group for count in (channels, inputs)):
        yield f"expected channels that are a multiple of group, {n.group}, got {inputs} and {channels}"
        return
    depth = inputs // n.group
    length = n.filter.type.shape[-1] if n.filter.type.rank == 4 else 0
    block = length // dot if isinstance(length, int) and length >= dot else 1
    blocks = n.group * ceil_div(channels // n.group, block)
    expected = (blocks, prod(n.patch), depth // dot, dot * block)
    least = block // n.tile_vectors * dot
    if n.filter.type.shape != expected or not length or block % n.tile_vectors:
        yield f"expected a filter packed to {list(expected)}, got {n.filter.type}"
    elif isinstance(depth, int) and (depth < least or depth % dot):
        yield f"expected at least {least} channels, which are a vector, got {depth}"
    if n.bias.type.shape != (channels,):
        yield f"expected a bias of {channels} channels, got {n.bias.type}"
