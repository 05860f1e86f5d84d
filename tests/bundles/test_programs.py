"""Bundles become programs that compute what the interpreter does: on this machine, under QEMU, and under Node."""

from __future__ import annotations

import platform
import subprocess
import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, Module
from glowpy.bundling.make import bundle
from glowpy.bundling.verify import Verification, verify_bundle
from glowpy.core.type import parse_type
from tests.bundles.networks import link_little_libc, make, need, network, undefined

NATIVE = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 machine"
)
QEMU = {"rpi4": "qemu-aarch64", "rpi2": "qemu-arm", "riscv64": "qemu-riscv64"}
LIBRARY = {"memcpy", "memset"}
"""All that an object may want from elsewhere; docs/bundles.md names them."""
EABI = {
    f"__aeabi_mem{what}{aligned}" for what in ("cpy", "set", "clr") for aligned in ("", "4", "8")
}
"""What Arm's ABI for bare metal calls them."""
DIVISIONS = {"__aeabi_idiv", "__aeabi_uidiv"}
"""Of integers, on a Cortex-M0."""

first_use_of_zig = pytest.mark.timeout(600)
"""Zig compiles the C library of a target when it is first asked for it."""


def check(verification: Verification, networks: int, builds: set[str]) -> None:
    assert verification.passed, verification.checks
    assert {output.network for output in verification.checks} == (
        {"net"} if networks == 1 else {f"net_{i}" for i in range(networks)}
    )
    assert builds <= set(verification.seconds)
    assert all(output.scale > 1e-3 for output in verification.checks), "outputs that say nothing"


@NATIVE
@first_use_of_zig
# The dynamic one is for x86-64-v2, whose kernels no test of libjit runs.
@pytest.mark.parametrize(
    ("name", "api"),
    [*product(["mlp", "squeezenet"], ["static", "dynamic"]), ("resnet50", "dynamic")],
)
def test_native(name: str, api: str, tmp_path: Path) -> None:
    need("gcc")
    target = {"static": "x86-64-v3", "dynamic": "x86-64-v2"}[api]
    if target == "x86-64-v3" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX2")
    make(tmp_path, target, name, api=api)
    check(verify_bundle(tmp_path), 1, {"cc"})
    check(verify_bundle(tmp_path, seed=1, system=False), 1, {"zig cc"})
    assert undefined(tmp_path) <= LIBRARY


@NATIVE
@pytest.mark.parametrize(
    ("options", "machine"),
    [
        ({"emit": "lib", "weights": "header"}, {}),
        ({"emit": "shared", "weights": "embedded", "api": "dynamic"}, {}),
        ({"guard": True, "debug": True, "weights": "embedded", "selftest": 2}, {}),
        ({"instrument": "debug"}, {}),
        ({}, {"relocation": "static"}),
        ({}, {"code_model": "large"}),
    ],
    ids=str,
)
def test_every_kind(options: dict[str, Any], machine: dict[str, Any], tmp_path: Path) -> None:
    need("cc")
    backend = CpuBackend(CpuOptions(target="x86-64-v2", **machine))
    bundle(network("mlp"), tmp_path, BundleOptions("net", **options), backend)
    start = time.perf_counter()
    verification = verify_bundle(tmp_path)
    check(verification, 1, {"cc"})
    assert 0 < sum(verification.seconds.values()) <= time.perf_counter() - start


