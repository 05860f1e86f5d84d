"""Every block in README.md and docs/ does what the page says, and no page links to what is not there."""

import difflib
import re
import tomllib
import warnings
from pathlib import Path

import pytest

from glowpy.cli import main
from tests.docs.blocks import Page, matches
from tests.torch_backend import publish

ROOT = Path(__file__).resolve().parents[2]
GENERATED = set((ROOT / "docs" / "reference").glob("*.md"))
PAGES = [
    page
    for page in (ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")))
    if page not in GENERATED
]


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_blocks(
    page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(tmp_path)
    if page.name == "cache.md":  # not to clear that of whoever runs the tests
        monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "cache"))
    with warnings.catch_warnings():
        if page.name == "pytorch.md":
            pytest.importorskip("onnxscript", reason="torch or onnxscript is not installed")
            pytest.importorskip("torch", reason="torch or onnxscript is not installed")
            warnings.simplefilter("ignore")  # of torch's exporter
            publish()
        run = Page(page, tmp_path)
        fresh = run.run()
    if fresh == run.page:
        return
    if request.config.getoption("--bless", default=False):
        page.write_text(fresh, encoding="utf-8")
        return
    difference = difflib.unified_diff(
        run.page.splitlines(), fresh.splitlines(), name_of(page), "what happens", lineterm=""
    )
    pytest.fail("\n".join(difference) + "\npytest tests/docs --bless writes it", pytrace=False)


@pytest.mark.parametrize("page", PAGES, ids=name_of)
def test_links_lead_somewhere(page: Path) -> None:
    prose = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    links = re.findall(r"\]\((?!https?:|#)([^)#]+)(?:#[^)]*)?\)", prose)
    assert [link for link in links if not (page.parent / link).exists()] == []


def test_every_verb_is_named_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [verb for verb in main.VERBS if f"glowpy {verb}" not in readme] == []


def test_every_page_is_reached_from_the_index() -> None:
    index = (ROOT / "docs" / "index.md").read_text(encoding="utf-8")
    pages = [page for page in (ROOT / "docs").rglob("*.md") if page.name != "index.md"]
    assert [name_of(p) for p in pages if p.relative_to(ROOT / "docs").as_posix() not in index] == []


@pytest.mark.parametrize(
    ("expected", "got", "same"),
    [
        ("a\nb\n", "a\nb\n", True),
        ("a\n", "a\nb\n", False),
        ("a\n...\n", "a\nb\nc\n", True),
        ("a\n...\nc\n", "a\nb\nd\n", False),
        ("...\n", "", True),
        ("a.c\n", "abc\n", False),
        ("a ... c\n", "a b c\n", True),
        ("a ... c\n", "a b\nc\n", False),
    ],
)
def test_matches(expected: str, got: str, same: bool) -> None:
    assert matches(expected, got) is same


def test_a_wrong_output_is_replaced_and_a_right_one_stays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    page = tmp_path / "page.md"
    page.write_text(
        "```python\nprint(1 + 1)\n```\n```text\n3\n```\n"
        "```console\n$ glowpy dump nothing.glow\nerror: ...\n$ glowpy run x.txt\n...\n```\n"
    )
    assert Page(page, tmp_path).run() == (
        "```python\nprint(1 + 1)\n```\n```text\n2\n```\n"
        "```console\n$ glowpy dump nothing.glow\n"
        "error: nothing.glow: cannot read the file: No such file or directory\n"
        "note: check the path\n$ glowpy run x.txt\n...\n```\n"
    )


def test_the_style_guide_has_the_layers_of_the_contract() -> None:
    """That every part of the tree has a layer, the contract says itself."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    (contract,) = (c for c in project["tool"]["importlinter"]["contracts"] if c["id"] == "layers")
    layers = [set(re.findall(r"\w+", layer)) - {"__main__"} for layer in contract["layers"]]
    text = (ROOT / "docs" / "style.md").read_text()
    (arrows,) = re.findall(r"Arrows point down:(.*?)\. The contracts", text, re.DOTALL)
    stages = "`lower`, `schedule`, `irgen`, `memory`, `memory_check`"
    named = arrows.replace("the\n  stages", stages).replace("the stages", stages).split(">")
    assert [set(re.findall(r"`(\w+)`", names)) for names in named] == [one for one in layers if one]
