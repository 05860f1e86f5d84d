"""Arithmetic of transposes. A shuffle names for each result dimension the input dimension it is."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.core.type import Shape

__all__ = ["compose", "inverse", "is_identity", "keeps_order"]

Shuffle = tuple[int, ...]


def compose(first: Sequence[int], second: Sequence[int]) -> Shuffle:
    """The one shuffle that does what `first` and then `second` do."""
    return tuple(first[axis] for axis in second)


def inverse(shuffle: Sequence[int]) -> Shuffle:
    """The shuffle that undoes this one."""
    return tuple(sorted(range(len(shuffle)), key=lambda axis: shuffle[axis]))


def is_identity(shuffle: Sequence[int]) -> bool:
    """Whether nothing moves."""
    return tuple(shuffle) == tuple(range(len(shuffle)))


def keeps_order(shape: Shape, shuffle: Sequence[int]) -> bool:
    """Whether only dimensions of length 1 move, so that a reshape does the same."""
    moved = [axis for axis in shuffle if shape[axis] != 1]
    return moved == sorted(moved)
