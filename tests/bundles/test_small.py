"""Bundles whose code is to be small: how small it is, and that it computes the same."""

from __future__ import annotations

import platform
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnx.numpy_helper
import onnx.parser
import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, UserError, bundle, load
from glowpy.backends.cpu.options import Optimize
from glowpy.bundling.read import read_bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.graph.printer import print_module
from glowpy.llvm.object_file import read_sections
from tests.bundles.networks import (
    BOARD,
    BOARDS,
    QUIT,
    glow,
    make,
    mlp,
    need,
    network,
    on_board,
    relu,
    undefined,
)
from tests.bundles.test_programs import DIVISIONS, EABI, LIBRARY


def test_command_line(tmp_path: Path) -> None:
    model = tmp_path / "net.glow"
    model.write_text(print_module(relu()))
    out = tmp_path / "out"
    words = ("--target", "cortex-m7", "--optimize", "size")
    status, _, errors = glow("bundle", model, "-o", out, *words)
    assert (status, errors) == (0, "")
    assert read_bundle(out).settings["optimize"] == "size"
    assert glow("bundle", model, "--check", out)[0] == 0


@pytest.mark.parametrize(
    ("target", "most"), [("cortex-m7", 600), ("cortex-m0", 620), ("x86-64-v2", 680), ("wasm", 900)]
)
def test_code_of_a_small_network(target: str, most: int, tmp_path: Path) -> None:
    """Two products and a softmax, with the check of the weights; ten times as much where code is to be fast."""
    backend = CpuBackend(CpuOptions(target, optimize="size"))
    report = bundle(mlp(), tmp_path, BundleOptions("net"), backend).report
    assert report is not None
    assert report.text <= most


NETWORKS = {
    "mlp": """
<ir_version: 8, opset_import: ["" : 13]>
mlp (float[1,8] x, float[16,8] w0, float[16] b0, float[4,16] w1, float[4] b1) => (float[1,4] y) {
  h = Gemm<transB = 1>(x, w0, b0)
  a = Relu(h)
  y = Gemm<transB = 1>(a, w1, b1)
}
""",
    "cnn": """
<ir_version: 8, opset_import: ["" : 13]>
cnn (float[1,1,16,16] x, float[8,1,3,3] w0, float[8] b0, float[16,8,3,3] w1, float[16] b1, float[10,256] w2,
     float[10] b2) => (float[1,10] y) {
  c0 = Conv<pads = [1, 1, 1, 1]>(x, w0, b0)
  r0 = Relu(c0)
  p0 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r0)
  c1 = Conv<pads = [1, 1, 1, 1]>(p0, w1, b1)
  r1 = Relu(c1)
  p1 = MaxPool<kernel_shape = [2, 2], strides = [2, 2]>(r1)
  f = Flatten(p1)
  s = Gemm<transB = 1>(f, w2, b2)
  y = Softmax(s)
}
""",
}


@cache
def trained(name: str) -> onnx.ModelProto:
    """One of the networks, all of whose inputs but the first have random numbers. Not to be changed."""
    model, rng = onnx.parser.parse_model(NETWORKS[name]), np.random.default_rng(0)
    inputs = list(model.graph.input)
    for weight in inputs[1:]:
        shape = [dim.dim_value for dim in weight.type.tensor_type.shape.dim]
        numbers = rng.normal(0, 0.2, shape).astype(np.float32)
        model.graph.initializer.append(onnx.numpy_helper.from_array(numbers, weight.name))
        model.graph.input.remove(weight)
    return model


