"""Bundles of networks that find extents while they run: what C is told of them."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import glowpy
from glowpy import BundleOptions, CpuBackend, CpuOptions, Module, bundle
from glowpy.bundling import make
from glowpy.bundling.load import load_bundle
from glowpy.bundling.support_code import Golden
from glowpy.bundling.verify import verify_bundle
from glowpy.core.elemkind import ElemKind
from glowpy.core.type import Type
from glowpy.graph.printer import print_module
from glowpy.support.symbolic import symbol
from tests.bundles.networks import QUIT, glow, need, on_board, strict_program

pytestmark = pytest.mark.timeout(300)


def positive() -> Module:
    """Which numbers are positive: where, and what they are."""
    module = Module()
    length, count = symbol("length", 1, 9), symbol("count", 0, 9)
    x = module.create_placeholder("x", Type(ElemKind.F32, (length,)))
    f = module.create_function("main")
    zero = f.create_splat("zero", Type(ElemKind.F32, (1,)), 0.0)
    search = f.create_non_zero("search", f.create_lt("more", zero, x))
    f.create_define("define", search.results[1], (count,))
    places = f.create_slice("places", Type(ElemKind.I64, (count, 1)), search, (0, 0), (1, 1))
    indices = f.create_reshape("indices", Type(ElemKind.I64, (count,)), places)
    kept = f.create_gather("kept", x, indices, 0)
    for name, node in (("where", indices), ("numbers", f.create_mul("twice", kept, kept))):
        f.create_save(f"save_{name}", node, module.create_placeholder(name, node.result.type))
    return module


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("shared")
    options = BundleOptions("net", emit="shared", api="dynamic", weights="embedded", selftest=4)
    bundle(positive(), folder, options)
    return folder


def test_a_loaded_bundle_gives_what_it_finds(shared: Path) -> None:
    if sys.platform != "linux":
        pytest.skip("shared bundles are linked for Linux")
    network, compiled = load_bundle(shared), glowpy.compile(positive())
    rng = np.random.default_rng(4)
    for length in (9, 1, 4, 9):
        x = rng.standard_normal(length).astype(np.float32)
        outputs, expected = network({"x": x}), compiled({"x": x})
        assert outputs["where"].tolist() == np.flatnonzero(x > 0).tolist()
        for name, array in expected.items():
            np.testing.assert_array_equal(outputs[name], array)
    network.selftest()


HARNESS = """\
#include "net.h"
#include <stdio.h>

_Static_assert(NET_COUNT_MIN == 0 && NET_COUNT_MAX == 9 && NET_NUMBERS_SIZE == 36, "at the bounds");

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

int main(void) {
  net_extents_t extents = {.length = 5, .count = (size_t)-1};
  size_t dims[1];
  for (int i = 0; i < 5; i++) net_input_x(mutable_area)[i] = (float)(i % 2 ? -i : i);
  if (net(net_constants, mutable_area, activations, &extents)) return 1;
  net_dims_where(&extents, dims);
  printf("%d %d %d:", (int)extents.count, (int)dims[0], (int)net_size_numbers(&extents));
  for (size_t i = 0; i < dims[0]; i++)
    printf(" %d %g", (int)net_output_where(mutable_area)[i], (double)net_output_numbers(mutable_area)[i]);
  extents.length = 10;
  if (net(net_constants, mutable_area, activations, &extents) != GLOWPY_OUT_OF_BOUNDS) return 2;
  return net_selftest(net_constants, mutable_area, activations);
}
"""


def test_c_reads_what_a_run_found(shared: Path, tmp_path: Path) -> None:
    need("gcc")
    done = strict_program(tmp_path, shared, HARNESS)
    assert (done.returncode, done.stdout) == (0, "2 2 8: 2 4 4 16")


SELFTEST = f"""\
#include "net.h"

static _Alignas(NET_ALIGNMENT) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE];

{QUIT}
int main(void) {{
  const glowpy_extent_t *extents = net_open_networks->extents;
  if (extents[0].found || !extents[1].found) return 1;
  return net_selftest(net_constants, mutable_area, activations);
}}
"""


@pytest.mark.parametrize("wrong", [False, True])
def test_a_microcontroller_finds_as_many(
    wrong: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The self-test knows the extents that golden runs found; less results would compare equal."""
    need("qemu-system-arm")
    golden = make._golden

    def less(*arguments: Any) -> list[Golden]:
        return [
            replace(run, outputs={name: array[:-1] for name, array in run.outputs.items()})
            for run in golden(*arguments)
        ]

    if wrong:
        monkeypatch.setattr(make, "_golden", less)
    options = BundleOptions("net", weights="embedded", selftest=1, api="dynamic")
    bundle(positive(), tmp_path, options, CpuBackend(CpuOptions("cortex-m3")))
    (tmp_path / "main.c").write_text(SELFTEST)
    done = on_board(tmp_path, "cortex-m3", "main.c", "net.o")
    assert done.returncode == int(wrong), done.stdout + done.stderr


def test_the_command_says_what_is_found(tmp_path: Path) -> None:
    (tmp_path / "net.glow").write_text(print_module(positive()), encoding="utf-8")
    status, printed, errors = glow("bundle", tmp_path / "net.glow", "-o", tmp_path / "out")
    assert (status, errors) == (0, "")
    assert "net: length = 1..9, count = 0..9 (found); memory is for the highest" in printed


def test_the_example_is_told_nothing_of_it(tmp_path: Path) -> None:
    need("cc")
    bundle(positive(), tmp_path, BundleOptions("net"))
    assert verify_bundle(tmp_path).passed
    assert "--count" not in (tmp_path / "main.c").read_text()
