"""Packs the constant weights of convolutions and matrix products, and chooses their register tiles."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.nodes_gen import (
    CpuConvNode,
    CpuDepthwiseConvNode,
    create_cpu_conv,
    create_cpu_depthwise_conv,
    create_cpu_matmul,
)
from glowpy.backends.cpu.packing import pack_depthwise_filter, pack_filter, pack_matrix
from glowpy.backends.cpu.tiles import choose_conv_tile, choose_matmul_tile
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue, Operand
from glowpy.graph.nodes_gen import ConvolutionNode, MatMulNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.irgen import scratch
from glowpy.passes import RewritePass

__all__ = ["PackProductsPass"]


@dataclass(frozen=True)
class PackProductsPass(RewritePass):
    """Turns products with constant right sides into the backend's own nodes.

    `convolution` (f32, one or two spatial dimensions) becomes `cpu_conv`, or `cpu_depthwise_conv`
    where every channel is a group of its own; `mat_mul` (f32, right side of rank 2) becomes
    `cpu_matmul`. Products with computed right sides stay as they are. Weights are padded with zeros to
    whole vectors of the target's, here to 8 numbers of AVX2.

    Before:
        %x : f32[2x1]
        %out : f32[2x3]
        %w : f32[1x3] = [1.0, 2.0, 3.0]
        %p = mat_mul(%x, %w) : f32[2x3]
        save(%p, %out)
    After:
        %x : f32[2x1]
        %out : f32[2x3]
        %w : f32[1x3] = [1.0, 2.0, 3.0]
        %p_packed : f32[1x1x8] = [1.0, 2.0, 3.0, 0.0, 0.0, 0.0, 0.0, 0.0]
        %p = cpu_matmul(%x, %p_packed) {tile_rows=2, tile_vectors=1} : f32[2x3]
        save(%p, %out)
    """

    variant: Variant
    name: ClassVar[str] = "pack-products"

    @rule
    def convolution(self, f: Function, n: ConvolutionNode, why: Why) -> Replacement:
        """The packed convolution."""
        if n.type.kind is not ElemKind.F32 or len(n.kernels) > 2:
            return why.no("only f32 in one or two spatial dimensions is packed")
        constant = n.filter.constant
        if constant is None:
            return why.no("the filter is not constant")
        if n.type.count == 0 or n.input.type.count == 0:
            return why.no("nothing to compute")
        if len(n.kernels) == 2:
            return self._convolution_2d(
                f, n, n.input, n.type, constant.array, (n.kernels, n.strides, n.pads, n.dilation)
            )
        rows = f.create_reshape(n.name, _with_row(n.input.type), n.input)
        lists = ((1, *n.kernels), (1, *n.strides), (0, n.pads[0], 0, n.pads[1]), (1, *n.dilation))
        result = self._convolution_2d(
            f, n, rows.result, _with_row(n.type), constant.array[:, np.newaxis], lists
        )
        return f.create_reshape(n.name, n.type, result)

    def _convolution_2d(
        self,
        f: Function,
        n: ConvolutionNode,
        input: NodeValue,
        type: Type,
        filter: Array,
        lists: tuple[Sequence[int], Sequence[int], Sequence[int], Sequence[int]],
    ) -> CpuConvNode | CpuDepthwiseConvNode:
        kernels, strides, pads, dilation = (tuple(numbers) for numbers in lists)
        channels = input.type.shape[-1]
        if n.group == channels == type.shape[-1] and n.group > 1:
            packed = _constant(f, n, pack_depthwise_filter(filter))
            return create_cpu_depthwise_conv(
                f,
                n.name,
                type,
                input,
                packed,
                n.bias,
                kernels=kernels,
                strides=strides,
                pads=pads,
                dilation=dilation,
            )
        tile = choose_conv_tile(
            type.shape, channels, kernels, strides, pads, n.group,
            vector_registers=self.variant.vector_registers, lanes=self.variant.lanes,
        )  # fmt: skip
        packed = _constant(f, n, pack_filter(filter, n.group, tile.vectors * self.variant.lanes))
        return create_cpu_conv(
            f, n.name, type, input, packed, n.bias,
            kernels=kernels, strides=strides, pads=pads, dilation=dilation, group=n.group,
            tile_rows=tile.rows, tile_cols=tile.cols, tile_vectors=tile.vectors,
        )  # fmt: skip

    @rule
    def mat_mul(self, f: Function, n: MatMulNode, why: Why) -> Replacement:
        """The packed matrix product."""
        if n.type.kind is not ElemKind.F32 or n.rhs.type.rank != 2:
            return why.no("only f32 with a right side of rank 2 is packed")
        constant = n.rhs.constant
        if constant is None:
            return why.no("the right side is not constant")
        depth, columns = n.rhs.type.shape
        if n.type.count == 0 or depth == 0:
            return why.no("nothing to compute")
        rows = n.type.count // columns
        tile = choose_matmul_tile(
            rows,
            columns,
            depth,
            vector_registers=self.variant.vector_registers,
            lanes=self.variant.lanes,
        )
        packed = _constant(f, n, pack_matrix(constant.array, tile.vectors * self.variant.lanes))
        lhs: Operand = n.lhs
        if n.lhs.type.rank != 2:
            lhs = f.create_reshape(n.name, n.lhs.type.with_shape((rows, depth)), n.lhs)
        flat = n.type.with_shape((rows, columns))
        product = create_cpu_matmul(
            f, n.name, flat, lhs, packed, tile_rows=tile.rows, tile_vectors=tile.vectors
        )
        return product if flat == n.type else f.create_reshape(n.name, n.type, product)


def _constant(f: Function, n: Node, array: Array) -> Constant:
    return f.module.create_constant(f"{n.name}_packed", Tensor.of(array), loc=n.loc)


def _with_row(type: Type) -> Type:
    """N x W x C as N x 1 x W x C."""
    return type.with_shape((type.shape[0], 1, *type.shape[1:]))


@scratch(CpuConvNode, CpuDepthwiseConvNode)
def _padded_image(n: CpuConvNode | CpuDepthwiseConvNode) -> tuple[Type, ...]:
    """One image with its border: [1, H, W, C]; nothing if there is no border. Ends are cut where no window reaches."""
    if not any(n.pads):
        return (n.input.type.with_shape((0,)),)
    _, height, width, channels = n.input.type.shape
    top, left, bottom, right = n.pads
    return (n.input.type.with_shape((1, height + top + bottom, width + left + right, channels)),)
