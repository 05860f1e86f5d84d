"""Which kernels, processor, ABI and relocation a target comes to."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import ARMAttributesSection

from glowpy import (
    BundleOptions,
    CpuBackend,
    CpuOptions,
    Module,
    UnsupportedError,
    UserError,
    bundle,
    parse_type,
)
from glowpy.backends.cpu.presets import PRESETS
from glowpy.backends.cpu.target import CODE_MODELS, CpuTarget, resolve_target
from glowpy.backends.cpu.variant import VARIANTS
from glowpy.graph.printer import print_module
from tests.bundles.networks import command, glow, mlp, need, relu


def resolved(target: str = "x86_64-linux-gnu", **options: str) -> CpuTarget:
    return resolve_target(replace(CpuOptions(target), **options))  # type: ignore[arg-type]


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_a_target(name: str) -> None:
    target = resolved(name)
    assert target.machine.triple.replace("-unknown", "") == PRESETS[name].triple.replace(
        "-unknown", ""
    )
    assert len(target.machine.triple.split("-")) == (3 if name.startswith("wasm") else 4)
    assert target.machine.cpu == (PRESETS[name].cpu or target.variant.cpu)


@pytest.mark.parametrize(
    ("cpu", "variant"),
    [
        ("", "x86_64_v2"),
        ("x86-64-v2", "x86_64_v2"),
        ("x86-64-v3", "x86_64_v3"),
        ("haswell", "x86_64_v3"),
        ("alderlake", "x86_64_v3_avxvnni"),
        ("x86-64-v4", "x86_64_v4"),
        ("znver5", "x86_64_v4_vnni"),
        ("btver2", "x86_64_v2"),
    ],
)
def test_the_processor_chooses_the_kernels(cpu: str, variant: str) -> None:
    assert resolved(cpu=cpu).variant.name == variant


def test_features_choose_on_top_of_the_processor() -> None:
    assert resolved(cpu="x86-64-v4", features="+avx512vnni").variant.name == "x86_64_v4_vnni"
    assert resolved(cpu="x86-64-v3", features="-fma").variant.name == "x86_64_v2"
    assert resolved("rpi4", features="+dotprod").variant.name == "aarch64_dotprod"
    assert resolved("riscv64", features="+v").variant.name == "riscv64_v"
    assert resolved("riscv64", features="+v,+zvl256b").variant.name == "riscv64_v256"
    assert resolved("cortex-a9").variant.name == "armv7_neon"
    assert resolved("cortex-a9", features="+vfp4").variant.name == "armv7_neon_vfp4"


def test_what_is_said_beside_a_preset_wins() -> None:
    target = resolved("cortex-m7", cpu="cortex-m4", features="-fp64")
    assert target.machine.cpu == "cortex-m4"
    assert target.machine.features.endswith(",-fp64")


@pytest.mark.parametrize(
    ("target", "float_abi", "triple", "abi"),
    [
        ("cortex-m7", "", "thumbv7em-unknown-none-eabihf", ""),
        ("cortex-m7", "soft", "thumbv7em-unknown-none-eabi", ""),
        ("cortex-m0", "", "thumbv6m-unknown-none-eabi", ""),
        ("riscv64-v", "", "riscv64-unknown-linux-gnu", "lp64d"),
        ("armv7-linux-gnueabi", "hard", "armv7-unknown-linux-gnueabihf", ""),
        ("riscv64", "", "riscv64-unknown-linux-gnu", "lp64d"),
        ("riscv64", "soft", "riscv64-unknown-linux-gnu", "lp64"),
        ("riscv32", "", "riscv32-unknown-linux-gnu", "ilp32d"),
        ("esp32-c3", "", "riscv32-unknown-none-elf", "ilp32"),
    ],
)
def test_float_abi(target: str, float_abi: str, triple: str, abi: str) -> None:
    machine = resolved(target, float_abi=float_abi).machine
    assert (machine.triple, machine.abi) == (triple, abi)


@pytest.mark.parametrize(
    ("target", "relocation"),
    [("rpi4", "pic"), ("cortex-m4", "static"), ("wasm", "static"), ("esp32-c3", "static")],
)
def test_relocation(target: str, relocation: str) -> None:
    assert resolved(target).machine.relocation == relocation
    for choice in ("static", "pic"):
        assert resolved(target, relocation=choice).machine.relocation == choice


@pytest.mark.parametrize(
    ("target", "options", "message"),
    [
        ("rpi9", {}, "expected a preset or a triple such as aarch64-linux-gnu, got 'rpi9'"),
        ("rpi44", {}, r"did you mean rpi4\? glowpy targets lists the presets"),
        ("cortex-m9", {}, r"did you mean cortex-m.\? glowpy targets lists presets and families"),
        ("vax", {}, "note: glowpy targets lists the presets"),
        ("rpi4", {"float_abi": "hard"}, "float ABI: aarch64 has only one"),
        ("esp32-c3", {"float_abi": "hard"}, "hard needs the features"),
        ("rpi2", {"float_abi": "middling"}, "expected one of soft, hard, got 'middling'"),
        ("rpi4", {"relocation": "ropi"}, "relocation: expected one of static, pic, got 'ropi'"),
        ("rpi4", {"code_model": "medium"}, "code model: expected one of small, large, got"),
        ("rpi4", {"code_model": "large"}, "code model: large is for static code on aarch64"),
    ],
)
def test_refusals(target: str, options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        resolved(target, **options)


def test_an_architecture_without_kernels() -> None:
    with pytest.raises(UnsupportedError, match="no kernels for 'mips-unknown-linux-gnu'"):
        resolved("mips-linux-gnu")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"cpu": "pentium-9"}, "'pentium-9' is not a recognized processor"),
        ({"features": "+warp"}, "'+warp' is not a recognized feature"),
    ],
)
def test_llvm_must_know_processor_and_features(options: dict[str, str], message: str) -> None:
    with pytest.raises(UserError) as caught:
        resolved(**options)
    assert message in str(caught.value)


def test_targets_lists_presets_and_kernels() -> None:
    status, printed, _ = glow("targets", "--json")
    listed = json.loads(printed)
    assert status == 0
    assert {preset["name"] for preset in listed["presets"]} == set(PRESETS)
    assert {variant["name"] for variant in listed["variants"]} == {
        variant.name for variant in VARIANTS
    }
    status, printed, _ = glow("targets")
    assert "cortex-m7" in printed
    assert "x86_64_v4_vnni" in printed


def test_dump_takes_presets(tmp_path: Path) -> None:
    (tmp_path / "net.glow").write_text(print_module(relu()))
    status, printed, errors = glow(
        "dump", tmp_path / "net.glow", "--stage", "asm", "--target", "cortex-m7"
    )
    assert status == 0, errors
    assert "thumb" in printed


@pytest.mark.parametrize(
    ("target", "float_abi", "flags"),
    [("riscv64", "", 4), ("riscv64", "soft", 0), ("riscv32", "hard", 4), ("esp32-c3", "", 0)],
)
def test_a_riscv_object_says_how_floats_are_passed(
    target: str, float_abi: str, flags: int, tmp_path: Path
) -> None:
    bundle(
        mlp(), tmp_path, BundleOptions("net"), CpuBackend(CpuOptions(target, float_abi=float_abi))
    )
    with (tmp_path / "net.o").open("rb") as file:
        assert ELFFile(file)["e_flags"] & 6 == flags


@pytest.mark.parametrize(
    ("target", "float_abi", "hard"),
    [("cortex-m7", "", True), ("cortex-m4", "soft", False), ("rpi2", "", True)],
)
def test_an_arm_object_says_how_floats_are_passed(
    target: str, float_abi: str, hard: bool, tmp_path: Path
) -> None:
    """GNU's linker refuses to link objects that do not agree about it."""
    bundle(
        mlp(), tmp_path, BundleOptions("net"), CpuBackend(CpuOptions(target, float_abi=float_abi))
    )
    with (tmp_path / "net.o").open("rb") as file:
        attributes = ELFFile(file).get_section_by_name(".ARM.attributes")
        assert isinstance(attributes, ARMAttributesSection)
        (section,) = attributes.iter_subsections()
        tags = {
            attribute.tag: attribute.value
            for part in section.iter_subsubsections()
            for attribute in part.iter_attributes()
        }
    assert tags.get("TAG_ABI_VFP_ARGS", 0) == int(hard)


