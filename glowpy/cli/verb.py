"""What every verb is made of: a command whose help is its docstring, line for line."""

from __future__ import annotations

import inspect
import textwrap

import click

__all__ = ["Verb"]


class Verb(click.Command):
    """A command that does not rewrap its help text: examples stay on lines of their own."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the docstring, indented."""
        del ctx
        text = inspect.cleandoc(self.help or "")
        formatter.write(f"\n{textwrap.indent(text, '  ')}\n")
