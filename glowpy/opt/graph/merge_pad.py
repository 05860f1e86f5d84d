"""Padding done by the window operator after it; padding by nothing goes away."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from glowpy.graph.function import Function
from glowpy.graph.nodes_gen import AvgPoolNode, ConvolutionNode, PadNode
from glowpy.graph.rewrite import Replacement, Why, rule
from glowpy.passes import RewritePass

__all__ = ["MergePadPass"]


@dataclass(frozen=True)
class MergePadPass(RewritePass):
    """Adds a zero padding to the pads of the convolution or average pool after it.

    Padding by nothing goes away. Only spatial dimensions may be padded. An average pool must count its
    pads, or have none so far; rounding its shape up must be off, since that depends on the pads.

    Before:
        %x : f32[1x8x8x3]
        %w : f32[4x3x3x3]
        %b : f32[4]
        %out : f32[1x8x8x4]
        %p = pad(%x) {pads=[0,1,1,0,0,1,1,0], value=0.0} : f32[1x10x10x3]
        %c = convolution(%p, %w, %b)
            {dilation=[1,1], group=1, kernels=[3,3], pads=[0,0,0,0], strides=[1,1]} : f32[1x8x8x4]
        save(%c, %out)
    After:
        %x : f32[1x8x8x3]
        %w : f32[4x3x3x3]
        %b : f32[4]
        %out : f32[1x8x8x4]
        %c = convolution(%x, %w, %b)
            {dilation=[1,1], group=1, kernels=[3,3], pads=[1,1,1,1], strides=[1,1]} : f32[1x8x8x4]
        save(%c, %out)
    """

    name: ClassVar[str] = "merge-pad"

    @rule
    def drop(self, f: Function, n: PadNode, why: Why) -> Replacement:
        """The input of a padding by nothing."""
        del f, why
        return n.input if all(pad == 0 for pad in n.pads) else None

    @rule
    def merge(self, f: Function, n: ConvolutionNode | AvgPoolNode, why: Why) -> Replacement:
        """The window operator on what was padded."""
        inner = n.input.node
        if not isinstance(inner, PadNode):
            return None
        reason = _refused(n, inner)
        if reason:
            return why.no(reason)
        rank = inner.type.rank
        around = (*inner.pads[1 : rank - 1], *inner.pads[rank + 1 : -1])
        attrs = {**n.attrs, "pads": tuple(a + b for a, b in zip(n.pads, around, strict=True))}
        if isinstance(n, AvgPoolNode):
            attrs["count_include_pads"] = True
        inputs = [inner.input, *n.inputs[1:]]
        return f.create(type(n), n.name, inputs, attrs, n.type)


def _refused(n: ConvolutionNode | AvgPoolNode, pad: PadNode) -> str:
    """Why the padding cannot be merged; empty if it can."""
    rank = pad.type.rank
    if pad.value != 0:
        return "the padding is not of zeros"
    if min(pad.pads) < 0:
        return "the padding crops"
    if any(pad.pads[i] for i in (0, rank - 1, rank, 2 * rank - 1)):
        return "the padding is not only of spatial dimensions"
    if isinstance(n, ConvolutionNode):
        return ""
    if n.ceil:
        return "the pool rounds its shape up"
    if any(n.pads) and not n.count_include_pads:
        return "the pool does not count its own pads"
    return ""
