"""Strides: merged loops, spans, boxes that share elements, views that are moved; against the elements themselves."""

import itertools
import math
from collections.abc import Sequence

from hypothesis import assume, given
from hypothesis import strategies as st

from glowpy.core.strides import (
    are_distinct,
    canonical_strides,
    embedded,
    merged_loops,
    share_elements,
    span_of,
    strides_of,
)
from glowpy.core.type import Shape
from glowpy.support.symbolic import Dim, static, symbol

shapes = st.lists(st.integers(0, 4), max_size=3).map(tuple)


def elements(start: Dim, shape: Sequence[Dim], strides: Sequence[Dim]) -> list[int]:
    """Where every element lies, in row-major order."""
    first, *steps = static((start, *strides))
    return [
        first + sum(i * step for i, step in zip(index, steps, strict=True))
        for index in itertools.product(*map(range, static(shape)))
    ]


@st.composite
def boxes(
    draw: st.DrawFn, frame: tuple[int, ...], choice: tuple[int, ...] = (1, 1, 1, 2)
) -> tuple[int, Shape, Shape]:
    """A box of a row-major tensor, every step-th element of each dimension: first element, shape, strides."""
    start, shape, strides = 0, [], []
    for size, stride in zip(frame, static(strides_of(frame)), strict=True):
        first = draw(st.integers(0, size - 1))
        step = draw(st.sampled_from(choice))
        shape.append(draw(st.integers(1, (size - 1 - first) // step + 1)))
        strides.append(step * stride)
        start += first * stride
    return start, tuple(shape), tuple(strides)


frames = st.lists(st.integers(1, 5), min_size=1, max_size=3).map(tuple)


@given(shapes, st.lists(st.integers(1, 12), min_size=3, max_size=3))
def test_canonical_strides_name_the_same_elements(shape: Shape, some: list[int]) -> None:
    strides = tuple(some[: len(shape)])
    canonical = canonical_strides(shape, strides)
    own = elements(0, shape, strides)
    assert elements(0, shape, canonical or strides_of(shape)) == own
    assert (canonical == ()) == (own == list(range(len(own))))
    assert canonical_strides(shape, canonical or strides_of(shape)) == canonical
    assert span_of(shape, canonical) == (own[-1] + 1 if own else 0)
    if own:
        loops = merged_loops(shape, strides)
        assert elements(0, [n for n, _ in loops], [s for _, s in loops]) == own
    if are_distinct(shape, strides):
        assert len(set(own)) == len(own)


def test_strides_that_interleave_are_not_distinct() -> None:
    assert are_distinct((4, 2), (6, 1))
    assert are_distinct((2, 4), (1, 6))
    assert not are_distinct((4, 3), (2, 1))
    assert are_distinct((5, 1), (1, 1))


@given(st.data(), frames)
def test_boxes_of_one_tensor_share_what_their_elements_share(
    data: st.DataObject, frame: tuple[int, ...]
) -> None:
    for choice in ((1,), (1, 2)):
        a, b = (data.draw(boxes(frame, choice)) for _ in range(2))
        common = set(elements(*a)) & set(elements(*b))
        shared = share_elements(a[0], merged_loops(*a[1:]), b[0], merged_loops(*b[1:]))
        assert shared or not common
        assert shared == bool(common) or 2 in choice


def test_ranges_of_channels_lie_between_each_other() -> None:
    frame = strides_of((1, 7, 7, 12))
    parts = [(first, merged_loops((1, 7, 7, n), frame)) for first, n in ((0, 3), (3, 4), (7, 5))]
    for (a, loops), (b, others) in itertools.combinations(parts, 2):
        assert not share_elements(a, loops, b, others)
        assert share_elements(a, loops, b - 1, others) or b - 1 != a + loops[-1][0] - 1
    rows = merged_loops((2, 7, 12), (84, 12, 1))
    assert share_elements(0, rows, 3, parts[1][1])
    assert not share_elements(0, rows, 84 * 2 + 3, merged_loops((5, 7, 4), (84, 12, 1)))
    assert share_elements(0, ((3, 4),), 1, ((3, 6),)), "no common frame"


def test_places_between_each_other_in_rows_of_open_length() -> None:
    """As the phases of a transposed convolution are placed: every third element of one row, and all of the next."""
    n = symbol("n", 1, 5)
    place, row = merged_loops((4, n), (6 * n, 3)), merged_loops((4, n, 3), (6 * n, 3, 1))
    assert not share_elements(2, place, 3 * n, row)
    assert not share_elements(2, place, 1, place)
    assert share_elements(2, place, 0, row)
    assert share_elements(2, place, 2, place)


@given(st.data(), frames, st.lists(st.integers(0, 3), min_size=3, max_size=3))
def test_a_moved_view_has_the_elements_it_had(
    data: st.DataObject, frame: tuple[int, ...], more: list[int]
) -> None:
    wide = tuple(size + extra for size, extra in zip(frame, more, strict=False))
    frame_strides = strides_of(wide)
    start, shape, strides = data.draw(boxes(frame))
    moved = embedded(frame, frame_strides, start, shape, canonical_strides(shape, strides))
    assert moved is not None
    memory = elements(0, frame, frame_strides)
    expected = [memory[at] for at in elements(start, shape, strides)]
    assert elements(moved[0], shape, moved[1] or strides_of(shape)) == expected


@given(st.data(), frames, st.lists(st.integers(0, 2), min_size=3, max_size=3), shapes)
def test_a_view_of_another_shape_is_moved_right_or_not_at_all(
    data: st.DataObject, frame: tuple[int, ...], more: list[int], shape: tuple[int, ...]
) -> None:
    wide = tuple(size + extra for size, extra in zip(frame, more, strict=False))
    room = math.prod(frame) - math.prod(shape)
    assume(room >= 0)
    start = data.draw(st.integers(0, room))
    moved = embedded(frame, strides_of(wide), start, shape, ())
    memory = elements(0, frame, strides_of(wide))
    expected = memory[start : start + math.prod(shape)]
    if moved is not None:
        assert elements(moved[0], shape, moved[1] or strides_of(shape)) == expected
    else:
        assert expected != list(range(expected[0], expected[0] + len(expected)))
