"""The mutation run, on a checkout of a few lines."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.mutate.areas import AREAS, area_files
from tools.mutate.c_changes import c_changes
from tools.mutate.listed import read_listed
from tools.mutate.mutant import Mutant, MutationError
from tools.mutate.plugin import PYTEST, Plan, read_log
from tools.mutate.tree import Tree, Workshop
from tools.mutate.trial import _limits, check_tests_pass

ROOT = Path(__file__).resolve().parents[2]

SOURCE = """\
def larger(a, b):
    return a if a > b else b


def total(values):
    result = 0
    for value in values:
        result += value
    return result
"""

TESTS = """\
from package import larger, total


def test_larger():
    assert larger(2, 3) == larger(3, 2) == 3


def test_total():
    assert total([1, 2]) == 3
"""

TOTAL = "tests/test_package.py::test_total"
LARGER = "tests/test_package.py::test_larger"

ENTRY = '''
[[mutant]]
id = "{id}"
file = "package.py"
old = """{old}"""
new = """{new}"""
about = "an example"
tests = ["tests/test_package.py"]
'''


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A git checkout with one module, its tests and this tool."""
    root = tmp_path / "checkout"
    (root / "tests").mkdir(parents=True)
    (root / "package.py").write_text(SOURCE)
    (root / "tests" / "test_package.py").write_text(TESTS)
    (root / "ignored").write_text("")
    (root / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")
    (root / ".gitignore").write_text("ignored\n__pycache__\n")
    shutil.copytree(ROOT / "tools" / "mutate", root / "tools" / "mutate")
    subprocess.run(["git", "init", "-q"], cwd=root, check=True)
    return root


def list_mutants(root: Path, *changes: tuple[str, str, str]) -> None:
    """Writes a list of mutants: name, old and new text of each."""
    folder = root / "tools" / "mutants"
    folder.mkdir(parents=True)
    entries = [ENTRY.format(id=name, old=old, new=new) for name, old, new in changes]
    (folder / "examples.toml").write_text("".join(entries))


def test_listed_mutants_of_this_tree_are_not_stale() -> None:
    assert read_listed(ROOT)


def test_every_area_has_files() -> None:
    for area in AREAS:
        assert area_files(ROOT, area)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ([("A", "a < b", "a > b")], "A: stale: expected `old` once in package.py, got 0 times"),
        ([("A", "result", "total")], "A: stale: expected `old` once in package.py, got 3 times"),
        ([("A", "a > b", "a >")], "A: not Python any more"),
        ([("A", "a > b", "a > b")], "A: `old` and `new` are the same"),
        ([("A", "a > b", "a < b"), ("A", "= 0", "= 1")], "A: second mutant of this id"),
        ([("C", "gone", "")], "no listed mutant A"),
    ],
)
def test_entries_that_are_refused(
    checkout: Path, changes: list[tuple[str, str, str]], message: str
) -> None:
    list_mutants(checkout, *changes)
    with pytest.raises(MutationError, match=message):
        read_listed(checkout, ["A"])


def test_every_stale_entry_is_named(checkout: Path) -> None:
    with pytest.raises(MutationError, match="no listed mutants in"):
        read_listed(checkout)
    list_mutants(checkout, ("A", "gone", ""), ("B", "lost", ""))
    with pytest.raises(MutationError, match=r"A: stale.*\n.*B: stale"):
        read_listed(checkout)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("about =", "reason =", "expected the keys id, file"),
        ("[[mutant]]", "[[mutants]]", "expected .*mutant.* tables and nothing else"),
        ("[[mutant]]", "[mutant", "Expected"),
        ('id = "A"', "id = 1", "expected id to be text"),
        ('["tests/test_package.py"]', "[]", "expected tests to be a list of pytest paths"),
        ("tests/test_package.py", "tests/test_gone.py::test", "no test file tests/test_gone.py"),
        ('file = "package.py"', 'file = "gone.py"', "stale: no file gone.py"),
    ],
)
def test_malformed_entries(checkout: Path, old: str, new: str, message: str) -> None:
    list_mutants(checkout, ("A", "a > b", "a < b"))
    file = checkout / "tools" / "mutants" / "examples.toml"
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(MutationError, match=message):
        read_listed(checkout)


def test_tests_that_fail_without_a_mutant_are_an_error(checkout: Path, tmp_path: Path) -> None:
    (checkout / "package.py").write_text(SOURCE.replace("= 0", "= 1"))
    workshop = Workshop(checkout, tmp_path / "copies")
    with pytest.raises(MutationError, match=f"fail without any mutant: {TOTAL}"):
        check_tests_pass(workshop, ["tests"])


