"""How many pixels of a row a depthwise convolution computes at once."""

from __future__ import annotations

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.support.symbolic import ceil_div

__all__ = ["MAX_DEPTHWISE_PIXELS", "choose_pixels"]

# The bound of libjit/include/tile.h.
MAX_DEPTHWISE_PIXELS = 8


def choose_pixels(width: int, machine: Machine) -> int:
    """Up to eight, all tiles of a row about equal; a sum for each and the weights have to fit into the registers."""
    most = max(min(MAX_DEPTHWISE_PIXELS, machine.vector_registers - 3), 1)
    tiles = max(ceil_div(width, most), 1)
    return max(ceil_div(width, tiles), 1)
