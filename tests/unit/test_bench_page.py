"""The page of the bench tool: sections that are measured apart, kept and told."""

import json
import os
import subprocess
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree.ElementTree import fromstring

import pytest

from tools import bench_page
from tools.bench import main, parse
from tools.bench_layers import LayersRow, SlowLayer
from tools.bench_page import Run, read_figures, renewed, write_page
from tools.bench_rows import Row, ThreadsRow
from tools.bench_sections import SECTIONS, races

ABOUT = {"processor": "a fast one", "cores": "2", "core": "1", "load": "0.10", "system": "Linux"}
ABOUT |= {"date": "2026-11-01", "rounds": "3", "clock": "cpu", "versions": "glowpy 1"}
ROWS = [
    Row("bert", "1x4", rounds={"glowpy": [8], "onnxruntime": [4], "ncnn": [16]}),
    Row("resnet50", "1x3", rounds={"glowpy": [2, 1, 90], "onnxruntime": [4, 4, 90]}),
    Row("lstm", missing={"glowpy": "wrong by 1"}, rounds={"onnxruntime": [3]}),
]
THREADS = ThreadsRow("bert", 4, 2, 2, True, 16, 15.5, 1.03)


def run_of(*rows: Row | ThreadsRow | LayersRow, note: str = "", **about: str) -> Run:
    """Such rows as a tool measures them."""
    return {"about": ABOUT | about, "rows": list(map(asdict, rows)), "note": note}


def test_page_and_picture(tmp_path: Path) -> None:
    path = tmp_path / "speed.md"
    figures = {"threads": [run_of(THREADS, note="Both are near.")], "f32": [run_of(*ROWS)]}
    write_page(path, figures)
    text = path.read_text(encoding="utf-8")
    assert "*2026-11-01: a fast one, 2 cores, on core 1, load 0.10, Linux; rounds: 3" in text
    assert "| bert | 1x4 | 8.00 | 4.00 | - | 16.00 | 2.00 | - | 0.50 | 2.00 |" in text
    assert "| resnet50 | 1x3 | 2.00 | 4.00 | - | - | 0.50 | - | - | 0.50 |" in text
    assert text.index("| resnet50 ") < text.index("| bert ")  # in the order of the networks
    assert "| **all**, geometric mean |  |  |  |  |  | 1.00 | - | 0.50 | 1.00 |" in text
    assert "* lstm, glowpy: wrong by 1" in text
    assert "| bert | 4.00 | 2.00 | 2.00 | yes | 16.0 | 15.5 | 1.03 |" in text
    assert text.index("## One core, f32") < text.index("## Two threads")
    assert "\n\nBoth are near.\n\n" in text
    assert "(speed.svg)" in text
    assert read_figures(path) == figures
    tree = fromstring((tmp_path / "speed.svg").read_text(encoding="utf-8"))
    titles = [title.text for title in tree.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == ["resnet50, onnxruntime: 2.00", "bert, onnxruntime: 0.50", "bert, ncnn: 2.00"]


def test_layers_far_from_their_roofs(tmp_path: Path) -> None:
    slow = SlowLayer("conv1", "cpu_conv + max", 0.25, 0.5, 0.4)
    rows = [LayersRow("bert", 0.5, 0.7, [asdict(slow)] * 2), LayersRow("lstm", 0.1, 0.9, [])]
    write_page(tmp_path / "speed.md", {"layers": [run_of(*rows)]})
    text = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert "| bert | 0.50 | 70% | conv1 | cpu_conv + max | 0.250 | 50% | 40% |" in text
    assert "|  |  |  | conv1 | cpu_conv + max | 0.250 | 50% | 40% |" in text
    assert "| lstm | 0.10 | 90% | none |  |  |  |  |" in text


def test_decoders_are_told_by_what_they_multiply(tmp_path: Path) -> None:
    times = {"glowpy 8 bits": 7.0, "glowpy f32": 14.0, "onnxruntime f32": 40.0, "llama.cpp": 10.0}
    row = {"new": 1, "past": 128, "milliseconds": times, "error": {"8 bits": 0.01}, "least": 6.5}
    lines = list(SECTIONS["decoders"].told([row, {**row, "least": None}]))
    assert (
        lines[2]
        == "| 1 after 128 | 10.00 | 7.00 | - | 14.00 | 40.00 | 0.70 | 1.40 | 1e-02 | 6.50 |"
    )
    assert lines[3].endswith("| - |")


def test_ratios_are_of_the_contestant_that_is_told_about() -> None:
    rounds = {"glowpy": [4.0], "glowpy bf16": [2.0], "openvino": [8.0], "openvino default": [1.0]}
    row = Row("bert", "1x4", rounds=rounds, least={"glowpy bf16": 1.0, "glowpy": 1.0})
    lines = list(races([asdict(row)], names=list(rounds), ours="glowpy bf16"))
    assert lines[0].endswith(
        "| / glowpy | / openvino | / openvino default | / fastest | of its roof |"
    )
    assert lines[2].endswith("| 0.50 | 0.25 | 2.00 | 2.00 | 50% |")


def test_rows_are_renewed_and_others_stay() -> None:
    old = [run_of(*ROWS)]
    new = run_of(Row("bert", "again"), date="2026-11-02", load="9.00", rounds="7 of 1 s")
    runs = renewed(old, new)
    assert [[row["model"] for row in run["rows"]] for run in runs] == [
        ["resnet50", "lstm"],
        ["bert"],
    ]
    assert renewed(runs, run_of(*ROWS[1:])) == [new, run_of(*ROWS[1:])]


@pytest.mark.parametrize("other", [{"processor": "a slow one"}, {"versions": "glowpy 2"}])
def test_rows_of_another_machine_or_version_go(other: dict[str, str]) -> None:
    new = run_of(Row("bert"), **other)
    assert renewed([run_of(*ROWS)], new) == [new]


def test_several_dates_are_told(tmp_path: Path) -> None:
    runs = [
        run_of(ROWS[0], date="2026-11-02", load="9.50"),
        run_of(ROWS[1], date="2026-11-01", load="10.00"),
    ]
    write_page(tmp_path / "speed.md", {"f32": runs})
    text = (tmp_path / "speed.md").read_text(encoding="utf-8")
    assert "*2026-11-01 to 2026-11-02: a fast one" in text
    assert "load 9.50 to 10.00" in text


def test_a_section_has_every_option_that_it_takes(tmp_path: Path) -> None:
    options = parse(["--write", str(tmp_path / "speed.md")])
    for section in SECTIONS.values():
        assert all(hasattr(options, option) for option in section.takes)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="needs Linux")
