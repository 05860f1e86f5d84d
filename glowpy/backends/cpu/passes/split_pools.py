"""Pools with large windows or few channels, one dimension after the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand
from glowpy.graph.nodes_gen import AvgPoolNode, MaxPoolNode, TransposeNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass
from glowpy.support.symbolic import Dim

__all__ = ["SplitPoolsPass"]

_LEAST_GAIN = 2
"""Another pass over memory is worth it if so many times fewer elements are read."""

_FEW = 7
"""Channels that fill no vector of many processors, and are then computed one by one."""

_LEAST_ROW = 16
"""Pixels of a row or column that are worth it."""


@dataclass(frozen=True)
class SplitPoolsPass(RewritePass):
    """Makes pools along one dimension each of a max pool whose windows overlap much: 5 and 5 elements, in place of 25.

    The largest element of all is the largest of those of the rows, to the bit. Where channels are few, or planes of an
    image that is transposed only for the pool, the pixels of a row, and then those of a column, take their place.

    Before:
        %x : f32[1x20x20x8]
        %out : f32[1x16x16x8]
        %y = max_pool(%x) {ceil=false, dilation=[1,1], kernels=[5,5], pads=[0,0,0,0], strides=[1,1]} : f32[1x16x16x8]
        save(%y, %out)
    After:
        %x : f32[1x20x20x8]
        %out : f32[1x16x16x8]
        %y_1 = max_pool(%x) {ceil=false, dilation=[1,1], kernels=[5,1], pads=[0,0,0,0], strides=[1,1]} : f32[1x16x20x8]
        %y = max_pool(%y_1) {ceil=false, dilation=[1,1], kernels=[1,5], pads=[0,0,0,0], strides=[1,1]} : f32[1x16x16x8]
        save(%y, %out)
    """

    name: ClassVar[str] = "split-pools"
    rewrites_quantized: ClassVar[bool] = True

    @rule
    def take_planes(self, f: Function, n: MaxPoolNode, why: Why) -> Replacement:
        """The pools of the columns and of the rows of each channel's plane."""
        return _of_planes(f, n, why)

    @rule
    def take_planes_of_means(self, f: Function, n: AvgPoolNode, why: Why) -> Replacement:
        """Takes planes of means, where those of the columns, of which the mean of all is the mean, are not rounded."""
        tall, _ = n.kernels if len(n.kernels) == 2 else (0, 0)
        is_whole = n.count_include_pads or all(pad == 0 for pad in n.pads)
        if n.kernels[-1] > 1 and (n.ceil or not is_whole or tall.bit_count() != 1):
            return why.no("means of columns would be rounded")
        return _of_planes(f, n, why)

    @rule
    def split(self, f: Function, n: MaxPoolNode, why: Why) -> Replacement:
        """The pools, of which each has what the window does along its dimension."""
        rank = len(n.kernels)
        axes = [axis for axis in range(rank) if n.kernels[axis] > 1]
        sizes, counts = list(n.input.type.likely[1:-1]), n.type.likely[1:-1]
        parts = 0
        for axis in axes:
            sizes[axis] = counts[axis]
            parts += prod(sizes) * n.kernels[axis]
        if len(axes) < 2 or prod(counts) * prod(n.kernels) < _LEAST_GAIN * parts or not parts:
            return why.no("windows share few elements")
        value = n.input
        for axis in range(rank):
            begin, end = n.pads[axis], n.pads[rank + axis]
            if axis not in axes and n.strides[axis] == 1 and (begin, end) == (0, 0):
                continue
            at = [int(other == axis) for other in range(rank)]
            kernels, strides, steps = (
                tuple(
                    number if is_along else 1 for number, is_along in zip(numbers, at, strict=True)
                )
                for numbers in (n.kernels, n.strides, n.dilation)
            )
            pads = (
                *(begin if is_along else 0 for is_along in at),
                *(end if is_along else 0 for is_along in at),
            )
            value = f.create_max_pool(n.name, value, kernels, strides, pads, steps, n.ceil).result
        return value


def _of_planes(f: Function, n: MaxPoolNode | AvgPoolNode, why: Why) -> Replacement:
    """A pool along the columns of each channel's plane, of which a row is one pixel, and one along its rows, turned.

    Channels that fill no vector are computed one by one; the pixels of a row fill many.
    """
    if len(n.kernels) != 2 or (n.type.quant is not None and n.type.quant.axis is not None):
        return why.no("it is no image whose channels are alike")
    images, height, width, channels = n.input.type.shape
    if n.input.type.likely[-1] > _FEW and (min(n.strides) == 1 or not _lies_in_planes(n)):
        return why.no("channels fill vectors")
    if min(n.input.type.likely[2], n.type.likely[1]) < _LEAST_ROW:
        return why.no("rows are short")
    planes, (_, rows, cols, _) = images * channels, n.type.shape
    first, last = (0, 3, 1, 2), (0, 3, 2, 1)

    def shaped(value: Operand, *shape: Dim) -> NodeValue:
        return f.create_reshape(n.name, n.type.with_shape(shape), value).result

    upright = shaped(f.create_transpose(n.name, n.input, first), planes, height, 1, width)
    pooled = shaped(_along(f, n, 0, upright), planes, rows, width)
    side = shaped(f.create_transpose(n.name, pooled, (0, 2, 1)), planes, width, 1, rows)
    result = shaped(_along(f, n, 1, side), images, channels, cols, rows)
    return f.create_transpose(n.name, result, last, result_type=n.type)


def _lies_in_planes(n: MaxPoolNode | AvgPoolNode) -> bool:
    """Whether channels are the planes of an image that is transposed for the pool, and back after it."""
    above, users = n.input.node, list(n.result.users)
    return (
        isinstance(above, TransposeNode)
        and above.shuffle == (0, 2, 3, 1)
        and all(isinstance(user, TransposeNode) and user.shuffle == (0, 3, 1, 2) for user in users)
    )


def _along(f: Function, n: MaxPoolNode | AvgPoolNode, axis: int, value: NodeValue) -> NodeValue:
    """Pools along one dimension of the window, along the first of `value`."""
    kernels, strides, steps = ((of[axis], 1) for of in (n.kernels, n.strides, n.dilation))
    pads = (n.pads[axis], 0, n.pads[2 + axis], 0)
    if (*kernels, *strides, *pads) == (1, 1, 1, 1, 0, 0, 0, 0):
        return value
    if isinstance(n, MaxPoolNode):
        return f.create_max_pool(n.name, value, kernels, strides, pads, steps, n.ceil).result
    pool = f.create_avg_pool(
        n.name, value, kernels, strides, pads, steps, n.ceil, n.count_include_pads
    )
    return pool.result
