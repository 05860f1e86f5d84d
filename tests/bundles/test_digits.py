"""Bundles of quantized networks that were trained compute, on every processor, the bits that the interpreter does."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, quantization
from glowpy.bundling.make import bundle
from glowpy.bundling.verify import verify_bundle
from tests.bundles.networks import QUIT, need, on_board
from tests.unit.quantization.digits import cnn, digits, mlp

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
    volatile uint32_t *x = (uint32_t *)(mutable_area + NET_X_OFFSET), *y = (uint32_t *)(mutable_area + NET_Y_OFFSET);
    for (uint32_t k = 0; k < NET_X_COUNT; k++) x[k] = images[i][k];
    if (net(net_constants, mutable_area, activations)) return 1;
    for (uint32_t k = 0; k < NET_Y_COUNT; k++)
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


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(NETWORKS))
@pytest.mark.parametrize("target", list(QEMU))
def test_under_qemu(target: str, name: str, tmp_path: Path) -> None:
    need(QEMU[target])
    bundle(quantized(name), tmp_path, BundleOptions("net"), CpuBackend(CpuOptions(target)))
    (check,) = verify_bundle(tmp_path).checks
    assert check.scale > 1
    assert check.error == 0


def _words(name: str, rows: list[bytes]) -> str:
    """An array of C with the bits of numbers, row by row."""
    lines = [", ".join(f"0x{word:08x}" for word in np.frombuffer(row, "<u4")) for row in rows]
    body = "},\n  {".join(lines)
    return f"static const uint32_t {name}[SEEN][{len(rows[0]) // 4}] = {{\n  {{{body}}},\n}};\n"


@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", list(NETWORKS))
def test_on_a_cortex_m7(name: str, tmp_path: Path) -> None:
    need("qemu-system-arm")
    _, unseen = digits()
    reference = glowpy.compile(quantized(name), "interpreter")
    images = unseen.images[:SEEN]
    scores = [reference({"x": image[None]})["y"].tobytes() for image in images]
    backend = CpuBackend(CpuOptions("cortex-m7"))
    bundle(quantized(name), tmp_path, BundleOptions("net", weights="embedded"), backend)
    arrays = _words("images", [image.tobytes() for image in images]) + _words("scores", scores)
    (tmp_path / "digits.h").write_text(f"#define SEEN {SEEN}\n{arrays}")
    (tmp_path / "main.c").write_text(CHECK)
    done = on_board(tmp_path, "cortex-m7", "main.c", "net.o")
    assert done.returncode == 0, done.stdout + done.stderr
