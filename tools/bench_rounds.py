"""Rounds in which `tools/bench.py` and its neighbours time things by turns."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

from glowpy.benchmark.peers import Contestant

__all__ = ["Clock", "Run", "interleaved", "time_once"]

Run = Callable[[], object]
Clock = Callable[[], float]


def time_once(run: Run, least_seconds: float, clock: Clock) -> float:
    """Seconds of one run: the median of as many as fit into `least_seconds`, and of at least three."""
    seconds: list[float] = []
    begin = clock()
    while len(seconds) < 3 or clock() - begin < least_seconds:
        start = clock()
        run()
        seconds.append(clock() - start)
    return median(seconds)


def interleaved(
    contestants: Sequence[Contestant], rounds: int, least_seconds: float, clock: Clock
) -> dict[str, list[float]]:
    """Milliseconds of every round by name.

    Each round begins with another contestant: nobody always runs after the same one.
    """
    for contestant in contestants:
        time_once(contestant.run, least_seconds, clock)
    samples: dict[str, list[float]] = {contestant.name: [] for contestant in contestants}
    for index in range(rounds):
        first = index % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            samples[contestant.name].append(1e3 * time_once(contestant.run, least_seconds, clock))
    return samples
