"""What every verb is made of: a command whose help is its docstring, line for line, and what its options take."""

from __future__ import annotations

import inspect
import textwrap
from typing import Any

import click

from glowpy.support.cache_folder import parse_bytes

__all__ = ["Bytes", "Verb", "VerbGroup"]


class Verb(click.Command):
    """A command that does not rewrap its help text: examples stay on lines of their own."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the docstring, indented."""
        del ctx
        text = inspect.cleandoc(self.help or "")
        formatter.write(f"\n{textwrap.indent(text, '  ')}\n")


class VerbGroup(Verb, click.Group):
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
