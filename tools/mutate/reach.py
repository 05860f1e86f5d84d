"""Which tests reach which line: one run of the fast tests under coverage, with the test's name as context.

The result is kept under a name that depends on every file of the tree.
"""

from __future__ import annotations

import ast
import hashlib
import json
import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from coverage import Coverage, CoverageData

from tools.mutate.mutant import Mutant, MutationError
from tools.mutate.plugin import CONTEXT_VARIABLE, PYTEST, Plan, read_log
from tools.mutate.tree import Workshop

__all__ = ["Reach", "measure", "own_lines"]

_KEPT = 4
_SETTINGS = """\
[run]
source = {root}/glowpy
data_file = {data}
parallel = true
context = ${{{variable}-}}
disable_warnings =
    no-data-collected
    module-not-measured
    module-not-imported
    no-sysmon
"""


@dataclass(frozen=True)
class Reach:
    """The fast tests of a tree, and which lines each of them reaches."""

    root: str
    """Where the tree was when it was measured: the prefix of the names in the data."""
    data: Path
    seconds: dict[str, float]
    failed: list[str]
    """Tests that fail without any mutant; they take no part."""

    @cached_property
    def _coverage(self) -> CoverageData:
        data = CoverageData(str(self.data))
        data.read()
        return data

    def tests(self, mutant: Mutant) -> list[str]:
        """The tests that reach a mutant, in the order in which to run them; empty if none does.

        Lines that run when a module is imported are reached by whatever reaches the rest of the module. C code is not
        measured: its tests are those of the kernels and of the operators of its file's name.
        """
        if mutant.file.suffix != ".py":
            stem = f"tests/ops/test_{mutant.file.stem}.py"
            chosen = {name for name in self.seconds if name.startswith(("tests/libjit/", stem))}
        else:
            by_line = self._coverage.contexts_by_lineno(f"{self.root}/{mutant.file.as_posix()}")
            lines = own_lines(mutant.original, mutant.line)
            contexts = {context for line in lines for context in by_line.get(line, ())}
            if "" in contexts:
                contexts = {context for names in by_line.values() for context in names}
            chosen = contexts - {""}
        return self._in_order(chosen & self.seconds.keys() - set(self.failed))

    def _in_order(self, names: Iterable[str]) -> list[str]:
        """File by file, because the tests of a file share what they compile; the cheapest file, and test, first."""
        files: dict[str, list[str]] = defaultdict(list)
        for name in names:
            files[name.partition("::")[0]].append(name)
        groups = [
            sorted(group, key=lambda name: (self.seconds[name], name)) for group in files.values()
        ]
        groups.sort(key=lambda group: (sum(self.seconds[name] for name in group), group[0]))
        return [name for group in groups for name in group]


def measure(workshop: Workshop, cache: Path, tests: Sequence[str]) -> Reach:
    """Runs the tests in the unchanged tree, or reads from `cache` what an earlier run of the same tree found.

    Raises:
        MutationError: the tests do not run.
    """
    tree = workshop.base
    folder = cache / _digest(tree.root, tests)
    facts = folder / "tests.json"
    if facts.is_file():
        return Reach(data=folder / "coverage", **json.loads(facts.read_text(encoding="utf-8")))
    settings, data = tree.scratch / "settings.ini", tree.scratch / "coverage"
    text = _SETTINGS.format(root=tree.root, data=data, variable=CONTEXT_VARIABLE)
    settings.write_text(text, encoding="utf-8")
    plan, log_file = tree.scratch / "plan", tree.scratch / "log"
    Plan(log=str(log_file), coverage=True).write(plan)
    command = [*PYTEST, "--mutation-plan", str(plan), *tests]
    done = workshop.run(
        tree,
        ["-m", "coverage", "run", f"--rcfile={settings}", *command],
        variables={"COVERAGE_PROCESS_START": str(settings)},
    )
    log = read_log(log_file)
    if not log.seconds or done.returncode not in (0, 1):
        raise MutationError(f"the tests do not run:\n{done.stdout[-4000:]}")
    Coverage(config_file=str(settings)).combine([str(tree.scratch)])
    folder.mkdir(parents=True)
    shutil.copyfile(data, folder / "coverage")
    summary = {"root": str(tree.root), "seconds": log.seconds, "failed": log.failed}
    facts.write_text(json.dumps(summary), encoding="utf-8")
    _forget_old(cache)
    return Reach(str(tree.root), folder / "coverage", log.seconds, log.failed)


def own_lines(source: str, line: int) -> set[int]:
    """The lines of the innermost statement around a line, without those of the statements inside it."""
    innermost: ast.stmt | None = None
    for node in ast.walk(ast.parse(source)):
        # `walk` goes by depth, so that a later match lies deeper.
        if isinstance(node, ast.stmt) and line in _lines(node):
            innermost = node
    if innermost is None:
        return {line}
    inside = {number for child in _statements_in(innermost) for number in _lines(child)}
    return set(_lines(innermost)) - inside


def _statements_in(statement: ast.stmt) -> Iterator[ast.stmt]:
    return (
        node for node in ast.walk(statement) if isinstance(node, ast.stmt) and node is not statement
    )


def _lines(statement: ast.stmt) -> range:
    assert statement.end_lineno is not None
    decorators = getattr(statement, "decorator_list", [])
    first = min([statement.lineno, *(decorator.lineno for decorator in decorators)])
    return range(first, statement.end_lineno + 1)


def _digest(root: Path, tests: Sequence[str]) -> str:
    digest = hashlib.sha256("\n".join(tests).encode())
    for file in sorted(path for path in root.rglob("*") if path.is_file()):
        content = hashlib.sha256(file.read_bytes()).hexdigest()
        digest.update(f"\n{file.relative_to(root)} {content}".encode())
    return digest.hexdigest()[:16]


def _forget_old(folder: Path) -> None:
    newest_first = sorted(folder.iterdir(), key=lambda path: path.stat().st_mtime, reverse=True)
    for old in newest_first[_KEPT:]:
        shutil.rmtree(old)
