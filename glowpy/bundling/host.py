"""Whether this machine can run code for a target, found out without LLVM."""

from __future__ import annotations

import platform
import re
import sys
from pathlib import Path

from glowpy.support.errors import UserError

__all__ = ["check_host"]

_MACHINES = {
    "amd64": "x86_64",
    "arm": "armv7",
    "arm64": "aarch64",
    "armv7a": "armv7",
    "armv7l": "armv7",
    "armv8l": "armv7",
    "ppc64le": "powerpc64le",
}
"""Other names of architectures, as LLVM calls them in triples."""

_SYSTEMS = {"linux": "linux", "darwin": "darwin|macos", "win32": "windows"}
"""Names of systems in triples, by Python's names."""

_CPU_INFO = Path("/proc/cpuinfo")

_FLAGS = {
    "sse4.2": "sse4_2", "avx": "avx", "avx2": "avx2", "bmi": "bmi1", "bmi2": "bmi2", "f16c": "f16c", "fma": "fma",
    "avx512f": "avx512f", "avx512bw": "avx512bw", "avx512cd": "avx512cd", "avx512dq": "avx512dq",
    "avx512vl": "avx512vl", "avx512vnni": "avx512_vnni", "avx512bf16": "avx512_bf16",
    "avx512fp16": "avx512_fp16", "avxvnni": "avx_vnni",
}  # fmt: skip
"""x86 features that generated code uses, by LLVM's name, as Linux spells them."""


def check_host(triple: str, features: str) -> None:
    """Raises UserError if code for `triple` with LLVM's `features` (`+avx2,-fma`) cannot run here.

    Features are checked where the system tells them, on Linux on x86; elsewhere they are taken on trust.
    """
    architecture = triple.split("-", 1)[0].lower()
    machine = platform.machine().lower()
    same = _MACHINES.get(architecture, architecture) == _MACHINES.get(machine, machine)
    system = re.search(_SYSTEMS.get(sys.platform, sys.platform), triple)
    if not same or system is None:
        raise UserError(
            f"the bundle is for {triple}, expected one for this machine ({machine}, {sys.platform})",
            note="bundle the model without --target to run it here",
        )
    missing = _missing(features)
    if missing:
        raise UserError(
            f"the bundle needs a processor with {', '.join(missing)}, which this one lacks",
            note="bundle the model here, or for an older processor with --cpu",
        )


def _missing(features: str) -> list[str]:
    """The features this machine is known not to have."""
    if platform.machine().lower() not in ("x86_64", "amd64") or not _CPU_INFO.is_file():
        return []
    flags = re.search(r"^flags\s*:(.*)$", _CPU_INFO.read_text(encoding="utf-8"), re.MULTILINE)
    if flags is None:
        return []
    present = set(flags[1].split())
    # The last word about a feature holds.
    last = {word[1:]: word[0] for word in features.split(",") if word}
    needed = [name for name, sign in last.items() if sign == "+" and name in _FLAGS]
    return sorted(name for name in needed if _FLAGS[name] not in present)
