"""Winograd's algorithm for 8-bit integers, whose sums are exact: its weights, when they allow it, and what it means.

Points of patches are whole numbers below 2**15. So are those of filters, once each is multiplied by a number that makes
it whole: what is collected is the result times 24 for each axis of six points, times 2 for each of four. Sums wrap
modulo 2**32, where 3 has an inverse and a power of two is shifted out. The result is right to the last bit wherever it
has as many bits fewer; that is known from the filter, for whatever input. A kernel is of at most 3: longer ones have
points of more than 16 bits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache
from itertools import product
from math import prod

import numpy as np

from glowpy.backends.cpu.insts_gen import CpuByteWinogradInst
from glowpy.backends.cpu.nodes_gen import CpuByteWinogradNode
from glowpy.backends.cpu.strategy.winograd import BYTE_PATCHES, MAX_BYTE_KERNEL, patch_steps
from glowpy.backends.cpu.verify import tile_problems
from glowpy.backends.cpu.winograd import (
    COLLECTED,
    matrices,
    multiplied,
    winograd_problems,
)
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.verifier import verify
from glowpy.ir.verifier import verify_inst
from glowpy.irgen import scratch
from glowpy.support.symbolic import ceil_div

__all__ = ["has_exact_sums", "pack_byte_filter", "unpack_byte_filter"]

_ByteWinograd = CpuByteWinogradNode | CpuByteWinogradInst

# For each size of patch: what the points of its filters are multiplied by, and by how many bits results are shifted.
# The last one of six has half of the others' number, 24, for want of bits: its products are taken twice.
_WHOLE = {1: ((1,), 0), 4: ((2, 2, 2, 2), 1), 6: ((24, 24, 24, 24, 24, 12), 3)}
_BITS = 31
_PAIR = 2


@cache
def _filter_matrix(patch: tuple[int, ...], kernels: tuple[int, ...]) -> Array:
    """Whole numbers [points, taps] that turn a filter into its points."""
    lines = (
        matrices(size, kernel).filter * np.array(_WHOLE[size][0])[:, np.newaxis]
        for size, kernel in zip(patch, kernels, strict=True)
    )
    return np.rint(np.kron(*lines)).astype(np.float32)


def has_exact_sums(filter: Array, patch: Sequence[int], kind: ElemKind, offset: int) -> bool:
    """Whether sums with a filter O x KH x KW x I in i8 have so few bits that the algorithm gives them all.

    Args:
        filter: The filter.
        patch: Pixels of a patch, in height and width.
        kind: That of the input, i8 or u8.
        offset: What counts as 0 of it.
    """
    rows = filter.reshape(len(filter), -1)
    ups = np.maximum(rows, 0).sum(axis=1, dtype=np.int64)
    downs = ups - rows.sum(axis=1, dtype=np.int64)
    least, most = (-128, 127) if kind is ElemKind.I8 else (0, 255)
    low, high = least - offset, most - offset
    largest = (ups * high - downs * low).max(initial=0)
    smallest = (ups * low - downs * high).min(initial=0)
    limit = 1 << (_BITS - sum(_WHOLE[size][1] for size in patch))
    return bool(-limit <= smallest and largest < limit)


def pack_byte_filter(
    filter: Array, patch: Sequence[int], block: int, group: int = 1
) -> Iterator[Array]:
    """A filter O x KH x KW x I in i8 at all points, in parts: [points][I / 2][block][2], of each group some blocks.

    The last one of a group has zeros at the end.
    """
    outputs, high, wide, depth = filter.shape
    points, of_group = _filter_matrix(tuple(patch), (high, wide)), outputs // group
    for member, first in product(range(group), range(0, of_group, block)):
        end = member * of_group + min(first + block, of_group)
        part = filter[member * of_group + first : end].reshape(-1, high * wide, depth)
        taps = part.transpose(1, 2, 0).astype(np.float32, order="C")
        packed = np.zeros((len(points), depth, block), np.int16)
        packed[:, :, : len(part)] = multiplied(points, taps)
        pairs = packed.reshape(len(points), depth // _PAIR, _PAIR, block).transpose(0, 1, 3, 2)
        yield np.ascontiguousarray(pairs).reshape(len(points), depth // _PAIR, _PAIR * block)


def unpack_byte_filter(
    packed: Array, outputs: int, patch: Sequence[int], kernels: Sequence[int], group: int = 1
) -> Array:
    """The filter O x KH x KW x I in i8 that was packed."""
    blocks, points, pairs, words = packed.shape
    depth, block = pairs * _PAIR, words // _PAIR
    apart = packed.reshape(blocks, points, pairs, block, _PAIR)
    at_points = apart.transpose(0, 1, 2, 4, 3).reshape(blocks, points, depth, block)
    inverse = np.linalg.pinv(_filter_matrix(tuple(patch), tuple(kernels)).astype(np.float64))
    taps = np.einsum("kp,bpcn->bnkc", inverse, at_points.astype(np.float64), optimize=True)
    groups = taps.reshape(group, blocks // group * block, *kernels, depth)[:, : outputs // group]
    filter: Array = np.rint(groups.reshape(outputs, *kernels, depth)).astype(np.int8)
    return filter


@scratch(CpuByteWinogradNode)
def _work(n: CpuByteWinogradNode) -> tuple[Type, ...]:
    """Scratch memory of a unit, in sums: as `cpu_winograd` has, but that two points take one."""
    all_blocks, points, pairs, words = n.filter.type.extents
    block = words // _PAIR
    lanes = block // n.tile_vectors
    sums = n.slab * (pairs + block) + 2 * lanes
    pixels = COLLECTED * prod(patch_steps(n.patch, n.kernels)) * block
    units = n.bands * ceil_div(all_blocks // n.group, n.blocks)
    return (n.type.with_shape((units, points * sums + pixels)),)


@verify(CpuByteWinogradNode)
@verify_inst(CpuByteWinogradInst)
def _verify(n: _ByteWinograd) -> Iterator[str]:
    kinds = tuple(value.type.kind for value in (n.filter, n.bias, n.result))
    bytes = (ElemKind.I8, ElemKind.U8)
    if n.input.type.kind not in bytes or kinds != (ElemKind.I16, ElemKind.I32, ElemKind.I32):
        types = f"{n.input.type}, {n.filter.type}, {n.bias.type} and {n.result.type}"
        yield f"expected i8 or u8, i16, i32 and i32, got {types}"
        return
    yield from tile_problems(n.tile_pixels, n.tile_vectors)
    sizes = (1, *BYTE_PATCHES)
    if any(size not in sizes for size in n.patch) or max(n.kernels, default=0) > MAX_BYTE_KERNEL:
        yield f"expected patches of {sizes} and kernels of at most {MAX_BYTE_KERNEL}, got {n.patch} and {n.kernels}"
        return
    yield from winograd_problems(n, (1, 1), _PAIR)
