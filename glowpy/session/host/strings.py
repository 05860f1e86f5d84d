"""Operators on strings that do more than to move or compare them."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.elements import kind_named
from glowpy.importer.value_types import STRING
from glowpy.session.host.node import HostNode, on_host
from glowpy.support.errors import UnsupportedError, UserError

__all__: list[str] = []

_LEAST_DIGITS = 8
"""How many digits numbers are rounded to, as in onnxruntime, unless more are needed to read them back."""


def _objects(shape: tuple[int, ...], items: list[str]) -> Array:
    result = np.empty(len(items), object)
    result[:] = items
    return result.reshape(shape)


@on_host("StringConcat")
def _concat(n: HostNode) -> Callable[..., Array]:
    def compute(lhs: Array, rhs: Array) -> Array:
        try:
            left, right = np.broadcast_arrays(lhs, rhs)
        except ValueError:
            raise UserError(
                f"expected shapes that broadcast, got {list(lhs.shape)} and {list(rhs.shape)}"
            ) from None
        pairs = zip(left.flat, right.flat, strict=True)
        return _objects(left.shape, [first + second for first, second in pairs])

    return compute


@on_host("StringSplit")
def _split(n: HostNode) -> Callable[..., tuple[Array, Array]]:
    """Without a delimiter at whitespace, as Python's `str.split` does; short rows end with empty strings."""
    delimiter = n.text("delimiter", "") or None
    most = n.integer("maxsplit", -1)

    def compute(input: Array) -> tuple[Array, Array]:
        rows = [text.split(delimiter, most) for text in input.flat]
        width = max(map(len, rows), default=0)
        padded = [item for row in rows for item in (*row, *[""] * (width - len(row)))]
        counts = np.array([len(row) for row in rows], np.int64).reshape(input.shape)
        return _objects((*input.shape, width), padded), counts

    return compute


@on_host("StringNormalizer")
def _normalize(n: HostNode) -> Callable[[Array], Array]:
    """Words that are to go are whole elements. Cases are Unicode's, whatever `locale` says."""
    cases: dict[str, Callable[[str], str]] = {"NONE": str, "LOWER": str.lower, "UPPER": str.upper}
    action = n.text("case_change_action", "NONE")
    if action not in cases:
        raise UserError(f"case_change_action: expected one of {', '.join(cases)}, got '{action}'")
    case = cases[action]
    compared = str if n.flag("is_case_sensitive") else str.casefold
    stops = {compared(word) for word in n.texts("stopwords")}

    def compute(input: Array) -> Array:
        if input.ndim not in (1, 2) or (input.ndim == 2 and input.shape[0] != 1):
            raise UserError(f"expected strings[C] or strings[1xC], got {list(input.shape)}")
        texts = [case(text) for text in input.flat if compared(text) not in stops] or [""]
        return _objects((*input.shape[:-1], len(texts)), texts)

    return compute


@on_host("RegexFullMatch")
def _matches(n: HostNode) -> Callable[[Array], Array]:
    """By RE2 itself, whose time is linear in the text whatever the pattern is."""
    compiled = _compiled(n.text("pattern", ""))

    def compute(input: Array) -> Array:
        matches = [compiled.fullmatch(text) is not None for text in input.flat]
        return np.array(matches, np.bool_).reshape(input.shape)

    return compute


