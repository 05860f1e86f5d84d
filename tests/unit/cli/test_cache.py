"""`glowpy cache`, what `glowpy doctor` says of the cache, and networks that are compiled with a damaged one."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.libjit import LIBJIT
from glowpy.cli.main import run
from glowpy.core.type import parse_type
from glowpy.graph.function import Module
from glowpy.graph.printer import print_module
from glowpy.support.cache import Key, damaged_files, mapped, read, write
from glowpy.support.cache_folder import cache_files

ROOT = Path(__file__).resolve().parents[3]

KEYS = [Key.of("code", "a"), Key.of("code", "b"), Key.of("weights", "w")]


def command(*argv: str) -> tuple[int, str, str]:
    out, err = io.StringIO(), io.StringIO()
    return run(["cache", *argv], io.StringIO(), out, err), out.getvalue(), err.getvalue()


@pytest.fixture
def entries(cache_folder: Path) -> Path:
    """A cache with three entries."""
    for key in KEYS:
        write(key, bytes(1000))
    return cache_folder


def damage(folder: Path, key: Key) -> None:
    content = bytearray((folder / str(key)).read_bytes())
    content[500] ^= 1
    (folder / str(key)).write_bytes(content)


def test_show(entries: Path) -> None:
    damage(entries, KEYS[1])
    assert read(KEYS[1]) is None
    status, out, _ = command("show", "--json")
    report = json.loads(out)
    assert (status, report["folder"], report["limit"]) == (0, str(entries), 4 << 30)
    assert report["bytes"] == 3 * 1032
    counts = {name: (kind["entries"], kind["bytes"]) for name, kind in report["kinds"].items()}
    assert counts == dict.fromkeys(("code", "weights", "damaged"), (1, 1032))
    status, out, _ = command("show")
    assert status == 0
    assert out.startswith(f"{entries}\n")
    for line in ("code", "weights", "damaged"):
        assert f"\n  {line} " in out
    assert "3,096 of at most 4,294,967,296 bytes" in out


def test_show_of_a_cache_that_is_not_there_yet(cache_folder: Path) -> None:
    status, out, _ = command("show", "--json")
    assert (status, json.loads(out)["kinds"]) == (0, {})
    assert command("show")[0] == command("verify")[0] == command("clear")[0] == 0
    assert not cache_folder.exists()


def test_verify(entries: Path) -> None:
    status, out, _ = command("verify")
    assert (status, out) == (0, "3 of 3 files are right\n")
    for key in KEYS[1:]:
        damage(entries, key)
    assert mapped(KEYS[2]) is None
    status, out, _ = command("verify")
    assert status == 1
    assert f"{KEYS[1]} was damaged, and is deleted\n" in out
    assert f"{KEYS[2]}.damaged was damaged, and is deleted\n" in out
    assert "1 of 3 files are right\n" in out
    status, out, _ = command("verify", "--json")
    assert (status, json.loads(out)) == (0, {"files": 1, "damaged": [], "deleted": 0})
    assert read(KEYS[0]) is not None


def test_clear(entries: Path) -> None:
    (entries / "notes").touch()
    status, out, _ = command("clear")
    assert (status, out) == (0, "deleted 3 files of 3,096 bytes\n")
    assert [path.name for path in entries.iterdir()] == ["notes"]
    assert json.loads(command("clear", "--json")[1]) == {"files": 0, "bytes": 0}


def test_limit(entries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert command("limit") == (0, "4,294,967,296 bytes\n", "")
    assert command("limit", "2100") == (0, "2,100 bytes\n", "")
    assert len(list(entries.glob("*-*"))) == 2
    assert command("limit")[1] == "2,100 bytes\n"
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "1M")
    assert command("limit")[1] == "1,048,576 bytes\n"
    status, out, err = command("limit", "3G")
    assert (status, out) == (1, "")
    assert "GLOWPY_CACHE_LIMIT is '1M', and counts in place of a limit that is set here" in err
    assert "note: unset GLOWPY_CACHE_LIMIT" in err
    assert (entries / "limit").read_text() == "2100\n"
    status, _, err = command("limit", "much")
    assert status == 1
    assert "expected a number of bytes such as 65536, 64K or 1M, got 'much'" in err


@pytest.mark.parametrize("verb", ["show", "verify", "clear", "limit 1M"])
def test_cache_that_is_turned_off(verb: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")
    status, out, err = command(*verb.split())
    assert (status, out) == (1, "")
    assert "error: the cache is turned off: GLOWPY_CACHE_DIR is 'off'" in err


def test_folder_that_cannot_be_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "file"))
    for verb in ("limit 1M", "limit", "show", "verify", "clear"):
        status, out, err = command(*verb.split())
        assert (status, out) == (1, "")
        assert f"{tmp_path / 'file'}: cannot use the cache: " in err
    assert report()["cache fault"].startswith("cannot be written: ")


def report() -> dict[str, str]:
    """What `glowpy doctor` says."""
    out = io.StringIO()
    assert run(["doctor", "--json"], io.StringIO(), out) == 0
    figures = json.loads(out.getvalue())
    assert isinstance(figures, dict)
    return figures


def test_doctor_reports_the_cache(entries: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    figures = report()
    assert figures["cache"] == str(entries)
    assert figures["cache limit"] == f"{4 << 30} bytes"
    assert figures["cache size"] == "3096 bytes in 3 files"
    assert figures["cache damage"] == "none"
    for key in KEYS[1:]:
        damage(entries, key)
    assert read(KEYS[1]) is None
    for name in (f"{KEYS[1]}.damaged", str(KEYS[2]), "`glowpy cache verify` deletes"):
        assert name in report()["cache damage"]
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")
    assert report()["cache"] == "the cache is turned off: GLOWPY_CACHE_DIR is 'off'"


def network() -> Module:
    module = Module()
    f = module.create_function("main")
    x = module.create_placeholder("x", parse_type("f32[7]"))
    result = f.create_tanh("tanh", f.create_add("sum", x, x))
    f.create_save("save", result, module.create_placeholder("y", parse_type("f32[7]")))
    return module


def flipped(content: bytes) -> bytes:
    """With one bit of the machine code turned over."""
    changed = bytearray(content)
    changed[content.find(b"\xc3") - 1] ^= 4  # before a byte that may be a return on x86
    return bytes(changed)


DAMAGE: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda content: b"",
    "a hundred bytes": lambda content: content[:100],
    "half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "zeros": lambda content: bytes(len(content)),
    "random": lambda content: np.random.default_rng(0).bytes(len(content)),
    "a bit of the code": flipped,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_networks_run_with_a_damaged_cache(
    cache_folder: Path, damage: Callable[[bytes], bytes]
) -> None:
    """Damaged code killed the process, every time."""
    x = np.linspace(-2, 2, 7, dtype=np.float32)
    expected = glowpy.compile(network(), "cpu")({"x": x})["y"]
    files = list(cache_folder.glob("code-*"))
    assert files
    contents = [file.read_bytes() for file in files]
    for file, content in zip(files, contents, strict=True):
        file.write_bytes(damage(content))
    for _ in range(2):
        np.testing.assert_array_equal(glowpy.compile(network(), "cpu")({"x": x})["y"], expected)
    assert [file.read_bytes() for file in files] == contents


PROGRAM = """
import resource, sys
from glowpy.__main__ import main
if limit := int(sys.argv.pop(1)):
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="limits and signals are those of Unix")
def test_processes_share_a_cache_whatever_becomes_of_them(
    cache_folder: Path, tmp_path: Path
) -> None:
    """Without room to write, at the same time, killed at any moment, then with what the others have left."""
    variant = CpuBackend().target.variant
    write(LIBJIT._key(variant), LIBJIT._content(variant).payload())
    (tmp_path / "net.glow").write_text(print_module(network()))

    def start(limit: int = 0) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", PROGRAM, str(limit), "run", "net.glow", "--json"]
        environment = {**os.environ, "PYTHONPATH": str(ROOT)}
        return subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=-1)

    def outputs(process: subprocess.Popen[bytes]) -> object:
        report = process.communicate()[0]
        assert process.returncode == 0
        return json.loads(report)["outputs"]

    expected = outputs(start(limit=200))
    kinds = {file.kind for file in cache_files(cache_folder)}
    assert kinds - {"target"} == {
        "bitcode"
    }  # what is known of the processor is less than the limit
    together = [start(), start()]
    killed = start()
    while not list(cache_folder.glob("code-*")):
        time.sleep(0.01)
    killed.kill()
    killed.communicate()
    assert [outputs(process) for process in together] == [expected, expected]
    assert outputs(start()) == expected
    assert not damaged_files(cache_folder)
