"""Processor to compile for, and the variant of the kernels that fits it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import get_args

from glowpy.backends.cpu.options import CpuOptions, Optimize, Precision
from glowpy.backends.cpu.presets import with_preset
from glowpy.backends.cpu.variant import (
    VARIANTS,
    Variant,
    baseline_variant,
    for_processor,
    select_variant,
)
from glowpy.llvm.machine import (
    Machine,
    UnknownTargetError,
    host_cpu,
    host_features,
    host_triple,
)
from glowpy.llvm.target import Target
from glowpy.support.errors import UserError

__all__ = [
    "CODE_MODELS",
    "FLOAT_ABIS",
    "RELOCATIONS",
    "CpuTarget",
    "portable_machine",
    "resolve_target",
]

FLOAT_ABIS = ("soft", "hard")
RELOCATIONS = ("static", "pic")
CODE_MODELS = {
    "x86_64": ("small", "kernel", "medium", "large"),
    "aarch64": ("small", "large"),
    "arm": ("small",),
    "thumb": ("small",),
    "thumb_soft": ("small",),
    "riscv64": ("small", "medium"),
    "riscv32": ("small", "medium"),
    "wasm32": ("small",),
    "powerpc64le": ("small", "medium", "large"),
}
"""Code models that LLVM knows for each family; another one would end the process."""

_SYSTEMS = ("linux", "none", "wasi", "freebsd", "netbsd", "openbsd", "windows", "macos", "darwin")
"""Systems that may stand in the place of a triple's vendor."""

_32_BIT = frozenset({"arm", "thumb", "thumb_soft", "riscv32", "wasm32"})


@dataclass(frozen=True)
class CpuTarget(Target):
    """A CPU, whose variant says what products cost there."""

    variant: Variant


@cache
def resolve_target(options: CpuOptions) -> CpuTarget:
    """The target that the options name: this machine, a preset, or the baseline of a triple and processor.

    Raises UserError for a triple LLVM does not know and for options the target has no use for, UnsupportedError for
    one without kernels.
    """
    settings = with_preset(options)
    named = _normalized(settings.target) or host_triple()
    if not settings.target and settings.cpu in ("", "native"):
        cpu, assumed = host_cpu(), host_features()
        variant = select_variant(named, _adjusted(assumed, settings.features))
    else:
        known = baseline_variant(named, settings.cpu)
        cpu = settings.cpu or known.cpu
        assumed = known.requires | baseline_variant(named).requires
        variant = select_variant(named, _adjusted(assumed, settings.features))
        assumed = variant.requires - _adjusted(frozenset(), settings.features)
    has_bf16 = _choice("precision", settings.precision, get_args(Precision)) == "bf16"
    if has_bf16:
        _check_bf16(variant, cpu, _adjusted(assumed, settings.features), settings)
    features = ",".join(filter(None, (*sorted(f"+{name}" for name in assumed), settings.features)))
    triple, abi = _float_abi(named, settings.float_abi, features, variant.family)
    machine = Machine(
        triple,
        cpu,
        features,
        _choice("relocation", settings.relocation, RELOCATIONS) or _relocation(triple),
        _choice("code model", settings.code_model, CODE_MODELS[variant.family]) or "small",
        abi,
        _choice("optimize", settings.optimize, get_args(Optimize)) == "size",
        has_bf16,
    )
    if (variant.family, machine.relocation, machine.code_model) == ("aarch64", "pic", "large"):
        raise UserError(
            "code model: large is for static code on aarch64; LLVM would make a small one",
            note="add --relocation static",
        )
    try:
        replace(machine, cpu="", features="").check()
    except UnknownTargetError as error:
        raise UserError(str(error), note="write it as LLVM does: aarch64-linux-gnu") from None
    if settings.features or cpu not in (host_cpu(), variant.cpu, *variant.cpus):
        _check_known(machine)
    return CpuTarget(machine, for_processor(variant, cpu), 32 if variant.family in _32_BIT else 64)


