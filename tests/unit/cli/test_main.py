"""Exit codes, streams, help."""

import errno
import inspect
import io
import re
import subprocess
import sys
from pathlib import Path

import click
import onnx
import pytest
from onnx import parser

from glowpy.cli import main
from glowpy.support.console import print_table
from glowpy.support.errors import InternalError

ROOT = Path(__file__).resolve().parents[3]


def command(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return main.run(argv, io.StringIO(), out, err), out.getvalue(), err.getvalue()


@pytest.mark.parametrize("verb", sorted(main.VERBS))
def test_help_has_examples(verb: str) -> None:
    status, out, err = command(verb, "--help")
    assert (status, err) == (0, "")
    assert f"    glowpy {verb}" in out


@pytest.mark.parametrize("verb", sorted(main.VERBS))
def test_many_options_are_one_argument(verb: str) -> None:
    callback = main.VERBS[verb].callback
    assert callback is not None
    assert len(inspect.signature(callback).parameters) <= 4


def test_help_names_every_verb() -> None:
    _, out, _ = command("--help")
    assert [verb for verb in main.VERBS if f"\n  {verb} " not in out] == []


@pytest.mark.parametrize(
    ("error", "last"),
    [
        (InternalError("irgen: lost a buffer"), "irgen: lost a buffer"),
        (ZeroDivisionError("division by zero"), "division by zero"),
    ],
)
def test_a_bug_is_exit_code_2_with_a_traceback(
    monkeypatch: pytest.MonkeyPatch, error: Exception, last: str
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setitem(main._glowpy.commands, "doctor", click.Command("doctor", callback=fail))
    status, _, err = command("doctor")
    assert status == 2
    for word in ("Traceback", last, "bug in glowpy"):
        assert word in err


@pytest.mark.parametrize("interruption", [KeyboardInterrupt, click.Abort])
def test_an_interrupted_command_exits_as_shells_expect(
    monkeypatch: pytest.MonkeyPatch, interruption: type[BaseException]
) -> None:
    def wait() -> None:
        raise interruption

    monkeypatch.setitem(main._glowpy.commands, "doctor", click.Command("doctor", callback=wait))
    status, out, err = command("doctor")
    assert (status, out, err) == (130, "", "interrupted\n")


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["fly"], "No such command 'fly'"),
        (["run"], "Missing argument 'MODEL'"),
        (["run", "net.onnx", "--fast"], "'--fast'"),
        (["run", "net.onnx", "--backend", "abacus"], "got 'abacus'"),
        (["run", "nowhere.onnx"], "nowhere.onnx"),
        (["opt", "nowhere.glow"], "nowhere.glow"),
    ],
)
def test_a_wrong_command_line_is_exit_code_1(argv: list[str], message: str) -> None:
    status, out, err = command(*argv)
    assert (status, out) == (1, "")
    assert err.startswith("error: ")
    assert message in err


def test_without_a_verb_there_is_help() -> None:
    status, out, err = command()
    assert (status, err) == (0, "")
    assert out.startswith("Usage: glowpy")


@pytest.mark.parametrize("argv", [["--help"], ["cache", "--help"]])
def test_what_verbs_do_is_said_in_whole_sentences(argv: list[str]) -> None:
    _, out, _ = command(*argv)
    said = out.partition("Commands:\n")[2]
    assert "..." not in said
    entries = re.split(r"\n(?=  \w)", f"\n{said.rstrip()}")[1:]
    assert len(entries) == (len(main.VERBS) if argv == ["--help"] else 4)
    assert all(entry.endswith((".", "?")) for entry in entries)


class FullDisk(io.StringIO):
    """A stream on a disk without space."""

    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_is_no_bug() -> None:
    err = io.StringIO()
    assert main.run(["opt", "--list"], io.StringIO(), FullDisk(), err) == 1
    assert err.getvalue() == "error: cannot write the results: No space left on device\n"


def test_a_terminal_without_unicode_shows_names_all_the_same(tmp_path: Path) -> None:
    text = '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Neg(x) }'
    net = parser.parse_model(text)
    net.graph.node[0].output[0] = net.graph.output[0].name = "é"
    onnx.save(net, str(tmp_path / "net.onnx"))
    done = subprocess.run(
        [sys.executable, "-m", "glowpy", "run", str(tmp_path / "net.onnx")],
        cwd=ROOT,
        env={"PYTHONIOENCODING": "ascii:strict"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xe9 " in done.stdout


def test_standard_streams_are_given_back() -> None:
    before = sys.stdin, sys.stdout, sys.stderr
    command("run", "nowhere.onnx")
    assert (sys.stdin, sys.stdout, sys.stderr) == before


def test_diagnostics_join_the_results_without_a_stream_of_their_own() -> None:
    out = io.StringIO()
    assert main.run(["run", "nowhere.onnx"], io.StringIO(), out) == 1
    assert out.getvalue().startswith("error: ")


def test_a_reader_that_goes_away_is_no_error(tmp_path: Path) -> None:
    constants = "".join(f"constant %c{i} : f32[] = splat {i}\n" for i in range(5000))
    (tmp_path / "long.glow").write_text(f"module {{ {constants} function @f {{ }} }}")
    shell = f"{sys.executable} -m glowpy dump {tmp_path / 'long.glow'} | head -1"
    done = subprocess.run(
        ["bash", "-o", "pipefail", "-c", shell],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "module {\n", "")


def test_columns_of_numbers_are_aligned_to_the_right(capsys: pytest.CaptureFixture[str]) -> None:
    print_table("sizes", ["name", ">bytes"], [["a", "7"], ["long", "1,024"]])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert [line for line in lines if line[:1].isalpha()] == [
        "sizes",
        "name   bytes",
        "a          7",
        "long   1,024",
    ]


def test_tables_in_files_do_not_break_names(capsys: pytest.CaptureFixture[str]) -> None:
    name = "past_key_values.0.value"
    columns = ["built with", "network", "output", "extents", "largest error", "largest value", ""]
    extents = "batch=4, sequence=8, past=24, " * 2
    print_table(
        "", columns, [["cc, with -fsanitize", "dec", name, extents, "1.91e-06", "9.19", "right"]]
    )
    assert name in capsys.readouterr().out
