"""Parts of tensors."""

from itertools import combinations

from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.opt.boxes import Box, all_disjoint, disjoint

boxes = st.lists(
    st.tuples(st.tuples(*[st.integers(0, 5)] * 2), st.tuples(*[st.integers(0, 3)] * 2)), max_size=6
)


def _elements(box: Box) -> set[tuple[int, int]]:
    (row, column), (rows, columns) = box
    return {(row + i, column + j) for i in range(rows) for j in range(columns)}


@settings(max_examples=200, deadline=None)
@given(boxes)
def test_boxes_are_disjoint_iff_no_element_is_in_two(sample: list[Box]) -> None:
    pairs = list(combinations(sample, 2))
    assert all_disjoint(sample) == all(_elements(a).isdisjoint(_elements(b)) for a, b in pairs)
    for a, b in pairs:
        if _elements(a) and _elements(b):
            assert disjoint(a, b) == _elements(a).isdisjoint(_elements(b))


def test_boxes_that_no_plane_parts() -> None:
    wheel: list[Box] = [
        *(((0, 0), (1, 2)), ((0, 2), (2, 1))),
        *(((2, 1), (1, 2)), ((1, 0), (2, 1)), ((1, 1), (1, 1))),
    ]
    assert all_disjoint(wheel)
    assert not all_disjoint([*wheel, ((1, 1), (1, 1))])


def test_scalars_share_their_element() -> None:
    assert all_disjoint([((), ())])
    assert not all_disjoint([((), ()), ((), ())])
