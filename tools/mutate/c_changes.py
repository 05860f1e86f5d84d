"""Changes of a C source: a small list of textual operators.

They stand for the slips of a kernel's author: a bound off by one, a comparison that takes its limit in, a stride
added instead of multiplied, an accumulator that begins at another value. Spaces tell a binary operator from a sign or
a pointer.
"""

from __future__ import annotations

import re
from functools import partial

from tools.mutate.mutant import Change

__all__ = ["c_changes"]

_SWAPS = {
    "<": ("<=",),
    "<=": ("<",),
    ">": (">=",),
    ">=": (">",),
    "==": ("!=",),
    "!=": ("==",),
    "+": ("-",),
    "-": ("+",),
    "*": ("+",),
    "/": ("*",),
    "%": ("/",),
    "&&": ("||",),
    "||": ("&&",),
    "+=": ("-=", "="),
    "-=": ("+=",),
}

_CHANGEABLE = re.compile(
    r"(?<= )(?:[<>=!]=|[-+]=|&&|\|\||[-<>+*/%])(?= )"  # an operator
    r"|(?<![\w.])(?:\d+|[01]\.0f?)(?![\w.])"  # an integer, or the start of a sum or product
)
_HIDDEN = re.compile(
    r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|^[ \t]*#[ \t]*include[^\n]*', re.DOTALL | re.MULTILINE
)


def c_changes(source: str) -> list[list[Change]]:
    """The changes of a source, one list for each piece of text that can be changed."""
    code = _HIDDEN.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), source)
    places = [(match, _texts(match[0])) for match in _CHANGEABLE.finditer(code)]
    return [[_change(source, match, text) for text in texts] for match, texts in places]


def _texts(token: str) -> tuple[str, ...]:
    """The texts that may stand in a token's place."""
    if token in _SWAPS:
        return _SWAPS[token]
    number, point, rest = token.partition(".")
    if point:
        return (f"{int(number) + 1}.{rest}",)
    value = int(number)
    return (str(value + 1), str(value - 1)) if value else ("1",)


def _change(source: str, match: re.Match[str], text: str) -> Change:
    line = source.count("\n", 0, match.start()) + 1
    parts = (source[: match.start()], text, source[match.end() :])
    return Change(line, f"{match[0]} to {text}", partial("".join, parts))
