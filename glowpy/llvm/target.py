"""A target: the processor that LLVM makes code for, and how kernels are compiled for it."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from typing import Any

from glowpy.llvm.machine import Machine
from glowpy.llvm.variant import LIBJIT_FOLDER, KernelVariant

__all__ = ["Target", "family_of", "variants_table"]


@dataclass(frozen=True)
class Target:
    """A processor, the kernel variant for it, and the width of its pointers in bits."""

    machine: Machine
    variant: KernelVariant
    pointer_bits: int


@cache
def variants_table() -> dict[str, Any]:
    """Returns what libjit says of the variants of its kernels, and of families of processors."""
    table: dict[str, Any] = tomllib.loads(
        (LIBJIT_FOLDER / "variants.toml").read_text(encoding="utf-8")
    )
    return table


def family_of(triple: str) -> str:
    """Returns the family that kernels are compiled for of a triple's architecture; empty without one."""
    architecture = triple.split("-", 1)[0].lower()
    families = variants_table()["family"].items()
    return next((name for name, entry in families if architecture in entry["arch"]), "")
