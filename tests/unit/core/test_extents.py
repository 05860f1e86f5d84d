"""Extents: what symbols are in one run."""

from __future__ import annotations

import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import (
    PlainShapes,
    check_bounds,
    check_known,
    extents_of,
    reach,
    sampled,
    symbols_of_types,
    type_at,
)
from glowpy.core.shape import broadcast_shapes, is_same
from glowpy.core.type import Shape, Type, parse_type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import UndecidedError, UnequalError, least, symbol, symbols_of

SEQ, PAST, BATCH = symbol("seq", 1, 64), symbol("past", 0, 100), symbol("batch", 1, 4)


def test_plain_shapes_say_what_symbols_are_or_do_not_fit() -> None:
    plain = PlainShapes([(2, SEQ), (BATCH, SEQ)])
    assert plain.is_plain
    assert plain.extents([(2, 7), (3, 7)]) == {"seq": 7, "batch": 3}
    for shapes in ([(2, 7), (3, 8)], [(3, 7), (3, 7)], [(2, 65), (3, 65)], [(2, 7), (7,)]):
        assert plain.extents(shapes) is None
    assert not PlainShapes([(2, PAST + SEQ)]).is_plain
    assert PlainShapes([()]).extents([()]) == {}


@pytest.mark.parametrize(
    ("shapes", "extents"),
    [
        ({"x": ((2, SEQ), (2, 7))}, {"seq": 7}),
        ({"m": ((PAST + SEQ,), (9,)), "x": ((SEQ,), (4,))}, {"past": 5, "seq": 4}),
        ({"x": ((2 * SEQ + 1,), (11,))}, {"seq": 5}),
        ({"x": ((BATCH, BATCH * SEQ), (2, 6)), "y": ((SEQ,), (3,))}, {"batch": 2, "seq": 3}),
        ({"x": ((3, 4), (3, 4))}, {}),
    ],
)
def test_shapes_say_what_symbols_are(
    shapes: dict[str, tuple[Shape, tuple[int, ...]]], extents: dict[str, int]
) -> None:
    assert extents_of(shapes) == extents


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        ({"x": ((2, SEQ), (3, 7))}, r"'x': expected the shape \[2 x seq\], got \[3 x 7\]"),
        ({"x": ((SEQ,), (7, 1))}, r"'x': expected the shape \[seq\], got \[7 x 1\]"),
        ({"x": ((SEQ,), (7,)), "y": ((SEQ,), (8,))}, r"'y': expected the shape \[seq\], got \[8\]"),
        ({"x": ((SEQ,), (65,))}, r"expected 'seq' in 1\.\.64, got 65"),
        ({"x": ((SEQ,), (0,))}, r"expected 'seq' in 1\.\.64, got 0"),
        ({"x": ((symbol("n"),), (0,))}, r"expected 'n' in 1\.\., got 0"),
        ({"x": ((2 * SEQ,), (7,))}, r"no input's shape says what 'seq' is"),
        ({"x": ((SEQ * PAST,), (6,))}, r"no input's shape says what '(seq|past)' is"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    shapes: dict[str, tuple[Shape, tuple[int, ...]]], message: str
) -> None:
    with pytest.raises(UserError, match=message):
        extents_of(shapes)


def test_what_the_others_say_is_in_the_note() -> None:
    with pytest.raises(UserError) as caught:
        extents_of({"x": ((SEQ,), (7,)), "y": ((SEQ, 2), (8, 2))})
    assert caught.value.diagnostics[0].note == "other dimensions say that seq = 7"


def test_types_with_symbols() -> None:
    type = parse_type("f32[2 x seq+1 x 3]", {"seq": SEQ})
    assert str(type) == "f32[2 x seq+1 x 3]"
    assert type.room == 2 * 65 * 3 * 4
    assert type.likely == (2, 65, 3)
    assert not type.is_static
    assert type_at(type, {"seq": 5}) == Type(ElemKind.F32, (2, 6, 3))
    assert list(symbols_of_types([type])) == ["seq"]
    with pytest.raises(UndecidedError, match="expected constant extents"):
        _ = type.extents
    with pytest.raises(UndecidedError, match="expected dimensions of at least 0"):
        Type(ElemKind.F32, (SEQ - 2,))
    with pytest.raises(UserError, match="expected dimensions of at least 0"):
        Type(ElemKind.F32, (-SEQ,))


def test_samples_reach_all_corners() -> None:
    assert list(sampled({})) == [{}]
    samples = list(sampled(symbols_of([SEQ, PAST])))
    assert {"seq": 64, "past": 100} in samples
    assert {"seq": 1, "past": 0} in samples
    assert {"seq": 1, "past": 100} in samples
    assert len(samples) == 5


def test_symbolic_extents_broadcast() -> None:
    assert broadcast_shapes((SEQ, 1), (1, 4)) == (SEQ, 4)
    assert broadcast_shapes((SEQ,), (3, SEQ)) == (3, SEQ)
    assert is_same(SEQ + 1, 1 + SEQ)
    assert not is_same(SEQ, PAST + SEQ + 1)
    with pytest.raises(UnequalError, match="expected equal extents") as caught:
        broadcast_shapes((SEQ,), (PAST,))
    question = caught.value.question
    assert question is not None
    assert {question.left, question.right} == {SEQ, PAST}
    with pytest.raises(UserError, match="expected shapes that broadcast"):
        broadcast_shapes((SEQ,), (65,))


def test_a_symbol_may_say_which_extent_is_likely() -> None:
    type = parse_type("f32[n x 2]", {"n": symbol("n", 1, 64, likely=10)})
    assert (type.likely, type.room) == ((10, 2), 64 * 2 * 4)


def test_a_symbol_has_one_range() -> None:
    shape, other = (SEQ, PAST), (PAST, symbol("seq", 1, 8))
    check_bounds([Type(ElemKind.F32, shape), Type(ElemKind.I8, (symbol("seq", 1, 64, 5),))])
    with pytest.raises(UserError, match=r"one range for 'seq', got 1\.\.64 and 1\.\.8"):
        check_bounds([Type(ElemKind.F32, shape), Type(ElemKind.F32, other)])


def test_every_symbol_has_to_be_said_by_an_input() -> None:
    m, n = symbol("m", 1, 9), symbol("n", 0, 9)
    symbols = symbols_of([m, n])
    check_known(symbols, {"x": (m, m + n)})
    check_known(symbols, {"x": (2 * m + 1, 3), "y": (n * m,)})
    for shapes in ({"x": (m + n,)}, {"x": (m * m, n)}, {"x": (m,)}, {}):
        with pytest.raises(UserError, match=r"no input's shape says what '[mn]' is"):
            check_known(symbols, shapes)


def test_how_large_anything_becomes_on_the_way() -> None:
    n, m = symbol("n", 0, 10), symbol("m", 2, 5)
    dims = {7: 7, -7: 7, n: 10, 60 - 3 * n: 90, n * m: 50, 769 * n // 1024: 7690, 9 - n // 4: 11}
    dims |= {least(6 * n // 7, 3): 60, 5 * (n // 3 * m): 75}
    assert {dim: reach(dim) for dim in dims} == dims
