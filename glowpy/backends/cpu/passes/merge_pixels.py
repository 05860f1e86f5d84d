"""Makes convolutions with fewer pixels and more channels, where that fills vectors."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod
from typing import ClassVar

import numpy as np

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array, Tensor
from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue
from glowpy.graph.nodes_gen import ConvolutionNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.graph.rounding import wide_type
from glowpy.opt.known import known_tensor
from glowpy.passes import RewritePass

__all__ = ["MergePixelsPass"]

_LEAST_GAIN = 0.8
"""The highest share of a convolution's steps that may be left: its larger tiles are written in smaller pieces."""


@dataclass(frozen=True)
class MergePixelsPass(RewritePass):
    """Computes neighbouring pixels of a convolution's result as channels of one pixel.

    A convolution with few output channels leaves vectors nearly empty. Pixels next to each other read much the same
    input: one window over what all of them read, with zeros where one has no tap, computes all at once. With 3 output
    channels, vectors of 16 and kernels of 9, 5 pixels take 13 taps, where each takes 9. The result lies in memory as
    it did. The model of the processor says how many pixels there are best, among divisors of the row's length.

    A zero tap meets elements of the input that another pixel needs: where these are infinite, the result is NaN.

    Before:
        %x : f32[1x1x4x1]
        %out : f32[1x1x2x1]
        %w : f32[1x1x3x1] = [1.0, 2.0, 3.0]
        %b : f32[1] = [0.5]
        %c = convolution(%x, %w, %b)
            {dilation=[1,1], group=1, kernels=[1,3], pads=[0,0,0,0], strides=[1,1]} : f32[1x1x2x1]
        save(%c, %out)
    After:
        %x : f32[1x1x4x1]
        %out : f32[1x1x2x1]
        %w : f32[1x1x3x1] = [1.0, 2.0, 3.0]
        %b : f32[1] = [0.5]
        %c_pixels : f32[2x1x4x1] = [1.0, 2.0, 3.0, 0.0, 0.0, 1.0, 2.0, 3.0]
        %c_1 = concat(%b, %b) {axis=0} : f32[2]
        %c = convolution(%x, %c_pixels, %c_1)
            {dilation=[1,1], group=1, kernels=[1,4], pads=[0,0,0,0], strides=[1,2]} : f32[1x1x1x2]
        %c_3 = reshape(%c) : f32[1x1x2x1]
        save(%c_3, %out)
    """

    variant: Variant
    name: ClassVar[str] = "merge-pixels"
    concerns = (ConvolutionNode,)

    @rule
    def merge(self, f: Function, n: ConvolutionNode, why: Why) -> Replacement:
        """The pixels of a row where that is faster."""
        kind = wide_type(n.type).kind
        if kind not in (ElemKind.F32, ElemKind.F64) or n.group > 1 or n.dilation[-1] > 1:
            return None
        machine = self.variant.machine_for(kind)
        outputs, row = n.filter.type.shape[0], n.type.shape[-2]
        if not isinstance(outputs, int) or outputs == 0 or 2 * outputs > machine.lanes:
            return None
        if n.kernels[-1] == 1:
            return None
        filter = known_tensor(n.filter)
        if filter is None:
            return why.no("the filter is computed")
        if not isinstance(row, int) or row == 0:
            return why.no("how long a row is depends on symbols")
        pixels = min(
            (count for count in range(1, machine.lanes // outputs + 1) if row % count == 0),
            key=lambda count: _steps(n, outputs, count, machine),
        )
        least = _LEAST_GAIN * _steps(n, outputs, 1, machine)
        if _steps(n, outputs, pixels, machine) > least:
            return why.no("several pixels have few taps in common")
        return _merged(f, n, pixels, filter)


def _steps(n: ConvolutionNode, outputs: int, pixels: int, machine: Machine) -> float:
    """Taps times vectors for a pixel, where so many are computed at a time."""
    return _window(n, pixels) * -(-pixels * outputs // machine.lanes) / pixels


def _window(n: ConvolutionNode, pixels: int) -> int:
    return n.kernels[-1] + (pixels - 1) * n.strides[-1]


def _merged(f: Function, n: ConvolutionNode, pixels: int, filter: Tensor) -> NodeValue:
    """The convolution with `pixels` times the stride and the channels."""
    stride, window = n.strides[-1], _window(n, pixels)
    outputs, *taps, depth = filter.type.extents
    rows = prod(taps[:-1])

    def compute(array: Array) -> Array:
        windows = np.zeros((pixels, outputs, rows, window, depth), array.dtype)
        source = array.reshape(outputs, rows, taps[-1], depth)
        for pixel in range(pixels):
            windows[pixel, :, :, pixel * stride : pixel * stride + taps[-1]] = source
        return windows

    type = filter.type.with_shape((pixels * outputs, *taps[:-1], window, depth))
    operation = f"merge {pixels} pixels at stride {stride}"
    tensor = Tensor.derived(type, operation, [filter], lambda a: compute(a).reshape(type.extents))
    weights = f.module.create_constant(f"{n.name}_pixels", tensor, loc=n.loc)
    product = f.create_convolution(
        n.name, n.input, weights, f.create_concat(n.name, [n.bias] * pixels, 0),
        (*n.kernels[:-1], window), (*n.strides[:-1], pixels * stride), n.pads, n.dilation, 1,
    )  # fmt: skip
    return f.create_reshape(n.name, n.type, product).result
