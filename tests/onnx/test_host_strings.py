"""Strings in a session: moved, joined, split, matched, and read and written as numbers."""

from __future__ import annotations

from typing import Any

import hypothesis
import numpy as np
import onnx.parser
import pytest
from hypothesis import strategies as st
from onnx import TensorProto, helper

import glowpy
from glowpy.importer.onnx.host.model import OnnxHostedModel
from glowpy.importer.onnx.host.plan import OnnxSegment
from glowpy.importer.onnx.opening import open_onnx
from glowpy.support.errors import UserError
from tests.onnx.comparison import assert_same
from tests.onnx.host_models import (
    FLOAT,
    INT64,
    STRING,
    check,
    f32,
    model,
    one,
    run,
    tensor,
    texts,
)

WORDS = texts("", "b", "a", "Zürich", "ß", "日本", "a\0", "a b", "B", shape=(3, 3))


@pytest.mark.parametrize("backend", ["interpreter", "cpu"])
def test_strings_move_in_machine_code(backend: str) -> None:
    nodes = [
        helper.make_node("Transpose", ["x"], ["t"], perm=[1, 0]),
        helper.make_node("Concat", ["t", "more"], ["c"], axis=0),
        helper.make_node("Gather", ["c", "at"], ["g"], axis=0),
        helper.make_node("Pad", ["g", "pads"], ["p"]),
        helper.make_node("Equal", ["p", "word"], ["same"]),
        helper.make_node("Where", ["same", "other", "p"], ["y"]),
        helper.make_node("Unique", ["y"], ["words", "", "", "counts"], sorted=1),
    ]
    stored = {
        "more": texts("m", "n", "o", shape=(1, 3)),
        "at": np.array([3, -4, 0], np.int64),
        "pads": np.array([0, 1, 0, 0], np.int64),
        "word": texts("b", shape=()),
        "other": texts("found", shape=()),
    }
    outputs = [tensor("y", STRING), tensor("words", STRING), tensor("counts", INT64)]
    proto = model(nodes, [tensor("x", STRING, [3, 3])], outputs, stored)
    opened = open_onnx(proto)
    assert isinstance(opened, OnnxHostedModel)
    assert [type(step) for step in opened.plan.steps] == [OnnxSegment]
    moved = np.concatenate([WORDS.T, stored["more"]])[[3, 0, 0]]
    padded = np.concatenate([np.full((3, 1), "", object), moved], 1)
    expected = np.where(padded == "b", "found", padded).astype(object)
    y, words, counts = run(proto, backend, x=WORDS)
    assert_same(y, expected)
    assert_same(words, texts(*sorted(set(expected.flat))))
    assert counts.tolist() == [list(expected.flat).count(word) for word in words]


@hypothesis.settings(max_examples=25, deadline=None)
@hypothesis.given(
    st.lists(
        st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=6), max_size=5
    ),
    st.text(max_size=3),
)
def test_concat_and_split_of_any_text(items: list[str], delimiter: str) -> None:
    array = texts(*items).reshape(-1)
    (joined,) = run(one("StringConcat", array, texts("-")), x0=array, x1=texts("-"))
    assert joined.tolist() == [f"{item}-" for item in items]
    nodes = [helper.make_node("StringSplit", ["x"], ["y", "n"], delimiter=delimiter, maxsplit=2)]
    proto = model(nodes, [tensor("x", STRING, [None])], [tensor("y", STRING), tensor("n", INT64)])
    parts, counts = run(proto, x=array)
    rows = [item.split(delimiter or None, 2) for item in items]
    assert counts.tolist() == [len(row) for row in rows]
    assert parts.shape == (len(items), max(map(len, rows), default=0))
    assert [row[:n] for row, n in zip(parts.tolist(), counts, strict=True)] == rows
    assert not any(text for row, n in zip(parts.tolist(), counts, strict=True) for text in row[n:])


@pytest.mark.parametrize("action", ["NONE", "LOWER", "UPPER"])
@pytest.mark.parametrize("sensitive", [0, 1])
def test_string_normalizer(action: str, sensitive: int) -> None:
    array = texts("Monday", "tuesday", "monday", "", "WEDNESDAY")
    attributes: Any = {"case_change_action": action, "is_case_sensitive": sensitive, "locale": "C"}
    for stops in (["monday"], ["Monday", "tuesday"]):
        check(one("StringNormalizer", array, stopwords=stops, **attributes), array)
    row = array.reshape(1, -1)
    check(one("StringNormalizer", row, stopwords=["tuesday"], **attributes), row)
    gone = texts("monday")
    check(one("StringNormalizer", gone, stopwords=["monday"], **attributes), gone)


@pytest.mark.parametrize(
    "pattern", [r"a.*", r"\w+", r"(?i)ZÜRICH", r"\p{L}*", r"[[:alpha:]]*", r"a$", r"\d\z", ""]
)
def test_regex_is_that_of_re2(pattern: str) -> None:
    array = texts("a", "abc", "a\n", "zürich", "", "5", "٣", "a_1")
    check(one("RegexFullMatch", array, out=TensorProto.BOOL, pattern=pattern), array)


