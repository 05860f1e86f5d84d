"""What --shape says."""

from __future__ import annotations

from glowpy.core.elemkind import ElemKind
from glowpy.importer.declared import ValueInfo
from glowpy.importer.shape_text import parse_shapes

INFOS = [
    ValueInfo("x", ElemKind.F32, [2, 3]),
    ValueInfo("y", ElemKind.F32, ["all", "past", "rows", "seq", "two"]),
]


def test_dimensions_are_computed_of_others_in_any_order() -> None:
    texts = ["all=past + seq", "past=0..9", "x=2x3", "rows=4*k-1", "k=1..8", "seq=1", "two=2+seq"]
    shapes, dims = parse_shapes(texts, INFOS)
    assert shapes == {"x": (2, 3)}
    assert {name: str(dim) for name, dim in dims.items()} == {
        "past": "past",
        "seq": "1",
        "all": "past+1",
        "rows": "4*k-1",
        "two": "3",
    }


def test_an_open_dimension_of_an_input_is_none_that_is_called_so() -> None:
    shapes, dims = parse_shapes(["x=1..8x4", "x_0=1..4"], INFOS)
    assert [str(dim) for dim in shapes["x"]] == ["x_0_", "4"]
    assert str(dims["x_0"]) == "x_0"


def test_dimensions_are_computed_of_what_is_none_of_the_model() -> None:
    texts = ["past=2*k", "rows=n", "n=3..4", "k=4", "other=1"]
    _, dims = parse_shapes(texts, INFOS)
    assert {name: str(dim) for name, dim in dims.items()} == {
        "other": "1",
        "past": "8",
        "rows": "n",
    }
