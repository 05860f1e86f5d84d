"""Describes the machine that figures are measured on, the versions, and the most that a core of it does."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path

from glowpy import CpuBackend
from glowpy.backends.cpu.measuring.peaks import peaks_of
from glowpy.benchmark.peers import PEERS
from glowpy.core.elemkind import ElemKind
from glowpy.llvm.machine import host_cpu

__all__ = ["VARYING", "limits", "machine"]

VARYING = ("date", "load", "core", "rounds")
"""Entries that may differ between figures of one table."""

_PACKAGES = ("glowpy", "numpy", *PEERS, "llama-cpp-python")


def machine(cores: Iterable[int] = ()) -> dict[str, str]:
    """The machine and the versions that the figures depend on besides the code, and the cores that they are of."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text().splitlines() if cpuinfo.is_file() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {
        "processor": f"{models[0] if models else platform.processor()} ({host_cpu()})",
        "cores": str(os.cpu_count()),
        **({"core": named} if (named := ", ".join(map(str, cores))) else {}),
        "load": f"{os.getloadavg()[0]:.2f}",
        "system": platform.platform(),
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "versions": ", ".join(f"{name} {version}" for name, version in _versions().items()),
    }


def _versions() -> Mapping[str, str]:
    versions = {}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def limits() -> str:
    """The most operations that a core does in a second, and bytes that it reads, in words."""
    peaks = peaks_of(CpuBackend().target, 1)
    kinds = {"f32": ElemKind.F32, "bf16": ElemKind.BF16, "bytes": ElemKind.U8}
    rates = [f"{peaks.flops_of(kind) / 1e9:.0f} in {name}" for name, kind in kinds.items()]
    return (
        f"The most that the core does, measured: {', '.join(rates)} (billions of operations a second, a multiply-add "
        f"being two), and {peaks.memory / 1e9:.0f} GB/s read from memory."
    )
