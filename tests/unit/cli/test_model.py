"""What --shape says."""

from __future__ import annotations

from glowpy.cli.model import parse_shapes


def test_dimensions_are_computed_of_others_in_any_order() -> None:
    texts = ["all=past + seq", "past=0..9", "x=2x3", "rows=4*k-1", "k=1..8", "seq=1", "two=2+seq"]
    shapes, dims = parse_shapes(texts, {"x"})
    assert shapes == {"x": (2, 3)}
    assert {name: str(dim) for name, dim in dims.items()} == {
        "past": "past",
        "k": "k",
        "seq": "1",
        "all": "past+1",
        "rows": "4*k-1",
        "two": "3",
    }
