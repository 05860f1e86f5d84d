"""Completions in a shell for arguments and options whose values are more than a list of words."""

from __future__ import annotations

from collections.abc import Mapping

import click
from click.shell_completion import CompletionItem

from glowpy.backends.cpu.presets import PRESETS

__all__ = ["Items", "beginning", "complete_file", "complete_target"]

Items = list[CompletionItem]


def beginning(names: Mapping[str, str], incomplete: str) -> Items:
    """The names that begin as what is typed, with the help on each."""
    return [
        CompletionItem(name, help=text)
        for name, text in names.items()
        if name.startswith(incomplete)
    ]


def complete_file(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """Files, which the shell knows."""
    del ctx, param
    return [CompletionItem(incomplete, type="file")]


def complete_target(ctx: click.Context, param: click.Parameter, incomplete: str) -> Items:
    """The presets; a triple can be anything."""
    del ctx, param
    return beginning({name: preset.about for name, preset in PRESETS.items()}, incomplete)