@pytest.mark.parametrize(
    ("name", "target", "most"),
    [
        ("mlp", "cortex-m0", 184),
        ("mlp", "cortex-m4", 204),
        ("mlp", "cortex-m7", 220),
        ("mlp", "x86-64-v3", 163),
        ("cnn", "cortex-m0", 1128),
        ("cnn", "cortex-m4", 1178),
        ("cnn", "cortex-m7", 1192),
        ("cnn", "x86-64-v3", 1719),
    ],
)
def test_code_is_no_larger_than_plain_c(name: str, target: str, most: int, tmp_path: Path) -> None:
    """At most what clang 22 makes with -Os of the C that emx-onnx-cgen 1.4 writes, which calls expf for the softmax."""
    backend = CpuBackend(CpuOptions(target, optimize="size"))
    bundle(load(trained(name)), tmp_path, BundleOptions("net"), backend)
    sections = read_sections((tmp_path / "net.o").read_bytes())
    assert sections.text - sections.functions["net_check_weights"] <= most


def test_no_instruction_has_code_of_its_own(tmp_path: Path) -> None:
    """A function that is called once is part of its caller, and blamed for its constants alone."""
    words = ("--target", "cortex-m7", "--optimize", "size")
    model = tmp_path / "net.onnx"
    onnx.save(trained("mlp"), model)
    status, printed, errors = glow("bundle", model, "-o", tmp_path / "out", *words)
    assert (status, errors) == (0, "")
    assert "bytes of" in printed
    assert "Most code" not in printed
    backend = CpuBackend(CpuOptions("cortex-m7", optimize="size"))
    with pytest.raises(
        UserError, match=r"cpu_plain_matmul 'first\w*' takes \d+ bytes: %\w+ \(\d+\)$"
    ):
        bundle(mlp(), tmp_path / "none", BundleOptions("net", max_flash=10), backend)


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 machine")
@pytest.mark.parametrize("name", ["mlp", "doubles", "recurrent", "squeezenet"])
def test_results(name: str, tmp_path: Path) -> None:
    need("cc")
    backend = CpuBackend(CpuOptions("x86-64-v2", optimize="size"))
    options = BundleOptions("net", parallel=True, weights="embedded", selftest=1)
    bundle(network(name), tmp_path, options, backend)
    assert verify_bundle(tmp_path).passed


def test_results_without_floating_point(tmp_path: Path) -> None:
    """On a board with a Cortex-M3, where products share a function: the self-test has what the interpreter computes."""
    need("qemu-system-arm")
    options = BundleOptions("mlp", weights="embedded", selftest=1)
    bundle(
        load(trained("cnn")),
        tmp_path,
        options,
        CpuBackend(CpuOptions("cortex-m0", optimize="size")),
    )
    done = on_board(tmp_path, "cortex-m0", BOARD / "main.c", "mlp.o")
    assert (done.returncode, (done.stdout + done.stderr)[:2]) == (0, "y:")


CHECK_ITSELF = f"""\
#include "net.h"

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE + 1];

{QUIT}
int main(void) {{ return net_selftest(net_constants, mutable_area, activations); }}
"""


@pytest.mark.parametrize("optimize", ["speed", "size"])
@pytest.mark.parametrize("target", list(BOARDS))
def test_stored_integers_on_microcontrollers(
    tmp_path: Path, target: str, optimize: Optimize
) -> None:
    """The self-test compares what comes out with what the interpreter computes; fast code calls no library for it."""
    need("qemu-system-arm")
    make(tmp_path, target, "integers", optimize=optimize, weights="embedded", selftest=2)
    assert optimize == "size" or undefined(tmp_path) <= {*LIBRARY, *EABI, *DIVISIONS}
    (tmp_path / "main.c").write_text(CHECK_ITSELF)
    done = on_board(tmp_path, target, "main.c", "net.o")
    assert done.returncode == 0, done.stdout + done.stderr


def test_pointers_are_checked_on_request(tmp_path: Path) -> None:
    backend = CpuBackend(CpuOptions("cortex-m7", optimize="size"))
    for guard in (False, True):
        bundle(relu(), tmp_path, BundleOptions("net", guard=guard, emit="llvm"), backend)
        code = (tmp_path / "net.ll").read_text()
        assert ("%mutable.missing" in code) == guard