def test_a_copy_has_what_belongs_to_the_checkout(checkout: Path, tmp_path: Path) -> None:
    tree = Workshop(checkout, tmp_path / "copies").copy("1")
    assert not (tree.root / "ignored").exists()
    assert (tree.root / "tests" / "test_package.py").read_text() == TESTS


def test_a_hanging_test_ends_the_run(checkout: Path, tmp_path: Path) -> None:
    workshop = Workshop(checkout, tmp_path / "copies")
    tree = workshop.copy("1")
    tree.write(Path("package.py"), SOURCE.replace("result = 0", "while True: result = 0"))
    assert run_plan(workshop, tree, Plan(log_file(tree), seconds={TOTAL: 0.5})) == 1
    assert read_log(Path(log_file(tree))).last == TOTAL


def log_file(tree: Tree) -> str:
    return str(tree.scratch / "log")


def run_plan(workshop: Workshop, tree: Tree, plan: Plan) -> int:
    plan.write(tree.scratch / "plan")
    command = [*PYTEST, "--mutation-plan", str(tree.scratch / "plan"), "tests"]
    return workshop.run(tree, command, 60).returncode


def test_a_plan_orders_and_leaves_out_tests(checkout: Path, tmp_path: Path) -> None:
    workshop = Workshop(checkout, tmp_path / "copies")
    tree = workshop.base
    only = [TOTAL, "tests/test_package.py::test_gone", LARGER]
    assert run_plan(workshop, tree, Plan(log_file(tree), only=only)) == 0
    assert list(read_log(Path(log_file(tree))).seconds) == [TOTAL, LARGER]


def test_a_command_that_takes_too_long_is_killed(checkout: Path, tmp_path: Path) -> None:
    workshop = Workshop(checkout, tmp_path / "copies")
    with pytest.raises(subprocess.TimeoutExpired):
        workshop.run(workshop.base, ["-c", "import time; time.sleep(60)"], 0.2)
    workshop.stop()
    with pytest.raises(MutationError, match="stopped"):
        workshop.run(workshop.base, ["-c", ""])


def test_diff_of_a_mutant() -> None:
    mutant = Mutant("m", "area", Path("a.py"), 1, "about", "x = 1\ny = 2", "x = 1\ny = 3")
    assert mutant.diff == "--- a/a.py\n+++ b/a.py\n@@ -1,2 +1,2 @@\n x = 1\n-y = 2\n+y = 3\n"
    assert mutant.place == "a.py:1"


def c_texts(source: str) -> list[list[str]]:
    return [[change.apply() for change in changes] for changes in c_changes(source)]


def test_c_operators() -> None:
    assert c_texts("a < b") == [["a <= b"]]
    assert c_texts("a * b + c") == [["a + b + c"], ["a * b - c"]]
    assert c_texts("x += y") == [["x -= y", "x = y"]]
    assert c_texts("int at = 0;") == [["int at = 1;"]]
    assert c_texts("int at = 8;") == [["int at = 9;", "int at = 7;"]]
    assert c_texts("float s = 0.0f;") == [["float s = 1.0f;"]]


@pytest.mark.parametrize(
    "source",
    [
        "float *p",
        "// a < b",
        "/* 1\n + 2 */",
        '"a < 1"',
        "#include <x1.h>",
        "f32",
        "x1e",
        "1.5f",
        "0x10",
    ],
)
def test_what_is_no_c_operator(source: str) -> None:
    assert c_texts(source) == []


def test_c_changes_know_their_line() -> None:
    (changes,) = c_changes("// one\n/* two\n */ a < b\n")
    assert [change.line for change in changes] == [3]


def test_listed_mutants_are_noticed_or_survive(checkout: Path) -> None:
    list_mutants(
        checkout,
        ("equivalent", "a > b", "a >= b"),
        ("crash", "result += value", "__import__('os')._exit(3)"),
    )
    command = [sys.executable, "-m", "tools.mutate", "--listed", "--json", "out.json"]
    done = subprocess.run(command, cwd=checkout, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert not done.stderr
    assert "survived equivalent package.py:2 (an example)" in done.stdout
    assert "+    return a if a >= b else b\n" in done.stdout
    outcomes = json.loads((checkout / "out.json").read_text())["outcomes"]
    assert [(outcome["verdict"], outcome["by"]) for outcome in outcomes] == [
        ("survived", ""),
        ("noticed", f"exit 3: {TOTAL}"),
    ]
    assert (checkout / "package.py").read_text() == SOURCE


def test_limits_are_those_of_the_slowest_test_of_the_file() -> None:
    """It may be slow for the sake of a fixture, which another test pays for where the order is another."""
    limits = _limits({"a.py::slow": 30.0, "a.py::quick": 0.1, "b.py::quick": 0.1})
    assert limits["a.py::quick"] == limits["a.py::slow"] > limits["b.py::quick"] > 60
