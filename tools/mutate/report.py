"""The report of a mutation run, printed and written."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date
from pathlib import Path

from rich.console import Console
from rich.markup import escape
from rich.syntax import Syntax
from rich.table import Table

from tools.mutate.trial import Outcome, Verdict

__all__ = ["print_report", "survivors", "write_json"]


def survivors(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that no test noticed."""
    return [outcome for outcome in outcomes if outcome.verdict is not Verdict.NOTICED]


def print_report(outcomes: Sequence[Outcome], console: Console) -> None:
    """A row for each area, then each survivor with its change."""
    table = Table("area", title="Mutants")
    for heading in ("mutants", "noticed", "seconds"):
        table.add_column(heading, justify="right")
    for area in dict.fromkeys(outcome.mutant.area for outcome in outcomes):
        members = [outcome for outcome in outcomes if outcome.mutant.area == area]
        table.add_row(area, *_figures(members))
    table.add_section()
    table.add_row("all", *_figures(outcomes))
    console.print(table)
    for outcome in survivors(outcomes):
        mutant = outcome.mutant
        note = ": no test reaches the line" if outcome.verdict is Verdict.NOT_REACHED else ""
        console.print(
            f"[red]survived[/] [bold]{escape(mutant.name)}[/] {escape(mutant.place)} "
            f"({escape(mutant.about)}){note}",
            soft_wrap=True,
        )
        if console.is_terminal:
            console.print(Syntax(mutant.diff, "diff", background_color="default"))
        else:
            console.out(mutant.diff, end="", highlight=False)


def write_json(outcomes: Sequence[Outcome], seed: int | None, path: Path) -> None:
    """Everything about every mutant."""
    document = {
        "date": date.today().isoformat(),
        "seed": seed,
        "mutants": len(outcomes),
        "noticed": len(outcomes) - len(survivors(outcomes)),
        "outcomes": [
            {
                "name": outcome.mutant.name,
                "area": outcome.mutant.area,
                "file": outcome.mutant.file.as_posix(),
                "line": outcome.mutant.line,
                "about": outcome.mutant.about,
                "diff": outcome.mutant.diff,
                "verdict": outcome.verdict,
                "by": outcome.by,
                "seconds": round(outcome.seconds, 1),
            }
            for outcome in outcomes
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def _figures(outcomes: Sequence[Outcome]) -> tuple[str, str, str]:
    noticed = len(outcomes) - len(survivors(outcomes))
    seconds = sum(outcome.seconds for outcome in outcomes)
    return str(len(outcomes)), f"{noticed} ({100 * noticed // len(outcomes)} %)", f"{seconds:.0f}"
