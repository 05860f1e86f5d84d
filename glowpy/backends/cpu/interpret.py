"""What the CPU backend's own instructions mean: the plain product over unpacked weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glowpy.backends.cpu.insts_gen import (
    CpuConvInst,
    CpuDepthwiseConvInst,
    CpuMatmulInst,
    CpuPackMatrixInst,
    CpuPlainConvInst,
    CpuPlainMatmulInst,
)
from glowpy.backends.cpu.packing import (
    pack_matrix,
    unpack_depthwise_filter,
    unpack_filter,
    unpack_matrix,
)
from glowpy.backends.interpreter.interpret import interpret
from glowpy.core.tensor import Tensor
from glowpy.ir.insts_gen import ConvolutionInst

__all__: list[str] = []


@interpret(CpuConvInst)
def _cpu_conv(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    zeros: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
    **decision: int,
) -> None:
    """The decision and the zeros are how the kernel goes about it, not what it computes."""
    del zeros, decision
    plain = Tensor.of(unpack_filter(filter.array, result.type.shape[-1]))
    interpret[ConvolutionInst](
        result, input, plain, bias,
        kernels=kernels, strides=strides, pads=pads, dilation=dilation, group=group,
    )  # fmt: skip


@interpret(CpuDepthwiseConvInst)
def _cpu_depthwise_conv(
    result: Tensor,
    input: Tensor,
    filter: Tensor,
    bias: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    tile_pixels: int,
) -> None:
    """A convolution with as many groups as there are channels."""
    del tile_pixels
    plain = Tensor.of(unpack_depthwise_filter(filter.array))
    interpret[ConvolutionInst](
        result, input, plain, bias,
        kernels=kernels, strides=strides, pads=pads, dilation=dilation,
        group=input.type.shape[-1],
    )  # fmt: skip


@interpret(CpuMatmulInst)
def _cpu_matmul(result: Tensor, lhs: Tensor, rhs: Tensor, **decision: int) -> None:
    del decision
    plain = unpack_matrix(rhs.array, result.type.shape[-1])
    result.array[...] = np.matmul(lhs.array, plain)


interpret(CpuPlainConvInst)(interpret[ConvolutionInst])


@interpret(CpuPlainMatmulInst)
def _cpu_plain_matmul(result: Tensor, lhs: Tensor, rhs: Tensor) -> None:
    result.array[...] = np.matmul(lhs.array, np.swapaxes(rhs.array, -1, -2))


@interpret(CpuPackMatrixInst)
def _cpu_pack_matrix(result: Tensor, input: Tensor, *, block: int) -> None:
    result.array[...] = pack_matrix(input.array, block)
