"""Takes the largest pixels of a convolution where its patches are collected."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.backends.cpu.nodes_gen import CpuWinogradNode
from glowpy.backends.cpu.strategy.winograd import convolved_shape, patch_steps
from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.graph.nodes_gen import MaxNode, MaxPoolNode, MinNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["PoolPatchesPass"]

_SINCE_ROWS = 3
"""The dimensions of an image from its rows on."""


@dataclass(frozen=True)
class PoolPatchesPass(RewritePass):
    """Makes the max pool after a convolution by Winograd's algorithm a part of it.

    A patch gives an even number of pixels along each axis, so that the windows of the usual pool of 2 x 2 lie in one
    patch, whose pixels are in registers. The image before the pool is never in memory: in vgg19 that is the
    largest of all. What lies between them and keeps the order of numbers, such as the larger of each and zero, comes
    after the pool, where it has fewer pixels.

    Before:
        %x : f32[1x4x4x8]
        %out : f32[1x2x2x8]
        %w : f32[1x16x8x8] = splat 0.5
        %b : f32[8] = splat 1.0
        %zero : f32[] = splat 0.0
        %c = cpu_winograd(%x, %w, %b)
            {kernels=[3,3], pads=[1,1,1,1], group=1, patch=[4,4], pool=[1,1], tile_pixels=4, tile_vectors=1, slab=4,
            bands=1, blocks=1} : f32[1x4x4x8]
        %r = max(%c, %zero) : f32[1x4x4x8]
        %p = max_pool(%r) {ceil=false, dilation=[1,1], kernels=[2,2], pads=[0,0,0,0], strides=[2,2]} : f32[1x2x2x8]
        save(%p, %out)
    After:
        %x : f32[1x4x4x8]
        %out : f32[1x2x2x8]
        %w : f32[1x16x8x8] = splat 0.5
        %b : f32[8] = splat 1.0
        %zero : f32[] = splat 0.0
        %c_1 = cpu_winograd(%x, %w, %b)
            {kernels=[3,3], pads=[1,1,1,1], group=1, patch=[4,4], pool=[2,2], tile_pixels=4, tile_vectors=1, slab=4,
            bands=1, blocks=1} : f32[1x2x2x8]
        %p = max(%c_1, %zero) : f32[1x2x2x8]
        save(%p, %out)
    """

    name: ClassVar[str] = "pool-patches"
    concerns: ClassVar[tuple[type[Node], ...]] = (CpuWinogradNode,)

    @rule
    def fuse(self, f: Function, n: MaxPoolNode, why: Why) -> Replacement:
        """The convolution with the pool, and what was between them."""
        between: list[MaxNode | MinNode] = []
        value = n.input
        while isinstance(node := value.node, MaxNode | MinNode) and value.num_users == 1:
            pixels = _pixels(node)
            if pixels is None:
                return why.no("what lies before it differs within a window")
            between.append(node)
            value = pixels
        if not isinstance(node, CpuWinogradNode) or node.pool != (1, 1):
            return None
        if value.num_users > 1:
            return why.no("the convolution is read elsewhere")
        if not _has_whole_windows(n, node):
            return why.no("its windows do not lie in one patch each")
        attrs = {**node.attrs, "pool": n.kernels}
        operands = [node.input, node.filter, node.bias]
        result = f.create(CpuWinogradNode, node.name, operands, attrs, n.type, node.loc).results[0]
        for step in reversed(between):
            inputs = [result if input is value else input for input in step.inputs]
            value = step.results[0]
            result = f.create(type(step), step.name, inputs, step.attrs, n.type, step.loc).results[
                0
            ]
        return result


def _pixels(n: MaxNode | MinNode) -> NodeValue | None:
    """The operand that is an image, where the other has the same for each of its pixels."""
    for pixels, other in ((n.lhs, n.rhs), (n.rhs, n.lhs)):
        alike = other.type.shape[-_SINCE_ROWS:-1]
        if pixels.type.shape == n.type.shape and all(extent == 1 for extent in alike):
            return pixels
    return None


def _has_whole_windows(n: MaxPoolNode, conv: CpuWinogradNode) -> bool:
    """Whether each window is of pixels that a single patch gives, and they are all of them."""
    steps = patch_steps(conv.patch, conv.kernels)
    return (
        n.kernels == n.strides
        and set(n.dilation) == {1}
        and all(pad == 0 for pad in n.pads)
        and all(step % size == 0 for step, size in zip(steps, n.kernels, strict=True))
        and convolved_shape(n.type.shape, n.kernels) == n.input.type.shape
    )
