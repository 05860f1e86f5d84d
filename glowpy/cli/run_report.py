"""The report of `glowpy run`, printed and written."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, BinaryIO

import click
import numpy as np

from glowpy.cli.files import write_text
from glowpy.cli.tuning import tuning_text
from glowpy.core.array_file import plain, write_array
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.debugging.compare import Difference, Interpret
from glowpy.measuring.tuned import Tuned
from glowpy.quantization.fidelity import decibels_text
from glowpy.support.console import print_json, print_table
from glowpy.support.names import UniqueNames, file_stem
from glowpy.support.output_files import make_output_folder, write_output_file

__all__ = ["HALVES", "Run", "RunReport", "report_run", "save_outputs"]

HALVES: Mapping[ElemKind, float] = {ElemKind.F16: 2.0**-11, ElemKind.BF16: 2.0**-8}
"""How much of a number of these kinds one rounding is."""


@dataclass(frozen=True)
class Run:
    """The outputs and times of a run.

    Attributes:
        feeds: The inputs.
        outputs: Arrays, or what a session gives besides: lists, dicts and None.
        types: The types of the outputs, as text.
        compile_seconds: How long it took to have something that runs.
        seconds: The time of every run.
        compared: The outputs, and those that were kept for the next run.
        interpret: Runs the same on our interpreter.
        kinds: The kinds of halves it computes in, and None if it computes on integers.
        recalled: Whether all of the network came from the cache.
        compiled: How many of the functions of machine code came from there, if it was compiled now; how many there are.
        in_python: Whether a part of it was computed in Python.
    """

    feeds: Mapping[str, Any]
    outputs: Mapping[str, Any]
    types: Mapping[str, str]
    compile_seconds: float
    seconds: Sequence[float]
    compared: Mapping[str, Any]
    interpret: Interpret
    kinds: Callable[[], Collection[ElemKind | None]]
    recalled: bool
    compiled: tuple[int, int]
    in_python: bool = False


@dataclass(frozen=True)
class RunReport:
    """The results of one `glowpy run`.

    Attributes:
        model: The file.
        backend: The name of the backend.
        run: The outputs and times.
        files: The files that outputs were written to.
        checked_with: The reference that outputs were compared with; empty for nothing.
        differences: How far they are from that.
        inexact: Whether what was compared computes on integers or halves.
        tuned: The tuned products; None unless --tune asked for it.
    """

    model: str
    backend: str
    run: Run
    files: Mapping[str, Path]
    checked_with: str = ""
    differences: Sequence[Difference] = ()
    inexact: bool = False
    tuned: Sequence[Tuned] | None = None


def report_run(report: RunReport, *, as_json: bool) -> None:
    """Prints what came out; the exit status says whether it is as it should be."""
    _print_json(report) if as_json else _print_tables(report)
    if not all(difference.within for difference in report.differences):
        raise click.exceptions.Exit(1)


def save_outputs(outputs: Mapping[str, Any], folder: Path | None) -> dict[str, Path]:
    """Writes outputs to a folder, if there is one, and gives the file of each.

    Arrays are .npy files, lists of arrays .npz, and all else .json.
    """
    if folder is None:
        return {}
    make_output_folder(folder)
    names, files = UniqueNames(), dict[str, Path]()
    for name, value in outputs.items():
        stem = file_stem(names.take(name))
        if isinstance(value, np.ndarray):
            files[name] = folder / f"{stem}.npy"
            write_array(files[name], value)
        elif isinstance(value, list) and all(isinstance(item, np.ndarray) for item in value):
            files[name] = folder / f"{stem}.npz"
            write_output_file(files[name], partial(_write_archive, [plain(item) for item in value]))
        elif value is not None:
            files[name] = folder / f"{stem}.json"
            write_text(files[name], json.dumps(value, indent=1) + "\n")
    return files


def _write_archive(items: Sequence[Array], file: BinaryIO) -> None:
    np.savez(file, *items)


def _print_tables(report: RunReport) -> None:
    run = report.run
    rows = [
        [
            *(name, run.types[name]),
            *("-" if figure is None else f"{figure:.6g}" for figure in _statistics(value)),
            str(report.files.get(name, "")),
        ]
        for name, value in run.outputs.items()
    ]
    columns = ["output", "type", ">min", ">max", ">mean", "file"]
    if not report.files:
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    print_table("", columns, rows)
    if report.differences:
        columns = ["output", ">largest error", ">relative", "within tolerance", ">signal to noise"]
        rows = [
            [
                *(d.name, f"{d.absolute:.3g}", f"{d.relative:.3g}", "yes" if d.within else "no"),
                decibels_text(d.decibels),
            ]
            for d in report.differences
        ]
        if not report.inexact:
            columns, rows = columns[:-1], [row[:-1] for row in rows]
        print_table(f"compared with {report.checked_with}", columns, rows)
    timing = f"{_origin(run)}, run in {min(run.seconds) * 1e3:.3f} ms"
    if len(run.seconds) > 1:
        timing = f"{timing} at best, {median(run.seconds) * 1e3:.3f} ms in the median of {len(run.seconds)}"
    click.echo(f"{timing}, a part of it in Python" if run.in_python else timing)
    if report.tuned is not None:
        click.echo(tuning_text(report.tuned))


def _origin(run: Run) -> str:
    """How long it took to have something that runs, and what of that the cache had."""
    took = f"in {run.compile_seconds:.2f} s"
    cached, functions = run.compiled
    if run.recalled:
        return f"taken from the cache {took}"
    if not cached:
        return f"compiled {took}"
    return f"compiled {took} (machine code of {cached} of {functions} functions from the cache)"


def _print_json(report: RunReport) -> None:
    run = report.run
    outputs = []
    for name, value in run.outputs.items():
        low, high, mean = _statistics(value)
        outputs.append(
            {
                "name": name,
                "type": run.types[name],
                "min": low,
                "max": high,
                "mean": mean,
                "file": str(report.files[name]) if name in report.files else None,
            }
        )
    cached, functions = run.compiled
    figures: dict[str, object] = {
        "model": report.model,
        "backend": report.backend,
        "compile_seconds": run.compile_seconds,
        "recalled": run.recalled,
        "functions": functions,
        "cached_functions": cached,
        "run_seconds": run.seconds,
        "outputs": outputs,
    }
    if report.tuned is not None:
        figures["tuning"] = [product.figures for product in report.tuned]
    if report.checked_with:
        figures["checked_with"] = report.checked_with
        figures["differences"] = [
            {
                "name": d.name,
                "absolute": d.absolute,
                "relative": d.relative,
                "within": d.within,
                "decibels": d.decibels,
            }
            for d in report.differences
        ]
    print_json(figures)


def _statistics(value: Any) -> tuple[float | None, float | None, float | None]:
    """Smallest, largest and mean element; None for each of what has no numbers."""
    if not isinstance(value, np.ndarray) or value.dtype.kind == "O" or value.size == 0:
        return None, None, None
    wide = value.astype(np.float64)
    with np.errstate(invalid="ignore", over="ignore"):
        return float(wide.min()), float(wide.max()), float(wide.mean())
