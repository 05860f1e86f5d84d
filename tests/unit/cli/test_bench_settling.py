"""`glowpy bench` times nothing while other threads of its process compute."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glowpy.cli import bench_model
from glowpy.cli.main import run

NETWORK = """
module {
  placeholder %x : f32[10]
  placeholder %y : f32[10]
  function @main {
    %t = tanh(%x) : f32[10]
    save(%t, %y)
  }
}
"""


@pytest.mark.parametrize(("busy", "waits"), [(3, 4), (1000, 50)])
def test_other_threads_come_to_rest(busy: int, waits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As long as they compute, but for a second at most."""
    now, naps = [0.0], [0]

    def sleep(seconds: float) -> None:
        naps[0] += 1
        now[0] += seconds

    def used() -> float:
        return min(now[0], busy * 0.02)

    clocks = SimpleNamespace(perf_counter=lambda: now[0], process_time=used, sleep=sleep)
    monkeypatch.setattr(bench_model, "time", clocks)
    bench_model._settle()
    assert naps[0] in (waits, waits + 1)


def test_nothing_is_timed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    timed = bench_model._runs

    def runs(*arguments: Any) -> list[float]:
        events.append("timed")
        return timed(*arguments)

    monkeypatch.setattr(bench_model, "_settle", lambda: events.append("settled"))
    monkeypatch.setattr(bench_model, "_runs", runs)
    path = tmp_path / "net.glow"
    path.write_text(NETWORK)
    arguments = ["bench", str(path), "--seconds", "0", "--repeat", "2"]
    assert run(arguments, io.StringIO(), io.StringIO()) == 0
    assert events == ["settled", "timed", "timed"]
