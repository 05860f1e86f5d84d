"""Packs the weights of convolutions and matrix products, and decides how they are tiled."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.nodes_gen import (
    CpuConvNode,
    CpuDepthwiseConvNode,
    create_cpu_conv,
    create_cpu_depthwise_conv,
    create_cpu_matmul,
    create_cpu_pack_matrix,
)
from glowpy.backends.cpu.packing import (
    pack_depthwise_filter,
    pack_filter,
    pack_matrix,
    packed_shape,
)
from glowpy.backends.cpu.strategy.depthwise import choose_pixels
from glowpy.backends.cpu.strategy.product import Problem, choose, conv_problem
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import MAX_RANK, Type
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, Node, NodeValue, Operand
from glowpy.graph.nodes_gen import ConvolutionNode, MatMulNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["PackProductsPass"]


@dataclass(frozen=True)
class PackProductsPass(RewritePass):
    """Turns products into the backend's own nodes.

    `convolution` (f32, one or two spatial dimensions, constant filter) becomes `cpu_conv`, or
    `cpu_depthwise_conv` where every channel is a group of its own; `mat_mul` (f32) becomes `cpu_matmul`,
    whose right side is packed by `cpu_pack_matrix` where it is computed. Weights are padded with zeros to
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
        %p = cpu_matmul(%x, %p_packed) {tile_pixels=2, tile_vectors=1, slab=1, fetch=0} : f32[2x3]
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
        result = self._convolution_2d(
            f, n, rows.result, _with_row(n.type), constant.array[:, np.newaxis],
            ((1, *n.kernels), (1, *n.strides), (0, n.pads[0], 0, n.pads[1]), (1, *n.dilation)),
        )  # fmt: skip
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
        machine, channels = self.variant.machine, input.type.shape[-1]
        if n.group == channels == type.shape[-1] and n.group > 1:
            packed = _constant(f, n, "packed", pack_depthwise_filter(filter))
            return create_cpu_depthwise_conv(
                f, n.name, type, input, packed, n.bias,
                kernels=kernels, strides=strides, pads=pads, dilation=dilation,
                tile_pixels=choose_pixels(type.shape[2], machine),
            )  # fmt: skip
        decision = choose(
            conv_problem(type.shape, input.type.shape, kernels, strides, pads, dilation, n.group),
            machine,
        )
        packed = _constant(
            f, n, "packed", pack_filter(filter, n.group, decision.vectors * machine.lanes)
        )
        zeros = np.zeros(channels // n.group if any(pads) else 0, np.float32)
        return create_cpu_conv(
            f, n.name, type, input, packed, n.bias, _constant(f, n, "zeros", zeros),
            kernels=kernels, strides=strides, pads=pads, dilation=dilation, group=n.group,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            line=decision.line, slab=decision.slab, fetch=decision.fetch,
        )  # fmt: skip

    @rule
    def mat_mul(self, f: Function, n: MatMulNode, why: Why) -> Replacement:
        """The packed matrix product."""
        if n.type.kind is not ElemKind.F32:
            return why.no("only f32 is packed")
        if n.type.count == 0 or n.lhs.type.count == 0:
            return why.no("nothing to compute")
        if n.rhs.type.rank == MAX_RANK:
            return why.no("packed matrices have a dimension more, which is too many")
        *batch, rows, columns = n.type.shape
        depth = n.lhs.type.shape[-1]
        if prod(n.rhs.type.shape[:-2]) == 1:
            rows *= prod(batch)
        machine = self.variant.machine
        problem = Problem(
            1, rows, columns, 1, depth, depth * 4, images=n.type.count // (rows * columns)
        )
        decision = choose(problem, machine)
        block = decision.vectors * machine.lanes
        constant = n.rhs.constant
        packed: Operand
        if constant is not None:
            packed = _constant(f, n, "packed", pack_matrix(constant.array, block))
        else:
            shape = packed_shape(n.rhs.type.shape, block)
            packed = create_cpu_pack_matrix(
                f, n.rhs.name, n.rhs.type.with_shape(shape), n.rhs, block=block
            )
        return create_cpu_matmul(
            f, n.name, n.type, n.lhs, packed,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            slab=decision.slab, fetch=decision.fetch,
        )  # fmt: skip


def _constant(f: Function, n: Node, part: str, array: Array) -> Constant:
    return f.module.create_constant(f"{n.name}_{part}", Tensor.of(array), loc=n.loc)


def _with_row(type: Type) -> Type:
    """N x W x C as N x 1 x W x C."""
    return type.with_shape((type.shape[0], 1, *type.shape[1:]))
