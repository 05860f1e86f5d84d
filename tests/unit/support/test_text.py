"""The lexer and the spellings of scalars."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from glowpy.support.text import Attr, Lexer, print_attr, print_attrs, print_float

attrs: st.SearchStrategy[Attr] = st.one_of(
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8", exclude_categories=("C", "Z")), max_size=8),
    st.tuples(st.integers(), st.integers()),
    st.tuples(st.floats(allow_nan=False), st.floats(allow_nan=False)),
)


@given(attrs)
def test_attributes_read_back_as_they_were(value: Attr) -> None:
    result = Lexer(print_attr(value)).attr()
    assert result == value
    assert type(result) is type(value)
    assert print_attr(result) == print_attr(value)


@pytest.mark.parametrize("text", ["\r\0\x85", '\\"\n', "\\n", "é²"])
def test_any_text_reads_back(text: str) -> None:
    assert Lexer(print_attr(text)).attr() == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (r'"\x"', r"expected one of the escapes \\, \" and \n, got \x"),
        ("9" * 5000, "expected an integer, got '9999"),
        ("٣", "unexpected character '٣'"),
        ("1.٣", "unexpected character '٣'"),
        ("[1,٣]", "unexpected character '٣'"),
    ],
)
def test_other_digits_and_escapes_are_refused(text: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        Lexer(text).attr()
    assert message in str(caught.value)


def test_nan_reads_back() -> None:
    result = Lexer(print_attr(math.nan)).attr()
    assert isinstance(result, float)
    assert math.isnan(result)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (1.0, "1.0"),
        (-0.0, "-0.0"),
        (1e300, "1e+300"),
        (math.inf, "inf"),
        (-math.inf, "-inf"),
        (math.nan, "nan"),
    ],
)
def test_floats_look_like_floats(value: float, text: str) -> None:
    assert print_float(value) == text


def test_attributes_are_printed_in_order_of_their_names() -> None:
    assert print_attrs({"b": (1, 2), "a": True, "c": "x"}) == ' {a=true, b=[1,2], c="x"}'
    assert print_attrs({}) == ""


def test_tokens_and_comments() -> None:
    lexer = Lexer("%a.b = @f(x1, -2..3) // the rest\n\t[1.5e-3]")
    kinds = []
    while lexer.peek.kind != "end":
        token = lexer.next()
        kinds.append((token.kind, token.text))
    assert kinds == [
        ("value", "%a.b"),
        ("punct", "="),
        ("symbol", "@f"),
        ("punct", "("),
        ("word", "x1"),
        ("punct", ","),
        ("number", "-2"),
        ("punct", ".."),
        ("number", "3"),
        ("punct", ")"),
        ("punct", "["),
        ("number", "1.5e-3"),
        ("punct", "]"),
    ]


def _read(text: str, what: str) -> None:
    lexer = Lexer(text, "net.glow")
    if what == "attrs":
        lexer.attrs()
    elif what == "integer":
        lexer.integer()
    else:
        lexer.expect(what)


def _error(text: str, what: str) -> UserError:
    with pytest.raises(UserError) as caught:
        _read(text, what)
    return caught.value


def test_errors_name_line_and_column_and_point_with_a_caret() -> None:
    error = _error("{a=1,\n  b=}", "attrs")
    (diagnostic,) = error.diagnostics
    assert diagnostic.loc == Loc("net.glow", 2, 5)
    assert diagnostic.context == "  b=}\n    ^"
    assert str(error) == "net.glow:2:5: expected '[', got '}'\n    b=}\n      ^"


@pytest.mark.parametrize(
    ("text", "read", "message"),
    [
        ("", "{", "expected '{', got 'end of text'"),
        ("1.5", "integer", "expected an integer, got '1.5'"),
        ("x", "integer", "expected a number, got 'x'"),
        ("{1=2}", "attrs", "expected a word, got '1'"),
        ("{a=1", "attrs", "expected '}', got 'end of text'"),
        ("?", "{", "unexpected character '?'"),
        ('{a="x', "attrs", "unexpected character '\"'"),
    ],
)
def test_syntax_errors_say_what_was_expected(text: str, read: str, message: str) -> None:
    assert _error(text, read).diagnostics[0].message == message
