"""Bundles of quantized networks that were trained compute, on every processor, the bits that the interpreter does."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Literal

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, integer_ports, quantization
from glowpy.bundling.make import bundle
from glowpy.bundling.verify import verify_bundle
from glowpy.core.elemkind import ElemKind
from glowpy.core.quantized import parameters
from glowpy.core.tensor import Array
from tests.bundles.networks import QUIT, link_little_libc, need, on_board, undefined
from tests.bundles.test_programs import DIVISIONS, EABI, LIBRARY
from tests.unit.quantization import test_convert
from tests.unit.quantization.digits import cnn, digits, mlp
from tests.unit.quantization.test_forms import every_form

NETWORKS = {"mlp": mlp, "cnn": cnn}
QEMU = {"rpi4": "qemu-aarch64", "rpi2": "qemu-arm", "riscv64": "qemu-riscv64"}
SEEN = 8
"""Digits that a microcontroller looks at."""

CHECK = """\
#include "net.h"
#include "digits.h"

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE + 1];

@QUIT@
int main(void) {
  for (int i = 0; i < SEEN; i++) {
    volatile uint8_t *x = mutable_area + NET_X_OFFSET, *y = mutable_area + NET_Y_OFFSET;
    for (uint32_t k = 0; k < sizeof images[i]; k++) x[k] = images[i][k];
    if (net(net_constants, mutable_area, activations)) return 1;
    for (uint32_t k = 0; k < sizeof scores[i]; k++)
      if (y[k] != scores[i][k]) return 1;
  }
  return 0;
}
""".replace("@QUIT@", QUIT)


@cache
def quantized(name: str) -> Module:
    """For one image at a time."""
    known, _ = digits()
    module = NETWORKS[name](1)
    samples = [{"x": image[None]} for image in known.images[:100]]
    return quantization.quantize(module, quantization.profile(module, samples))


@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("target", list(QEMU))
def test_under_qemu(
    target: str, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(QEMU[target])
    link_little_libc(monkeypatch)
    bundle(quantized(name), tmp_path, BundleOptions("net"), CpuBackend(CpuOptions(target)))
    (check,) = verify_bundle(tmp_path).checks
    assert check.scale > 1
    assert check.error == 0


@pytest.mark.parametrize("target", ["rpi4", "riscv64"])
def test_every_form_under_qemu(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    need(QEMU[target])
    link_little_libc(monkeypatch)
    bundle(every_form(), tmp_path, BundleOptions("net"), CpuBackend(CpuOptions(target)))
    (check,) = verify_bundle(tmp_path).checks
    assert check.error == 0


def _bytes(name: str, rows: list[bytes]) -> str:
    """An array of C with the bytes of numbers, row by row."""
    body = "},\n  {".join(", ".join(map(str, row)) for row in rows)
    return f"static const uint8_t {name}[SEEN][{len(rows[0])}] = {{\n  {{{body}}},\n}};\n"


def _integers(module: Module, image: Array) -> tuple[Array, Array]:
    """What an image and its scores are with integer ports, from those in floats on the interpreter."""
    stored, scores = (parameters(port.type) for port in integer_ports(module).placeholders)
    steps = np.rint(image / np.float32(stored.scales[0])) + stored.offsets[0]
    numbers = glowpy.compile(module, "interpreter")({"x": image})["y"]
    return steps.astype(np.uint8), np.rint(numbers / np.array(scores.scales)).astype(np.int32)


@pytest.mark.parametrize(
    ("activations", "optimize"),
    [(ElemKind.U8, "speed"), (ElemKind.U8, "size"), (ElemKind.I16, "speed")],
)
def test_residual_sums_need_no_floating_point(
    activations: ElemKind, optimize: Literal["speed", "size"], tmp_path: Path
) -> None:
    """Nor do tables, means and limits: the object calls nothing of the compiler's library that computes in floats."""
    options = quantization.Options(activations=activations)
    module = quantization.quantize(test_convert.network(), test_convert.profiled(), options)
    backend = CpuBackend(CpuOptions("cortex-m4-nofpu", optimize=optimize))
    bundle(module, tmp_path, BundleOptions("net", integer_ports=True), backend)
    assert undefined(tmp_path) <= LIBRARY | EABI


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("target", ["cortex-m7", "cortex-m3", "cortex-m0"])
def test_on_a_microcontroller(target: str, name: str, tmp_path: Path) -> None:
    """Those without floating point compute nothing in floats, and give what the others do."""
    need("qemu-system-arm")
    _, unseen = digits()
    integers = target != "cortex-m7"
    module = quantized(name)
    reference = glowpy.compile(module, "interpreter")
    runs = [
        _integers(module, image[None]) if integers else (image, reference({"x": image[None]})["y"])
        for image in unseen.images[:SEEN]
    ]
    options = BundleOptions("net", weights="embedded", integer_ports=integers)
    bundle(module, tmp_path, options, CpuBackend(CpuOptions(target)))
    assert undefined(tmp_path) <= LIBRARY | EABI | DIVISIONS
    images, scores = ([array.tobytes() for array in arrays] for arrays in zip(*runs, strict=True))
    arrays = _bytes("images", images) + _bytes("scores", scores)
    (tmp_path / "digits.h").write_text(f"#define SEEN {SEEN}\n{arrays}")
    (tmp_path / "main.c").write_text(CHECK)
    done = on_board(tmp_path, target, "main.c", "net.o")
    assert done.returncode == 0, done.stdout + done.stderr
