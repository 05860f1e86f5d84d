"""The class of every verb: a command whose help is its docstring, line for line, and the types of its options."""

from __future__ import annotations

import inspect
import math
import re
import textwrap
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from glowpy.support.cache_folder import parse_bytes
from glowpy.support.output_files import check_output_file, check_output_folder

__all__ = [
    "Bytes",
    "Described",
    "Number",
    "OptionalChoice",
    "OutputFile",
    "OutputFolder",
    "Verb",
    "VerbGroup",
]


class Verb(click.Command):
    """A command that does not rewrap its help text: examples stay on lines of their own."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the docstring, indented."""
        del ctx
        text = inspect.cleandoc(self.help or "")
        formatter.write(f"\n{textwrap.indent(text, '  ')}\n")


class Described(click.Group):
    """A group whose help has the whole first sentence of each of its verbs; click alone cuts it to a line."""

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs and what they do."""
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [
            (name, _first_sentence(command.help or "")) for name, command in commands if command
        ]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def _first_sentence(text: str) -> str:
    """Up to a full stop that ends it, or a line without words."""
    paragraph = " ".join(inspect.cleandoc(text).partition("\n\n")[0].split())
    sentence = re.match(r".*?[.?](?= [A-Z]|$)", paragraph)
    return sentence[0] if sentence else paragraph


class VerbGroup(Verb, Described, click.Group):
    """A verb with verbs of its own."""


class Bytes(click.ParamType[int]):
    """A number of bytes: 65536, 64K, 1M."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """The number; fails for anything else."""
        try:
            return parse_bytes(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


class Number(click.ParamType[float]):
    """A number of at least 0, and of less than infinity if it has to be finite."""

    name = "number"

    def __init__(self, *, finite: bool = True) -> None:
        self._finite = finite

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """The number; fails for anything else."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not number >= 0 or (self._finite and math.isinf(number)):
            self.fail(f"expected a number of at least 0, got {value}", param, ctx)
        return number


class OptionalChoice(click.Choice[str]):
    """One of some words, which help and completion name, or the empty text for none of them."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The word; fails for anything else."""
        return "" if value == "" else super().convert(value, param, ctx)


class OutputFile(click.ParamType[str]):
    """A file to write, which is possible as far as one can tell before; `-` for standard output if that takes it."""

    name = "file"

    def __init__(self, *, binary: bool = False) -> None:
        self._binary = binary

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """The path; raises UserError where nothing can be written."""
        if value != "-":
            check_output_file(value)
        elif self._binary:
            self.fail("expected a file, standard output takes text; ./- is a file", param, ctx)
        return str(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Files, which the shell knows."""
        return [CompletionItem(incomplete, type="file")]


class OutputFolder(click.ParamType[Path]):
    """A folder to write to, which is made if it is not there."""

    name = "folder"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; raises UserError where nothing can be written."""
        check_output_folder(str(value))
        return Path(value)

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        """Folders, which the shell knows."""
        return [CompletionItem(incomplete, type="dir")]
