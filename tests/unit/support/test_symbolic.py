"""Symbolic integers: their canonical form, bounds, and what is known of them, against Python's own integers."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import product as product_of

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from glowpy.core.shape import is_same
from glowpy.support import symbolic
from glowpy.support.errors import UserError
from glowpy.support.questions import Question
from glowpy.support.symbolic import (
    UNBOUNDED,
    Dim,
    Expr,
    UndecidedError,
    UnequalError,
    at_extents,
    ceil_div,
    depends_on_symbols,
    greatest,
    highest,
    is_at_most,
    least,
    lowest,
    product,
    static,
    substituted,
    symbol,
    symbols_of,
)
from glowpy.support.text import Lexer

BOUNDS = {"a": (0, 7), "b": (1, 9), "c": (3, 5)}
SYMBOLS = {name: symbol(name, *bounds) for name, bounds in BOUNDS.items()}
SEQ, PAST, BATCH = symbol("seq", 1, 512), symbol("past", 0, 1024), symbol("batch", 1, 64)

Numbers = Mapping[str, int]
Pair = tuple[Dim, Callable[[Numbers], int]]
"""An expression, and what it is for some extents."""


def _leaf(name: str) -> Pair:
    return SYMBOLS[name], lambda numbers: numbers[name]


def _number(value: int) -> Pair:
    return value, lambda numbers: value


def _joined(operator: str, left: Pair, right: Pair) -> Pair:
    (a, x), (b, y) = left, right
    match operator:
        case "+":
            return a + b, lambda n: x(n) + y(n)
        case "-":
            return a - b, lambda n: x(n) - y(n)
        case "*":
            return a * b, lambda n: x(n) * y(n)
        case "min":
            return least(a, b), lambda n: min(x(n), y(n))
        case "max":
            return greatest(a, b), lambda n: max(x(n), y(n))
        case _:
            divisor = greatest(b, 1)
            if operator == "//":
                return a // divisor, lambda n: x(n) // max(y(n), 1)
            return a % divisor, lambda n: x(n) % max(y(n), 1)


_LEAVES = st.one_of(st.sampled_from(sorted(BOUNDS)).map(_leaf), st.integers(-4, 12).map(_number))
_EXPRESSIONS = st.recursive(
    _LEAVES,
    lambda inner: st.builds(
        _joined, st.sampled_from(["+", "-", "*", "//", "%", "min", "max"]), inner, inner
    ),
    max_leaves=5,
)
_EXTENTS = st.fixed_dictionaries({name: st.integers(*bounds) for name, bounds in BOUNDS.items()})


@settings(deadline=None)
@given(_EXPRESSIONS, _EXTENTS)
def test_an_expression_is_what_its_operands_give(pair: Pair, extents: Numbers) -> None:
    dim, value = pair
    number = value(extents)
    assert at_extents(dim, extents) == number
    assert lowest(dim) <= number <= highest(dim)


@settings(deadline=None)
@given(_EXPRESSIONS)
def test_text_reads_back_as_the_same_expression(pair: Pair) -> None:
    lexer = Lexer(str(pair[0]))
    lexer.symbols.update(SYMBOLS)
    assert lexer.dim() == pair[0]
    assert lexer.peek.kind == "end"


@settings(deadline=None)
@given(_EXPRESSIONS, _EXPRESSIONS, _EXTENTS)
def test_what_is_known_of_two_holds(left: Pair, right: Pair, extents: Numbers) -> None:
    a, b = left[1](extents), right[1](extents)
    try:
        assert (left[0] < right[0]) == (a < b)
        assert (left[0] >= right[0]) == (a >= b)
    except UndecidedError:
        assert not is_at_most(left[0] + 1, right[0])
    assert not is_at_most(left[0], right[0]) or a <= b
    assert left[0] != right[0] or a == b


@pytest.mark.parametrize(
    ("dim", "other"),
    [
        (2 * SEQ * ((SEQ + 1) // 2) - SEQ, SEQ * SEQ + SEQ),
        (SEQ * (PAST // 3), PAST * SEQ),
        (300 * SEQ // BATCH * BATCH, 300 * SEQ),
        (BATCH * least(SEQ, PAST), BATCH * SEQ),
        (greatest(5, SEQ) - SEQ + 2 * least(5, SEQ), 10),
        (greatest(5, SEQ) - SEQ + 2 * least(0, SEQ - 5), 0),
        (SEQ, greatest(5, SEQ) * BATCH),
    ],
    ids=str,
)
def test_one_is_known_to_be_at_most_another(dim: Dim, other: Dim) -> None:
    assert is_at_most(dim, other)
    assert not is_at_most(other + 1, dim)


@pytest.mark.parametrize(
    ("dim", "text"),
    [
        (SEQ + PAST, "past+seq"),
        ((SEQ + PAST) * SEQ - SEQ * SEQ, "past*seq"),
        (SEQ * 768 // (SEQ * 12), "64"),
        ((SEQ + 1) * (SEQ - 1), "seq*seq-1"),
        ((4 * SEQ + 6) // 2, "2*seq+3"),
        ((SEQ * PAST + SEQ) // (PAST + 1), "seq"),
        ((SEQ - 1) // 2 + 1, "div(seq+1,2)"),
        ((SEQ - 1) // 2 // 3, "div(seq+5,6)-1"),
        (ceil_div(SEQ, 4), "div(seq+3,4)"),
        (SEQ % 8 - SEQ, "-8*div(seq,8)"),
        (least(SEQ, 512), "seq"),
        (SEQ + greatest(0, 256 - SEQ), "max(256,seq)"),
        (greatest(greatest(SEQ - 5, PAST) + 2, 3), "max(3,past+2,seq-3)"),
        (76800 * SEQ // (256 * (PAST + 1)), "div(300*seq,past+1)"),
        ((SEQ * PAST + SEQ * BATCH) // (SEQ * 3), "div(batch+past,3)"),
        (least(SEQ, PAST + SEQ), "seq"),
        (greatest(SEQ, 4, PAST, 2), "max(4,past,seq)"),
        (least(least(SEQ, 9), PAST), "min(9,past,seq)"),
        (SEQ - SEQ, "0"),
        (5 - SEQ, "-seq+5"),
        (product([2, SEQ, 3]), "6*seq"),
    ],
)
def test_equal_expressions_have_one_form(dim: Dim, text: str) -> None:
    assert str(dim) == text


def test_bounds_follow_from_the_whole_expression() -> None:
    assert lowest(SEQ - least(SEQ, 128)) == 0
    assert lowest(PAST + SEQ - greatest(PAST + SEQ - 128, 0)) == 1
    assert (lowest(SEQ % 2), highest(SEQ % 2)) == (0, 1)
    several = symbol("n", 1, 8)
    assert lowest(several * SEQ - SEQ) == 0
    assert highest(symbol("n")) == UNBOUNDED


def test_what_bounds_leave_open_is_an_error_that_names_the_symbols() -> None:
    with pytest.raises(UndecidedError, match="not known whether seq < 128") as caught:
        bool(SEQ < 128)
    assert caught.value.symbols == ("seq",)
    assert "give 'seq' one extent" in str(caught.value)
    with pytest.raises(UndecidedError, match="whether 0 < past"):
        bool(PAST)
    with pytest.raises(UndecidedError, match="whether 0 < past"):
        SEQ // PAST
    assert bool(SEQ)
    assert SEQ < 513
    assert SEQ >= 1
    assert SEQ != 1


def test_constant_dimensions_are_told_from_symbolic_ones() -> None:
    assert static((2, 3)) == (2, 3)
    with pytest.raises(UndecidedError, match=r"expected constant extents, got \[2 x seq\]"):
        static((2, SEQ))
    assert depends_on_symbols((1, SEQ))
    assert not depends_on_symbols((1, 2.5))
    assert depends_on_symbols(SEQ)
    assert symbol("one", 4, 4) == 4
    assert isinstance(SEQ, Expr)


def test_symbols_are_found_and_replaced() -> None:
    dim = SEQ * PAST + ceil_div(SEQ, 3)
    assert set(symbols_of([dim])) == {"seq", "past"}
    assert substituted(dim, {"past": 2, "seq": PAST + 1}) == 2 * PAST + 2 + ceil_div(PAST + 1, 3)
    assert substituted(dim, {"seq": 6, "past": 5}) == 32
    assert UnequalError(SEQ, PAST).question == Question("equal", SEQ, PAST)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("n", "the symbol 'n' is not declared"),
        ("div(seq)", "bad arguments of 'div'"),
        ("div(seq,0)", "bad arguments of 'div'"),
        ("seq+", "expected a word, got 'end of text'"),
    ],
)
def test_bad_text_is_refused(text: str, message: str) -> None:
    lexer = Lexer(text)
    lexer.symbols["seq"] = SEQ
    with pytest.raises(UserError) as caught:
        lexer.dim()
    assert message in caught.value.diagnostics[0].message


@pytest.mark.parametrize(("low", "high"), [(-1, 16), (16, 0)])
def test_bounds_that_nothing_is_between_are_refused(low: int, high: int) -> None:
    with pytest.raises(UserError, match="symbol 'past': expected bounds 0 <= low <= high"):
        symbol("past", low, high)


def test_a_number_is_what_substitution_gives() -> None:
    a, b = symbol("a", 1, 9), symbol("b", 0, 9)
    for dim in (
        a,
        3,
        2 * a + 1,
        a * b - 4 * b,
        (a + 2 * b) // 3,
        least(a, 2 * b + 1),
        greatest(a, b) // a,
    ):
        for extents in ({"a": 1, "b": 0}, {"a": 9, "b": 9}, {"a": 4, "b": 7}):
            assert at_extents(dim, extents) == substituted(dim, extents)


def test_a_symbol_by_itself() -> None:
    a = symbol("a", 1, 9)
    assert isinstance(a, Expr)
    assert str(a.symbol) == "a"
    for dim in (a + 1, 2 * a, a * a, a // 2):
        assert isinstance(dim, Expr)
        assert dim.symbol is None


def test_common_factors_cancel() -> None:
    a, b, c = symbol("a", 1, 9), symbol("b", 1, 9), symbol("c", 0, 9)
    with pytest.raises(UnequalError, match=r"expected equal extents, got a and 3\*div\(a,3\)"):
        is_same(b * a, 3 * b * (a // 3))
    with pytest.raises(UnequalError, match=r"got a\*c and 2\*c"):
        is_same(c * a, 2 * c)


ONE, TWO, THREE = symbol("a", 0, 3), symbol("b", 0, 3), symbol("c", 0, 4)


@pytest.mark.parametrize(
    ("dividend", "divisor"),
    [
        (4 - ONE - THREE, greatest(3, THREE) * (4 - ONE)),
        (3 - symbol("n", 0, 64), 200 - 2 * symbol("n", 0, 64)),
        (2 - ONE, THREE + TWO - 3 * ONE + 10),
    ],
)
def test_quotients_that_begin_negative_either_way(dividend: Dim, divisor: Dim) -> None:
    quotient = dividend // divisor
    names = symbols_of([dividend, divisor])
    for a, b, c in product_of(range(4), range(4), range(5)):
        extents = {"a": a, "b": b, "c": c, "n": 16 * c}
        known = {name: extents[name] for name in names}
        expected = at_extents(dividend, known) // at_extents(divisor, known)
        assert at_extents(quotient, known) == expected


def test_one_minimum_is_known_to_be_at_most_another() -> None:
    size = symbol("size", 1, 30)
    part = ceil_div(size, 4)
    assert is_at_most(least(2 * part, size), least(3 * part, size))
    assert not is_at_most(least(3 * part, size), least(2 * part, size))


def test_bounds_of_nested_expressions_are_found_with_little_work(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A model may nest quotients and extremes as it likes, and all of them are part of many sums."""
    sums = 0
    count_sum = symbolic._sum_of_intervals

    def counted(dim: Expr) -> tuple[int, int]:
        nonlocal sums
        sums += 1
        return count_sum(dim)

    monkeypatch.setattr(symbolic, "_sum_of_intervals", counted)
    other = symbol("other", 1, 1000)
    dim = symbol("nested", 1, 1000)
    for _ in range(2):
        dim = dim // 3 + greatest((dim + other) // 5, other)
    low, high = lowest(dim), highest(dim)
    assert sums < 2000
    numbers = [
        at_extents(dim, {"nested": n, "other": m})
        for n, m in [(1, 1), (1000, 1), (1, 1000), (1000, 1000)]
    ]
    assert low <= min(numbers)
    assert max(numbers) <= high
