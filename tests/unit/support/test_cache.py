"""Entries of the cache: every way to damage one, writers that fail or die, and processes at the same time."""

from __future__ import annotations

import errno
import os
import stat
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import numpy as np
import pytest
from xxhash import xxh3_128_digest

from glowpy.support import cache
from glowpy.support.cache import (
    Key,
    Kind,
    damaged_files,
    locked,
    mapped,
    read,
    write,
    write_all,
    writing,
)
from glowpy.support.cache_folder import cache_files, delete, make_room

ROOT = Path(__file__).resolve().parents[3]
PAYLOAD = np.random.default_rng(0).bytes(3000)
KEY = Key.of("code", "a text")
FOOTER = 32


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GLOWPY_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_keys_follow_from_each_part() -> None:
    keys = {Key.of("code", *parts) for parts in (("ab", "c"), ("a", "bc"), ("abc",), ("abc", ""))}
    assert len(keys | {Key.of("program", "abc")}) == 5
    assert Key.of("code", "a", "bc") == Key.of("code", b"a", bytearray(b"bc"))


def test_what_was_written_is_read(folder: Path) -> None:
    for payload in (PAYLOAD, b"", b"other"):
        write(KEY, payload)
        assert read(KEY) == payload
        view = mapped(KEY)
        assert view is not None
        assert view == payload
        assert names(folder) == {str(KEY)}
    assert read(Key.of("code", "another text")) is None
    assert mapped(Key.of("weights", "a text")) is None


def test_entries_are_written_in_sequence(folder: Path) -> None:
    with writing(KEY) as file:
        file.write(np.arange(5, dtype="<u4").data)
        assert file.tell() == 20
        file.write(b"end")
        assert read(KEY) is None
    assert read(KEY) == struct.pack("<5I", *range(5)) + b"end"


def test_pieces_of_any_size_make_an_entry(folder: Path) -> None:
    """Those of more than a huge page, and those that end within one."""
    rest = payload = np.random.default_rng(1).bytes((5 << 20) + 77)
    with writing(KEY) as file:
        for size in (0, 1000, 3 << 20, (1 << 20) - 1000, 1, len(payload)):
            piece, rest = rest[:size], rest[size:]
            assert file.write(piece) == len(piece)
    assert names(folder) == {str(KEY)}
    assert mapped(KEY) == read(KEY) == payload


def test_many_entries(folder: Path) -> None:
    entries = {Key.of("code", str(number)): bytes(number) for number in range(150)}
    write_all(entries)
    assert {key: read(key) for key in entries} == entries
    assert len(names(folder)) == 150


def test_mapped_memory_begins_on_a_page_and_outlives_the_entry(folder: Path) -> None:
    write(KEY, PAYLOAD)
    view = mapped(KEY)
    assert view is not None
    assert view.readonly
    array = np.frombuffer(view, np.uint8)
    assert array.ctypes.data % 4096 == 0
    (folder / str(KEY)).unlink()
    assert array.tobytes() == PAYLOAD


@pytest.mark.skipif(sys.platform != "linux", reason="the size of a process is read in /proc")
def test_mapping_takes_no_memory(folder: Path) -> None:
    write(KEY, bytes(96 << 20))
    code = (
        "from glowpy.support.cache import Key, mapped\n"
        "def resident(): return int(open('/proc/self/statm').read().split()[1]) * 4096\n"
        f"before, view = resident(), mapped(Key('code', '{KEY.digest}'))\n"
        "assert len(view) == 96 << 20\n"
        "print(resident() - before)"
    )
    assert int(output(code)) < 4 << 20


def output(code: str) -> str:
    """What a Python program prints."""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def cut(length: int) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(path.read_bytes()[:length])


