"""Products of numbers in bf16: both operands of a product in f32 are rounded, and their products added up in f32.

Weights are rounded and packed while compiling, in half the memory. What a product reads is rounded where it is made,
in a loop or at the end of the product before; several products that read one value share its rounding. A step of the
inner loop takes two neighbours in depth, so that an odd depth takes a zero more, or pixels are taken in pairs.

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
    Problem,
    conv_problem,
    fetched_ahead,
    matmul_problem,
    product_ways,
)
from glowpy.backends.cpu.strategy.work import has_pads
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
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
        pairs = _pairs(n)
        if pairs is not None:
            yield from product_ways(pairs.problem(n), self.machine)
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
        pairs = _pairs(n)
        if pairs is not None:
            input = f.create_reshape(n.name, Type(_KIND, pairs.input), rounded(f, n.input)).result
            packed: Operand = _packed_pairs(f, n, pairs, decision.block)
        else:
            input = padded_channels(
                f, n, rounded(f, n.input), -n.filter.type.extents[-1] % _PAIR, n.group
            )
            packed = _packed_filter(f, n, decision.block)
        kernels, strides, pads = (pairs or n).kernels, (pairs or n).strides, (pairs or n).pads
        problem = conv_problem(
            n.type.likely, input.type.likely, kernels, strides, tuple(map(likely_extent, pads)),
            n.dilation, n.group,
        )  # fmt: skip
        depth = input.type.extent(-1) // n.group
        zeros = np.zeros(depth if has_pads(pads) else 0, _KIND.dtype)
        return create_cpu_conv(
            f, n.name, n.type, input, packed, n.bias,
            f.module.create_constant(f"{n.name}_zeros", zeros, loc=n.loc),
            kernels=kernels, strides=strides, pads=pads, dilation=n.dilation, group=n.group,
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


@dataclass(frozen=True)
class _Pairs:
    """A convolution of pairs of neighbouring pixels, each of which is one pixel with twice the channels.

    Attributes:
        input: The shape of the input.
        kernels: The taps, of pairs.
        strides: The strides, in pairs along a row.
        pads: The pads, in pairs along a row.
        skipped: The pixels of the first pair that are no taps.
    """

    input: Shape
    kernels: tuple[int, ...]
    strides: tuple[int, ...]
    pads: Shape
    skipped: int

    def problem(self, n: ConvolutionNode) -> Problem:
        """The problem that the tiles of such a convolution solve."""
        pads = tuple(map(likely_extent, self.pads))
        input = tuple(map(likely_extent, self.input))
        return conv_problem(
            n.type.likely, input, self.kernels, self.strides, pads, n.dilation, n.group
        )

    def filter(self, filter: Array) -> Array:
        """A filter O x KH x KW x I as one of pairs, with zeros for pixels that are no taps."""
        outputs, height, width, depth = filter.shape
        taps = self.kernels[1]
        pixels = np.zeros((outputs, height, _PAIR * taps, depth), filter.dtype)
        pixels[:, :, self.skipped : self.skipped + width] = filter
        return pixels.reshape(outputs, height, taps, _PAIR * depth)


def _pairs(n: ConvolutionNode) -> _Pairs | None:
    """How a convolution of an odd number of channels takes pixels in pairs, where all windows begin alike in one.

    Images as cameras give them have three channels. Nothing has to be appended to them then, and there are fewer zeros:
    8 pixels of three channels in place of 7 of four. A zero tap meets elements of a neighbour: where these are
    infinite, the result is NaN.
    """
    batch, height, width, depth = n.input.type.shape
    top, left, bottom, right = n.pads
    columns, stride = n.type.shape[2], n.strides[1]
    plain = n.group == 1 and n.dilation[1] == 1 and n.filter.constant is not None
    if not plain or not isinstance(depth, int) or depth % _PAIR == 0 or stride % _PAIR:
        return None
    if not isinstance(width, int) or width % _PAIR or not isinstance(columns, int):
        return None
    if not isinstance(left, int) or not isinstance(right, int):
        return None
    before, steps = ceil_div(left, _PAIR), stride // _PAIR
    skipped = _PAIR * before - left
    taps = ceil_div(skipped + n.kernels[1], _PAIR)
    after = max((columns - 1) * steps + taps - width // _PAIR - before, 0)
    return _Pairs(
        (batch, height, width // _PAIR, _PAIR * depth),
        (n.kernels[0], taps),
        (n.strides[0], steps),
        (top, before, bottom, after),
        skipped,
    )


def _packed_pairs(f: Function, n: ConvolutionNode, pairs: _Pairs, block: int) -> Operand:
    """The filter of a convolution of pairs of pixels in blocks of output channels."""
    outputs, depth = n.filter.type.extents[0], pairs.input[-1]
    assert n.filter.constant is not None
    assert isinstance(depth, int)
    type = Type(_KIND, (1, ceil_div(outputs, block), *pairs.kernels, depth // _PAIR, block * _PAIR))
    return derived(
        f, n, "packed", type, n.filter.constant, f"pack pairs of pixels from {pairs.skipped}",
        lambda filter: _rounded_pieces(filter_pieces(pairs.filter(filter), 1, block, _PAIR)),
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
