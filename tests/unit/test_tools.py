"""The developers' tools."""

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tools.check import Gate, run_gate, summary
from tools.repomap import ROOT, lacking, render


def test_repomap_when_a_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "glowpy").mkdir()
    (tmp_path / "glowpy" / "mute.py").write_text("x = 1\n")
    (tmp_path / "glowpy" / "told.py").write_text('"""What it is.\n\nMore."""\n')
    (tmp_path / "glowpy" / "__init__.py").write_text('"""A package."""\n')
    (tmp_path / "glowpy" / "inner").mkdir()
    (tmp_path / "glowpy" / "inner" / "deep.py").write_text('"""Deep down."""\n')
    (tmp_path / "libjit").mkdir()
    (tmp_path / "libjit" / "k.c").write_text("/// A kernel.\n")
    assert lacking(tmp_path) == [Path("glowpy/mute.py"), Path("glowpy/inner")]
    folders = render(tmp_path)
    assert "- `glowpy/`: A package.\n- `glowpy/inner/`: \n- `libjit/`: The kernels" in folders
    assert "told.py" not in folders
    text = render(tmp_path, Path("glowpy"))
    assert "  - `told.py`: What it is.\n" in text
    assert "deep.py" not in text
    assert "libjit" not in text
    every = render(tmp_path, files=True)
    assert "  - `deep.py`: Deep down.\n" in every
    assert "  - `k.c`: A kernel.\n" in every


def test_repomap_fits_on_a_page() -> None:
    """The files of a folder are shown when it is named."""
    lines = render(ROOT).splitlines()
    assert len(lines) < 100
    assert max(map(len, lines)) < 200
    assert lacking(ROOT) == []


def test_tools_need_no_command_line() -> None:
    """What they share with it lies below it."""
    files = (Path(__file__).resolve().parents[2] / "tools").rglob("*.py")
    assert [file for file in files if "from glowpy.cli" in file.read_text()] == []


@pytest.mark.parametrize(("status", "result"), [(0, "passed"), (3, "failed (3)")])
def test_check_tells_how_a_gate_ended(status: int, result: str) -> None:
    gate = Gate("probe", (sys.executable, "-c", f"raise SystemExit({status})"))
    outcome = run_gate(gate, Console(file=StringIO()))
    assert outcome.status == status
    table = StringIO()
    Console(file=table, width=80).print(summary([outcome]))
    (row,) = [line for line in table.getvalue().splitlines() if "probe" in line]
    assert result in row
