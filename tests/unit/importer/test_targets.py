"""Targets of reshapes that are written as numbers, for other sizes than they were written for."""

from __future__ import annotations

from functools import partial

import pytest

from glowpy.core.type import Shape
from glowpy.importer.kit.targets import Factor, Merged, Targets, adapted
from glowpy.support.errors import UserError
from glowpy.support.symbolic import symbol


@pytest.mark.parametrize(
    ("before", "shape", "target", "expected"),
    [
        ((1, 512, 1, 1), (8, 512, 1, 1), (1, 512), (8, 512)),
        ((1, 128, 768), (8, 128, 768), (1, 128, 12, 64), (8, 128, 12, 64)),
        ((1, 12, 128, 64), (8, 12, 128, 64), (12, 128, 64), (96, 128, 64)),
        ((2, 12, 128, 64), (8, 12, 128, 64), (24, 128, 64), (96, 128, 64)),
        ((12, 128, 64), (96, 128, 64), (1, 12, 128, 64), (8, 12, 128, 64)),
        ((1, 128, 768), (8, 128, 768), (128, 768), (1024, 768)),
        ((1, 1, 128), (8, 1, 128), (1, 1, 1, 128), (8, 1, 1, 128)),
        ((128, 1, 768), (128, 8, 768), (128, 1, 12, 64), (128, 8, 12, 64)),
        ((1, 256, 7, 7), (1, 256, 10, 10), (1, 256, 49), (1, 256, 100)),
        ((1, 256, 7, 7), (4, 256, 10, 9), (256, 49), (1024, 90)),
        ((1, 12, 7), (1, 12, 9), (1, 3, 4, 7), (1, 3, 4, 9)),
        ((1,), (8,), (1, 1), (8, 1)),
    ],
)
def test_a_target_follows(before: Shape, shape: Shape, target: Shape, expected: Shape) -> None:
    merged: Merged = {(12, 96): [Factor(1, 8), Factor(12, 12)]}
    assert adapted(before, shape, target, None, merged) == expected


@pytest.mark.parametrize(
    ("before", "shape", "target"),
    [
        ((128, 1, 768), (128, 8, 768), (128, 768)),  # rows of all, or columns
        ((128, 1, 768), (128, 8, 768), (128, 12, 64)),
        ((1, 64, 56), (1, 64, 84), (1, 64, 8, 7)),  # a size that is cut
        ((4, 6), (4, 9), (8, 3)),
        ((1, 6), (1, 6, 2), (6,)),
        ((12, 64), (96, 64), (1, 12, 64)),  # 96 may be a product
    ],
)
def test_what_is_unclear_is_an_error(before: Shape, shape: Shape, target: Shape) -> None:
    with pytest.raises(UserError, match="does not say which of its sizes follow"):
        adapted(before, shape, target)


def test_the_rest_takes_what_nothing_else_can() -> None:
    assert adapted((1, 64, 56), (1, 64, 84), (1, 64, 8, 7), 2) == (1, 64, 12, 7)
    assert adapted((1, 4, 4), (1, 6, 4), (1, 2, 2, 4), 1) == (1, 3, 2, 4)
    with pytest.raises(UserError, match="does not say"):  # two sizes that are cut
        adapted((1, 4, 4), (1, 8, 8), (1, 2, 2, 2, 2), 1)
    assert adapted((128, 1, 768), (128, 8, 768), (128, 768), 0) == (1024, 768)


def test_open_sizes_follow() -> None:
    batch = symbol("batch", 1, 8)
    assert adapted((1, 4, 6), (batch, 4, 6), (4, 6)) == (batch * 4, 6)


def test_sizes_of_inputs_are_no_products() -> None:
    merged: Merged = {(2, 8): [Factor(2, 8)]}
    assert adapted((2, 64), (8, 64), (1, 2, 64), None, merged) == (1, 8, 64)


def followed(
    targets: Targets, steps: list[tuple[Shape, Shape]], shapes: list[Shape]
) -> list[Shape]:
    for index, (shape, target) in enumerate(steps):
        targets.target(f"r{index}", shape, target, partial(tuple, target), is_fixed=True)
    targets.follow()
    return [
        tuple(targets.target(f"r{index}", shape, target, partial(tuple, target), is_fixed=True))
        for index, (shape, (_, target)) in enumerate(zip(shapes, steps, strict=True))
    ]


@pytest.mark.parametrize(
    ("split", "merge"), [((1, 5, 6), (5, 6)), ((5, 1, 6), (5, 6)), ((5, 6, 1), (5, 6))]
)
def test_what_was_merged_splits_in_the_same_order(split: Shape, merge: Shape) -> None:
    new = tuple(4 if size == 1 else size for size in split)
    if split[1] == 1:
        with pytest.raises(UserError, match="does not say"):
            followed(Targets(), [(split, merge)], [new])
        return
    flat = (20, 6) if split[0] == 1 else (5, 24)
    assert followed(Targets(), [(split, merge), (merge, split)], [new, flat]) == [flat, new]


def test_sizes_that_are_merged_in_two_orders_are_not_split() -> None:
    steps = [((1, 5, 6), (5, 6)), ((2, 6, 5, 1), (2, 6, 5)), ((5, 6), (1, 5, 6))]
    with pytest.raises(UserError, match="in two orders"):
        followed(Targets(), [*steps], [(4, 5, 6), (2, 6, 5, 4), (20, 6)])


def test_a_target_that_the_model_computes_is_left_alone() -> None:
    targets = Targets()
    targets.target("r", (1, 4), (1, -1), lambda: (1, 4), is_fixed=False)
    targets.follow()
    assert targets.target("r", (8, 4), (1, -1), lambda: (1, 32), is_fixed=False) == (1, 32)
