"""The editors' grammar knows every line of the file tests, and sees in them what the lexer sees."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from glowpy.core.elemkind import ElemKind
from glowpy.core.schema import Access
from glowpy.support.text import Lexer

ROOT = Path(__file__).resolve().parents[2]
EXTENSION = ROOT / "editors" / "vscode"
GRAMMAR: dict[str, Any] = json.loads(
    (EXTENSION / "syntaxes" / "glow.tmLanguage.json").read_text("utf-8")
)
FILES = sorted((ROOT / "tests" / "filetests").rglob("*.glow"))
KNOWN = {"match", "name", "captures"}
"""What the interpreter below knows of a rule; patterns are written so that Python and Oniguruma agree about them."""


def rules(patterns: list[dict[str, Any]]) -> Iterator[tuple[re.Pattern[str], str]]:
    """The patterns in order, with the scope of each."""
    for rule in patterns:
        if "include" in rule:
            entry = GRAMMAR["repository"][rule["include"].removeprefix("#")]
            yield from rules(entry.get("patterns", [entry]))
        else:
            assert set(rule) <= KNOWN
            yield re.compile(rule["match"], re.ASCII), rule["name"]


RULES = list(rules(GRAMMAR["patterns"]))


def scopes(line: str) -> list[tuple[int, str, str]]:
    """Where each token of a line begins, its text and scope: the match that begins first, of those the first rule's."""
    tokens: list[tuple[int, str, str]] = []
    position = 0
    while True:
        matches = [(m, scope) for rule, scope in RULES if (m := rule.search(line, position))]
        if not matches:
            return tokens
        match, scope = min(matches, key=lambda pair: pair[0].start())
        tokens.append((match.start(), match.group(), scope))
        position = match.end()


def sections(path: Path) -> list[str]:
    """The texts of a file; those that the lexer refuses are not for the grammar either."""
    texts = re.split(r"^// (?:-----|===>)\n", path.read_text("utf-8"), flags=re.MULTILINE)
    return [text for text in texts if "error: unexpected character" not in text]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_grammar_knows_every_line_of_the_file_tests(path: Path) -> None:
    wrong = [
        line
        for text in sections(path)
        for line in text.splitlines()
        if any(scope.startswith("invalid") for _, _, scope in scopes(line))
    ]
    assert wrong == []


LEXED = {"value": "variable", "string": "string"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_grammar_sees_what_the_lexer_sees(path: Path) -> None:
    for text in sections(path):
        lexer, start, seen = Lexer(text), 0, []
        for line in text.splitlines(keepends=True):
            seen += [(start + at, word, scope) for at, word, scope in scopes(line.rstrip("\n"))]
            start += len(line)
        expected = []
        while (token := lexer.next()).kind != "end":
            if token.kind in LEXED:
                expected.append((token.start, token.text, LEXED[token.kind]))
        shown = [(at, word, scope.split(".")[0]) for at, word, scope in seen]
        assert [token for token in shown if token[2] in LEXED.values()] == expected


def test_every_level_is_among_the_file_tests() -> None:
    declared = {
        word
        for path in FILES
        for text in sections(path)
        for line in text.splitlines()
        for _, word, scope in scopes(line)
        if scope.startswith("keyword.declaration")
    }
    assert {"module", "irfunction", "memory"} <= declared


def test_a_line_and_its_scopes() -> None:
    line = '%a.x = view f32[2x3], @in %b {offset=-1.5e-3, on=true, s="a"} : 0..24 // error: no'
    assert [(word, scope.removesuffix(".glow")) for _, word, scope in scopes(line)] == [
        ("%a.x", "variable.other"),
        ("=", "punctuation"),
        ("view", "support.function"),
        ("f32", "storage.type"),
        ("[", "punctuation"),
        ("2x3", "constant.numeric.dimensions"),
        ("]", "punctuation"),
        (",", "punctuation"),
        ("@in", "storage.modifier.access"),
        ("%b", "variable.other"),
        ("{", "punctuation"),
        ("offset", "entity.other.attribute-name"),
        ("=", "punctuation"),
        ("-1.5e-3", "constant.numeric"),
        (",", "punctuation"),
        ("on", "entity.other.attribute-name"),
        ("=", "punctuation"),
        ("true", "constant.language"),
        (",", "punctuation"),
        ("s", "entity.other.attribute-name"),
        ("=", "punctuation"),
        ('"a"', "string.quoted.double"),
        ("}", "punctuation"),
        (":", "punctuation"),
        ("0", "constant.numeric"),
        ("..", "punctuation"),
        ("24", "constant.numeric"),
        ("// error: no", "comment.line.double-slash"),
    ]


@pytest.mark.parametrize("line", ["%a = add(%b; %c)", "$x", "%a = 'x'", '"open'])
def test_what_the_lexer_refuses_is_invalid(line: str) -> None:
    assert [scope for _, _, scope in scopes(line) if scope == "invalid.illegal.glow"]


def test_kinds_and_accesses_are_those_of_the_compiler() -> None:
    for kind in ElemKind:
        assert scopes(f"{kind.value}[2]")[0][2] == "storage.type.glow"
    for access in Access:
        scoped = (access.value, "storage.modifier.access.glow")
        assert scopes(f"{access.value} %x")[0][1:] == scoped
    assert scopes("@main")[0][2] == "entity.name.function.glow"


def test_the_extension_names_its_files() -> None:
    package = json.loads((EXTENSION / "package.json").read_text("utf-8"))
    (language,) = package["contributes"]["languages"]
    (grammar,) = package["contributes"]["grammars"]
    assert (EXTENSION / language["configuration"]).is_file()
    assert (EXTENSION / grammar["path"]).is_file()
    assert grammar["scopeName"] == GRAMMAR["scopeName"]
