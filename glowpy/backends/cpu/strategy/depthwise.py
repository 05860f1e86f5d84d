"""How many pixels of a row a depthwise convolution computes at once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.support.symbolic import ceil_div

__all__ = ["MAX_DEPTHWISE_PIXELS", "DepthwiseDecision", "choose_pixels", "depthwise_ways"]

# The bound of libjit/include/tile.h.
MAX_DEPTHWISE_PIXELS = 8


@dataclass(frozen=True, slots=True)
class DepthwiseDecision:
    """All that is free: the pixels of a tile; with what that is thought to cost, in cycles."""

    pixels: int
    cycles: float


def depthwise_ways(
    result: tuple[int, ...], taps: int, machine: Machine
) -> Iterator[DepthwiseDecision]:
    """The decision that is taken, then fewer pixels and more, as long as they fit into the registers.

    A result is N, H, W, C. The model has a load for each tap and pixel, and knows no difference.
    """
    images, height, width, channels = result
    loads = images * height * width * ceil_div(channels, machine.lanes) * taps
    best = choose_pixels(width, machine)
    most = max(min(MAX_DEPTHWISE_PIXELS, machine.vector_registers - 3, width), 1)
    others = (pixels for pixels in range(most, 1, -1) if pixels != best)
    for pixels in (best, *others):
        yield DepthwiseDecision(pixels, loads / machine.loads)


def choose_pixels(width: int, machine: Machine) -> int:
    """Up to eight, all tiles of a row about equal; a sum for each and the weights have to fit into the registers."""
    most = max(min(MAX_DEPTHWISE_PIXELS, machine.vector_registers - 3), 1)
    tiles = max(ceil_div(width, most), 1)
    return max(ceil_div(width, tiles), 1)
