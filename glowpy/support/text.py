"""The lexer and the scalar spellings that every text form (types, graph, IR, memory plan) shares.

Tokens: `%name`, `@name`, identifiers, numbers, quoted strings, and the punctuation `( ) [ ] { } , :
    = < > + - * ..`. `//` starts a comment that ends with the line. Nothing depends on line breaks.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from glowpy.support.errors import UserError
from glowpy.support.loc import Loc
from glowpy.support.symbolic import UNBOUNDED, Dim, Expr, Symbol, greatest, least, symbol

__all__ = [
    "Attr",
    "Lexer",
    "Token",
    "parse_dim",
    "print_attr",
    "print_attrs",
    "print_float",
    "print_symbol",
    "symbol_name",
]

Attr = bool | Dim | float | str | tuple[Dim, ...] | tuple[float, ...]
"""Types of the attributes of nodes and instructions."""

_TOKEN = re.compile(
    r"(?P<space>[ \t\r\n]+|//[^\n]*)"
    r"|(?P<value>%[A-Za-z0-9_.]+)"
    r"|(?P<symbol>@[A-Za-z0-9_.]+)"
    r"|(?P<number>-?(?:\d+\.(?!\.)\d*(?:e[+-]?\d+)?|\d+(?:e[+-]?\d+)?|inf\b|nan\b))"
    r"|(?P<word>[A-Za-z_][A-Za-z0-9_]*)"
    r'|(?P<string>"(?:[^"\\\n]|\\.)*")'
    r"|(?P<punct>\.\.|[()\[\]{},:=<>+*-])",
    re.ASCII,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ESCAPED = {"\\": "\\", '"': '"', "n": "\n"}


_TAKEN = frozenset({"div", "max", "min", "x", "true", "false"})
"""Words that mean something else in types and attributes."""
_FUNCTIONS: dict[str, Callable[..., Dim]] = {
    "div": operator.floordiv,
    "max": greatest,
    "min": least,
}
"""Functions that the text of an expression may call, by name."""


def symbol_name(text: str) -> str:
    """Returns the name in texts of a symbol, for a dimension that a model may call anything."""
    word = re.sub(r"\W", "_", text, flags=re.ASCII)
    if re.match(r"[A-Za-z_]", word) and word not in _TAKEN:
        return word
    return f"dim_{word}"


def parse_dim(text: str, dims: Mapping[str, Dim]) -> Dim:
    """A dimension that is computed of others, given by name: `past + seq`.

    Raises UserError where the text is no expression, or names another one.
    """
    lexer = Lexer(text)
    lexer.symbols = {symbol_name(name): dim for name, dim in dims.items()}
    dim = lexer.dim()
    if lexer.peek.kind != "end":
        raise lexer.error(f"unexpected '{lexer.peek.text}' after the dimension")
    return dim


@dataclass(frozen=True, slots=True)
class Token:
    """One token; `kind` is value, symbol, number, word, string, punct or end."""

    kind: str
    text: str
    start: int


class Lexer:
    """Reads tokens of one text, one token ahead; errors carry file, line, column and the line itself with a caret.

    Attributes:
        symbols: The symbols that dimensions may depend on, by name; whoever reads their declarations notes them.
    """

    def __init__(self, text: str, file: str = "<text>") -> None:
        self.symbols: dict[str, Dim] = {}
        self._text = text
        self._file = file
        self._position = 0
        self._ahead = self._scan()

    @property
    def peek(self) -> Token:
        """The next token, not consumed."""
        return self._ahead

    def next(self) -> Token:
        """Consumes and returns the next token."""
        token = self._ahead
        self._ahead = self._scan()
        return token

    def _scan(self) -> Token:
        while True:
            if self._position >= len(self._text):
                return Token("end", "", len(self._text))
            match = _TOKEN.match(self._text, self._position)
            if match is None:
                bad = Token("bad", self._text[self._position], self._position)
                raise self.error(f"unexpected character {bad.text!r}", bad)
            start, self._position = self._position, match.end()
            if match.lastgroup != "space":
                return Token(match.lastgroup or "", match.group(), start)

    def loc(self, token: Token | None = None) -> Loc:
        """Returns the place of `token` (default: the next one)."""
        start = (token or self._ahead).start
        line = self._text.count("\n", 0, start) + 1
        column = start - (self._text.rfind("\n", 0, start) + 1) + 1
        return Loc(self._file, line, column)

    def unknown(self, what: str, token: Token, known: Iterable[str]) -> UserError:
        """The error for a word that names none of `known`, with the closest of them."""
        import difflib  # noqa: PLC0415 - for errors

        closest = difflib.get_close_matches(token.text, known, 1)
        note = f"did you mean {closest[0]}?" if closest else ""
        return self.error(f"unknown {what} '{token.text}'", token, note)

    def error(self, message: str, token: Token | None = None, note: str = "") -> UserError:
        """A syntax error at `token` (default: the next one), for the caller to raise."""
        loc = self.loc(token)
        lines = self._text.splitlines()
        source = lines[loc.line - 1] if loc.line <= len(lines) else ""
        context = f"{source}\n{' ' * (loc.column - 1)}^"
        return UserError(message, loc=loc, context=context, note=note)

    def at(self, text: str) -> bool:
        """Whether the next token is the punctuation or word `text`."""
        return self._ahead.text == text and self._ahead.kind in ("punct", "word")

    def accept(self, text: str) -> bool:
        """Consumes the next token if it is `text`; says whether it was."""
        if self.at(text):
            self.next()
            return True
        return False

    def expect(self, text: str) -> Token:
        """Consumes `text`; a UserError if something else stands there."""
        if not self.at(text):
            raise self.error(f"expected '{text}', got '{self._ahead.text or 'end of text'}'")
        return self.next()

    def take(self, kind: str) -> str:
        """Consumes a token of `kind` and returns its text."""
        if self._ahead.kind != kind:
            raise self.error(f"expected a {kind}, got '{self._ahead.text or 'end of text'}'")
        return self.next().text

    def integer(self) -> int:
        """Consumes an integer."""
        token = self._ahead
        return self.integer_of(self.take("number"), token)

    def integer_of(self, text: str, token: Token) -> int:
        """The integer that `text`, a part of `token`, spells. Raises UserError for anything else."""
        try:
            return int(text)
        except ValueError:  # it is a float, or has thousands of digits
            shown = text if len(text) < 40 else f"{text[:40]}..."
            raise self.error(f"expected an integer, got '{shown}'", token) from None

    def number(self) -> int | float:
        """Consumes a number: an int if it is spelled as one."""
        token = self._ahead
        text = self.take("number")
        if re.fullmatch(r"-?[0-9]+", text):
            return self.integer_of(text, token)
        return float(text)

    def _string(self) -> str:
        """Consumes a quoted string, with the escapes that `print_attr` writes."""
        token = self.next()

        def plain(match: re.Match[str]) -> str:
            if match[1] not in _ESCAPED:
                raise self.error(
                    f'expected one of the escapes \\\\, \\" and \\n, got {match[0]}', token
                )
            return _ESCAPED[match[1]]

        return _ESCAPE.sub(plain, token.text[1:-1])

    def dim(self) -> Dim:
        """Consumes a dimension: a number, or an expression over symbols."""
        negative = self.accept("-")
        total = -self._product() if negative else self._product()
        while True:
            if self.accept("+"):
                total = total + self._product()
            elif self.accept("-"):
                total = total - self._product()
            elif self._ahead.kind == "number" and self._ahead.text[0] == "-":
                total = total + self._product()
            else:
                return total

    def _product(self) -> Dim:
        total = self._factor()
        while self.accept("*"):
            total = total * self._factor()
        return total

    def _factor(self) -> Dim:
        """A number, a symbol, or one of the functions of some dimensions."""
        token = self._ahead
        if token.kind == "number":
            return self.integer()
        function = _FUNCTIONS.get(self.take("word"))
        if function is None or not self.accept("("):
            if token.text not in self.symbols:
                raise self.error(f"the symbol '{token.text}' is not declared", token)
            return self.symbols[token.text]
        dims = [self.dim()]
        while self.accept(","):
            dims.append(self.dim())
        self.expect(")")
        try:
            return function(*dims)
        except (TypeError, UserError) as error:
            raise self.error(f"bad arguments of '{token.text}': {error}", token) from None

    def declarations(self) -> None:
        """Consumes the declarations of symbols, `symbol seq 1..512`, if there are any."""
        while self.at("symbol"):
            self.next()
            token = self._ahead
            name = self.take("word")
            if name in self.symbols or name != symbol_name(name):
                raise self.error(f"expected another name for a symbol than '{name}'", token)
            low = self.integer()
            self.expect("..")
            high = self.integer() if self._ahead.kind == "number" else UNBOUNDED
            if not 0 <= low < high:
                raise self.error(f"expected bounds that ascend, got {low}..{high}", token)
            likely = self.integer() if self.accept("likely") else high
            if not low <= likely <= high:
                raise self.error(f"expected a likely extent in {low}..{high}, got {likely}", token)
            self.symbols[name] = symbol(name, low, high, likely)

    def _number_or_dim(self) -> Dim | float:
        token = self._ahead
        if token.kind == "number" and not re.fullmatch(r"-?[0-9]+", token.text):
            return self.number()
        return self.dim()

    def attr(self) -> Attr:
        """Consumes an attribute value as `print_attr` spells it."""
        token = self._ahead
        if token.kind == "string":
            return self._string()
        if self.accept("true"):
            return True
        if self.accept("false"):
            return False
        if token.kind in ("number", "word") or self.at("-"):
            return self._number_or_dim()
        self.expect("[")
        items: list[Dim | float] = []
        while not self.at("]"):
            items.append(self._number_or_dim())
            if not self.accept(","):
                break
        self.expect("]")
        dims = tuple(item for item in items if not isinstance(item, float))
        if len(dims) == len(items):
            return dims
        return tuple(float(item) for item in items if not isinstance(item, Expr))

    def attrs(self) -> dict[str, Attr]:
        """Consumes `{name=value, ...}`; nothing if no brace stands there."""
        attrs: dict[str, Attr] = {}
        if not self.accept("{"):
            return attrs
        while not self.at("}"):
            name = self.take("word")
            self.expect("=")
            attrs[name] = self.attr()
            if not self.accept(","):
                break
        self.expect("}")
        return attrs


def print_symbol(one: Symbol) -> str:
    """The declaration of a symbol: `symbol seq 1..512`, or `symbol seq 1..512 likely 100`."""
    bounds = f"{one.low}..{'' if one.high == UNBOUNDED else one.high}"
    return f"symbol {one.name} {bounds}" + (f" likely {one.likely}" * (one.likely != one.high))


def print_float(value: float) -> str:
    """The shortest text that reads back as the same double, always recognisable as a float."""
    if math.isnan(value):
        return "nan"
    return repr(float(value))


def print_attrs(attrs: Mapping[str, Attr]) -> str:
    """` {a=1, b=[2,3]}` with sorted names; empty for no attributes."""
    if not attrs:
        return ""
    return (
        f" {{{', '.join(f'{name}={print_attr(value)}' for name, value in sorted(attrs.items()))}}}"
    )


def print_attr(value: Attr) -> str:
    """An attribute value as text: `true`, `3`, `0.5`, `"text"`, `[1,2]`."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | Expr():
            return str(value)
        case float():
            return print_float(value)
        case str():
            escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
            return f'"{escaped}"'
        case tuple():
            return f"[{','.join(print_attr(item) for item in value)}]"