def flip(position: int) -> Callable[[Path], object]:
    """Turns one bit over."""

    def damage(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[position] ^= 1
        path.write_bytes(content)

    return damage


def replace(content: Callable[[bytes], bytes]) -> Callable[[Path], object]:
    return lambda path: path.write_bytes(content(path.read_bytes()))


def put_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()
    (path / "file").touch()


def put_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def put_link(path: Path) -> None:
    path.rename(path.with_name("elsewhere"))
    path.symlink_to("elsewhere")


def put_loop(path: Path) -> None:
    path.unlink()
    path.symlink_to(path.name)


def another_version(content: bytes) -> bytes:
    return content[:-28] + struct.pack("<I", 2) + content[-24:]


def of_another_name(content: bytes) -> bytes:
    payload = content[:-FOOTER]
    digest = xxh3_128_digest(payload + str(Key.of("code", "another")).encode())
    return content[:-16] + digest


DAMAGE: dict[str, Callable[[Path], object]] = {
    "empty": cut(0),
    "one byte": cut(1),
    "a hundred bytes": cut(100),
    "half": replace(lambda content: content[: len(content) // 2]),
    "without the footer": cut(-FOOTER),
    "one byte short": cut(-1),
    "without the first byte": replace(lambda content: content[1:]),
    "one byte long": replace(lambda content: content + b"\0"),
    "twice": replace(lambda content: content + content),
    "zeros": replace(lambda content: bytes(len(content))),
    "ones": replace(lambda content: b"\xff" * len(content)),
    "random": replace(lambda content: np.random.default_rng(1).bytes(len(content))),
    "text": replace(lambda _: b"what somebody has typed\n" * 9),
    "zeros and the footer": replace(lambda content: bytes(len(content) - 32) + content[-32:]),
    "bit of the first byte": flip(0),
    "bit in the middle": flip(1234),
    "bit of the last byte": flip(-FOOTER - 1),
    **{f"bit of the footer's byte {index}": flip(index - FOOTER) for index in range(0, FOOTER, 3)},
    "another version": replace(another_version),
    "content of another entry": replace(of_another_name),
    "folder": put_folder,
    "fifo": put_fifo,
    "link": put_link,
    "link to itself": put_loop,
}


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
@pytest.mark.parametrize("kind", get_args(Kind))
def test_damage_is_a_miss(kind: Kind, damage: Callable[[Path], object], folder: Path) -> None:
    for take in (read, mapped):
        key = Key.of(kind, take.__name__)
        path = folder / str(key)
        write(key, PAYLOAD)
        damage(path)
        assert [file.path for file in damaged_files(folder)] == [path]
        assert take(key) is None
        (aside,) = damaged_files(folder)
        assert aside.path.name == f"{key}.damaged"
        assert not path.exists()
        write(key, PAYLOAD)
        content = take(key)
        assert content is not None
        assert bytes(content) == PAYLOAD
        damage(path)  # once more, with what was set aside still there
        assert take(key) is None
        write(key, PAYLOAD)
        assert take(key) is not None
        delete(aside.path)
        delete(folder / "elsewhere")


@pytest.mark.parametrize(
    ("number", "is_damage"), [(errno.EACCES, True), (errno.EIO, True), (errno.EMFILE, False)]
)
def test_files_that_cannot_be_read(
    folder: Path, monkeypatch: pytest.MonkeyPatch, number: int, is_damage: bool
) -> None:
    def refuse(path: Path) -> None:
        raise OSError(number, os.strerror(number))

    write(KEY, PAYLOAD)
    with monkeypatch.context() as patch:
        patch.setattr(cache, "_open_entry", refuse)
        assert len(damaged_files(folder)) == is_damage
        assert read(KEY) is None
        assert mapped(KEY) is None
    assert len(damaged_files(folder)) == is_damage
    assert (read(KEY) is None) == is_damage


def test_an_exception_leaves_nothing(folder: Path) -> None:
    write(KEY, b"before")
    with pytest.raises(ZeroDivisionError), writing(KEY) as file:
        file.write(bytes([1 // (len(names(folder)) - 2)]))  # the entry and its successor
    assert read(KEY) == b"before"
    assert names(folder) == {str(KEY)}


@pytest.mark.parametrize("step", ["open_part", "fsync", "replace"])
def test_a_disk_that_fails_leaves_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    def fail(*arguments: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    write(KEY, b"before")
    owner = {"open_part": cache, "fsync": os, "replace": Path}[step]
    monkeypatch.setattr(owner, step, fail)
    write(KEY, PAYLOAD)
    write_all({KEY: PAYLOAD, Key.of("code", "other"): PAYLOAD})
    assert read(KEY) == b"before"
    assert names(folder) == {str(KEY)}


@pytest.mark.skipif(sys.platform == "win32", reason="folders are not synced there")
def test_entries_are_on_the_disk_before_they_have_their_names(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    events: list[str] = []
    sync, replace = os.fsync, Path.replace

    def synced(descriptor: int) -> None:
        status = os.fstat(descriptor)
        events.append("folder" if stat.S_ISDIR(status.st_mode) else f"{status.st_size} bytes")
        sync(descriptor)

    def renamed(path: Path, target: Path) -> Path:
        events.append("name")
        return replace(path, target)

    monkeypatch.setattr(os, "fsync", synced)
    monkeypatch.setattr(Path, "replace", renamed)
    write(KEY, PAYLOAD)
    assert events == [f"{len(PAYLOAD) + FOOTER} bytes", "name", "folder"]
    events.clear()
    write_all({KEY: PAYLOAD, Key.of("code", "other"): PAYLOAD})
    assert sorted(events[:-1]) == sorted([f"{len(PAYLOAD) + FOOTER} bytes", "name"] * 2)
    assert events[-1] == "folder"


@pytest.mark.skipif(sys.platform == "win32", reason="limits are set as on Unix")
def test_a_full_disk_leaves_nothing(folder: Path) -> None:
    code = (
        "import resource\n"
        "from glowpy.support.cache import Key, read, write, writing\n"
        "resource.setrlimit(resource.RLIMIT_FSIZE, (50_000, 50_000))\n"
        "small, large, huge = (Key.of('weights', size) for size in ('small', 'large', 'huge'))\n"
        "write(large, bytes(50_000))\n"
        "with writing(huge) as file:\n"
        "    for _ in range(99):\n"
        "        assert file.write(bytes(4_000)) == 4_000\n"
        "write(small, b'small')\n"
        "print(read(small), read(large), read(huge))"
    )
    assert output(code) == "b'small' None None\n"
    assert names(folder) == {str(Key.of("weights", "small"))}


@pytest.mark.parametrize("place", ["a file", "a file/below", "/proc/nowhere"])
def test_a_folder_that_cannot_be_made_is_no_error(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str
) -> None:
    (tmp_path / "a file").write_text("where the folder should be")
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / place))
    with locked("code"):
        write(KEY, PAYLOAD)
    with writing(KEY) as file:
        file.write(PAYLOAD)
    assert read(KEY) is None
    assert mapped(KEY) is None


KILLED = """
import sys, time
from glowpy.support.cache import Key, writing
with writing(Key.of("code", "a text")) as file:
    file.write(bytes(1 << 20))
    print("written", flush=True)
    time.sleep(60)
"""


def test_what_a_killed_process_leaves_is_no_entry_and_goes(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", KILLED], cwd=ROOT, stdout=-1) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"written\n"
        other = Key.of("code", "other")
        write(other, b"while it is writing")
        (part,) = names(folder) - {str(other)}
        assert part.startswith(f"{KEY}.")
        process.kill()
        process.wait()
    assert read(KEY) is None
    assert part in names(folder)
    make_room(folder, 1 << 40)  # as the next process does first
    assert names(folder) == {str(other)}


TOGETHER = """
import random, sys
from glowpy.support.cache import Key, mapped, read, write
random.seed(int(sys.argv[1]))
hits = 0
for _ in range(400):
    number = random.randrange(8)
    key, payload = Key.of("code", str(number)), bytes([number]) * (1 << number + 6)
    content = (read, mapped)[number % 2](key)
    assert content is None or bytes(content) == payload
    if content is None or random.random() < 0.2:
        write(key, payload)
    hits += content is not None
print(hits)
"""


def test_processes_that_read_write_and_delete_at_the_same_time(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """There is no room for all entries, so that each deletes what the other reads."""
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "20000")
    processes = [
        subprocess.Popen([sys.executable, "-c", TOGETHER, str(seed)], cwd=ROOT, stdout=-1)
        for seed in range(2)
    ]
    hits = [int(process.communicate()[0]) for process in processes]
    assert [process.returncode for process in processes] == [0, 0]
    assert min(hits) > 0
    assert {file.state for file in cache_files(folder)} == {"entry"}
    assert not damaged_files(folder)


LOCKED = """
import time
from glowpy.support.cache import Key, locked, read, write
key = Key.of("bitcode", "slow")
with locked("bitcode"):
    if read(key) is None:
        time.sleep(0.3)
        write(key, b"made")
        print("made")
"""


def test_what_takes_long_is_made_once(folder: Path) -> None:
    processes = [
        subprocess.Popen([sys.executable, "-c", LOCKED], cwd=ROOT, stdout=-1) for _ in range(2)
    ]
    assert sorted(process.communicate()[0] for process in processes) == [b"", b"made\n"]