def _compiled(pattern: str) -> Any:
    """A regular expression. Raises UserError if it is none, UnsupportedError if RE2 is not there."""
    try:
        import re2  # noqa: PLC0415
    except ImportError:
        raise UnsupportedError(
            "regular expressions need the package google-re2", note="pip install 'glowpy[strings]'"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(pattern, options)
    except re2.error as error:
        reason = error.args[0]
        text = reason.decode("utf-8", "replace") if isinstance(reason, bytes) else str(reason)
        raise UserError(f"pattern '{pattern}': {text}") from None


@on_host("Tokenizer")
def _tokenizer(n: HostNode) -> Callable[[Array], Array]:
    """Words of each text, as onnxruntime finds them; marked rows are between two control characters."""
    words = _words(n)
    least, pad = n.integer("mincharnum", 1), n.text("pad_value", "")
    first, last = (["\2"], ["\3"]) if n.flag("mark") else ([], [])

    def compute(input: Array) -> Array:
        if input.ndim not in (1, 2):
            raise UserError(f"expected strings[C] or strings[NxC], got {list(input.shape)}")
        rows = [[word for word in words(text) if len(word) >= least] for text in input.flat]
        if not any(rows):
            return _objects((*input.shape, 0), [])
        rows = [[*first, *row, *last] for row in rows]
        width = max(map(len, rows))
        padded = [item for row in rows for item in (*row, *[pad] * (width - len(row)))]
        return _objects((*input.shape, width), padded)

    return compute


def _words(n: HostNode) -> Callable[[str], list[str]]:
    """Returns a function that splits text at separators (an empty one: into characters) or finds an expression."""
    separators, expression = n.texts("separators"), n.text("tokenexp", "")
    if bool(separators) == bool(expression):
        raise UserError("expected either separators or tokenexp")
    if expression:
        matched = _compiled(expression)
        return lambda text: [match.group() for match in matched.finditer(text) if match.group()]
    if separators == ("",):
        return list
    patterns = [_compiled(separator) for separator in separators]

    def split(text: str) -> list[str]:
        pieces = [text]
        for pattern in patterns:
            pieces = [piece for longer in pieces for piece in _between(pattern, longer)]
        return [piece for piece in pieces if piece]

    return split


def _between(pattern: Any, text: str) -> list[str]:
    """Splits a text at matches; an empty match does not split it."""
    pieces, start = [], 0
    for match in pattern.finditer(text):
        if match.end() > match.start():
            pieces.append(text[start : match.start()])
            start = match.end()
    return [*pieces, text[start:]]


@on_host("Cast")
def _cast(n: HostNode) -> Callable[[Array], Array]:
    return _converter(n.text("to", ""))


@on_host("CastLike")
def _cast_like(n: HostNode) -> Callable[[Array, Array], Array]:
    def compute(input: Array, like: Array) -> Array:
        if like.dtype == object:
            return _converter(STRING)(input)
        return _numbers(input, ElemKind.of(like.dtype))

    return compute


def _converter(to: str) -> Callable[[Array], Array]:
    if to == STRING:
        return lambda input: (
            input
            if input.dtype == object
            else _objects(input.shape, [_spelled(item) for item in _wide(input).flat])
        )
    kind = kind_named(to)
    return lambda input: _numbers(input, kind)


def _wide(array: Array) -> Array:
    """Numbers of a type that Python spells: halves and codes are spelled as the f32 that they are."""
    if array.dtype.kind in "biu" or array.dtype in (np.float32, np.float64):
        return array
    return array.astype(np.float32)


def _spelled(number: np.generic) -> str:
    """As C's `%g` with as many digits as it takes to read the same number back; `NaN`, `INF`, `-INF`."""
    if not isinstance(number, np.floating):
        return str(int(number))
    value = float(number)
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "INF" if value > 0 else "-INF"
    mantissa = np.format_float_scientific(number, unique=True).partition("e")[0]
    digits = sum(map(str.isdigit, mantissa))
    return f"{value:.{max(digits, _LEAST_DIGITS)}g}"


def _numbers(array: Array, kind: ElemKind) -> Array:
    """The numbers that strings spell. Raises UserError for other strings, and integers that the kind does not have."""
    read = _real if kind.has_fractions else _whole
    items = [read(text) for text in array.flat]
    if kind is ElemKind.BOOL:
        return np.array([item != 0 for item in items], np.bool_).reshape(array.shape)
    if kind.has_fractions:
        with np.errstate(over="ignore"):
            return np.array(items, np.float64).astype(kind.dtype).reshape(array.shape)
    limits = np.iinfo(kind.dtype)  # type: ignore[type-var]
    for item in items:
        if not limits.min <= item <= limits.max:
            raise UserError(f"expected a number from {limits.min} to {limits.max}, got {item}")
    return np.array(items, kind.dtype).reshape(array.shape)


def _real(text: str) -> float:
    try:
        if "_" not in text:
            return float(text)
    except ValueError:
        pass
    raise UserError(f"expected strings that are numbers, got '{text[:40]}'")


def _whole(text: str) -> int:
    """Fractions are left out."""
    digits = text.strip()
    digits = digits[1:] if digits.startswith(("+", "-")) else digits
    if digits.isascii() and digits.isdigit() and len(digits) < 100:
        return int(text)
    number = _real(text)
    if not math.isfinite(number):
        raise UserError(f"expected strings that are integers, got '{text[:40]}'")
    return int(number)
