"""The documentation as a site: it builds without a warning, and its API page has every public name."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

import glowpy

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("sphinx", "myst_parser", "furo")


def test_the_api_page_has_every_public_name() -> None:
    page = (ROOT / "docs" / "api.md").read_text("utf-8")
    assert sorted(re.findall(r"^\.\. auto\w+:: glowpy\.(\w+)$", page, re.MULTILINE)) == sorted(
        glowpy.__all__
    )


def build(source: Path, output: Path, builder: str = "dummy") -> subprocess.CompletedProcess[str]:
    """Reads pages and docstrings, and follows links; writes HTML if `builder` is `html`."""
    command = ["-m", "sphinx", "-q", "-W", "--keep-going", "-E", "-b", builder, "-c"]
    return subprocess.run(
        [sys.executable, *command, str(ROOT / "docs"), str(source), str(output)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


MISSING = ", ".join(name for name in NEEDED if importlib.util.find_spec(name) is None)
needs_generator = pytest.mark.skipif(
    bool(MISSING), reason=f"{MISSING} not installed: pip install '.[docs]'"
)


@pytest.mark.slow
@needs_generator
def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    done = build(ROOT, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@needs_generator
def test_a_broken_link_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "docs").mkdir()
    targets = ["nowhere.md", "index.md#nothing", "none.c"]
    links = "\n\n".join(f"[a link]({target})" for target in targets)
    (tmp_path / "docs" / "index.md").write_text(f"# A page\n\n{links}\n\n## Decisions\n")
    done = build(tmp_path, tmp_path / "site")
    assert done.returncode == 1
    assert [t for t in ("nowhere", "nothing", "none.c") if t not in done.stderr] == []


@needs_generator
def test_the_root_of_the_site_leads_to_its_first_page(tmp_path: Path) -> None:
    for file in ("docs/index.md", "libjit/README.md"):
        (tmp_path / file).parent.mkdir()
        (tmp_path / file).write_text("# A page\n\n## Decisions\n")
    done = build(tmp_path, tmp_path / "site", "html")
    assert (done.returncode, done.stderr) == (0, "")
    root = (tmp_path / "site" / "index.html").read_text("utf-8")
    targets = set(re.findall(r"(?:url|href)=\"?([^\"]+)\"", root))
    assert targets == {"docs/index.html"}
    assert (tmp_path / "site" / "docs" / "index.html").is_file()