def test_regex_needs_linear_time() -> None:
    array = texts("a" * 40 + "!")
    (y,) = run(one("RegexFullMatch", array, out=TensorProto.BOOL, pattern="(a*)*b"), x0=array)
    assert y.tolist() == [False]


def test_regex_that_is_wrong() -> None:
    proto = one("RegexFullMatch", texts("a"), out=TensorProto.BOOL, pattern=r"(a)\1")
    with pytest.raises(glowpy.UserError, match=r"node 'node' \(#0\): RegexFullMatch: pattern"):
        glowpy.InferenceSession(proto)


NUMBERS = [1, 0.1, 1 / 3, 1e20, 1e-7, np.nan, np.inf, -np.inf, -0.0, 1e16, 100000, 1234567]


@pytest.mark.parametrize("dtype", [np.float32, np.int8, np.uint64, np.bool_])
def test_numbers_as_strings(dtype: Any) -> None:
    with np.errstate(all="ignore"):
        array = np.array(NUMBERS if dtype is np.float32 else [0, 1, 100], dtype)
    check(one("Cast", array, to=STRING), array)


def test_numbers_as_strings_read_back() -> None:
    array = np.array([16777217, 123456789, 1 / 3, np.pi, 5e-324, 1e308])
    spelled = texts(
        "16777217",
        "123456789",
        "0.3333333333333333",
        "3.141592653589793",
        "4.9406565e-324",
        "1e+308",
    )
    assert_same(run(one("Cast", array, to=STRING), x0=array)[0], spelled)
    proto = one("Cast", spelled, to=TensorProto.DOUBLE, out=TensorProto.DOUBLE)
    assert_same(run(proto, x0=spelled)[0], array, rtol=0, atol=0)


@pytest.mark.parametrize(
    "to", [FLOAT, TensorProto.FLOAT16, INT64, TensorProto.UINT8, TensorProto.BOOL]
)
def test_strings_as_numbers(to: int) -> None:
    array = texts("1", " 2 ", "1.5", "100", "+3")
    check(one("Cast", array, to=to, out=to), array)
    if to == FLOAT:
        special = texts("NaN", "nan", "INF", "+inf", "-INF", "1E8", "1e-5")
        check(one("Cast", special, to=to, out=to), special)


@pytest.mark.parametrize(
    ("text", "to"),
    [
        ("x", FLOAT),
        ("1_0", FLOAT),
        ("", INT64),
        ("300", TensorProto.UINT8),
        ("inf", INT64),
        ("+-5", INT64),
        ("--5", INT64),
    ],
)
def test_strings_that_are_no_numbers(text: str, to: int) -> None:
    with pytest.raises(glowpy.UserError, match=r"node 'node' \(#0\): Cast: expected"):
        run(one("Cast", texts(text), to=to, out=to), x0=texts(text))


def test_cast_like_strings() -> None:
    number, text = np.array([1.5, -2], np.float32), texts("7")
    assert run(one("CastLike", number, text), x0=number, x1=text)[0].tolist() == ["1.5", "-2"]
    got = run(one("CastLike", text, number, out=FLOAT), x0=text, x1=number)[0]
    assert_same(got, np.array([7], np.float32))


@pytest.mark.parametrize("given", [np.array(["ä", "b"]), np.array([b"\xc3\xa4", b"b"]), ["ä", "b"]])
def test_strings_come_in_several_forms(given: Any) -> None:
    proto = one("Identity", texts("a", "b"))
    assert_same(run(proto, x0=given)[0], texts("ä", "b"))


@pytest.mark.parametrize(
    "given",
    [
        np.array(["a", "b"]),
        np.array(["a", "b"], np.dtypes.StringDType()),
        texts("a", "b"),
        texts(np.str_("a"), "b"),
        texts(b"a", "b"),
        texts("b", "a")[::-1],
    ],
)
def test_plain_strings_are_text_of_the_callers(given: Any) -> None:
    """Whatever they were, results are `str` objects, in an array of their own."""
    (result,) = run(one("Identity", texts("a", "b")), x0=given)
    assert_same(result, texts("a", "b"))
    assert [type(item) for item in result] == [str, str]
    assert not np.shares_memory(result, given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        (f32([1, 2]), "'x0': expected an array of strings, got float32"),
        (texts("a", 1), "'x0': expected strings, got int"),
        (texts("a", None), "'x0': expected strings, got None"),
        (np.array([b"\xff", b""]), "'x0': expected strings in UTF-8"),
        (texts("a"), r"'x0': expected the shape \[2\], got \[1\]"),
    ],
)
def test_what_is_no_string(given: Any, message: str) -> None:
    nodes = [helper.make_node("Identity", ["x0"], ["y"])]
    proto = model(nodes, [tensor("x0", STRING, [2])], [tensor("y", STRING)])
    with pytest.raises(glowpy.UserError, match=message):
        run(proto, x0=given)


