"""`python -m tools.figures`: prints, compares and renews the figures."""

from __future__ import annotations

import argparse
import json
import sys

from glowpy.llvm.machine import LLVM_VERSION
from glowpy.support.errors import UserError
from tools.figures.measure import Figures, figures_of
from tools.figures.models import make_models
from tools.figures.rows import ROWS
from tools.figures.table import Table, differences, renewed


def main() -> int:
    """Runs the command; 1 if figures differ from the table, or a reason is missing."""
    parser = argparse.ArgumentParser(prog="python -m tools.figures", description=__doc__)
    parser.add_argument("rows", nargs="*", metavar="ROW", help="all without any")
    parser.add_argument("--renew", action="store_true", help="write the figures into the table")
    parser.add_argument("--why", default="", metavar="TEXT", help="the reason of what got worse")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--models", action="store_true", help="export the networks ROW again (needs PyTorch)"
    )
    options = parser.parse_args()
    try:
        if options.models:
            make_models(options.rows)
            return 0
        return _measure(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)  # noqa: T201 - a command's output
        return 1


def _measure(chosen: argparse.Namespace) -> int:
    names = chosen.rows or list(ROWS)
    if unknown := [name for name in names if name not in ROWS]:
        raise UserError(f"expected rows among {', '.join(ROWS)}, got {', '.join(unknown)}")
    table = Table.read()
    figures: dict[str, Figures] = {}
    differs = False
    for name in names:
        figures[name] = figures_of(ROWS[name])
        differs |= _tell(name, table, figures[name], quiet=chosen.json)
        if chosen.renew:
            table.rows[name] = renewed(name, table.rows.get(name), figures[name], chosen.why)
            table.rows = {name: table.rows[name] for name in ROWS if name in table.rows}
            table.llvm = LLVM_VERSION
            table.write()
    if chosen.json:
        print(json.dumps(figures, indent=2))  # noqa: T201
    return int(differs and not chosen.renew)


def _tell(name: str, table: Table, figures: Figures, *, quiet: bool) -> bool:
    """Prints a row, and whether it differs from the table."""
    entry = table.rows.get(name)
    same_llvm = table.llvm == LLVM_VERSION
    lines = list(differences(entry.figures, figures, same_llvm=same_llvm)) if entry else ["new"]
    if not quiet:
        text = "; ".join(lines) or "as in the table"
        print(f"{name}: {text}", flush=True)  # noqa: T201
    return bool(lines)


if __name__ == "__main__":
    sys.exit(main())
