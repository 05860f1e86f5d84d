"""Random mutants: what may change, where, and which tests reach it. These need the extra `mutation`."""

from __future__ import annotations

from pathlib import Path

import pytest

pytest.importorskip("cosmic_ray")
pytest.importorskip("coverage")

from tests.unit.test_mutate import LARGER, ROOT, TOTAL, checkout
from tools.mutate.areas import AREAS, area_files
from tools.mutate.mutant import Mutant
from tools.mutate.python_changes import python_changes
from tools.mutate.reach import measure, own_lines
from tools.mutate.sample import Checker, draw
from tools.mutate.tree import Workshop
from tools.mutate.trial import Verdict, try_random

__all__ = ["checkout"]


def texts(source: str) -> list[str]:
    return [change.apply() for changes in python_changes(source) for change in changes]


@pytest.mark.parametrize(
    ("source", "results"),
    [
        ("a < b", ["a <= b"]),
        ("a + b", ["a - b"]),
        ("a and not b", ["a or not b", "a and  b"]),
        ("x = 4", ["x = 5", "x = 3"]),
        ("while x: break", ["while not x: break", "while x: continue"]),
        ("for x in y: pass", ["for x in []: pass"]),
        ("f(True)", ["f(False)"]),
    ],
)
def test_python_changes(source: str, results: list[str]) -> None:
    assert sorted(texts(source)) == sorted(results)


@pytest.mark.parametrize(
    "source",
    [
        '"""Counts 1 + 1."""',
        "x: int | None",
        "def f(x: Literal[1]) -> A | B: pass",
        "if TYPE_CHECKING:\n    x = 1",
        '__all__ = ["a"] + b.__all__',
        "@dataclass(frozen=True)\nclass A: pass",
        'raise ValueError(f"{n + 1}")',
        'yield VerifyError("é", n + 1)',
        "# a comment of 1 + 1",
        "f(*a, **b)",
        "{**a, 'é': [*b]}",
    ],
)
def test_what_is_not_changed(source: str) -> None:
    assert texts(source) == []


def test_columns_count_characters() -> None:
    assert texts('f("ééé", ValueError("é", 1), 2)') == [
        'f("ééé", ValueError("é", 1), 3)',
        'f("ééé", ValueError("é", 1), 1)',
    ]


def test_own_lines_of_a_statement() -> None:
    source = "x = 1\nif (a and\n        b):\n    y = (1,\n        2)\nelse:\n    z = 3\n"
    assert own_lines(source, 1) == {1}
    assert own_lines(source, 3) == own_lines(source, 2) == {2, 3, 6}
    assert own_lines(source, 5) == {4, 5}


def test_a_draw_is_even_and_repeats() -> None:
    def judge(file: Path, original: str, mutated: str) -> bool:
        return original != mutated

    areas = ["core", "memory", "stages"]
    mutants = list(draw(ROOT, areas, 8, 7, judge))
    assert sorted([m.area for m in mutants].count(area) for area in areas) == [2, 3, 3]
    assert len({(m.file, m.diff) for m in mutants}) == 8
    assert [m.diff for m in draw(ROOT, areas, 8, 7, judge)] == [m.diff for m in mutants]
    assert [m.diff for m in draw(ROOT, areas, 8, 8, judge)] != [m.diff for m in mutants]
    for mutant in mutants:
        line = f"@@ -{max(1, mutant.line - 3)},"
        assert mutant.file in area_files(ROOT, mutant.area)
        assert line in mutant.diff
    assert set(areas) <= AREAS.keys()


def test_mutants_that_cannot_be_imported_are_not_drawn(checkout: Path, tmp_path: Path) -> None:
    source = (checkout / "package.py").read_text()
    checker = Checker(Workshop(checkout, tmp_path / "copies"))
    assert checker(Path("package.py"), source, source.replace("= 0", "= 1"))
    assert not checker(Path("package.py"), source, source.replace("= 0", "="))
    assert not checker(Path("package.py"), source, source + "1 / 0\n")


def test_random_mutants_are_noticed_or_survive(checkout: Path, tmp_path: Path) -> None:
    package = checkout / "glowpy"
    package.mkdir()
    source = (checkout / "package.py").read_text()
    source += "\n\ndef unused():\n    return 1\n"
    (package / "__init__.py").write_text(source)
    test = checkout / "tests" / "test_package.py"
    test.write_text(test.read_text().replace("package", "glowpy") + BAD_TEST)
    workshop = Workshop(checkout, tmp_path / "copies")
    reach = measure(workshop, tmp_path / "cache", ["tests"])
    assert reach.failed == ["tests/test_package.py::test_bad"]

    def mutant(old: str, new: str) -> Mutant:
        line = source[: source.index(old)].count("\n") + 1
        return Mutant(
            f"m{line}",
            "all",
            Path("glowpy/__init__.py"),
            line,
            "",
            source,
            source.replace(old, new),
        )

    total, larger = mutant("= 0", "= 1"), mutant("a > b", "a >= b")
    unused, imported = mutant("return 1", "return 2"), mutant("(values)", "(values=1)")
    assert reach.tests(total) == [TOTAL]
    assert reach.tests(larger) == [LARGER]
    assert sorted(reach.tests(imported)) == [LARGER, TOTAL]
    assert reach.tests(unused) == []
    outcomes = [try_random(workshop, m, reach, ["tests"]) for m in (larger, unused)]
    assert [(outcome.verdict, outcome.by) for outcome in outcomes] == [
        (Verdict.SURVIVED, ""),
        (Verdict.NOT_REACHED, ""),
    ]
    again = measure(workshop, tmp_path / "cache", ["tests"])
    assert again.tests(total) == [TOTAL]


BAD_TEST = """

def test_bad():
    assert False
"""
