"""A file whose times do not tell changes yet is waited for, and one whose times never will has no identity."""

from __future__ import annotations

import gc
import os
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from glowpy.importer import storage
from glowpy.importer.storage import InFile
from glowpy.support.errors import LoadError


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "weights"
    path.write_bytes(b"before")
    return path


def changed_at(path: Path) -> int:
    return max(path.stat().st_mtime_ns, path.stat().st_ctime_ns)


def at(monkeypatch: pytest.MonkeyPatch, *nanoseconds: int) -> list[float]:
    """Lets it be these times whenever somebody asks, and notes who waits for how long."""
    times, waits = list(nanoseconds), list[float]()
    monkeypatch.setattr(time, "time_ns", lambda: times.pop(0) if times[1:] else times[0])
    monkeypatch.setattr(time, "sleep", waits.append)
    return waits


def test_a_file_of_just_now_is_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begin = changed_at(path)
    waits = at(monkeypatch, begin + 5_000_000, begin + 26_000_000)
    assert InFile(path).identity
    assert waits == [pytest.approx(0.016, abs=1e-6)]


def test_an_old_file_is_not_waited_for(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    waits = at(monkeypatch, changed_at(path) + 21_000_000)
    assert InFile(path).identity
    assert waits == []


def test_what_is_changed_while_it_is_waited_for_is_what_is_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the same size, in place, and with the times of before."""
    status = path.stat()
    begin = changed_at(path)
    waits = at(monkeypatch, begin + 1, begin + 10**12)

    def change(seconds: float) -> None:
        waits.append(seconds)
        with path.open("r+b") as file:
            file.write(b"after!")
        os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))

    monkeypatch.setattr(time, "sleep", change)
    file = InFile(path)
    assert len(waits) == 1
    assert bytes(file.read(0, 6)) == b"after!"
    assert file.digest(0, 6) == storage.InMemory(b"after!").digest(0, 6)


def test_a_file_that_is_changed_all_the_time_has_no_identity(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = at(monkeypatch, changed_at(path))
    assert not InFile(path).identity
    assert len(waits) == storage._MOST_WAITS


def test_a_clock_that_is_ahead_is_not_waited_for(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    waits = at(monkeypatch, changed_at(path) - 10**9)
    file = InFile(path)
    assert not file.identity
    assert waits == []
    with path.open("ab") as other:
        other.write(b" and after")
    with pytest.raises(LoadError, match="was changed while it was in use"):
        file.read(0, 6)


def test_times_in_long_steps_are_waited_for_longer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = 10**18
    times = {"st_mtime_ns": whole, "st_ctime_ns": whole}
    status = SimpleNamespace(st_ino=7, st_dev=7, st_size=6, **times)
    monkeypatch.setattr(os, "fstat", lambda _: status)
    waits = at(monkeypatch, whole + 1_500_000_000, whole + 2_100_000_000)
    assert InFile(path).identity
    assert waits == [pytest.approx(0.501, abs=1e-6)]


@pytest.mark.parametrize("keep_open", [True, False])
def test_a_file_that_nobody_waits_for_any_more_is_closed(
    path: Path, monkeypatch: pytest.MonkeyPatch, keep_open: bool
) -> None:
    """As where Ctrl-C is pressed during the wait."""
    at(monkeypatch, changed_at(path))
    opened, closed = list[int](), list[int]()
    open_file, close_file = os.open, os.close

    def noting_open(path: Path, flags: int) -> int:
        opened.append(open_file(path, flags))
        return opened[-1]

    def noting_close(file: int) -> None:
        closed.append(file)
        close_file(file)

    def interrupt(seconds: float) -> None:
        raise KeyboardInterrupt(seconds)

    monkeypatch.setattr(os, "open", noting_open)
    monkeypatch.setattr(os, "close", noting_close)
    monkeypatch.setattr(time, "sleep", interrupt)
    with pytest.raises(KeyboardInterrupt) as caught:
        InFile(path, keep_open=keep_open)
    del caught  # with the frame that has the file
    gc.collect()
    assert closed == opened != []
