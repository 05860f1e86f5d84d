"""The rows of `tools/bench.py`, one for each network: times, ratios, and why there are none."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from math import exp, log
from statistics import fmean, median
from typing import ClassVar

__all__ = ["Row", "ThreadsRow", "geometric_mean", "two_digits"]


@dataclass
class Row:
    """The figures of one model.

    Attributes:
        model: Its name.
        shape: The shape of its first input, or what else was measured.
        rounds: Milliseconds of each round, by the name of the contestant.
        missing: Why others have none.
        errors: How far outputs are off at most.
        least: Milliseconds that glowpy's instructions take at least, by the roofline of this machine.
    """

    model: str
    shape: str = ""
    rounds: dict[str, list[float]] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    errors: dict[str, float] = field(default_factory=dict)
    least: dict[str, float] = field(default_factory=dict)

    @property
    def milliseconds(self) -> dict[str, float]:
        """The median round of every runtime."""
        return {name: median(rounds) for name, rounds in self.rounds.items()}

    def ratio(self, name: str, ours: str = "glowpy") -> float | None:
        """Our time in parts of that of `name`, or of the `fastest` of other runtimes; None without both."""
        if name == "fastest":
            others = [other for other in self.rounds if not other.startswith("glowpy")]
            ratios = [self.ratio(other, ours) for other in others]
            return max((ratio for ratio in ratios if ratio is not None), default=None)
        if not {name, ours} <= self.rounds.keys():
            return None
        pairs = zip(self.rounds[ours], self.rounds[name], strict=True)
        return median(our_time / other for our_time, other in pairs)


@dataclass(frozen=True)
class ThreadsRow:
    """The figures of one model with several threads, in milliseconds.

    Attributes:
        model: Its name.
        one: A run with one thread.
        two: A run with two.
        speedup: The median over rounds of the first in parts of the second.
        same_bits: Whether outputs are the same with 1, 2, 3 and 7 threads.
        apart: A run of each of eight sessions with two threads, one after another.
        together: The same at once.
        gain: The median over rounds of the first of these in parts of the second.
    """

    HEADS: ClassVar[Sequence[str]] = (
        *("network", "1 thread ms", "2 threads ms", "times as fast", "same bits with 1, 2, 3, 7"),
        *("8 sessions, one by one ms", "at once ms", "times as fast"),
    )

    model: str
    one: float
    two: float
    speedup: float
    same_bits: bool
    apart: float
    together: float
    gain: float

    @property
    def cells(self) -> list[str]:
        """As HEADS says."""
        threads = f"{self.one:.2f}", f"{self.two:.2f}", two_digits(self.speedup)
        sessions = f"{self.apart:.1f}", f"{self.together:.1f}", two_digits(self.gain)
        return [self.model, *threads, "yes" if self.same_bits else "**no**", *sessions]


def geometric_mean(rows: Sequence[Row], name: str, ours: str = "glowpy") -> float | None:
    """The geometric mean of our times in parts of those of `name`, over the networks that have both, if any."""
    ratios = [ratio for row in rows if (ratio := row.ratio(name, ours)) is not None]
    return exp(fmean(map(log, ratios))) if ratios else None


def two_digits(ratio: float | None) -> str:
    """A ratio in a table; a dash where there is none."""
    return "-" if ratio is None else f"{ratio:.2f}"
