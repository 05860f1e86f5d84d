"""Whether the processors that a process uses share a cache: what the system says, and how fast they read each other's.

A virtual machine may be told that they share one while its host runs them on processors that do not, and moves them
between two runs: two threads are then "near" in one, and "far" in the other.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from glowpy import CpuBackend
from glowpy.backends.cpu.measuring.peaks import passing_on

__all__ = ["Processors", "processors"]

_SYSTEM = Path("/sys/devices/system/cpu")


@dataclass(frozen=True)
class Processors:
    """The first two processors that the process may use.

    Attributes:
        first: The number of one.
        second: The number of the other.
        own: Bytes a second that a processor reads of a megabyte that it has just written.
        other: The same where the other one has written it.
        shared: The largest cache that they share, as the system says, such as "L3 of 32768K"; empty without any.
    """

    first: int
    second: int
    own: float
    other: float
    shared: str

    def __str__(self) -> str:
        system = f"share their {self.shared}" if self.shared else "share no cache"
        return (
            f"Processor {self.second} reads a megabyte that it has just written at {self.own / 1e9:.0f} GB/s, and one "
            f"that processor {self.first} has written at {self.other / 1e9:.0f} GB/s. The system says that they "
            f"{system}; in a virtual machine that may be wrong."
        )


def processors() -> Processors | None:
    """Describes two processors; None where there is one, and where threads cannot be bound to them."""
    usable = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    if len(usable) < 2:
        return None
    first, second = usable[:2]
    own, other = passing_on(CpuBackend().target, first, second)
    return Processors(first, second, own, other, shared_cache(first, second, _SYSTEM))


def shared_cache(first: int, second: int, system: Path) -> str:
    """The largest cache that two processors share, by the files of the folder `system`; empty without any."""
    shared = ""
    for cache in sorted((system / f"cpu{first}" / "cache").glob("index*")):
        # A system leaves out what it does not know.
        level, size, users = (
            (cache / name).read_text().strip() if (cache / name).exists() else ""
            for name in ("level", "size", "shared_cpu_list")
        )
        ends = (part.partition("-") for part in users.split(",") if part)
        if any(int(low) <= second <= int(high or low) for low, _, high in ends):
            shared = f"L{level} of {size}" if size else f"L{level}"
    return shared
