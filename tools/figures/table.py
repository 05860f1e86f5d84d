"""The table of figures: its file, what differs from it, and what a new row needs before it is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import yaml

from glowpy.llvm.machine import LLVM_VERSION
from glowpy.support.errors import UserError
from tools.figures.measure import Figures

__all__ = ["TABLE", "Entry", "Table", "differences", "renewed", "unexplained"]

TABLE = Path(__file__).parent / "table.yaml"

_MACHINE_CODE = ("code", "object", "text", "rodata", "stack", "ram", "executed")
"""Columns that LLVM and the compiler of the kernels have a part in."""

_CLOSE = 0.01
"""Machine code may differ by this part: the kernels' compiler comes in patch levels; so may text, which has places of
buffers in decimals."""

_NEUTRAL = ("rewrites", "bound")
"""More of these is neither better nor worse."""

_ABOVE_BOUND = 1.01
"""A peak further above its bound has a reason."""


@dataclass
class Entry:
    """A row: its figures, and why some are worse than they were, or a peak is above its bound, by column."""

    figures: Figures
    why: dict[str, str] = field(default_factory=dict)


@dataclass
class Table:
    """All rows by name, and the version of LLVM whose machine code they are of."""

    llvm: str
    rows: dict[str, Entry]

    @staticmethod
    def read(path: Path = TABLE) -> Table:
        """The table of a file; an empty one without a file."""
        if not path.exists():
            return Table(LLVM_VERSION, {})
        stored = yaml.safe_load(path.read_text(encoding="utf-8"))
        rows = {
            name: Entry({c: n for c, n in row.items() if c != "why"}, row.get("why", {}))
            for name, row in stored["rows"].items()
        }
        return Table(stored["llvm"], rows)

    def write(self, path: Path = TABLE) -> None:
        """Writes the file."""
        rows = {
            name: {**entry.figures, **({"why": entry.why} if entry.why else {})}
            for name, entry in self.rows.items()
        }
        text = yaml.safe_dump({"llvm": self.llvm, "rows": rows}, sort_keys=False, width=110)
        path.write_text(_HEADER + text, encoding="utf-8")


_HEADER = """\
# What compiled networks come to; see tools/figures. Written by `python -m tools.figures --renew`.
# Bytes: peak and its bound (activations), constants, llvm (text that LLVM gets), code, and what follows of a bundle.
"""


def differences(old: Figures, new: Figures, *, same_llvm: bool = True) -> Iterator[str]:
    """Yields the differences, a line for each column: from what, to what, by how much.

    Machine code is compared with that of the `same_llvm` only; what could not be measured now is not compared.
    """
    for column in dict.fromkeys([*old, *new]):
        if column not in new and column == "executed":
            continue
        if column in _MACHINE_CODE and not same_llvm:
            continue
        before, after = old.get(column), new.get(column)
        if before is None or after is None:
            yield f"{column}: {before} -> {after}"
        elif not _is_same(column, before, after):
            yield f"{column}: {before:,} -> {after:,} ({_change(before, after)})"


def _is_same(column: str, before: int, after: int) -> bool:
    close = _CLOSE * before if column in (*_MACHINE_CODE, "llvm") else 0
    return abs(after - before) <= close


def _change(before: int, after: int) -> str:
    return f"{100 * (after - before) / before:+.1f} %" if before else f"{after - before:+}"


def unexplained(entry: Entry) -> str:
    """Describes a figure for which a row lacks a reason; empty if there is none."""
    figures = entry.figures
    if figures["peak"] > _ABOVE_BOUND * figures["bound"] and "peak" not in entry.why:
        over = _change(figures["bound"], figures["peak"])
        return f"peak {figures['peak']:,} is above its bound {figures['bound']:,} ({over})"
    return ""


def renewed(name: str, old: Entry | None, new: Figures, reason: str) -> Entry:
    """The row as it is to be written.

    Raises UserError for figures that are worse than before, and for a peak above its bound, without a reason.
    """
    before: Mapping[str, int] = old.figures if old else {}
    why = dict(old.why) if old else {}
    if "executed" in before and "executed" not in new:
        new = {**new, "executed": before["executed"]}
    worse = [
        column
        for column, number in new.items()
        if column in before
        and column not in _NEUTRAL
        and number > before[column]
        and not _is_same(column, before[column], number)
    ]
    why |= dict.fromkeys(worse, reason)
    entry = Entry(new, why)
    if reason and unexplained(entry):
        why["peak"] = reason
    if new["peak"] <= _ABOVE_BOUND * new["bound"] and "peak" not in worse:
        why.pop("peak", None)
    needs = unexplained(entry) or ", ".join(
        f"{column} {before[column]:,} -> {new[column]:,}" for column in worse
    )
    if needs and not reason:
        raise UserError(
            f"expected a reason for what is worse in '{name}': {needs}",
            note="--why 'what it is good for'; it is kept beside the figure",
        )
    return entry
