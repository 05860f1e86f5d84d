"""`glowpy bench` times nothing while other threads of its process compute."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from glowpy.benchmark import measure as measure_module
from glowpy.cli.files import write_constants
from glowpy.graph.printer import print_module
from tests.bundles.networks import glow, network


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
    monkeypatch.setattr(measure_module, "time", clocks)
    measure_module._settle()
    assert naps[0] in (waits, waits + 1)


def test_nothing_is_timed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    timed = measure_module._runs

    def runs(*arguments: Any) -> list[float]:
        events.append("timed")
        return timed(*arguments)

    monkeypatch.setattr(measure_module, "_settle", lambda: events.append("settled"))
    monkeypatch.setattr(measure_module, "_runs", runs)
    path, constants = tmp_path / "net.glow", tmp_path / "net.npz"
    module = network("mlp")
    path.write_text(print_module(module))
    write_constants(constants, module.constants)
    often = "--seconds", "0", "--repeat", "2"
    assert glow("bench", path, "--constants", constants, *often)[0] == 0
    assert events == ["settled", "timed", "timed"]
