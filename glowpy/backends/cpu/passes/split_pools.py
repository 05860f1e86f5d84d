"""Max pools with large windows, one dimension after the other."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import MaxPoolNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["SplitPoolsPass"]

_LEAST_GAIN = 2
"""Another pass over memory is worth it if so many times fewer elements are read."""


@dataclass(frozen=True)
class SplitPoolsPass(RewritePass):
    """Makes pools along one dimension each of a max pool whose windows overlap much: 5 and 5 elements, in place of 25.

    The largest element of all is the largest of those of the rows, to the bit.

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
                tuple(number if own else 1 for number, own in zip(numbers, at, strict=True))
                for numbers in (n.kernels, n.strides, n.dilation)
            )
            pads = (*(begin if own else 0 for own in at), *(end if own else 0 for own in at))
            value = f.create_max_pool(n.name, value, kernels, strides, pads, steps, n.ceil).result
        return value
