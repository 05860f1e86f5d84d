"""Parts of a value along one of its dimensions."""

from __future__ import annotations

from glowpy.graph.function import Function
from glowpy.graph.node import NodeValue, Operand, value_of
from glowpy.support.symbolic import Dim, is_at_most

__all__ = ["is_inside", "part_along"]


def is_inside(size: Dim, start: Dim, count: Dim, step: int) -> bool:
    """Whether it is known that so many elements from `start` on, `step` apart, lie in a dimension of that size."""
    last = start + (count - 1) * step
    low, high = (start, last) if step > 0 else (last, start)
    return count == 0 or (step != 0 and is_at_most(0, low) and is_at_most(high + 1, size))


def part_along(
    f: Function, name: str, whole: Operand, axis: int, start: Dim, count: Dim, step: int = 1
) -> NodeValue:
    """A slice of `count` elements from `start` on along one dimension, `step` apart; the other dimensions are kept.

    A negative axis counts from the last dimension. The result has the element kind of `whole`.
    """
    type = value_of(whole, "whole").type
    shape = list(type.shape)
    starts: list[Dim] = [0] * type.rank
    steps = [1] * type.rank
    shape[axis], starts[axis], steps[axis] = count, start, step
    return f.create_slice(name, type.with_shape(shape), whole, tuple(starts), tuple(steps)).result
