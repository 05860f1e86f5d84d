"""The page of supported operators is that of this tree."""

import pytest

from glowpy.core.elemkind import ElemKind
from tools import operators


@pytest.mark.slow
def test_the_page_is_up_to_date() -> None:
    if not operators.is_of_this_onnx():
        pytest.skip("docs/reference/onnx.md was written with another version of onnx")
    assert operators.PAGE.read_text("utf-8") == operators.render(), (
        "python tools/operators.py writes docs/reference/onnx.md"
    )


@pytest.mark.parametrize(
    ("opsets", "text"),
    [([7, 8, 9], "7-"), ([1], "1"), ([1, 2, 5, 9], "1-2, 5, 9-"), ([3, 4], "3-4"), ([], "")],
)
def test_ranges_of_opsets(opsets: list[int], text: str) -> None:
    assert operators.opset_ranges(opsets, newest=9) == text


def test_kinds_have_short_names() -> None:
    assert operators.short(list(ElemKind)).startswith("ints floats ")
    assert operators.short([ElemKind.F32, ElemKind.I8]) == "f32 i8"
    assert operators.short([]) == "-"
