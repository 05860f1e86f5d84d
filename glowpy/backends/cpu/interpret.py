"""What the CPU backend's own instructions mean: the plain product over unpacked weights."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from glowpy.backends.cpu.insts_gen import CpuConvInst, CpuDepthwiseConvInst, CpuMatmulInst
from glowpy.backends.cpu.packing import unpack_depthwise_filter, unpack_filter, unpack_matrix
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
    padded: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
    group: int,
    tile_rows: int,
    tile_cols: int,
    tile_vectors: int,
) -> None:
    """Tiles and the padded image are how the kernel goes about it, not what it computes."""
    del padded, tile_rows, tile_cols, tile_vectors
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
    padded: Tensor,
    *,
    kernels: Sequence[int],
    strides: Sequence[int],
    pads: Sequence[int],
    dilation: Sequence[int],
) -> None:
    """A convolution with as many groups as there are channels."""
    del padded
    plain = Tensor.of(unpack_depthwise_filter(filter.array))
    interpret[ConvolutionInst](
        result, input, plain, bias,
        kernels=kernels, strides=strides, pads=pads, dilation=dilation,
        group=input.type.shape[-1],
    )  # fmt: skip


@interpret(CpuMatmulInst)
def _cpu_matmul(
    result: Tensor, lhs: Tensor, rhs: Tensor, *, tile_rows: int, tile_vectors: int
) -> None:
    del tile_rows, tile_vectors
    plain = unpack_matrix(rhs.array, result.type.shape[-1])
    result.array[...] = np.matmul(lhs.array, plain)
