"""The variants that kernels are compiled for, how fast their processors are, and which of them fits a target."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

from glowpy.backends.cpu.packing import dot_of
from glowpy.backends.cpu.presets import similar_preset
from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.core.elemkind import ElemKind
from glowpy.llvm.target import family_of, variants_table
from glowpy.llvm.variant import KernelVariant
from glowpy.support.errors import UnsupportedError, UserError

__all__ = [
    "VARIANTS",
    "Variant",
    "baseline_variant",
    "for_processor",
    "machines_of",
    "select_variant",
    "variant_named",
]


@dataclass(frozen=True, slots=True)
class Variant(KernelVariant):
    """A variant of the kernels, and how its processors compute: what products cost there."""

    machine: Machine
    """The model of its processors, as they compute with floats."""
    double_machine: Machine
    """The model of its processors, as they compute with doubles."""
    byte_machine: Machine
    """The model of its processors, as they compute with 8-bit integers."""
    bf16_machine: Machine
    """The model of its processors, as they compute with numbers in bf16."""
    word_machine: Machine | None
    """The model as they compute with integers of 16 bits, the points of patches; None where bytes are not slower."""
    bf16_requires: frozenset[str]
    """LLVM's names of the features that it takes beside to multiply numbers in bf16; empty where none does."""
    bf16_cpus: tuple[str, ...]
    """LLVM's names of processors that have it."""
    activations: ElemKind | None
    """The kind of 8-bit integers, i8 or u8, that products are fast for as input; None where both are alike."""

    def machine_for(self, kind: ElemKind) -> Machine:
        """The model for products whose input is of a kind: f32, f64, bf16, i8, u8 or, where there is one, i16."""
        if kind in (ElemKind.I8, ElemKind.U8):
            return self.byte_machine
        if kind is ElemKind.BF16:
            return self.bf16_machine
        if kind is ElemKind.I16 and self.word_machine is not None:
            return self.word_machine
        return self.double_machine if kind is ElemKind.F64 else self.machine


def _read_variants() -> tuple[tuple[Variant, ...], dict[tuple[str, str], Variant]]:
    table = variants_table()
    variants = tuple(_variant(table, entry) for entry in table["variant"])
    for_processors = {
        (entry["name"], cpu): _variant(table, {**entry, "machine": machine})
        for entry in table["variant"]
        for cpu, machine in entry.get("machines", {}).items()
    }
    return variants, for_processors


def _variant(table: dict[str, Any], entry: dict[str, Any]) -> Variant:
    bf16 = entry.get("bf16", {"parts": 2})
    return Variant(
        name=entry["name"],
        family=entry["family"],
        triple=entry["triple"],
        cpu=entry["cpu"],
        requires=frozenset(entry["requires"]),
        cpus=frozenset(entry.get("cpus", ())),
        vector_bytes=entry["vector_bytes"],
        machine=_machine(table, entry, ElemKind.F32),
        double_machine=_machine(table, {**entry, **entry.get("doubles", {})}, ElemKind.F64),
        byte_machine=_machine(table, {**entry, **entry["bytes"]}, ElemKind.I8),
        bf16_machine=_machine(table, {**entry, **bf16}, ElemKind.BF16),
        word_machine=_machine(table, {**entry, **entry["words"]}, ElemKind.I16)
        if "words" in entry
        else None,
        bf16_requires=frozenset(bf16.get("requires", ())),
        bf16_cpus=tuple(bf16.get("cpus", ())),
        has_floats=entry["machine"] != "soft_float",
        activations=_kind(entry["bytes"].get("activations")),
    )


def _machine(table: dict[str, Any], entry: dict[str, Any], kind: ElemKind) -> Machine:
    """The model for products of a kind. A vector is one sum at least; a field of the entry is that of the model."""
    dot = dot_of(kind)
    model: dict[str, Any] = dict(table["machine"][entry["machine"]])
    if kind is not ElemKind.F32:
        model["half_loads"] = 0  # only tiles of floats come in halves
    return Machine(
        element_bytes=kind.size,
        dot=dot,
        parts=entry.get("parts", 1),
        part_of_line=entry.get("part_of_line", 0),
        lanes=max(entry["vector_bytes"] // (kind.size * dot), 1),
        vector_registers=entry["vector_registers"],
        **{name: entry.get(name, value) for name, value in model.items()},
    )


def _kind(spelling: str | None) -> ElemKind | None:
    return None if spelling is None else ElemKind(spelling)


VARIANTS, _FOR_PROCESSORS = _read_variants()
"""Every variant. Within a family a later one is better."""


def variant_named(name: str) -> Variant:
    """The variant of that name; UserError with the names there are if there is none."""
    for variant in VARIANTS:
        if variant.name == name:
            return variant
    names = ", ".join(variant.name for variant in VARIANTS)
    raise UserError(f"no kernel variant {name!r}: expected one of {names}")


def for_processor(variant: Variant, cpu: str) -> Variant:
    """The variant with the model of a processor, given by LLVM's name: the kernels are the same."""
    return _FOR_PROCESSORS.get((variant.name, cpu), variant)


def machines_of(variant: Variant) -> tuple[Machine, ...]:
    """The models of a variant's processors, as they compute with floats: the usual one, then others."""
    others = [one.machine for (name, _), one in _FOR_PROCESSORS.items() if name == variant.name]
    return tuple(dict.fromkeys([variant.machine, *others]))


def select_variant(triple: str, features: Collection[str]) -> Variant:
    """The best variant that a target can run.

    Args:
        triple: LLVM's name of the target; only the architecture, its first part, matters.
        features: LLVM's names of what the processor has, those implied by its generation included.

    Raises:
        UnsupportedError: libjit has no variant for the architecture, or none for so few features.
    """
    members = _family_members(triple)
    for variant in reversed(members):
        if variant.requires <= set(features):
            return variant
    baseline = members[0]
    lacking = ", ".join(sorted(baseline.requires - set(features)))
    raise UnsupportedError(
        f"no kernels for so old a processor: expected {baseline.family} with {lacking} "
        f"(variant {baseline.name})",
        note="the interpreter backend runs everywhere",
    )


def baseline_variant(triple: str, cpu: str = "") -> Variant:
    """The variant for a target of which only this is known; what it `requires` is then assumed.

    That is the one made for the processor; where no variant speaks of the processor, the first of the architecture
    whose programs pass floats as the triple's do.

    Raises UnsupportedError for an architecture without kernels.
    """
    members = _family_members(triple)
    named = [variant for variant in members if cpu == variant.cpu or cpu in variant.cpus]
    hard = triple.endswith("eabihf")
    alike = [variant for variant in members if variant.triple.endswith("eabihf") == hard]
    return next(iter(named or alike or members))


def _family_members(triple: str) -> list[Variant]:
    family = family_of(triple)
    if not family:
        arch, families = (
            triple.split("-", 1)[0].lower(),
            ", ".join(sorted(variants_table()["family"])),
        )
        raise UnsupportedError(
            f"no kernels for {triple!r}: expected an architecture of {families}, got {arch!r}",
            note=f"{similar_preset(triple)}glowpy targets lists presets and families; the interpreter runs everywhere",
        )
    return [variant for variant in VARIANTS if variant.family == family]
