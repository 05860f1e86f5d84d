"""Parts of tensors, against what numpy says of their elements."""

import itertools
import random

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.core.tensor import Array
from glowpy.opt.boxes import Box, all_disjoint, disjoint


def _boxes(rng: random.Random, whole: tuple[int, ...], count: int) -> list[Box]:
    boxes: list[Box] = []
    for _ in range(count):
        shape = tuple(rng.randint(min(size, rng.choice((0, 1, 1, 1))), size) for size in whole)
        offsets = [rng.randint(0, size - part) for size, part in zip(whole, shape, strict=True)]
        boxes.append((offsets, shape))
    return boxes


def _elements(whole: tuple[int, ...], box: Box) -> Array:
    """The places of a box's elements in the row-major tensor, in order."""
    places = np.arange(np.prod(whole, dtype=int)).reshape(whole)
    window = tuple(slice(o, o + n) for o, n in zip(*box, strict=True))
    return places[window].reshape(-1)


def _whole(rng: random.Random) -> tuple[int, ...]:
    return tuple(rng.choice((1, 2, 4, 6)) for _ in range(rng.randint(1, 3)))


@settings(max_examples=150, deadline=None)
@given(st.randoms(use_true_random=False))
def test_disjoint_boxes_share_no_element(rng: random.Random) -> None:
    whole = _whole(rng)
    boxes = _boxes(rng, whole, rng.randint(0, 5))
    elements = [_elements(whole, box) for box in boxes]
    pairs = list(itertools.combinations(range(len(boxes)), 2))
    shared = {(a, b): np.intersect1d(elements[a], elements[b]).size > 0 for a, b in pairs}
    assert all_disjoint(boxes) == (not any(shared.values()))
    for (a, b), overlap in shared.items():
        if elements[a].size and elements[b].size:
            assert disjoint(boxes[a], boxes[b]) == (not overlap)


def test_boxes_of_nested_concats_are_disjoint_and_a_pinwheel_is() -> None:
    halves: list[Box] = [([0, 0], (2, 4)), ([2, 0], (2, 1)), ([2, 1], (2, 3))]
    assert all_disjoint(halves)
    pinwheel: list[Box] = [([0, 0], (1, 2)), ([0, 2], (2, 1)), ([2, 1], (1, 2)), ([1, 0], (2, 1))]
    assert all_disjoint(pinwheel)
    assert not all_disjoint([*pinwheel, ([1, 1], (1, 2))])
