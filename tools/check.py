"""Runs every gate a change has to pass, and says which did not: `python tools/check.py [--fast]`."""

from __future__ import annotations

import argparse
import subprocess
import sys
import sysconfig
import time
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True, slots=True)
class Gate:
    """One thing that must hold, and the command that shows whether it does."""

    name: str
    command: tuple[str, ...]
    slow: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a gate's command ended, and after how long."""

    gate: Gate
    status: int
    seconds: float


def gates() -> list[Gate]:
    """Every gate, the quickest first."""
    python = sys.executable
    lint_imports = str(Path(sysconfig.get_path("scripts")) / "lint-imports")
    return [
        Gate("ruff", (python, "-m", "ruff", "check", ".")),
        Gate("format", (python, "-m", "ruff", "format", "--check", ".")),
        Gate("repomap", (python, "tools/repomap.py", "--check")),
        Gate("classgen", (python, "-m", "classgen", "--check")),
        # Its cache keeps what an import meant before the imported file existed.
        Gate("imports", (lint_imports, "--no-cache")),
        Gate("mypy", (python, "-m", "mypy")),
        Gate("pytest", (python, "-m", "pytest", "-q"), slow=True),
    ]


def run_gate(gate: Gate, console: Console) -> Outcome:
    """Runs a gate's command in the repository root; its output goes where ours goes."""
    console.rule(gate.name)
    start = time.perf_counter()
    status = subprocess.run(gate.command, cwd=ROOT, check=False).returncode
    return Outcome(gate, status, time.perf_counter() - start)


def summary(outcomes: list[Outcome]) -> Table:
    """One row for each gate that ran."""
    table = Table("gate", "result")
    table.add_column("seconds", justify="right")
    for outcome in outcomes:
        result = f"[red]failed ({outcome.status})" if outcome.status else "[green]passed"
        table.add_row(outcome.gate.name, result, f"{outcome.seconds:.1f}")
    return table


def main() -> int:
    """Runs the gates; 1 if any of them failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true", help="leave out the tests")
    parser.add_argument("gate", nargs="*", help="only the gates of these names")
    options = parser.parse_args()
    all_gates = gates()
    names = [gate.name for gate in all_gates]
    if unknown := [name for name in options.gate if name not in names]:
        parser.error(f"no gate {unknown[0]!r}: expected one of {', '.join(names)}")
    console = Console()
    chosen_gates = [
        gate
        for gate in all_gates
        if (gate.name in options.gate if options.gate else not (options.fast and gate.slow))
    ]
    outcomes = [run_gate(gate, console) for gate in chosen_gates]
    console.print(summary(outcomes))
    return int(any(outcome.status for outcome in outcomes))


if __name__ == "__main__":
    sys.exit(main())
