"""Reference semantics of the CPU backend's own instructions: the plain product over unpacked weights.

Products of 8-bit integers are those of what is stored, and what lies outside an image is a number of theirs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from glowpy.backends.cpu.attention import no_mask
from glowpy.backends.cpu.block_weights import unpack_integers
from glowpy.backends.cpu.byte_winograd import unpack_byte_filter
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
    CpuPackMatrixInst,
    CpuPlainConvInst,
    CpuPlainMatmulInst,
    CpuQuantizeBlocksInst,
    CpuRnnInst,
    CpuRowMatmulInst,
    CpuStandardizeInst,
    CpuStrassenInst,
    CpuStrassenSumsInst,
    CpuWeightedGatherInst,
    CpuWinogradInst,
)
from glowpy.backends.cpu.packing import (
    dot_of,
    pack_matrix,
    unpack_depthwise_filter,
    unpack_filter,
    unpack_matrix,
)
from glowpy.backends.cpu.recurrent import plain_attrs
from glowpy.backends.cpu.rounded_rows import in_order, rounded_rows
from glowpy.backends.cpu.strassen import left_sums
from glowpy.backends.cpu.strategy.attention import FEW_QUERIES
from glowpy.backends.cpu.strategy.winograd import convolved_shape
from glowpy.backends.cpu.winograd import unpack_winograd_filter
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.ir.insts_gen import ConvolutionInst, GruInst, LstmInst, RnnInst

__all__: list[str] = []


@interpret(CpuConvInst)
def _cpu_conv(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    zeros: Tensor,
    *,
    group: int,
    **attrs: Any,
) -> None:
    """The decision is how the kernel goes about it, not what it computes."""
    plain = unpack_filter(filter.array, result.type.extents[-1], dot_of(filter.type.kind))
    _convolve(result, input, plain, bias, np.tile(zeros.array, group), {**attrs, "group": group})


@interpret(CpuDepthwiseConvInst)
def _cpu_depthwise_conv(
    result: Tensor, input: Tensor, filter: Tensor, bias: Tensor, *, outside: int, **attrs: Any
) -> None:
    """A convolution of groups as large as the filter says."""
    plain = unpack_depthwise_filter(filter.array)
    group = input.type.extents[-1] // plain.shape[-1]
    _convolve(result, input, plain, bias, outside, {**attrs, "group": group})


@interpret(CpuPlainConvInst)
def _cpu_plain_conv(
    result: Tensor, input: Tensor, filter: Tensor, bias: Tensor, *, outside: int, **attrs: Any
) -> None:
    _convolve(result, input, filter.array, bias, outside, attrs)


@interpret(CpuWinogradInst)
def _cpu_winograd(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    work: Tensor,
    *,
    kernels: Sequence[int],
    pads: Sequence[int],
    group: int,
    patch: Sequence[int],
    pool: Sequence[int],
    **decision: int,
) -> None:
    """The plain convolution, and the pool: points are how the kernel goes about it."""
    del work, decision
    images, *pixels, channels = shape = result.type.extents
    plain = unpack_winograd_filter(filter.array, channels, patch, kernels, group)
    plane = {"strides": (1, 1), "dilation": (1, 1), "group": group}
    convolved = Tensor.of(np.empty(convolved_shape(shape, pool), result.array.dtype))
    _convolve(convolved, input, plain, bias, 0, {"kernels": kernels, "pads": pads, **plane})
    windows = convolved.array.reshape(images, pixels[0], pool[0], pixels[1], pool[1], channels)
    result.array[...] = windows.max(axis=(2, 4))


@interpret(CpuByteWinogradInst)
def _cpu_byte_winograd(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    work: Tensor,
    *,
    kernels: Sequence[int],
    pads: Sequence[int],
    group: int,
    outside: int,
    patch: Sequence[int],
    **decision: int,
) -> None:
    """The plain convolution of integers less what lies outside."""
    del work, decision
    plain = unpack_byte_filter(filter.array, result.type.extents[-1], patch, kernels, group)
    sums = plain.reshape(len(plain), -1).sum(axis=1, dtype=np.int64)
    inside = (bias.array - outside * sums).astype(np.int32)
    plane = {"kernels": kernels, "pads": pads, "strides": (1, 1), "dilation": (1, 1)}
    _convolve(result, input, plain, Tensor.of(inside), outside, {**plane, "group": group})


def _convolve(
    result: Tensor,
    input: Tensor,
    filter: Array,
    bias: Tensor,
    outside: Array | int,
    attrs: Mapping[str, Any],
) -> None:
    """A convolution with an unpacked filter; where integers, `outside`, one or one for each channel, lies around."""
    lists = {name: attrs[name] for name in ("kernels", "strides", "pads", "dilation", "group")}
    if input.type.kind is ElemKind.BF16:
        wide = [Tensor.of(part.astype(np.float32)) for part in (input.array, filter)]
        interpret[ConvolutionInst](result, *wide, bias, **lists)
        return
    if input.type.kind.is_float:
        interpret[ConvolutionInst](result, input, Tensor.of(filter), bias, **lists)
        return
    array, pads = input.array, lists["pads"]
    if any(pads):
        top, left, bottom, right = pads
        images, height, width, channels = array.shape
        frame = np.empty(
            (images, top + height + bottom, left + width + right, channels), array.dtype
        )
        frame[...] = outside
        frame[:, top : top + height, left : left + width] = array
        array = frame
    # Sums of fewer than 2**37 products of bytes are exact in f64.
    operands = [Tensor.of(part.astype(np.float64)) for part in (array, filter, bias.array)]
    sums = Tensor.of(np.empty(result.type.extents))
    interpret[ConvolutionInst](sums, *operands, **{**lists, "pads": (0,) * len(pads)})
    result.array[...] = _wrapped(sums.array)


def _wrapped(sums: Array) -> Array:
    """Whole numbers as i32, modulo 2**32."""
    return sums.astype(np.int64).astype(np.int32)


@interpret(CpuMatmulInst)
def _cpu_matmul(result: Tensor, lhs: Tensor, rhs: Tensor, **decision: int) -> None:
    del decision
    _multiply(result, lhs, unpack_matrix(rhs.array, result.type.extents[-1], dot_of(rhs.type.kind)))


@interpret(CpuStandardizeInst)
def _standardize(result: Tensor, input: Tensor, *, epsilon: float, centred: bool) -> None:
    wide = input.array.astype(np.float64)
    if wide.size:
        numbers = wide - wide.mean(axis=-1, keepdims=True) if centred else wide
        square = np.mean(numbers**2, axis=-1, keepdims=True)
        result.array[...] = numbers / np.sqrt(square + epsilon)


@interpret(CpuStrassenSumsInst)
def _cpu_strassen_sums(result: Tensor, lhs: Tensor) -> None:
    result.array[...] = left_sums(lhs.array)


@interpret(CpuStrassenInst)
def _cpu_strassen(
    result: Tensor, lhs: Tensor, sums: Tensor, rhs: Tensor, work: Tensor, **decision: int
) -> None:
    """The plain product: quarters are how the kernel goes about it."""
    del sums, work, decision
    _multiply(result, lhs, unpack_matrix(rhs.array, result.type.extents[-1]))


@interpret(CpuBlockMatmulInst)
def _cpu_block_matmul(
    result: Tensor, lhs: Tensor, rhs: Tensor, scales: Tensor, zeros: Tensor, *, block: int
) -> None:
    depth, columns = lhs.type.extents[-1], result.type.extents[-1]
    steps = unpack_integers(rhs.array, depth, columns).astype(np.float32)
    places = np.arange(depth) // block
    if not zeros.type.is_empty:
        steps -= unpack_matrix(zeros.array, columns)[places]
    result.array[...] = np.matmul(lhs.array, steps * unpack_matrix(scales.array, columns)[places])


@interpret(CpuQuantizeBlocksInst)
def _cpu_quantize_blocks(
    result: Tensor, scales: Tensor, sums: Tensor, input: Tensor, *, block: int, bits: int
) -> None:
    parts = rounded_rows(input.array, block, bits)
    for tensor, part in zip((result, scales, sums), parts, strict=True):
        tensor.array[...] = part


@interpret(CpuByteBlockMatmulInst)
def _cpu_byte_block_matmul(
    result: Tensor,
    lhs: Tensor,
    lhs_scales: Tensor,
    lhs_sums: Tensor,
    rhs: Tensor,
    scales: Tensor,
    zeros: Tensor,
    *,
    block: int,
) -> None:
    """The sums of integers within a block are exact in f32 and f64, as they are in the kernel."""
    del lhs_sums
    columns, bits = result.type.extents[-1], 8 if rhs.type.kind is ElemKind.I8 else 4
    rows = in_order(lhs.array, bits).astype(np.float64)
    depth, places = rows.shape[-1], np.arange(rows.shape[-1]) // block
    steps = np.zeros((depth, columns))
    stored = (
        unpack_matrix(rhs.array, columns, dot_of(ElemKind.I8))
        if bits == 8
        else unpack_integers(rhs.array, depth, columns)
    )
    steps[: len(stored)] = stored
    if not zeros.type.is_empty:
        steps -= unpack_matrix(zeros.array, columns)[places]
    weights = steps * unpack_matrix(scales.array, columns)[places]
    result.array[...] = np.matmul(rows * lhs_scales.array[..., places], weights)


@interpret(CpuPlainMatmulInst)
def _cpu_plain_matmul(result: Tensor, lhs: Tensor, rhs: Tensor) -> None:
    _multiply(result, lhs, np.swapaxes(rhs.array, -1, -2))


@interpret(CpuRowMatmulInst)
def _cpu_row_matmul(result: Tensor, lhs: Tensor, rhs: Tensor) -> None:
    _multiply(result, lhs, rhs.array)


def _multiply(result: Tensor, lhs: Tensor, rhs: Array) -> None:
    if lhs.type.kind is ElemKind.BF16:
        result.array[...] = np.matmul(lhs.array.astype(np.float32), rhs.astype(np.float32))
    elif lhs.type.kind.is_float:
        result.array[...] = np.matmul(lhs.array, rhs)
    else:
        result.array[...] = _wrapped(
            np.matmul(lhs.array.astype(np.float64), rhs.astype(np.float64))
        )


@interpret(CpuPackMatrixInst)
def _cpu_pack_matrix(result: Tensor, input: Tensor, *, block: int) -> None:
    result.array[...] = pack_matrix(input.array, block, dot_of(input.type.kind))


@interpret(CpuWeightedGatherInst)
def _cpu_weighted_gather(
    result: Tensor, input: Tensor, indices: Tensor, weights: Tensor, *, axis: int
) -> None:
    places, extent = indices.array, input.type.extents[axis]
    taken = np.take(input.array, places + extent * (places < 0), axis, mode="clip")
    factors = weights.array.reshape(*weights.array.shape, *(1,) * (input.type.rank - axis - 1))
    result.array[...] = (taken * factors).sum(axis + 1)


def _unpacked(recurrence: Tensor, last_h: Tensor) -> Tensor:
    return Tensor.of(unpack_matrix(recurrence.array, last_h.type.extents[1]))


@interpret(CpuLstmInst)
def _cpu_lstm(
    result: Tensor,
    last_h: Tensor,
    last_c: Tensor,
    gates: Tensor,
    recurrence: Tensor,
    *others: Tensor,
    **attrs: Any,
) -> None:
    plain = _unpacked(recurrence, last_h)
    interpret[LstmInst](result, last_h, last_c, gates, plain, *others[:-1], **plain_attrs(attrs))


@interpret(CpuGruInst)
def _cpu_gru(
    result: Tensor, last_h: Tensor, gates: Tensor, recurrence: Tensor, *others: Tensor, **attrs: Any
) -> None:
    plain = _unpacked(recurrence, last_h)
    interpret[GruInst](result, last_h, gates, plain, *others[:-1], **plain_attrs(attrs))


@interpret(CpuRnnInst)
def _cpu_rnn(
    result: Tensor, last_h: Tensor, gates: Tensor, recurrence: Tensor, *others: Tensor, **attrs: Any
) -> None:
    plain = _unpacked(recurrence, last_h)
    interpret[RnnInst](result, last_h, gates, plain, *others[:-1], **plain_attrs(attrs))


@interpret(CpuAttentionInst)
def _attention(
    result: Tensor,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    bias: Tensor,
    mask: Tensor,
    work: Tensor,
    *,
    scale: float,
    softcap: float,
    bias_chooses: bool,
    mask_chooses: bool,
    causal: bool,
    diagonal: int,
    clears_nan: bool,
    in_bf16: bool,
    **decision: int,
) -> None:
    """Computes attention with the whole matrix of scores."""
    del work, decision
    served = query.type.extents[1] // key.type.extents[1]
    rounds = in_bf16 and query.type.extents[2] > FEW_QUERIES
    left, right, values = (
        _as_multiplied(array, rounds=rounds)
        for array in (
            query.array,
            np.repeat(key.array, served, 1),
            np.repeat(value.array, served, 1),
        )
    )
    scores = np.matmul(left, right) * np.float32(scale)
    if softcap:
        scores = np.tanh(scores / np.float32(softcap)) * np.float32(softcap)
    for operand, chooses in ((bias, bias_chooses), (mask, mask_chooses)):
        if no_mask(operand.type):
            continue
        transposed = np.swapaxes(operand.array, 2, 3)
        scores = np.where(transposed == 0, scores, transposed) if chooses else scores + transposed
    if causal:
        rows, columns = np.indices(scores.shape[2:])
        scores = np.where(columns > rows + diagonal, np.float32(-np.inf), scores)
    weights = _softmax(scores)
    if clears_nan:
        weights = np.where(np.isnan(weights), np.float32(0), weights)
    result.array[...] = np.matmul(_as_multiplied(weights, rounds=rounds), values)


def _as_multiplied(array: Array, *, rounds: bool) -> Array:
    """Returns numbers as a product multiplies them: rounded to bf16 if it `rounds`."""
    return array.astype(ElemKind.BF16.dtype).astype(np.float32) if rounds else array


def _softmax(scores: Array) -> Array:
    powers = np.exp(scores - scores.max(3, keepdims=True, initial=-np.inf))
    return np.asarray(powers / powers.sum(3, keepdims=True))