@pytest.mark.parametrize("operator", ["Add", "Max", "MatMul", "BitwiseAnd"])
def test_strings_are_not_computed_with(operator: str) -> None:
    """Numbers stand for strings in machine code, and ONNX allows no arithmetic with these."""
    nodes = [helper.make_node(operator, ["x", "x"], ["y"], name="node")]
    proto = model(nodes, [tensor("x", STRING, [2])], [tensor("y", STRING)])
    with pytest.raises(glowpy.UserError, match=rf"'node' .*{operator} \(opset 21\) of strings"):
        glowpy.InferenceSession(proto)


COLUMNS = """agraph (string[N, 3] x)
  => (int64[N, 1] a, string[N, 1] b, int64[N, 2] c, string[N] d, string[N, 2] e, int64[N, 3] f) {
  one = Constant<value_ints = [1]>() last = Constant<value_ints = [-1]>() two = Constant<value_ints = [2, 0]>()
  scalar = Constant<value = int64 {-2}>()
  x1 = Gather<axis = 1>(x, one) a = ai.onnx.ml.LabelEncoder<keys_strings = ["p", "q"], values_int64s = [7, 8],
    default_int64 = -5>(x1)
  b = ai.onnx.ml.ArrayFeatureExtractor(x, last)
  x2 = ai.onnx.ml.ArrayFeatureExtractor(x, two)
  c = ai.onnx.ml.CategoryMapper<cats_strings = ["q", "r"], cats_int64s = [3, 4]>(x2)
  d = Gather<axis = -1>(x, scalar) x3 = Gather<axis = -1>(x, two) e = Identity(x3)
  f = ai.onnx.ml.LabelEncoder<keys_strings = ["p", "q"], values_int64s = [0, 1]>(x) }"""


@pytest.mark.parametrize("backend", ["cpu", "interpreter"])
def test_columns_of_strings(backend: str) -> None:
    """What only the session reads is taken by it, without machine code, whatever the strings are kept as."""
    head = '<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> '
    model = onnx.parser.parse_model(head + COLUMNS)
    session = glowpy.InferenceSession(model, backend=backend)
    rows = [["p", "q", "r"], ["q", "äöü", "p"], ["z", "p", "q"]]
    for given in (np.array(rows), np.array(rows, object), np.array(rows, object)[::-1]):
        plain = given.astype(object)
        a, b, c, d, e, f = session.run(None, {"x": given})
        ids = {"p": 7, "q": 8}
        assert a.tolist() == [[ids.get(text, -5)] for text in plain[:, 1]]
        assert b.tolist() == plain[:, 2:].tolist()
        assert c.tolist() == [
            [{"q": 3, "r": 4}.get(text, -1) for text in row] for row in plain[:, [2, 0]]
        ]
        assert d.tolist() == plain[:, 1].tolist()
        assert e.tolist() == plain[:, [2, 0]].tolist()
        assert f.tolist() == [[{"p": 0, "q": 1}.get(text, -1) for text in row] for row in plain]
    for wrong in (np.array([["p", "q", 3]], object), np.array([["p", None, "q"]], object)):
        with pytest.raises(UserError, match="expected strings"):
            session.run(None, {"x": wrong})


@pytest.mark.parametrize("first", [0, 1])
def test_labels_of_numbers_in_a_row(first: int) -> None:
    """Keys from 0 on are places in a table; others, and what has no key, are looked up."""
    words = '["a", "b", "c"]'
    keys = [first, first + 1, first + 2]
    text = f"""<ir_version: 8, opset_import: ["": 17, "ai.onnx.ml": 3]> agraph (int64[N] x) => (string[N] y) {{
      y = ai.onnx.ml.LabelEncoder<keys_int64s = {keys}, values_strings = {words}, default_string = "none">(x) }}"""
    session = glowpy.InferenceSession(onnx.parser.parse_model(text))
    numbers = [2, 0, 1, 3, -1, (1 << 63) - 1, -(1 << 63)]
    known = dict(zip(keys, "abc", strict=True))
    (y,) = session.run(None, {"x": np.array(numbers)})
    assert y.tolist() == [known.get(number, "none") for number in numbers]


def test_what_cannot_be_computed_of_a_branch_is_an_error_of_runs_that_take_it() -> None:
    text = """<ir_version: 8, opset_import: ["": 17]>
net (bool c, string[N] s) => (string[N] y) {
  y = If (c) <
    then_branch = a () => (string[N] p) { p = Identity (s) },
    else_branch = b () => (string[N] q) { q = StringConcat (s, s) }
  >
}"""
    session = glowpy.InferenceSession(onnx.parser.parse_model(text), backend="interpreter")
    feed = {"c": np.array(True), "s": texts("a", "b")}
    assert_same(session.run(None, feed)[0], feed["s"])
    with pytest.raises(UserError, match=r"else_branch/q.*: StringConcat \(opset 17\)"):
        session.run(None, feed | {"c": np.array(False)})
