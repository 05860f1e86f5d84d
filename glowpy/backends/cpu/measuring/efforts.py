"""Work and traffic of the CPU backend's own instructions: the rules of `glowpy.measuring.roofline`.

Winograd's algorithm is counted as what it is: a multiply-add at each point of its patches, also of those that reach
over the edge of an image, which is its own waste; and the passes before and after its products, in which nothing is
multiplied. They read the input and write points, read sums and write the result, at the rate of the cache that holds
a slab: what has to come from further away may come while products are computed, and counts with all other bytes.
"""

from __future__ import annotations

from math import prod

from glowpy.backends.cpu.attention import multiplied_kind
from glowpy.backends.cpu.insts_gen import (
    CpuAttentionInst,
    CpuBlockMatmulInst,
    CpuByteBlockMatmulInst,
    CpuByteWinogradInst,
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuGruInst,
    CpuLstmInst,
    CpuMatmulInst,
    CpuPlainConvInst,
    CpuPlainMatmulInst,
    CpuRnnInst,
    CpuRowMatmulInst,
    CpuStrassenInst,
    CpuWeightedGatherInst,
    CpuWinogradInst,
)
from glowpy.backends.cpu.packing import dot_of
from glowpy.backends.cpu.strategy.winograd import count_patches
from glowpy.measuring.peaks import Access
from glowpy.measuring.roofline import (
    Move,
    between_products_of,
    direct_macs_of,
    macs_of,
    multiplied_kind_of,
    read_of_input,
    steps_of,
)
from glowpy.support.symbolic import ceil_div


@macs_of(CpuConvInst)
def _conv(inst: CpuConvInst) -> int:
    channels = inst.input.type.extents[-1] // inst.group
    return prod(inst.result.type.extents) * prod(inst.kernels) * channels


@macs_of(CpuDepthwiseConvInst)
def _depthwise(inst: CpuDepthwiseConvInst) -> int:
    return prod(inst.result.type.extents) * prod(inst.filter.type.extents[:3])


_Winograd = CpuWinogradInst | CpuByteWinogradInst
_NUMBERS_OF_BYTES = 2
"""Products of 16 bits take a processor that multiplies bytes so many times as long."""


@macs_of(CpuWinogradInst)
def _winograd(inst: _Winograd) -> int:
    """Counts the multiplications of Winograd's algorithm: one at each point of a patch, for each pair of channels."""
    depth = inst.input.type.extents[-1] // inst.group
    return _all_points(inst) * depth * inst.result.type.extents[-1]


@macs_of(CpuByteWinogradInst)
def _byte_winograd(inst: CpuByteWinogradInst) -> int:
    """Counts those of 16 bits as what bytes could do meanwhile."""
    return _NUMBERS_OF_BYTES * _winograd(inst)


def _pool_of(inst: _Winograd) -> tuple[int, ...]:
    return inst.pool if isinstance(inst, CpuWinogradInst) else (1, 1)


def _all_points(inst: _Winograd) -> int:
    """The points of all patches, for one channel."""
    images, *pixels, _ = inst.result.type.extents
    patches = count_patches(pixels, inst.patch, inst.kernels, _pool_of(inst))
    return images * patches * prod(inst.patch)


@macs_of(CpuStrassenInst)
def _strassen(inst: CpuStrassenInst) -> int:
    """Counts the multiplications of Strassen's algorithm: seven products of quarters."""
    _, half_rows, half = inst.sums.type.extents
    return 7 * half_rows * half * ceil_div(inst.result.type.extents[-1], 2)


@direct_macs_of(CpuWinogradInst, CpuByteWinogradInst)
def _direct_winograd(inst: _Winograd) -> int:
    depth = inst.input.type.extents[-1] // inst.group
    return prod(inst.result.type.extents) * prod(_pool_of(inst)) * prod(inst.kernels) * depth


@direct_macs_of(CpuStrassenInst)
def _direct_strassen(inst: CpuStrassenInst) -> int:
    return prod(inst.result.type.extents) * inst.lhs.type.extents[-1]


@macs_of(CpuPlainConvInst)
def _plain_conv(inst: CpuPlainConvInst) -> int:
    return prod(inst.result.type.extents) * prod(inst.filter.type.extents[1:])


_MatMul = CpuMatmulInst | CpuBlockMatmulInst | CpuRowMatmulInst | CpuPlainMatmulInst


@macs_of(CpuMatmulInst, CpuBlockMatmulInst, CpuRowMatmulInst, CpuPlainMatmulInst)
def _matmul(inst: _MatMul) -> int:
    return prod(inst.result.type.extents) * inst.lhs.type.extents[-1]


@macs_of(CpuByteBlockMatmulInst)
def _byte_block_matmul(inst: CpuByteBlockMatmulInst) -> int:
    """Zeros that fill up the last words count."""
    return prod(inst.result.type.extents) * inst.lhs.type.extents[-1]


@macs_of(CpuAttentionInst)
def _attention(inst: CpuAttentionInst) -> int:
    """Both products, of all keys: what a causal mask hides is not computed, and counts."""
    depth, keys = inst.key.type.extents[2:]
    scores = prod(inst.query.type.extents[:3]) * keys
    return scores * (depth + inst.value.type.extents[3])


multiplied_kind_of(CpuAttentionInst)(multiplied_kind)

_WEIGHT = 9
"""Multiplications for a weight of a score: one by the scale, eight of the exponential, as in dot_attention.c."""


@between_products_of(CpuAttentionInst)
def _weights(inst: CpuAttentionInst) -> int:
    """An exponential for each score. Masks, the largest score, sums and factors of rows are left out."""
    return prod(inst.query.type.extents[:3]) * inst.key.type.extents[3] * _WEIGHT


@macs_of(CpuLstmInst, CpuGruInst, CpuRnnInst)
def _cell(inst: CpuLstmInst | CpuGruInst | CpuRnnInst) -> int:
    return prod(inst.gates.type.extents) * inst.initial_h.type.extents[-1]


@steps_of(CpuWinogradInst, CpuByteWinogradInst)
def _patches(inst: _Winograd) -> tuple[Move, ...]:
    """Patches are read and their points written, and what products give is read and their pixels are written."""
    input, filter, result = (value.type for value in (inst.input, inst.filter, inst.result))
    points, depth = _all_points(inst), input.extents[-1]
    of_point = filter.kind.size * depth // inst.group
    block = filter.extents[-1] // dot_of(filter.kind)
    slab = prod(inst.patch) * inst.slab * (of_point + result.kind.size * block)
    pixels, results = (prod(type.extents) * type.kind.size for type in (input, result))
    passes: list[tuple[Access, int]] = [
        ("read", pixels),
        ("write", points * depth * filter.kind.size),
    ]
    passes += [("read", points * result.extents[-1] * result.kind.size), ("write", results)]
    return tuple(Move(access, bytes, slab) for access, bytes in passes)


@read_of_input(CpuWeightedGatherInst)
def _weighted(inst: CpuWeightedGatherInst) -> int:
    return inst.result.type.room * inst.weights.type.extents[1]
