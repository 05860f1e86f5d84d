"""Runs listed or random mutants: `python -m tools.mutate (--listed | --random N) [options]`."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from functools import partial
from pathlib import Path
from types import FrameType

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from tools.mutate.areas import AREAS
from tools.mutate.listed import read_listed
from tools.mutate.mutant import Mutant, MutationError
from tools.mutate.report import print_report, survivors, write_json
from tools.mutate.tree import Workshop
from tools.mutate.trial import Outcome, check_tests_pass, try_listed, try_random

ROOT = Path(__file__).resolve().parents[2]


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the mutants; 1 if a listed one survives or cannot be tried."""
    options = _options(arguments)
    signal.signal(signal.SIGTERM, _end)
    with tempfile.TemporaryDirectory(prefix="glowpy-mutants-") as folder:
        try:
            workshop = Workshop(ROOT, Path(folder))
            try:
                outcomes = (
                    _random(workshop, options) if options.random else _listed(workshop, options)
                )
            finally:
                workshop.stop()
        except MutationError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    print_report(outcomes, Console())
    return int(options.listed and bool(survivors(outcomes)))


def _listed(workshop: Workshop, options: argparse.Namespace) -> list[Outcome]:
    mutants = read_listed(workshop.base.root, options.only)
    with _progress() as progress:
        progress.add_task("the tests without mutants", total=None)
        tests = list(dict.fromkeys(test for mutant in mutants for test in mutant.tests))
        seconds = check_tests_pass(workshop, tests)
    trial = partial(try_listed, workshop, seconds=seconds)
    return _try(workshop, mutants, trial, options)


def _random(workshop: Workshop, options: argparse.Namespace) -> list[Outcome]:
    # These need the libraries of the extra `mutation`; listed mutants do not.
    from tools.mutate.reach import measure  # noqa: PLC0415
    from tools.mutate.sample import Checker, draw  # noqa: PLC0415

    areas = options.area or list(AREAS)
    if unknown := [area for area in areas if area not in AREAS]:
        raise MutationError(f"no area {unknown[0]!r}: expected one of {', '.join(AREAS)}")
    with _progress() as progress:
        progress.add_task("which tests reach which line", total=None)
        reach = measure(workshop, ROOT / ".mutation", options.tests)
    for test in reach.failed:
        sys.stderr.write(f"fails without any mutant, left out: {test}\n")
    with _progress() as progress:
        task = progress.add_task("drawing mutants", total=options.random)
        drawn = draw(workshop.base.root, areas, options.random, options.seed, Checker(workshop))
        mutants: list[Mutant] = []
        for mutant in drawn:
            mutants.append(mutant)
            progress.update(task, completed=len(mutants))
    test_paths = () if options.closest else options.tests
    trial = partial(try_random, workshop, reach=reach, others=test_paths)
    return _try(workshop, mutants, trial, options)


def _try(
    workshop: Workshop,
    mutants: Sequence[Mutant],
    trial: Callable[[Mutant], Outcome],
    options: argparse.Namespace,
) -> list[Outcome]:
    """The outcomes, in the order of the mutants; the file of `--json` has those known so far."""
    with _progress() as progress, ThreadPoolExecutor(options.jobs) as pool:
        outcomes: list[Outcome] = []
        futures = [pool.submit(trial, mutant) for mutant in mutants]
        task = progress.add_task("mutants", total=len(futures))
        try:
            for _ in as_completed(futures):
                outcomes = [future.result() for future in futures if future.done()]
                progress.update(task, completed=len(outcomes))
                if options.json:
                    write_json(outcomes, options.seed if options.random else None, options.json)
        except BaseException:
            workshop.stop()
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return outcomes


def _progress() -> Progress:
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    return Progress(*columns, TimeElapsedColumn(), console=console, disable=not console.is_terminal)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.mutate", description=__doc__)
    kind = parser.add_mutually_exclusive_group(required=True)
    kind.add_argument("--listed", action="store_true", help="the mutants of tools/mutants/*.toml")
    kind.add_argument(
        "--random", type=int, metavar="N", help="N mutants made by cosmic-ray's operators"
    )
    parser.add_argument("--only", nargs="+", default=[], metavar="ID", help="of the listed, these")
    parser.add_argument("--seed", type=int, default=1, help="which random mutants (1)")
    parser.add_argument(
        "--area", nargs="+", metavar="AREA", help="random mutants of these areas only"
    )
    parser.add_argument(
        "--tests",
        nargs="+",
        default=["tests"],
        metavar="PATH",
        help="only these tests, for random mutants",
    )
    parser.add_argument(
        "--closest", action="store_true", help="only tests that reach the changed line: a preview"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="mutants at a time")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write every outcome to FILE")
    options = parser.parse_args(arguments)
    if options.random is not None and options.random < 1:
        parser.error("--random: expected at least 1")
    return options


def _end(number: int, frame: FrameType | None) -> None:
    sys.exit(128 + number)


if __name__ == "__main__":
    sys.exit(main())
