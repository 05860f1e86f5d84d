"""Parts of a tensor: when such boxes are contiguous, disjoint, or everything."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import combinations

from glowpy.core.type import Shape

__all__ = ["contiguous_offset", "disjoint", "tiles"]

Box = tuple[Sequence[int], Shape]
"""Offsets and shape."""


def contiguous_offset(whole: Shape, offsets: Sequence[int], part: Shape) -> int | None:
    """The element of row-major `whole` at which a contiguous box begins, else None."""
    partial = [i for i, (size, total) in enumerate(zip(part, whole, strict=True)) if size != total]
    if partial and any(size != 1 for size in part[: partial[-1]]):
        return None
    offset = 0
    for start, total in zip(offsets, whole, strict=True):
        offset = offset * total + start
    return offset


def disjoint(a: Box, b: Box) -> bool:
    """Whether two boxes of one tensor share no element."""
    return any(
        start + size <= other_start or other_start + other_size <= start
        for start, size, other_start, other_size in zip(a[0], a[1], b[0], b[1], strict=True)
    )


def tiles(whole: Shape, boxes: Sequence[Box]) -> bool:
    """Whether boxes are disjoint and cover `whole`. Quadratic in their number, that of concat inputs."""
    if sum(math.prod(shape) for _, shape in boxes) != math.prod(whole):
        return False
    return all(disjoint(a, b) for a, b in combinations(boxes, 2))
