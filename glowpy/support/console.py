"""How the command line prints: tables for people, JSON for programs, progress only where somebody looks."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import click
from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from glowpy.support.progress import reporting

__all__ = ["print_json", "print_table", "progress"]

_PIPED_WIDTH = 120
_UNBOUNDED = 1 << 16


def print_table(
    title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], *, whole: bool = False
) -> None:
    """Prints a table on standard output. A column whose name begins with `>` is aligned to the right.

    If it is to stay `whole`, every row is one line where nobody's terminal limits it.
    """
    table = Table(title=title or None, title_justify="left", box=box.SIMPLE_HEAD)
    console = Console(file=sys.stdout, highlight=False, markup=False)
    piped = not console.is_terminal
    for index, column in enumerate(columns):
        table.add_column(
            column.removeprefix(">"),
            justify="right" if column.startswith(">") else "left",
            overflow="fold",
            no_wrap=piped and not any(" " in row[index] for row in rows),  # names stay whole
        )
    for row in rows:
        table.add_row(*row)
    if piped:
        console.width = _UNBOUNDED
        measure = console.measure(table)
        console.width = max(_PIPED_WIDTH, measure.maximum if whole else measure.minimum)
    console.print(table)


def print_json(figures: object) -> None:
    """Prints one JSON value on standard output; null where a number is infinite or none, which JSON cannot say."""
    click.echo(json.dumps(_finite(figures), indent=2, allow_nan=False))


def _finite(figures: object) -> object:
    if isinstance(figures, float) and not math.isfinite(figures):
        return None
    if isinstance(figures, Mapping):
        return {key: _finite(value) for key, value in figures.items()}
    return [_finite(figure) for figure in figures] if isinstance(figures, list | tuple) else figures


@contextmanager
def progress(what: str) -> Iterator[dict[str, tuple[int, int]]]:
    """Shows on standard error how far the work inside the `with` is; silent when that is no terminal.

    Yields what is reported of each stage first: how much of it is done when it begins, and how much there is to do.
    """
    begun: dict[str, tuple[int, int]] = {}
    console = Console(file=sys.stderr)
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        TextColumn("{task.fields[stage]}", markup=False),
        BarColumn(24),
        TimeElapsedColumn(),
    )
    with Progress(
        *columns, console=console, transient=True, disable=not console.is_terminal
    ) as bar:
        task = bar.add_task(what, stage="", total=None)

        def show(stage: str, done: int, total: int) -> None:
            begun.setdefault(stage, (done, total))
            count = f"{stage} {done} of {total}" if total else stage
            bar.update(task, stage=count, completed=done, total=total or None)

        with reporting(show):
            yield begun
