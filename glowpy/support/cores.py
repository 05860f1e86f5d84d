"""Processors of this machine, and how many of them this process may use according to its control groups."""

from __future__ import annotations

import math
import os
import platform
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

__all__ = ["processor_name", "usable_cores"]

_GROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")


def processor_name() -> str:
    """Returns the system's name of the processor."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.is_file() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor() or platform.machine())


def usable_cores() -> int:
    """Processors that this process may run on, at most as many as its CPU time comes to; at least 1."""
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota = cpu_quota(_MEMBERSHIP, _GROUPS)
    return max(math.ceil(min(allowed or 1, quota)), 1)


def cpu_quota(membership: Path, groups: Path) -> float:
    """Seconds of CPU time for each second, by the control groups of versions 1 and 2; infinity without a limit.

    A container may see its groups under other paths than `membership` says: then the root of what it sees counts.
    """
    try:
        lines = membership.read_text(encoding="utf-8", errors="surrogateescape").splitlines()
    except OSError:  # no Linux
        return math.inf
    return min((limit for line in lines for limit in _limits(line, groups)), default=math.inf)


def _limits(line: str, groups: Path) -> Iterator[float]:
    """The limits of the groups that one line, HIERARCHY:CONTROLLERS:PATH, says the process is in."""
    _, controllers, path = line.split(":", 2)
    if controllers and "cpu" not in controllers.split(","):
        return
    own = PurePosixPath(path.lstrip("/"))
    for group in (own, *own.parents):
        folder = groups / controllers / group
        if controllers:
            numbers = [_read(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        else:
            numbers = _read(folder / "cpu.max").split() or ["", ""]
        quota, period = (int(number) if number.isdecimal() else 0 for number in numbers)
        if quota and period:
            yield quota / period


def _read(file: Path) -> str:
    """Reads a file as text; empty where there is none."""
    try:
        return file.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
