"""Which processor to compile for, and which variant of the kernels fits it."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.backend import CompileOptions
from glowpy.backends.cpu.bitcode import Variant, baseline_variant, select_variant
from glowpy.backends.cpu.llvm import (
    Machine,
    UnknownTargetError,
    host_cpu,
    host_features,
    host_triple,
)
from glowpy.support.errors import UserError

__all__ = ["CpuTarget", "resolve_target"]

_POINTER_32 = ("arm", "thumb", "wasm32", "riscv32", "i386", "i686")


@dataclass(frozen=True)
class CpuTarget:
    """A processor, the kernel variant for it, and the width of its pointers in bits."""

    machine: Machine
    variant: Variant
    pointer_bits: int


def resolve_target(options: CompileOptions) -> CpuTarget:
    """The target that the options name: this machine, or the baseline of a named triple.

    Raises UserError for a triple LLVM does not know, UnsupportedError for one without kernels.
    """
    triple = options.target or host_triple()
    if not options.target and not options.cpu:
        present = _adjusted(host_features(), options.features)
        variant = select_variant(triple, present)
        features = ",".join(sorted(f"+{name}" for name in present))
        machine = Machine(triple, host_cpu(), f"{features},{options.features}".strip(","))
    else:
        assumed = frozenset(baseline_variant(triple).requires)
        present = _adjusted(assumed, options.features)
        variant = select_variant(triple, present)
        features = ",".join(
            [*(f"+{name}" for name in sorted(variant.requires)), *filter(None, [options.features])]
        )
        machine = Machine(triple, options.cpu or variant.cpu, features)
    try:
        machine.check()
    except UnknownTargetError as error:
        raise UserError(str(error), note="write it as LLVM does: aarch64-linux-gnu") from None
    bits = 32 if triple.startswith(_POINTER_32) else 64
    return CpuTarget(machine, variant, bits)


def _adjusted(features: frozenset[str], changes: str) -> frozenset[str]:
    """`features` with `+a,-b` applied."""
    found = set(features)
    for change in filter(None, changes.split(",")):
        if change[0] == "-":
            found.discard(change[1:])
        else:
            found.add(change.removeprefix("+"))
    return frozenset(found)
