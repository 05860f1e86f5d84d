"""Tries a mutant: runs the tests on it until one fails."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

from tools.mutate.mutant import Mutant, MutationError
from tools.mutate.plugin import PYTEST, Log, Plan, read_log
from tools.mutate.tree import Tree, Workshop

if TYPE_CHECKING:
    from tools.mutate.reach import Reach

__all__ = ["Outcome", "Verdict", "check_tests_pass", "try_listed", "try_random"]

_LEAST, _TIMES = 60.0, 20.0
"""Seconds that any test may take, and how many times as long as without the mutant: the machine may be busy."""
_LEAST_RUN, _TIMES_RUN = 180.0, 5.0
"""The same of a whole run, in case that it hangs between tests."""
_NO_TESTS = 5  # pytest's exit status


class Verdict(StrEnum):
    """A mutant's fate."""

    NOTICED = "noticed"
    SURVIVED = "survived"
    NOT_REACHED = "not reached"
    """It survived because no test reaches the line; none was run."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A mutant's verdict, and the test that decided it."""

    mutant: Mutant
    verdict: Verdict
    by: str
    """The test or the end of the run that noticed it."""
    seconds: float


def check_tests_pass(workshop: Workshop, tests: Sequence[str]) -> dict[str, float]:
    """How long each of the tests of listed mutants takes in the unchanged tree; MutationError if one fails there."""
    tree = workshop.base
    plan, log_file = tree.scratch / "plan", tree.scratch / "log"
    Plan(log=str(log_file)).write(plan)
    done = workshop.run(tree, [*PYTEST, "--mutation-plan", str(plan), *tests])
    log = read_log(log_file)
    if done.returncode:
        reason = ", ".join(log.failed) or done.stdout[-4000:]
        raise MutationError(f"the tests fail without any mutant: {reason}")
    return log.seconds


def try_listed(workshop: Workshop, mutant: Mutant, seconds: dict[str, float]) -> Outcome:
    """Runs the tests that a listed mutant names."""
    start = perf_counter()
    with _Trial(workshop, mutant, seconds) as trial:
        by = trial.run(Plan(trial.log, seconds=trial.limits), mutant.tests)
    verdict = Verdict.NOTICED if by else Verdict.SURVIVED
    return Outcome(mutant, verdict, by, perf_counter() - start)


def try_random(workshop: Workshop, mutant: Mutant, reach: Reach, others: Sequence[str]) -> Outcome:
    """Runs the tests that reach a mutant, then the rest of `others`: some use what others have computed."""
    start = perf_counter()
    closest = reach.tests(mutant)
    if not closest:
        return Outcome(mutant, Verdict.NOT_REACHED, "", 0.0)
    files = list(dict.fromkeys(name.partition("::")[0] for name in closest))
    with _Trial(workshop, mutant, reach.seconds) as trial:
        by = trial.run(Plan(trial.log, only=closest, seconds=trial.limits), files)
        if not by and others:
            skip = [*closest, *reach.failed]
            by = trial.run(Plan(trial.log, skip=skip, seconds=trial.limits), others)
    verdict = Verdict.NOTICED if by else Verdict.SURVIVED
    return Outcome(mutant, verdict, by, perf_counter() - start)


def _limits(seconds: dict[str, float]) -> dict[str, float]:
    """How long each test may take: by the slowest of its file, for in another order it is first to need a fixture."""
    slowest: dict[str, float] = {}
    for name, value in seconds.items():
        file = name.partition("::")[0]
        slowest[file] = max(value, slowest.get(file, 0.0))
    return {name: _LEAST + _TIMES * slowest[name.partition("::")[0]] for name in seconds}


class _Trial:
    """A copy of the tree with a mutant in it; deleted at the end."""

    def __init__(self, workshop: Workshop, mutant: Mutant, seconds: dict[str, float]) -> None:
        self._workshop = workshop
        self._mutant = mutant
        self.limits = _limits(seconds)
        self._total = _LEAST_RUN + _TIMES_RUN * sum(seconds.values())

    def __enter__(self) -> _Trial:
        self._tree: Tree = self._workshop.copy(self._mutant.name)
        self._tree.write(self._mutant.file, self._mutant.mutated)
        return self

    def __exit__(self, *exception: object) -> None:
        self._workshop.discard(self._tree)

    @property
    def log(self) -> str:
        """Where the plugin writes what happens."""
        return str(self._tree.scratch / "log")

    def run(self, plan: Plan, paths: Sequence[str]) -> str:
        """Runs tests on the mutant; returns the one that failed, or how the run ended, and '' if all pass."""
        Path(self.log).unlink(missing_ok=True)
        file = self._tree.scratch / "plan"
        plan.write(file)
        command = [*PYTEST, "-x", "--mutation-plan", str(file), *paths]
        try:
            done = self._workshop.run(self._tree, command, self._total)
        except subprocess.TimeoutExpired:
            return f"no end: {read_log(Path(self.log)).last}"
        if done.returncode in (0, _NO_TESTS):
            return ""
        return _reason(read_log(Path(self.log)), done)


def _reason(log: Log, done: subprocess.CompletedProcess[str]) -> str:
    if log.failed:
        return log.failed[0]
    if done.returncode < 0:
        return f"killed by signal {-done.returncode}: {log.last}"
    if log.last:
        return f"exit {done.returncode}: {log.last}"
    last = done.stdout.strip().rpartition("\n")[2]
    return f"tests cannot be collected: {last}"