def _check_bf16(variant: Variant, cpu: str, features: frozenset[str], settings: CpuOptions) -> None:
    """Raises UserError unless the processor multiplies numbers in bf16, and code is to be fast."""
    if settings.optimize == "size":
        raise UserError(
            "precision: bf16 makes code faster, and optimize asks for code that is small",
            note="leave one of them out",
        )
    removed = variant.bf16_requires - _adjusted(variant.bf16_requires, settings.features)
    is_known = cpu in variant.bf16_cpus and not removed
    if variant.bf16_requires and (is_known or variant.bf16_requires <= features):
        return
    others = [v for v in VARIANTS if v.family == variant.family and v.bf16_cpus]
    if not others:
        raise UserError(
            f"precision: no processors of {variant.family} that there are kernels for multiply numbers in bf16",
            note="leave precision out; glowpy convert --to bf16 makes weights as small",
        )
    lacking = ", ".join(sorted((others[-1].requires | others[-1].bf16_requires) - features))
    raise UserError(
        f"precision: {cpu} does not multiply numbers in bf16: it lacks {lacking}",
        note=f"leave precision out, or compile for a processor such as {others[-1].bf16_cpus[0]}",
    )


def portable_machine(target: CpuTarget) -> Machine:
    """The machine whose code runs on every processor of the target's variant."""
    features = ",".join(f"+{name}" for name in sorted(target.variant.requires))
    return replace(target.machine, cpu=target.variant.cpu, features=features)


def _normalized(triple: str) -> str:
    """The triple with its vendor, which people leave out.

    LLVM would take the system for the vendor, and the ABI for the system: floats would be passed in other registers.
    """
    architecture, *rest = triple.split("-")
    if not rest or not rest[0].startswith(_SYSTEMS):
        return triple
    return "-".join([architecture, "unknown", *rest])


@cache
def _check_known(machine: Machine) -> None:
    problem = machine.problem()
    if problem:
        raise UserError(
            f"{machine.triple}: {problem.removesuffix(' (ignoring processor)').removesuffix(' (ignoring feature)')}",
            note="the names are LLVM's, such as cortex-a72 and +dotprod, znver4 and +avx2",
        )


def _adjusted(features: frozenset[str], changes: str) -> frozenset[str]:
    """`features` with `+a,-b` applied. Raises UserError for changes of another form, which LLVM would abort at."""
    names = set(features)
    for change in changes.split(",") if changes else ():
        if len(change) < 2 or change[0] not in "+-":
            raise UserError(f"features: expected changes such as +avx2,-fma, got '{changes}'")
        (names.discard if change[0] == "-" else names.add)(change[1:])
    return frozenset(names)


def _choice(what: str, choice: str, choices: tuple[str, ...]) -> str:
    if choice and choice not in choices:
        raise UserError(f"{what}: expected one of {', '.join(choices)}, got '{choice}'")
    return choice


def _relocation(triple: str) -> str:
    """Position-independent under an operating system; bare metal and WebAssembly are linked to fixed addresses."""
    systems = ("linux", "android", "bsd", "darwin", "macos", "ios", "windows")
    return "pic" if any(system in triple for system in systems) else "static"


def _float_abi(triple: str, float_abi: str, features: str, family: str) -> tuple[str, str]:
    """The triple and the name of the ABI that pass floats the way the user wants.

    On Arm the triple's last part says it. On RISC-V the ABI's name does: the widest that the features allow, unless the
    user wants integer registers.
    """
    _choice("float ABI", float_abi, FLOAT_ABIS)
    if family in ("arm", "thumb", "thumb_soft"):
        base = triple.removesuffix("hf")
        if float_abi and not base.endswith("eabi"):
            raise UserError(f"float ABI: expected a triple that ends in eabi, got '{triple}'")
        return {"": triple, "soft": base, "hard": f"{base}hf"}[float_abi], ""
    if family in ("riscv32", "riscv64"):
        present = _adjusted(frozenset(), features)
        widest = "d" if "d" in present else "f" if "f" in present else ""
        if float_abi == "hard" and not widest:
            raise UserError("float ABI: hard needs the features +f or +d")
        return triple, ("ilp32" if family == "riscv32" else "lp64") + (
            "" if float_abi == "soft" else widest
        )
    if float_abi:
        raise UserError(f"float ABI: {family} has only one", note="leave out --float-abi")
    return triple, ""
