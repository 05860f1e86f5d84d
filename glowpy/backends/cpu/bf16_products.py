"""Products of numbers in bf16: both operands of a product in f32 are rounded, and their products added up in f32.

Weights are rounded and packed while compiling, in half the memory. What a product reads is rounded where it is made,
in a loop or at the end of the product before; several products that read one value share its rounding. A step of the
inner loop takes two neighbours in depth, so that an odd depth takes a zero more.

See docs/adr/0042-bf16.md.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import prod
from typing import TypeGuard

import numpy as np

from glowpy.backend import Operation
from glowpy.backends.cpu.derived import derived
from glowpy.backends.cpu.nodes_gen import (
    CpuConvNode,
    CpuMatmulNode,
    create_cpu_conv,
    create_cpu_matmul,
    create_cpu_pack_matrix,
)
from glowpy.backends.cpu.packing import dot_of, filter_pieces, matrix_pieces, packed_shape
from glowpy.backends.cpu.padded_channels import padded_channels
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.strategy.product import (
    Decision,
    conv_problem,
    fetched_ahead,
    matmul_problem,
    product_ways,
)
from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import ConvertNode, ConvolutionNode, MatMulNode
from glowpy.support.symbolic import Expr, ceil_div, greatest, likely_extent

__all__ = ["Bf16Products", "is_in_bf16", "is_tiled_in_bf16", "rounded"]

_KIND = ElemKind.BF16
_PAIR = dot_of(_KIND)
_CYCLES_OF_A_ZERO = 0.25
"""For each element of an operand that is copied to append zeros."""


def is_in_bf16(decision: object) -> TypeGuard[Decision]:
    """Whether a product is to be computed in bf16: a step takes pairs."""
    return isinstance(decision, Decision) and decision.dot == _PAIR


def is_tiled_in_bf16(operation: Operation) -> bool:
    """Whether an operation is a product of the backend's own whose operands are in bf16."""
    operand = {"cpu_conv": "input", "cpu_matmul": "lhs"}.get(operation.mnemonic)
    return operand is not None and operation.types[operand].kind is _KIND


@dataclass(frozen=True)
class Bf16Products:
    """Rewrites products in f32 for processors that multiply numbers in bf16.

    Attributes:
        machine: The model of the processor, as it multiplies them; None where products are to stay in f32.
    """

    machine: Machine | None

    def conv_ways(self, n: ConvolutionNode) -> Iterator[Decision]:
        """The ways to compute a 2-D convolution, none where pairs would have to be made of a computed filter."""
        depth = n.filter.type.extents[-1]
        if (
            self.machine is None
            or n.type.kind is not ElemKind.F32
            or (n.filter.constant is None and depth % _PAIR)
        ):
            return
        *outer, channels = n.input.type.likely
        problem = conv_problem(
            n.type.likely, (*outer, channels + n.group * (depth % _PAIR)), n.kernels, n.strides,
            tuple(map(likely_extent, n.pads)), n.dilation, n.group,
        )  # fmt: skip
        yield from _with_zeros(product_ways(problem, self.machine), n.input.type, depth)

    def convolution(self, f: Function, n: ConvolutionNode, decision: Decision) -> CpuConvNode:
        """A 2-D convolution."""
        assert self.machine is not None
        input = padded_channels(
            f, n, rounded(f, n.input), -n.filter.type.extents[-1] % _PAIR, n.group
        )
        problem = conv_problem(
            n.type.likely, input.type.likely, n.kernels, n.strides,
            tuple(map(likely_extent, n.pads)), n.dilation, n.group,
        )  # fmt: skip
        depth = input.type.extents[-1] // n.group
        zeros = np.zeros(depth if has_pads(n.pads) else 0, _KIND.dtype)
        return create_cpu_conv(
            f, n.name, n.type, input, _packed_filter(f, n, decision.block), n.bias,
            f.module.create_constant(f"{n.name}_zeros", zeros, loc=n.loc),
            kernels=n.kernels, strides=n.strides, pads=n.pads, dilation=n.dilation, group=n.group,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            line=greatest(n.type.shape[2], 1)  # a line of no pixels divides nothing
            if decision.line == n.type.likely[2] else decision.line,
            slab=decision.slab, fetch=fetched_ahead(problem, self.machine, decision, n.type),
        )  # fmt: skip

    def matmul_ways(self, n: MatMulNode) -> Iterator[Decision]:
        """The ways to compute a matrix product."""
        if self.machine is None or n.type.kind is not ElemKind.F32:
            return
        depth = n.lhs.type.likely[-1]
        problem = matmul_problem(n.type.likely, depth, prod(n.rhs.type.likely[:-2]))
        if isinstance(n.type.shape[-1], Expr):
            problem = problem.with_open_columns()
        yield from _with_zeros(product_ways(problem, self.machine), n.lhs.type, depth)

    def mat_mul(self, f: Function, n: MatMulNode, decision: Decision) -> CpuMatmulNode:
        """A matrix product with a packed right side."""
        assert self.machine is not None
        lhs = padded_channels(f, n, rounded(f, n.lhs), -n.lhs.type.shape[-1] % _PAIR)
        problem = matmul_problem(n.type.likely, lhs.type.likely[-1], prod(n.rhs.type.likely[:-2]))
        block = decision.block
        type = Type(_KIND, packed_shape(n.rhs.type.shape, block, _PAIR))
        packed: Operand
        if n.rhs.constant is not None:
            packed = derived(
                f, n, "packed", type, n.rhs.constant, "pack pairs of bf16",
                lambda matrix: _rounded_pieces(matrix_pieces(matrix, block, _PAIR)),
            )  # fmt: skip
        else:
            packed = create_cpu_pack_matrix(f, n.rhs.name, type, rounded(f, n.rhs), block=block)
        return create_cpu_matmul(
            f, n.name, n.type, lhs, packed,
            tile_pixels=decision.pixels, tile_vectors=decision.vectors,
            slab=decision.slab, fetch=fetched_ahead(problem, self.machine, decision, n.type),
        )  # fmt: skip


