"""Presets: names for machines that people have, each a triple, a processor and its features."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace

from glowpy.backends.cpu.options import CpuOptions
from glowpy.support.errors import UserError

__all__ = ["PRESETS", "Preset", "similar_preset", "with_preset"]


@dataclass(frozen=True)
class Preset:
    """One machine.

    Attributes:
        name: The word that --target takes.
        triple: LLVM's name of the architecture, the operating system and the ABI.
        cpu: LLVM's name of the processor; empty for the baseline of the architecture.
        features: LLVM's features on top of those the processor has.
        about: A description in a few words.
    """

    name: str
    triple: str
    cpu: str
    features: str
    about: str


_X86 = "x86_64-linux-gnu"
_RISCV64 = "riscv64-linux-gnu"
_ARM64 = "aarch64-linux-gnu"
_ARM32 = "armv7-linux-gnueabihf"
_WASM = "wasm32-unknown-unknown"
_THUMB = "thumbv7em-none-eabihf"

PRESETS: Mapping[str, Preset] = {
    preset.name: preset
    for preset in (
        Preset("x86-64-v2", _X86, "x86-64-v2", "", "SSE4.2: PCs since 2009"),
        Preset("x86-64-v3", _X86, "x86-64-v3", "", "AVX2: PCs since 2013"),
        Preset("x86-64-v4", _X86, "x86-64-v4", "", "AVX-512: servers since 2017"),
        Preset("skylake", _X86, "skylake", "", "Intel Core since 2015"),
        Preset("icelake-server", _X86, "icelake-server", "", "Intel Xeon since 2021"),
        Preset("znver4", _X86, "znver4", "", "AMD Zen 4"),
        Preset("rpi2", _ARM32, "cortex-a7", "", "Raspberry Pi 2"),
        Preset("rpi3", _ARM64, "cortex-a53", "", "Raspberry Pi 3"),
        Preset("rpi4", _ARM64, "cortex-a72", "", "Raspberry Pi 4"),
        Preset("rpi5", _ARM64, "cortex-a76", "", "Raspberry Pi 5"),
        Preset("graviton2", _ARM64, "neoverse-n1", "", "Graviton2, Ampere Altra"),
        Preset("graviton3", _ARM64, "neoverse-v1", "", "Graviton3, with SVE"),
        Preset("graviton4", _ARM64, "neoverse-v2", "", "Graviton4, NVIDIA Grace, with SVE2"),
        Preset("cortex-a9", _ARM32, "cortex-a9", "", "NEON without FMA"),
        Preset("cortex-m0", "thumbv6m-none-eabi", "cortex-m0", "", "no FPU, also M0+ and M1"),
        Preset("cortex-m3", "thumbv7m-none-eabi", "cortex-m3", "", "no FPU"),
        Preset("cortex-m4", _THUMB, "cortex-m4", "", "single-precision FPU"),
        Preset("cortex-m4-nofpu", "thumbv7em-none-eabi", "", "+dsp", "no FPU"),
        Preset("cortex-m7", _THUMB, "cortex-m7", "", "double-precision FPU"),
        Preset("cortex-m7-sp", _THUMB, "cortex-m7", "-fp64", "single-precision FPU"),
        Preset(
            "cortex-m33", "thumbv8m.main-none-eabihf", "cortex-m33", "",
            "single-precision FPU",
        ),
        Preset("riscv64", _RISCV64, "", "", "RV64GC"),
        Preset("riscv64-v", _RISCV64, "", "+v", "RV64GCV with vectors of 128 bits or more"),
        Preset("spacemit-x60", _RISCV64, "spacemit-x60", "", "SpacemiT K1: vectors of 256 bits"),
        Preset("riscv32", "riscv32-linux-gnu", "", "+a,+c,+d,+f", "RV32GC"),
        Preset("esp32-c3", "riscv32-none-elf", "", "+c", "no FPU"),
        Preset("wasm", _WASM, "mvp", "", "WebAssembly 1.0"),
        Preset("wasm-simd", _WASM, "", "+simd128", "WebAssembly 2.0"),
        Preset(
            "wasm-relaxed", _WASM, "", "+simd128,+relaxed-simd", "WebAssembly 3.0"
        ),
        Preset("powerpc64le", "powerpc64le-linux-gnu", "", "", "POWER8"),
    )
}  # fmt: skip
"""Every preset by its name."""


def with_preset(options: CpuOptions) -> CpuOptions:
    """The options with a preset's name replaced by what it stands for; what they say beside it comes on top.

    Raises UserError for a target that is neither a preset nor formed like a triple.
    """
    preset = PRESETS.get(options.target)
    if preset is not None:
        return replace(
            options,
            target=preset.triple,
            cpu=options.cpu or preset.cpu,
            features=",".join(filter(None, (preset.features, options.features))),
        )
    if options.target and "-" not in options.target:
        raise UserError(
            f"expected a preset or a triple such as aarch64-linux-gnu, got '{options.target}'",
            note=f"{similar_preset(options.target)}glowpy targets lists the presets",
        )
    return options


def similar_preset(name: str) -> str:
    """The beginning of a remedy for a name that is no preset: a question for one spelled like it, or nothing."""
    closest = difflib.get_close_matches(name, PRESETS, 1, cutoff=0.75)
    return f"did you mean {closest[0]}? " if closest else ""
