"""Bundles of networks with branches and loops: they need nothing for them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, bundle
from glowpy.bundling.load import load_bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.graph.parser import parse_module
from tests.bundles.networks import QUIT, link_little_libc, need, on_board, undefined
from tests.onnx.calls_models import COUNTING, decoder, model_of
from tests.ops.test_control import TEXT

pytestmark = pytest.mark.timeout(300)


def network(name: str) -> Module:
    """A loop and a branch of different bodies, a loop whose number of rounds is an extent, greedy decoding."""
    match name:
        case "branches":
            save = "    save(%loop.1, %sums)\n"  # rows after the last round are not defined
            return parse_module(
                TEXT.replace("  placeholder %sums : f32[8x3]\n", "").replace(save, "")
            )
        case "rounds":
            return glowpy.load(model_of(COUNTING))
        case _:
            return glowpy.load(decoder())


NETWORKS = ("branches", "rounds", "decoder")


@pytest.mark.parametrize("name", NETWORKS)
def test_a_loaded_bundle_does_the_same(name: str, tmp_path: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("shared bundles are linked for Linux")
    options = BundleOptions("net", emit="shared", weights="embedded", selftest=4, parallel=True)
    bundle(network(name), tmp_path, options)
    loaded, compiled = load_bundle(tmp_path), glowpy.compile(network(name), "interpreter")
    rng = np.random.default_rng(4)
    for most in (0, 3, 99):
        inputs: dict[str, Any] = {
            port: rng.standard_normal(type.extents).astype(np.float32)
            if type.kind.is_float
            else np.full(type.extents, most, type.kind.dtype)
            for port, type in compiled.inputs.items()
        }
        outputs, expected = loaded(inputs), compiled(inputs)
        for port, array in expected.items():
            np.testing.assert_allclose(outputs[port], array, 1e-5, 1e-6)
    loaded.selftest()


@pytest.mark.parametrize(
    ("target", "emulator", "name"),
    [
        ("rpi4", "qemu-aarch64", "branches"),
        ("rpi4", "qemu-aarch64", "rounds"),
        ("rpi4", "qemu-aarch64", "decoder"),
        ("rpi2", "qemu-arm", "rounds"),
        ("riscv64", "qemu-riscv64", "branches"),
    ],
)
def test_under_qemu(
    target: str, emulator: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the verification compares with is the interpreter."""
    need(emulator)
    link_little_libc(monkeypatch)
    options = BundleOptions("net", weights="embedded", selftest=2)
    bundle(network(name), tmp_path, options, CpuBackend(CpuOptions(target)))
    assert verify_bundle(tmp_path).passed


CHECK_ITSELF = f"""\
#include "net.h"

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

{QUIT}
int main(void) {{
  return net_selftest(net_constants, mutable_area, activations);
}}
"""


@pytest.mark.parametrize("name", ["rounds", "decoder"])
def test_a_microcontroller_decides(name: str, tmp_path: Path) -> None:
    need("qemu-system-arm")
    options = BundleOptions("net", weights="embedded", selftest=3)
    bundle(network(name), tmp_path, options, CpuBackend(CpuOptions("cortex-m3", optimize="size")))
    (tmp_path / "main.c").write_text(CHECK_ITSELF)
    done = on_board(tmp_path, "cortex-m3", "main.c", "net.o")
    assert done.returncode == 0, done.stdout + done.stderr


def test_nothing_is_needed_for_it(tmp_path: Path) -> None:
    bundle(network("branches"), tmp_path, BundleOptions("net", weights="embedded"))
    assert undefined(tmp_path) <= {"memcpy", "memset", "memmove"}


def test_callbacks_see_what_is_called(tmp_path: Path) -> None:
    need("cc")
    backend = CpuBackend(CpuOptions(target="x86-64-v2"))
    bundle(network("branches"), tmp_path, BundleOptions("net", instrument="debug"), backend)
    sources = ["main.c", "net.debug.c", "net.o"]
    subprocess.run(["cc", "-std=c99", *sources, "-lm", "-o", "main"], cwd=tmp_path, check=True)
    subprocess.run([tmp_path / "main"], cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    names = {path.name.split(".")[1] for path in tmp_path.glob("*.bin")}
    assert "loop" in names
    assert names & {"mul", "exp"}