def _with_zeros(ways: Iterable[Decision], operand: Type, depth: int) -> Iterator[Decision]:
    """The ways with the cost of the zeros that an operand of odd depth is given."""
    more = _CYCLES_OF_A_ZERO * prod(operand.likely) if depth % _PAIR else 0
    for way in ways:
        yield replace(way, cycles=way.cycles + more)


def rounded(f: Function, value: NodeValue) -> NodeValue:
    """A value in bf16: what it was made of, if that is in bf16, or the rounding that there is already."""
    node = value.node
    if isinstance(node, ConvertNode) and node.input.type.kind is _KIND:
        return node.input
    type = value.type.with_kind(_KIND)
    for user in value.users:
        if isinstance(user, ConvertNode) and user.type == type:
            return user.result
    return f.create_convert(f"{value.name}_bf16", type, value).result


def _packed_filter(f: Function, n: ConvolutionNode, block: int) -> Operand:
    """The filter of a 2-D convolution in blocks of output channels."""
    outputs, *taps, depth = n.filter.type.extents
    blocks = ceil_div(outputs // n.group, block)
    type = Type(_KIND, (n.group, blocks, *taps, ceil_div(depth, _PAIR), block * _PAIR))
    if n.filter.constant is not None:
        return derived(
            f, n, "packed", type, n.filter.constant, "pack filter in pairs of bf16",
            lambda filter: _rounded_pieces(filter_pieces(filter, n.group, block, _PAIR)),
        )  # fmt: skip
    shape = n.group, outputs // n.group, prod((*taps, depth))
    rows = f.create_reshape(n.name, Type(_KIND, shape), rounded(f, n.filter))
    matrix = f.create_transpose(n.name, rows, (0, 2, 1))
    packed_type = Type(_KIND, packed_shape((shape[0], shape[2], shape[1]), block, _PAIR))
    packed = create_cpu_pack_matrix(f, n.name, packed_type, matrix, block=block)
    return f.create_reshape(n.name, type, packed)


def _rounded_pieces(pieces: Iterable[Array]) -> Iterator[Array]:
    for piece in pieces:
        yield piece.astype(_KIND.dtype)
