"""Channels that are appended, so that a step of a product takes as many as it needs."""

from __future__ import annotations

from glowpy.graph.function import Function
from glowpy.graph.node import Node, NodeValue
from glowpy.support.symbolic import Dim

__all__ = ["padded_channels"]


def padded_channels(f: Function, n: Node, value: NodeValue, more: Dim, group: int = 1) -> NodeValue:
    """Appends this many channels, which stand for zero, to the end of each group."""
    if more == 0:
        return value
    *outer, channels = value.type.shape
    split = value.type.with_shape((*outer, group, channels // group)) if group > 1 else value.type
    apart = f.create_reshape(n.name, split, value) if group > 1 else value
    pads = (0,) * (2 * split.rank - 1) + (more,)
    padded = f.create_pad(n.name, apart, pads, 0.0)
    if group == 1:
        return padded.result
    return f.create_reshape(
        n.name, value.type.with_shape((*outer, channels + group * more)), padded
    ).result
