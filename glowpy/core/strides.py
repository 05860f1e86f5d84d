"""Strides: how far apart, in elements of memory, neighbours along each dimension of a tensor lie.

No strides mean row-major elements without gaps. Explicit ones describe a box of a larger tensor: some channels of an
image, every second row. A *loop* is a size and a stride; the loops of a tensor, merged where one goes on where the
next one ends, are the same for all tensors that have the same elements in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from glowpy.core.type import Shape
from glowpy.support.symbolic import Dim, UndecidedError, highest, is_at_most, lowest, product

__all__ = [
    "Loops",
    "are_distinct",
    "canonical_strides",
    "embedded",
    "merged_loops",
    "share_elements",
    "span_of",
    "strides_of",
]

Loops = tuple[tuple[Dim, Dim], ...]
"""Size and stride of each loop, the outermost first."""


def strides_of(shape: Sequence[Dim]) -> Shape:
    """The strides of a row-major tensor without gaps."""
    strides: list[Dim] = [0] * len(shape)
    step: Dim = 1
    for axis in range(len(shape) - 1, -1, -1):
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def merged_loops(shape: Sequence[Dim], strides: Sequence[Dim]) -> Loops:
    """The loops over a tensor: as few as possible, none of size 1."""
    loops: list[tuple[Dim, Dim]] = []
    for size, stride in zip(shape, strides, strict=True):
        if size == 1:
            continue
        if loops and loops[-1][1] == size * stride:
            size *= loops.pop()[0]
        loops.append((size, stride))
    return tuple(loops)


def canonical_strides(shape: Sequence[Dim], strides: Sequence[Dim]) -> Shape:
    """The one way to spell strides: none where there are no gaps; a dimension of 1 steps over the next one."""
    if 0 in shape or merged_loops(shape, strides) in ((), ((product(shape), 1),)):
        return ()
    spelled: list[Dim] = list(strides)
    step: Dim = 1
    for axis in range(len(shape) - 1, -1, -1):
        if shape[axis] == 1:
            spelled[axis] = step
        step = spelled[axis] * shape[axis]
    return tuple(spelled)


def span_of(shape: Sequence[Dim], strides: Sequence[Dim]) -> Dim:
    """How many elements of memory lie from the first element to the last, both counted."""
    if not strides or 0 in shape:
        return product(shape)
    return 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True))


def are_distinct(shape: Sequence[Dim], strides: Sequence[Dim]) -> bool:
    """Whether each stride steps beyond all that smaller ones reach, so that no element occurs twice."""
    reach: Dim = 0
    loops = merged_loops(shape, strides)
    for size, stride in sorted(loops, key=lambda loop: (lowest(loop[1]), highest(loop[1]))):
        if not is_at_most(reach + 1, stride):
            return False
        reach += (size - 1) * stride
    return True


def share_elements(start: Dim, loops: Loops, other_start: Dim, other_loops: Loops) -> bool:
    """Whether two boxes of one memory, given by their first elements and loops, share an element.

    Exact for boxes of one row-major frame, where every stride divides the next larger one; True if there is no such
    frame, or symbols leave it open. In a frame, positions are numbers in mixed radix, a box is a range of each digit.
    """
    try:
        return _share_elements(start, loops, other_start, other_loops)
    except UndecidedError:
        return True


def _share_elements(start: Dim, loops: Loops, other_start: Dim, other_loops: Loops) -> bool:
    if any(size == 0 for size, _ in (*loops, *other_loops)):
        return False
    frame = sorted({1, *(stride for _, stride in (*loops, *other_loops))})
    if any(wide % narrow for narrow, wide in pairwise(frame)):
        return True
    mine, theirs = _digits(start, loops, frame), _digits(other_start, other_loops, frame)
    if mine is None or theirs is None:
        return True
    return not any(
        is_at_most(other_first + other_size, first) or is_at_most(first + size, other_first)
        for (first, size), (other_first, other_size) in zip(mine, theirs, strict=True)
    )


def _digits(start: Dim, loops: Loops, frame: Sequence[Dim]) -> list[tuple[Dim, Dim]] | None:
    """The range (first, size) of each digit of a box, the lowest first; None if it is no box of the frame."""
    sizes = {stride: size for size, stride in loops}
    digits: list[tuple[Dim, Dim]] = []
    carried: Dim = 1
    for stride, wide in zip(frame, (*frame[1:], 0), strict=True):
        size = sizes.get(stride, 1)
        if carried != 1 and size != 1:
            return None
        size, carried = size * carried, 1
        first = start // stride % (wide // stride) if wide else start // stride
        if wide and first == 0 and size % (wide // stride) == 0:
            size, carried = wide // stride, size // (wide // stride)
        elif wide and first + size > wide // stride:
            return None
        digits.append((first, size))
    return digits


def embedded(
    frame: Shape, frame_strides: Shape, offset: Dim, shape: Shape, strides: Shape
) -> tuple[Dim, Shape] | None:
    """Moves a view of a row-major tensor of shape `frame` to memory of `frame_strides`.

    The view has `strides` (none: no gaps) and begins at element `offset`. Returns its offset from the first element
    of the frame, and its strides; None where one of its dimensions would need two strides.
    """
    if 0 in shape:
        return 0, ()
    groups = _groups(frame, frame_strides)
    digits = [offset // dense % size for size, dense, _ in groups]
    moved: Dim = sum(digit * stride for digit, (_, _, stride) in zip(digits, groups, strict=True))
    steps: list[Dim] = []
    for extent, step in zip(shape, strides or strides_of(shape), strict=True):
        if extent == 1:
            steps.append(1)
            continue
        index = _group_of(step, groups)
        if index is None:
            return None
        _, dense, stride = groups[index]
        digits[index] += (extent - 1) * (step // dense)
        steps.append(step // dense * stride)
    if any(digit >= size for digit, (size, _, _) in zip(digits, groups, strict=True)):
        return None
    return moved, canonical_strides(shape, steps)


def _group_of(step: Dim, groups: list[tuple[Dim, Dim, Dim]]) -> int | None:
    """The group in which a step in the row-major frame stays."""
    for index, (size, dense, _) in enumerate(groups):
        # A dimension that turns out to be 1 may step beyond its group, where nobody goes.
        inside = is_at_most(dense, step) and is_at_most(step, size * dense)
        if inside and step % dense == 0:
            return index
    return None


def _groups(frame: Shape, frame_strides: Shape) -> list[tuple[Dim, Dim, Dim]]:
    """Dimensions of a frame that are one loop in memory: size, stride in the row-major frame, stride in memory."""
    groups: list[tuple[Dim, Dim, Dim]] = []
    for size, dense, stride in zip(frame, strides_of(frame), frame_strides, strict=True):
        if size == 1:
            continue
        if groups and groups[-1][2] == size * stride:
            size *= groups.pop()[0]
        groups.append((size, dense, stride))
    return groups
