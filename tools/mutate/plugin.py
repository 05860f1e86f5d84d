"""The pytest plugin of a mutation run: `pytest -p tools.mutate.plugin --mutation-plan FILE`.

The plan says which tests to run in which order and how long each may take. What happens is written down line by line,
so that a process that dies leaves behind which test killed it. Under `coverage run` the running test is the context of
what is covered.
"""

from __future__ import annotations

import json
import os
import resource
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

PYTEST = (
    *("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "tools.mutate.plugin"),
    *("-m", "not slow", "--hypothesis-seed=0"),
)
"""How to start pytest: the fast tests, and random choices that are the same in every run."""

CONTEXT_VARIABLE = "GLOWPY_MUTATION_TEST"
"""Holds the running test's name for the processes it starts: the context of what they cover."""

_MEMORY = 8 << 30
"""Bytes of data that a process may have: a wrong size must not take the machine down."""


@dataclass(frozen=True)
class Plan:
    """Which tests to run, and where to write what happens."""

    log: str
    only: list[str] = field(default_factory=list)
    """Names of the tests to run, in this order; empty: all but those of `skip`."""
    skip: list[str] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)
    """How long a test may take."""
    coverage: bool = False

    def write(self, path: Path) -> None:
        """Writes it for pytest to read."""
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Log:
    """The log of a test run, as the plugin's lines tell it."""

    seconds: dict[str, float]
    failed: list[str]
    last: str
    """The test that ran, or ran last."""


def read_log(path: Path) -> Log:
    """Reads the log of a run; that of a run which died before its first test is empty."""
    seconds: dict[str, float] = defaultdict(float)
    failed: list[str] = []
    last = ""
    if path.is_file():
        for line in path.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            last = event["test"]
            seconds[last] += event.get("seconds", 0.0)
            if event.get("failed") and last not in failed:
                failed.append(last)
    return Log(dict(seconds), failed, last)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds `--mutation-plan`."""
    parser.addoption(
        "--mutation-plan", type=Path, required=True, help="a file written by tools.mutate"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Starts to follow the plan."""
    text = config.getoption("mutation_plan").read_text(encoding="utf-8")
    config.pluginmanager.register(_Follower(Plan(**json.loads(text))))


class _Follower:
    """Runs a plan."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, hard))

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        plan = self._plan
        by_name = {item.nodeid: item for item in items}
        if plan.only:
            chosen = [by_name[name] for name in plan.only if name in by_name]
        else:
            skipped = set(plan.skip)
            chosen = [item for item in items if item.nodeid not in skipped]
        kept_items = set(chosen)
        config.hook.pytest_deselected(items=[item for item in items if item not in kept_items])
        items[:] = chosen
        for item in items:
            if limit := plan.seconds.get(item.nodeid):
                # By a thread: generated code that does not end never returns to where a signal would be handled.
                item.add_marker(pytest.mark.timeout(limit, method="thread"), append=False)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._write(test=item.nodeid)
        os.environ[CONTEXT_VARIABLE] = item.nodeid
        self._switch(item.nodeid)
        try:
            return (yield)
        finally:
            self._switch("")
            del os.environ[CONTEXT_VARIABLE]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._write(test=report.nodeid, seconds=report.duration, failed=report.failed)

    def _switch(self, context: str) -> None:
        if self._plan.coverage:
            import coverage  # noqa: PLC0415  only a measuring run needs it

            current = coverage.Coverage.current()
            assert current is not None
            current.switch_context(context)

    def _write(self, **event: object) -> None:
        with Path(self._plan.log).open("a", encoding="utf-8") as file:
            file.write(json.dumps(event) + "\n")
