"""First lines of docstrings, and help texts, are sentences or noun phrases that stand by themselves."""

import ast
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from glowpy.cli import main

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("glowpy", "classgen", "tools")
HEADLESS = {"Of", "That", "What", "Into", "With"}
LEAST_WORDS = 3


def docstrings(source: str) -> Iterator[tuple[int, str]]:
    """Line and text of each docstring, also of the constants and fields that a string literal follows."""
    for node in ast.walk(ast.parse(source)):
        body = getattr(node, "body", None)
        if not isinstance(body, list):
            continue
        documented = isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        )
        previous = [None, *body[:-1]]
        for before, statement in zip(previous, body, strict=True):
            match statement:
                case ast.Expr(value=ast.Constant(value=str() as text)) if (
                    documented if before is None else isinstance(before, ast.Assign | ast.AnnAssign)
                ):
                    yield statement.lineno, text


def is_headless(text: str) -> bool:
    """Whether the first line begins with a fragment, or is a word or two without an end."""
    line = next(iter(text.strip().splitlines()), "")
    words = line.split()
    return not words or words[0] in HEADLESS or (len(words) < LEAST_WORDS and line[-1] not in ".:")


def parameters(command: click.Command, name: str) -> Iterator[tuple[str, str]]:
    """The help texts of a command, its options and its subcommands, by where they are shown."""
    yield name, command.help or ""
    for parameter in command.params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            yield f"{name} {parameter.opts[-1]}", parameter.help or ""
    for verb, child in getattr(command, "commands", {}).items():
        yield from parameters(child, f"{name} {verb}")


@pytest.mark.parametrize("folder", FOLDERS)
def test_first_lines_stand_by_themselves(folder: str) -> None:
    headless = [
        f"{path.relative_to(ROOT).as_posix()}:{line}: {text.strip().splitlines()[0]}"
        for path in sorted((ROOT / folder).rglob("*.py"))
        for line, text in docstrings(path.read_text(encoding="utf-8"))
        if is_headless(text)
    ]
    assert headless == []


@pytest.mark.parametrize("verb", main.VERBS)
def test_help_texts_stand_by_themselves(verb: str) -> None:
    texts = list(parameters(main.VERBS[verb], verb))
    assert [(place, text) for place, text in texts if is_headless(text)] == []


@pytest.mark.parametrize(
    ("text", "headless"),
    [
        ("What a type says.", True),
        ("Of the result.", True),
        ("", True),
        ("the type", True),
        ("Raises UserError.", False),
        ("The text of a type", False),
        ("Whatever is left counts.", False),
    ],
)
def test_is_headless(text: str, headless: bool) -> None:
    assert is_headless(text) is headless


def test_docstrings_are_of_modules_definitions_and_assignments() -> None:
    source = '"module"\nx = 1\n"constant"\ndef f():\n    "function"\n    if x:\n        "none"\n'
    assert list(docstrings(source)) == [(1, "module"), (3, "constant"), (5, "function")]
