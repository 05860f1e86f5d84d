"""Parts of a tensor: when such boxes are disjoint."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations

from glowpy.core.type import Shape
from glowpy.support.symbolic import Dim, greatest, highest, is_at_most, lowest

__all__ = ["Box", "all_disjoint", "disjoint"]

Box = tuple[Sequence[Dim], Shape]
"""Offsets and shape."""


def disjoint(a: Box, b: Box) -> bool:
    """Whether it is known that two boxes of one tensor share no element."""
    return any(
        is_at_most(start + size, other_start) or is_at_most(other_start + other_size, start)
        for start, size, other_start, other_size in zip(a[0], a[1], b[0], b[1], strict=True)
    )


def all_disjoint(boxes: Iterable[Box]) -> bool:
    """Whether it is known that no two boxes share an element.

    Boxes are parted where a plane that cuts none of them lies between, again and again: O(n log n) for
    each level of concats within concats. Only boxes that no plane parts are compared in pairs.
    """
    groups = [[box for box in boxes if 0 not in box[1]]]
    while groups:
        group = groups.pop()
        for axis in range(len(group[0][1]) if len(group) > 1 else 0):
            parts = _parted(group, axis)
            if len(parts) > 1:
                groups += parts
                break
        else:
            if not all(disjoint(a, b) for a, b in combinations(group, 2)):
                return False
    return True


def _parted(boxes: list[Box], axis: int) -> list[list[Box]]:
    """The boxes in groups between which planes across `axis` lie."""
    parts: list[list[Box]] = []
    reach: Dim = -1
    for box in sorted(boxes, key=lambda box: (lowest(box[0][axis]), highest(box[0][axis]))):
        if is_at_most(reach, box[0][axis]):
            parts.append([])
        parts[-1].append(box)
        reach = greatest(reach, box[0][axis] + box[1][axis])
    return parts
