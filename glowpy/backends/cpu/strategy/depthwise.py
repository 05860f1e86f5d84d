"""How a depthwise convolution goes over an image: the pixels of a tile, the lines and channels of a unit.

A unit goes down the width of a tile, line by line, through all of its channels, so that each row of the image is read
once from the second cache, and then found in the first by the windows of the next lines. That takes few enough
channels. Or it is a line of all channels, in the order that the image lies in, which processors fetch ahead; then the
second cache is read for all taps of a tile. Images that are near and have small windows go down; for others the model
adds up what comes from where. On a Zen 4, with one multiply-add a cycle, going down takes up to a quarter off the
first, but lines a tenth off large images and an eighth off large windows. On a Zen 5, with two, going down takes a
quarter off 7 x 7.

Groups of a few channels each are computed in the same way where several of them share a vector: a lane is multiplied
by what is in each lane of its group. By tiles of their own they leave most lanes idle: groups of 4 take ten times as
long on a Zen 5.

Which windows reach over an edge is known where the width is. There the first tile of a line and the last one are code
of their own, for just their pixels. Of an open width that would be code for any number of pixels, with a test for every
pixel and tap; computed one by one, those at an edge take a third of that code, and a network up to a tenth less time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.support.symbolic import Dim, Expr, ceil_div

__all__ = [
    "ALONE",
    "MAX_DEPTHWISE_PIXELS",
    "DepthwiseDecision",
    "Group",
    "depthwise_decision",
    "depthwise_ways",
    "has_open_edges",
    "lanes_of_groups",
    "share_vectors",
]

# The bound of libjit/include/tile.h.
MAX_DEPTHWISE_PIXELS = 8

Group = tuple[int, int]
"""The channels of a group: of the input, and of the result."""

ALONE: Group = (1, 1)
"""A group of a depthwise convolution."""

_FEWEST_GROUPS = 2
"""Groups that share a vector."""

_MASKED_LANES = 8
"""Processors with vectors of so many lanes load parts of them in one instruction."""

_UNITS = 8
"""Enough for threads to share, as long as slabs are not so low that most of what they read is another's as well."""

_LEAST_UNITS = 2
"""Two threads share even the few lines of a band (`strategy.bands`)."""

_TAPS = 9
"""So few taps of an image in the second cache go down in any case."""

_SLAB = 4
"""The fewest lines of a slab, if there are as many."""


@dataclass(frozen=True, slots=True)
class DepthwiseDecision:
    """All that is free, with what it is thought to cost.

    Attributes:
        pixels: Pixels of a tile.
        slab: Lines of a unit.
        vectors: Vectors of channels of a unit.
        cycles: The model has a load for each tap and pixel, and knows no difference.
    """

    pixels: int
    slab: int
    vectors: int
    cycles: float


def depthwise_ways(
    result: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    machine: Machine,
    group: Group = ALONE,
) -> Iterator[DepthwiseDecision]:
    """The decision that is taken, then fewer pixels and more, as long as they fit into the registers.

    A result is N, H, W, C.
    """
    most = _most_pixels(machine)
    best = _equal_parts(result[2], most)
    others = (pixels for pixels in range(min(most, result[2]), 1, -1) if pixels != best)
    for pixels in (best, *others):
        yield _with_pixels(pixels, result, kernels, strides, dilation, machine, group)


def depthwise_decision(
    result: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    machine: Machine,
    group: Group = ALONE,
) -> DepthwiseDecision:
    """The decision that is taken: up to eight pixels, all tiles of a row about equal."""
    return next(depthwise_ways(result, kernels, strides, dilation, machine, group))


def lanes_of_groups(depth: int, width: int, lanes: int) -> int:
    """The channels of the result that a vector of so many lanes computes: those of whole groups."""
    return lanes // max(depth, width) * width


def share_vectors(depth: int, width: int, machine: Machine) -> bool:
    """Whether groups of so many channels, of the input and of the result, share vectors with others of their kind.

    Each by itself would leave most lanes idle. A lane is multiplied by what is in each lane of its group, which moves
    lanes of the input within a vector. Parts of short vectors are loaded an element at a time.
    """
    if depth == width == 1:
        return True
    lanes = machine.models[-1].lanes  # a group may fill the smaller of two vectors
    if lanes // max(depth, width) < _FEWEST_GROUPS:
        return False
    return lanes >= _MASKED_LANES or (depth == width and lanes % width == 0)


def has_open_edges(result: Sequence[Dim], input: Sequence[Dim], pads: Sequence[Dim]) -> bool:
    """Whether it depends on symbols which pixels of a line have windows that reach over an edge; images are NHWC."""
    return any(isinstance(extent, Expr) for extent in (result[2], input[2], pads[1], pads[3]))


def _with_pixels(
    pixels: int,
    result: Sequence[int],
    kernels: Sequence[int],
    strides: Sequence[int],
    dilation: Sequence[int],
    machine: Machine,
    group: Group = ALONE,
) -> DepthwiseDecision:
    images, height, width, channels = result
    all_vectors, depth = ceil_div(channels, lanes_of_groups(*group, machine.lanes)), group[0]
    cycles = images * height * width * all_vectors * prod(kernels) * depth / machine.loads
    cols = (pixels - 1) * strides[1] + (kernels[1] - 1) * dilation[1] + 1
    rows = (kernels[0] - 1) * dilation[0] + 1
    image = prod(strides) * height * width * channels * machine.element_bytes
    is_far, taps = image > machine.second_cache, prod(kernels) * depth
    fresh = cols * min(strides[0], rows)
    if (is_far or taps > _TAPS) and not _pays(pixels, taps, cols * rows, fresh, is_far, machine):
        return DepthwiseDecision(pixels, 1, max(all_vectors, 1), cycles)
    # More than half of the first cache, which weights and results hardly need.
    fitting = machine.first_cache * 5 // 4 // (cols * rows * machine.lanes * machine.element_bytes)
    vectors = _equal_parts(all_vectors, max(fitting, 1))
    others = max(images * ceil_div(all_vectors, vectors), 1)
    slabs = min(ceil_div(_UNITS, others), max(height // _SLAB, _LEAST_UNITS // others, 1))
    slab = max(ceil_div(height, slabs), 1)
    return DepthwiseDecision(pixels, slab, vectors, cycles)


def _pays(pixels: int, taps: int, window: int, fresh: int, is_far: bool, machine: Machine) -> bool:
    """Whether going down is thought to take less time than going along lines.

    Along lines a tile finds what its `window` reads, and its weights, in the second cache. Downwards only what is
    `fresh` in a line is not in the first one, and no processor fetches it ahead.
    """
    vector = machine.lanes * machine.element_bytes
    rate = machine.third_rate if is_far else machine.second_rate
    busy = pixels * taps / machine.multiplies
    return busy + fresh * vector / rate < max(busy, (window + taps) * vector / machine.second_rate)


def _most_pixels(machine: Machine) -> int:
    """A sum for each and the weights have to fit into the registers."""
    return max(min(MAX_DEPTHWISE_PIXELS, machine.vector_registers - 3), 1)


def _equal_parts(count: int, most: int) -> int:
    """The size of parts that are about equal, and have at most so many."""
    parts = max(ceil_div(count, most), 1)
    return max(ceil_div(count, parts), 1)
