"""Bundles whose code is to be small: how small it is, and that it computes the same."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, bundle
from glowpy.backends.cpu.bundle.read import read_bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.graph.printer import print_module
from tests.bundles.networks import glow, mlp, need, network, relu


def test_command_line(tmp_path: Path) -> None:
    model = tmp_path / "net.glow"
    model.write_text(print_module(relu()))
    out = tmp_path / "out"
    words = ("--target", "cortex-m7", "--optimize", "size")
    status, _, errors = glow("bundle", model, "-o", out, *words)
    assert (status, errors) == (0, "")
    assert read_bundle(out).cpu_options.optimize == "size"
    assert glow("bundle", model, "--check", out)[0] == 0


@pytest.mark.parametrize(
    ("target", "most"), [("cortex-m7", 850), ("cortex-m0", 1150), ("x86-64-v2", 950), ("wasm", 950)]
)
def test_code_of_a_small_network(target: str, most: int, tmp_path: Path) -> None:
    """Two products and a softmax, with the check of the weights; ten times as much where code is to be fast."""
    backend = CpuBackend(CpuOptions(target, optimize="size"))
    report = bundle(mlp(), tmp_path, BundleOptions("net"), backend).report
    assert report is not None
    assert report.text <= most


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 machine")
@pytest.mark.parametrize("name", ["mlp", "doubles", "squeezenet"])
def test_results(name: str, tmp_path: Path) -> None:
    need("cc")
    backend = CpuBackend(CpuOptions("x86-64-v2", optimize="size"))
    options = BundleOptions("net", parallel=True, weights="embedded", selftest=1)
    bundle(network(name), tmp_path, options, backend)
    assert verify_bundle(tmp_path).passed


def test_pointers_are_checked_on_request(tmp_path: Path) -> None:
    backend = CpuBackend(CpuOptions("cortex-m7", optimize="size"))
    for guard in (False, True):
        bundle(relu(), tmp_path, BundleOptions("net", guard=guard, emit="llvm"), backend)
        code = (tmp_path / "net.ll").read_text()
        assert ("%mutable.missing" in code) == guard