def test_sections_are_measured_apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    commands: list[list[str]] = []

    def run(command: list[str], **_: Any) -> SimpleNamespace:
        commands.append(command)
        row = asdict(THREADS if "tools.bench_threads" in command else ROWS[0])
        return SimpleNamespace(stdout=json.dumps({"rows": [row]}))

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(bench_page, "machine", lambda *_: dict(ABOUT))
    path = tmp_path / "speed.md"
    common = ["--write", str(path), "--rounds", "3"]
    assert main([*common, "--models", "lstm,bert", "--only", "threads,f32,x86-64-v2"]) == 0
    models = [command[command.index("--models") + 1] for command in commands]
    assert models == ["bert", "bert,lstm"]  # what has no such rows is left out
    assert all(command[command.index("--rounds") + 1] == "3" for command in commands)
    before = path.read_text(encoding="utf-8")
    assert "## Two threads" in before
    assert main([*common, "--only", "none"]) == 0
    assert path.read_text(encoding="utf-8") == before

    monkeypatch.setattr(subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=""))
    assert main([*common, "--models", "bert", "--only", "threads"]) == 1
    assert path.read_text(encoding="utf-8") == before


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--only", "speed"], "unknown section speed: expected some of f32,"),
        (["--models", "gpt9"], "no section has a row 'gpt9'"),
    ],
)
def test_a_page_is_of_its_sections(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse([*arguments, "--write", str(tmp_path / "speed.md")])
    assert message in capsys.readouterr().err


def test_sections_are_of_a_page(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--only", "f32"])
    assert "--only: expected --write" in capsys.readouterr().err


def test_a_page_is_written_to_a_folder_that_is_there(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which is said before anything is measured."""
    assert main(["--models", "bert", "--write", str(tmp_path / "gone" / "speed.md")]) == 1
    assert "cannot write there: no folder" in capsys.readouterr().err