@NATIVE
def test_operands_with_gaps_are_dumped_without_them(tmp_path: Path) -> None:
    need("cc")
    module = Module()
    x = module.create_placeholder("x", parse_type("f32[3x2]"))
    f = module.create_function("main")
    joined = f.create_concat("c", [f.create_abs("a", x), f.create_neg("n", x)], 1)
    f.create_save("save", joined, module.create_placeholder("y", parse_type("f32[3x4]")))
    backend = CpuBackend(CpuOptions(target="x86-64-v2"))
    bundle(module, tmp_path, BundleOptions("net", instrument="debug"), backend)
    sources = ["main.c", "net.debug.c", "net.o"]
    subprocess.run(["cc", "-std=c99", *sources, "-lm", "-o", "main"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    read, absolute, negated = (
        np.fromfile(next(tmp_path.glob(f"*.{name}.bin")), np.float32)
        for name in ("abs.x.before", "abs.a.after", "neg.n.after")
    )
    assert read.size == 6
    np.testing.assert_array_equal(absolute, np.abs(read))
    np.testing.assert_array_equal(negated, -read)


@pytest.mark.parametrize(
    ("target", "name"),
    [
        *product(QEMU, ["mlp", "doubles", "recurrent", "residual", "integers"]),
        ("rpi4", "squeezenet"),
        ("rpi2", "squeezenet"),
    ],
)
def test_under_qemu(
    target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(QEMU[target])
    link_little_libc(monkeypatch)
    make(tmp_path, target, name, weights="embedded", selftest=1)
    verification = verify_bundle(tmp_path)
    check(verification, 1, {"zig cc"})
    assert name != "integers" or all(output.error == 0 for output in verification.checks)
    assert verification.selftest
    assert undefined(tmp_path) <= LIBRARY


@pytest.mark.parametrize("name", ["mlp", "residual"])
@pytest.mark.parametrize(("features", "length"), [("", 128), ("+zvl256b", 256)])
def test_vectors_of_riscv_under_qemu(
    features: str, length: int, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Small networks: vectors are what the emulator is slowest at."""
    need("qemu-riscv64")
    link_little_libc(monkeypatch)
    monkeypatch.setenv("QEMU_CPU", f"rv64,v=true,vlen={length}")
    backend = CpuBackend(CpuOptions("riscv64-v", features=features))
    bundle(network(name), tmp_path, BundleOptions("net"), backend)
    check(verify_bundle(tmp_path), 1, {"zig cc"})


@pytest.mark.slow
@first_use_of_zig
def test_resnet50_under_qemu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its layers once in their whole size, where the emulator is fastest: what it consists of runs on all targets
    above."""
    need(QEMU["rpi4"])
    link_little_libc(monkeypatch)
    make(tmp_path, "rpi4", "residual_in_full")
    check(verify_bundle(tmp_path), 1, {"zig cc"})


@first_use_of_zig
@pytest.mark.parametrize(
    ("target", "name"),
    [
        ("wasm", "mlp"),
        ("wasm", "residual"),
        ("wasm-simd", "mlp"),
        ("wasm-simd", "squeezenet"),
        ("wasm-simd", "doubles"),
        ("wasm-simd", "integers"),
        ("wasm-simd", "residual"),
    ],
)
def test_under_node(target: str, name: str, tmp_path: Path) -> None:
    need("node")
    result = make(tmp_path, target, name, weights="embedded", selftest=1)
    check(verify_bundle(tmp_path), 1, {"zig cc"})
    assert result.report is not None
    assert result.report.weights < result.report.flash < (tmp_path / "net.o").stat().st_size
    assert result.report.instructions[0].text < result.report.text


@pytest.mark.slow
@first_use_of_zig
def test_resnet50_under_node(tmp_path: Path) -> None:
    need("node")
    make(tmp_path, "wasm-simd", "resnet50")
    check(verify_bundle(tmp_path), 1, {"zig cc"})


@pytest.mark.parametrize("target", ["cortex-m4", "cortex-m7", "cortex-m7-sp", "cortex-m33"])
@pytest.mark.parametrize("name", ["mlp", "squeezenet"])
def test_microcontrollers_need_no_floating_point_library(
    target: str, name: str, tmp_path: Path
) -> None:
    make(tmp_path, target, name)
    assert undefined(tmp_path) <= LIBRARY | EABI


@pytest.mark.parametrize("target", ["cortex-m0", "cortex-m3"])
def test_without_floating_point_arms_library_computes(target: str, tmp_path: Path) -> None:
    make(tmp_path, target)
    symbols = undefined(tmp_path) - LIBRARY
    assert "__aeabi_fadd" in symbols
    assert all(symbol.startswith("__aeabi_") for symbol in symbols)


def test_without_floating_point_the_compilers_library_computes(tmp_path: Path) -> None:
    make(tmp_path, "esp32-c3")
    symbols = undefined(tmp_path) - LIBRARY
    assert "__addsf3" in symbols
    assert all(
        (symbol.startswith("__") and symbol.endswith("2")) or symbol.endswith("3")
        for symbol in symbols
    )
