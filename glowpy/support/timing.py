"""How long things take, measured by turns."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping

__all__ = ["fastest"]


def fastest(runs: Mapping[str, Callable[[], object]], seconds: float) -> dict[str, float]:
    """The seconds of the fastest run of each, by turns, so that what else the machine does hits all of them.

    Args:
        runs: The functions to run, by name.
        seconds: The seconds that are spent on each; all run at least once.
    """
    best = dict.fromkeys(runs, math.inf)
    end = time.perf_counter() + seconds * len(runs)
    while not all(map(math.isfinite, best.values())) or time.perf_counter() < end:
        for name, run in runs.items():
            start = time.perf_counter()
            run()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
