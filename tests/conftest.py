"""File tests: every section of a `tests/filetests/**/*.glow` file is a test.

```
// RUN: glowpy opt %s -p dce          run in this process; %s is the section. Holds until the next RUN line.
// CHECK: save(%x                     filecheck's directives, on what is printed
// PRECISE                            or: all that is printed: the section itself, or what follows `// ===>`
save(%x, %y) // error: wrong type     or: the diagnostics of this line, and no others in the section
// -----                              the next section
```

`--bless` writes what is printed after `// ===>`, here and wherever else tests compare with files.
"""

from __future__ import annotations

import difflib
import gc
import io
import os
import re
import shlex
from collections.abc import Generator, Iterator
from contextlib import redirect_stderr
from pathlib import Path

import pytest
from filecheck.finput import FInput
from filecheck.matcher import Matcher
from filecheck.options import Options
from filecheck.parser import Parser, pattern_for_opts

from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.cli import main as cli

_FILES = Path(__file__).parent / "filetests"
_CUT = "// -----\n"
_ARROW = "// ===>\n"
_ERROR = "// error:"
_DIAGNOSTIC = re.compile(r"^(?:error: )?<stdin>:(\d+):\d+: (.*)$", re.MULTILINE)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--bless", action="store_true", help="write what is printed as expected")
    parser.addoption("--sanitize", action="store_true", help="watch the memory of operators' rows")


def pytest_configure(config: pytest.Config) -> None:
    """Rows are compiled by a function that no fixture reaches."""
    if config.getoption("--sanitize"):
        os.environ["GLOWPY_SANITIZED_ROWS"] = "1"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Thousands of tests and what they import are no garbage: the collector looks for none there, now or later."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Files with slow tests begin: what comes last is short then, and no process waits long for the other."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


@pytest.fixture(scope="session", autouse=True)
def zig_objects(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """What zig makes of the tests' files goes with the run: its cache, which only grows, keeps C libraries alone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ZIG_LOCAL_CACHE_DIR", str(tmp_path_factory.mktemp("zig")))
        yield


@pytest.fixture(scope="session", autouse=True)
def no_wait_for_the_disk() -> Iterator[None]:
    """Thousands of small entries of the cache, and none that has to outlive a power failure."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _: None)
        yield


@pytest.fixture
def cache_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache of the test's own, and no stock; this process knows the kernels for this machine already."""
    LIBJIT.bitcode(CpuBackend().target.variant)
    monkeypatch.setattr("glowpy.backends.cpu.compiler.STOCK_FOLDER", tmp_path / "stock")
    folder = tmp_path / "cache"
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(folder))
    return folder


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    if file_path.suffix == ".glow" and file_path.is_relative_to(_FILES):
        collected: GlowFile = GlowFile.from_parent(parent, path=file_path)
        return collected
    return None


class GlowFile(pytest.File):
    """The sections of one file."""

    def collect(self) -> Iterator[GlowCase]:
        sections = self.path.read_text(encoding="utf-8").split(_CUT)
        command, line = "", 0
        for number, text in enumerate(sections):
            match = re.search(r"^// RUN: glowpy (.*)$", text, re.MULTILINE)
            command = match[1] if match else command
            yield GlowCase.from_parent(
                self, name=f"{number}", text=text, line=line, command=command
            )
            line += text.count("\n") + 1


class GlowCase(pytest.Item):
    """One section: a text, how to run glowpy on it, and what that must print."""

    def __init__(self, *, text: str, line: int, command: str, **rest: object) -> None:
        super().__init__(**rest)  # type: ignore[arg-type]
        self.text, self.line, self.command = text, line, command

    def runtest(self) -> None:
        if not self.command:
            raise OutputError(f"{self.path} has no RUN line")
        source, arrow, expected = self.text.partition(_ARROW)
        status, printed = self._run("\n" * self.line + source)
        if _ERROR in source:
            self._check_errors(source, status, printed)
            return
        if status:
            raise OutputError(printed)
        if "// PRECISE" in source:
            self._compare(source, expected if arrow else _without_comments(source), printed)
        else:
            self._check(source, printed)

    def _run(self, source: str) -> tuple[int, str]:
        out = io.StringIO()
        argv = [word if word != "%s" else "-" for word in shlex.split(self.command)]
        return cli.run(argv, io.StringIO(source), out), out.getvalue()

    def _check_errors(self, source: str, status: int, printed: str) -> None:
        expected = [
            (number, part.strip())
            for number, line in enumerate(source.splitlines(), self.line + 1)
            for part in line.split(_ERROR)[1:]
        ]
        diagnostics = [(int(line), message) for line, message in _DIAGNOSTIC.findall(printed)]
        missing = [
            w for w in expected if not any(w[0] == n and w[1] in text for n, text in diagnostics)
        ]
        surplus = [
            f for f in diagnostics if not any(f[0] == n and text in f[1] for n, text in expected)
        ]
        if missing or surplus or status != 1:
            raise OutputError(f"missing {missing}\nunexpected {surplus}\nexit {status}\n{printed}")

    def _compare(self, source: str, expected: str, printed: str) -> None:
        if expected == printed:
            return
        if self.config.getoption("--bless"):
            whole = self.path.read_text(encoding="utf-8")
            blessed = whole.replace(self.text, source + _ARROW + printed)
            self.path.write_text(blessed, encoding="utf-8")
            return
        difference = difflib.unified_diff(
            expected.splitlines(), printed.splitlines(), "expected", "printed", lineterm=""
        )
        raise OutputError("\n".join([*difference, f"pytest {self.path} --bless accepts it"]))

    def _check(self, source: str, printed: str) -> None:
        options = Options(str(self.path))
        checks = Parser(options, io.StringIO("\n" * self.line + source), *pattern_for_opts(options))
        said = io.StringIO()
        with redirect_stderr(said):
            failed = Matcher(options, FInput("printed", printed), checks).run()
        if failed:
            raise OutputError(f"{said.getvalue()}\nprinted:\n{printed}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException]) -> str:  # type: ignore[override]
        failed = isinstance(excinfo.value, OutputError)
        return str(excinfo.value if failed else excinfo.getrepr())

    def reportinfo(self) -> tuple[Path, int, str]:
        return self.path, self.line, f"{self.path.stem} section {self.name}"


class OutputError(Exception):
    """A file test failed; the message is the report."""


def _without_comments(source: str) -> str:
    kept = [line for line in source.splitlines(keepends=True) if not line.startswith("//")]
    return "".join(kept).lstrip("\n")
