"""Rules of convolutions."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type
from glowpy.graph.infer import infer
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.ir.insts_gen import ConvolutionInst
from glowpy.ops.operands import expect_numbers, expect_same_kind, multipliable
from glowpy.ops.window import Windows, windowed_shape
from glowpy.support.errors import UserError

__all__: list[str] = []


@infer(ConvolutionNode)
def _infer_convolution(
    input: Type,
    filter: Type,
    bias: Type,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> Type:
    expect_numbers("input", input)
    expect_same_kind(input, filter=filter, bias=bias)
    counts = windowed_shape(input, Windows(kernels, strides, pads, dilation))
    _check_filter(input, filter, kernels, group)
    outputs = filter.shape[0]
    if bias.shape != (outputs,):
        raise UserError(f"expected bias of shape [{outputs}], got {bias}")
    return Type(input.kind, (input.shape[0], *counts, outputs))


def _check_filter(input: Type, filter: Type, kernels: Sequence[int], group: int) -> None:
    if filter.rank != input.rank:
        raise UserError(f"expected filter of rank {input.rank} as the input, got {filter}")
    if filter.shape[1:-1] != tuple(kernels):
        raise UserError(f"expected filter windows of {list(kernels)}, got {filter}")
    channels, outputs = input.shape[-1], filter.shape[0]
    if group < 1:
        raise UserError(f"expected a group of at least 1, got {group}")
    if channels % group:
        raise UserError(f"input has {channels} channels, expected a multiple of group {group}")
    if outputs % group:
        raise UserError(f"filter has {outputs} outputs, expected a multiple of group {group}")
    if filter.shape[-1] != channels // group:
        raise UserError(
            f"filter has {filter.shape[-1]} input channels, expected {channels // group} "
            f"(input channels {channels} / group {group})"
        )


@interpret(ConvolutionInst)
def _convolution(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
) -> None:
    """An image's windows become the rows of a matrix for each group, times the group's filters."""
    if result.array.size == 0:
        return
    windows = Windows(kernels, strides, pads, dilation)
    counts, outputs = result.type.shape[1:-1], result.type.shape[-1]
    pixels, taps, own = math.prod(counts), math.prod(kernels), filter.type.shape[-1]
    weights = multipliable(filter.array).reshape(group, outputs // group, taps * own)
    for image in range(input.type.shape[0]):
        view = windows.view(multipliable(input.array[image : image + 1]), 0, counts)[0]
        # Channels last, so that the copy reads and writes runs of them.
        columns = np.moveaxis(view, len(counts), -1).reshape(pixels, taps, group, own)
        columns = columns.transpose(2, 0, 1, 3).reshape(group, pixels, taps * own)
        product = np.matmul(columns, weights.transpose(0, 2, 1))
        sums = product.transpose(1, 0, 2).reshape(*counts, outputs) + multipliable(bias.array)
        result.array[image] = sums.astype(result.array.dtype)
