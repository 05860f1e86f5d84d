"""The developers' tools."""

import sys
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from tools.check import Gate, run_gate, summary
from tools.repomap import render


def test_repomap_when_a_file_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "glowpy").mkdir()
    (tmp_path / "glowpy" / "mute.py").write_text("x = 1\n")
    (tmp_path / "glowpy" / "told.py").write_text('"""What it is.\n\nMore."""\n')
    (tmp_path / "libjit").mkdir()
    (tmp_path / "libjit" / "k.c").write_text("/// A kernel.\n")
    text, silent = render(tmp_path)
    assert silent == [Path("glowpy/mute.py")]
    assert "- `told.py`: What it is.\n" in text
    assert "- `k.c`: A kernel.\n" in text


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
