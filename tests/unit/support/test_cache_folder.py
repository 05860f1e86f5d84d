"""The cache's folder: where it is, what it may hold, and what goes first."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest

from glowpy.support import cache_folder as module
from glowpy.support.cache import Key, mapped, read, write, writing
from glowpy.support.cache_folder import (
    cache_files,
    cache_folder,
    cache_limit,
    clear,
    parse_bytes,
    set_cache_limit,
)
from glowpy.support.errors import UserError

FOOTER = 32
A, B, C, D = (Key.of("code", letter) for letter in "abcd")


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty cache."""
    monkeypatch.setenv("GLOWPY_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.delenv("GLOWPY_CACHE_LIMIT", raising=False)
    return tmp_path / "cache"


def keys(folder: Path) -> set[str]:
    return {file.path.name for file in cache_files(folder) if file.state == "entry"}


def test_the_variable_places_the_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "user_cache_path", lambda *_, **__: tmp_path / "user")
    places = {"": "user", "here": "here", str(tmp_path / "there"): "there", "./off": "off"}
    for value, name in places.items():
        monkeypatch.setenv("GLOWPY_CACHE_DIR", value)
        assert cache_folder() == tmp_path / name
        write(A, b"code")
        assert [path.name for path in (tmp_path / name).iterdir()] == [str(A)]
    monkeypatch.delenv("GLOWPY_CACHE_DIR")
    assert cache_folder() == tmp_path / "user"


@pytest.mark.parametrize("value", [None, "", "  ", "/elsewhere", "relative"])
def test_the_folder_is_that_of_platformdirs(
    value: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    if value is not None:
        monkeypatch.setenv("XDG_CACHE_HOME", value)
    assert module.user_cache_path() == platformdirs.user_cache_path("glowpy", appauthor=False)


def test_off_reads_and_writes_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(module, "user_cache_path", lambda *_, **__: tmp_path / "user")
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "")
    write(A, b"code")
    monkeypatch.setenv("GLOWPY_CACHE_DIR", "off")
    assert cache_folder() is None
    assert read(A) is None
    assert mapped(A) is None
    write(B, b"code")
    with writing(C) as file:
        assert file.write(b"code") == 4
    assert [path.name for path in tmp_path.rglob("*") if path.is_file()] == [str(A)]
    with pytest.raises(UserError, match="the cache is turned off"):
        set_cache_limit(100)


def test_what_was_used_longest_ago_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "310")
    for age, key in enumerate((A, B, C)):
        write(key, bytes(100 - FOOTER))
        os.utime(folder / str(key), (1000 + age, 1000 + age))
    assert read(A) is not None
    assert mapped(B) is not None
    write(D, bytes(100 - FOOTER))
    assert keys(folder) == {str(A), str(B), str(D)}
    write(C, bytes(300 - FOOTER))
    assert keys(folder) == {str(C)}
    write(D, bytes(310 - FOOTER + 1))
    assert keys(folder) == {str(C)}  # what is larger than the limit is not even written


def test_everything_counts_and_what_is_damaged_goes_first(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "250")
    write(A, bytes(100 - FOOTER))
    write(B, bytes(100 - FOOTER))
    (folder / str(B)).write_bytes(bytes(100))
    assert read(B) is None
    (folder / f"{C}.0123abcd.part").write_bytes(bytes(100))
    (folder / "notes").write_bytes(bytes(1000))  # somebody else's
    write(D, bytes(100 - FOOTER))
    assert {path.name for path in folder.iterdir()} == {str(A), str(D), "notes"}


def test_what_is_being_written_stays(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "300")
    with writing(A) as file:
        file.write(bytes(200))
        write(B, bytes(200))
        assert len(clear(folder)) <= 1
    assert keys(folder) == {str(A)}
    assert read(A) == bytes(200)


def test_the_folder_is_not_looked_through_at_every_write(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scans = []
    trim = module._trim

    def count(folder: Path) -> int:
        scans.append(folder)
        return trim(folder)

    monkeypatch.setattr(module, "_trim", count)
    monkeypatch.setattr(os, "fsync", lambda _: None)  # slow where others use the disk
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "64K")
    for number in range(160):
        write(Key.of("code", str(number)), bytes(512 - FOOTER))
        assert sum(file.size for file in cache_files(folder)) <= 65 << 10
    assert len(keys(folder)) >= 126
    assert 40 <= len(scans) <= 80


def test_the_limit_is_kept(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cache_limit() == 4 << 30
    for key in (A, B):
        write(key, bytes(1000 - FOOTER))
    set_cache_limit(1500)
    assert cache_limit() == 1500
    assert keys(folder) == {str(B)}
    clear(folder)
    assert (keys(folder), cache_limit()) == (set(), 1500)
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "2m")
    assert cache_limit() == 2 << 20
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "much")
    with pytest.raises(UserError, match="GLOWPY_CACHE_LIMIT: expected a number of bytes"):
        cache_limit()
    monkeypatch.delenv("GLOWPY_CACHE_LIMIT")
    for damage in (b"", b"\xff\n", b"soup\n"):
        (folder / "limit").write_bytes(damage)
        assert cache_limit() == 4 << 30


def test_nothing_is_kept_with_a_limit_of_nothing(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GLOWPY_CACHE_LIMIT", "0")
    write(A, b"")
    assert (keys(folder), read(A)) == (set(), None)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("0", 0),
        ("65536", 65536),
        ("64K", 1 << 16),
        (" 3g", 3 << 30),
        ("8KB", 1 << 13),
        ("32KiB", 1 << 15),
        ("9 MB", 9 << 20),
        ("7B", 7),
    ],
)
def test_numbers_of_bytes(text: str, number: int) -> None:
    assert parse_bytes(text) == number


@pytest.mark.parametrize("text", ["", "-1", "1.5G", "12X", "K", "KB", "3KBB", "3IB2", "٣"])
def test_what_is_no_number_of_bytes(text: str) -> None:
    with pytest.raises(ValueError, match="expected a number of bytes"):
        parse_bytes(text)