def test_wasm_needs_nothing_after_its_first_version(tmp_path: Path) -> None:
    """No bulk memory, which came with 2.0: engines refuse a module that has any of it."""
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[64]"))
    f = module.create_function("main")
    wide = f.create_pad("pad", x, (500, 500), 0.0)
    f.create_save("save", wide, module.create_placeholder("y", wide.type))
    for features, bulk in (("", False), ("+bulk-memory,+bulk-memory-opt", True)):
        backend = CpuBackend(CpuOptions("wasm", features=features))
        bundle(module, tmp_path, BundleOptions("net", emit="asm"), backend)
        code = (tmp_path / "net.s").read_text()
        assert bool(re.search(r"\bmemory\.(copy|fill)\b", code)) == bulk
        assert ("bulk-memory" in code) == bulk


def test_sections_let_a_linker_leave_out_what_nobody_uses(tmp_path: Path) -> None:
    """Of two networks and a self-test, a program has the network that it runs."""
    need("cc", "nm")
    options = BundleOptions("net", weights="embedded", selftest=1, api="dynamic")
    bundle({"one": mlp(), "two": mlp(1)}, tmp_path, options)
    (tmp_path / "main.c").write_text(
        '#include "net.h"\nint main(void) { return net_one(0, 0, 0) != 1; }\n'
    )
    build = ("cc", "-std=c99", "main.c", "net.o", "-o", "main")
    symbols = {}
    for flag in ("-Wl,--no-gc-sections", "-Wl,--gc-sections"):
        done = command(tmp_path, *build, flag)
        assert done.returncode == 0, done.stderr
        assert command(tmp_path, "./main").returncode == 0
        symbols[flag] = set(re.findall(r"\bnet[\w.]*", command(tmp_path, "nm", "main").stdout))
    whole, part = symbols.values()
    assert {"net_two", "net_selftest", "net_config", "net_constants", "net_check_weights"} <= whole
    assert {name.partition(".")[0] for name in part} == {"net_one"}


@pytest.mark.parametrize("target", ["x86-64-v2", "rpi4", "rpi2", "riscv64", "cortex-m7", "wasm"])
def test_relocation_and_code_model_change_the_object(target: str, tmp_path: Path) -> None:
    """A self-test refers to golden data of its own."""
    family = resolved(target).variant.family
    kinds = [("static", model) for model in CODE_MODELS[family]]
    kinds += (
        [] if family == "aarch64" else [("pic", "small")]
    )  # it always computes addresses from its own
    options = BundleOptions("net", weights="embedded", selftest=1)
    objects = set()
    for relocation, model in kinds:
        backend = CpuBackend(CpuOptions(target, relocation=relocation, code_model=model))
        bundle(mlp(), tmp_path, options, backend)
        objects.add((tmp_path / "net.o").read_bytes())
    assert len(objects) == len(kinds)
