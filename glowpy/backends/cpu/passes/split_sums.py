"""Long sums of products in several parts, which round less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import Constant, NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode, MatMulNode
from glowpy.graph.parts import part_along
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass
from glowpy.support.symbolic import ceil_div, static

__all__ = ["SplitSumsPass"]

_MOST_PRODUCTS = 1024
"""The number of products in a part of a sum at most, except where so few channels have more."""

_STEP = 16
"""Channels of a part are a multiple of it: parts begin where lines of the cache do."""


@dataclass(frozen=True)
class SplitSumsPass(RewritePass):
    """Adds up the products of no more than some 1,024 elements at a time, and these sums to each other.

    What is added to a long sum is rounded as the sum is: the error grows with the square root of its length, and some
    of vgg19's are sums of 25,088 products. Each part takes some of the input channels, reads the sum so far, and writes
    it again. That takes a little time: the pass is for those who ask for exact products.

    Before:
        %x : f32[3x1040]
        %out : f32[3x1]
        %w : f32[1040x1] = splat 0.5
        %p = mat_mul(%x, %w) : f32[3x1]
        save(%p, %out)
    After:
        %x : f32[3x1040]
        %out : f32[3x1]
        %w : f32[1040x1] = splat 0.5
        %w_1 : f32[528x1] = splat 0.5
        %w_2 : f32[512x1] = splat 0.5
        %x_1 = slice(%x) {starts=[0,0], steps=[1,1]} : f32[3x528]
        %p_1 = mat_mul(%x_1, %w_1) : f32[3x1]
        %x_2 = slice(%x) {starts=[0,528], steps=[1,1]} : f32[3x512]
        %p_2 = mat_mul(%x_2, %w_2) : f32[3x1]
        %p = add(%p_1, %p_2) : f32[3x1]
        save(%p, %out)
    """

    name: ClassVar[str] = "split-sums"
    is_required: ClassVar[bool] = True
    concerns = (ConvolutionNode, MatMulNode)

    @rule
    def split_product(self, f: Function, n: MatMulNode, why: Why) -> Replacement:
        """A product with a known right side."""
        weights = n.rhs.constant
        if weights is None or n.rhs.type.rank != 2 or n.type.kind is not ElemKind.F32:
            return None
        (depth,) = static(n.rhs.type.shape[:1])
        total: NodeValue | None = None
        for first, last in _parts(depth, 1):
            lhs = part_along(f, n.lhs.name, n.lhs, -1, first, last - first)
            right = _sliced(f, weights, 0, first, last)
            part = f.create_mat_mul(n.name, lhs, right)
            total = part.result if total is None else f.create_add(n.name, total, part).result
        return total

    @rule
    def split_convolution(self, f: Function, n: ConvolutionNode, why: Why) -> Replacement:
        """A convolution of all channels at once with a known filter; the bias goes along with the first part."""
        filter = n.filter.constant
        if filter is None or n.group != 1 or n.type.kind is not ElemKind.F32:
            return None
        axis = n.filter.type.rank - 1
        (depth,) = static(n.filter.type.shape[axis:])
        bias: Constant | NodeValue = n.bias
        total: NodeValue | None = None
        for first, last in _parts(depth, prod(n.kernels)):
            image = part_along(f, n.input.name, n.input, -1, first, last - first)
            taps = _sliced(f, filter, axis, first, last)
            part = f.create(ConvolutionNode, n.name, [image, taps, bias], n.attrs, n.type, n.loc)
            if total is None:
                total = part.results[0]
                zeros = np.zeros(n.bias.type.extents, np.float32)
                bias = f.module.create_constant(f"{n.name}_zeros", zeros, loc=n.loc)
            else:
                total = f.create_add(n.name, total, part.results[0]).result
        return total


def _parts(depth: int, taps: int) -> Iterator[tuple[int, int]]:
    """The ranges of channels; none where one part will do."""
    most = max(_MOST_PRODUCTS // taps // _STEP, 1) * _STEP
    if depth > most:
        step = ceil_div(ceil_div(depth, ceil_div(depth, most)), _STEP) * _STEP
        for first in range(0, depth, step):
            yield first, min(first + step, depth)


def _sliced(f: Function, weights: Constant, axis: int, first: int, last: int) -> Constant:
    """Neighbours along a dimension of a constant."""
    shape = list(weights.type.shape)
    shape[axis] = last - first

    def compute(array: Array) -> Array:
        return array[(*(slice(None),) * axis, slice(first, last))]

    tensor = Tensor.derived(
        weights.type.with_shape(tuple(shape)),
        f"slice of dimension {axis} from {first}",
        [weights.tensor],
        compute,
    )
    return f.module.create_constant(weights.name, tensor, loc=weights.loc)
