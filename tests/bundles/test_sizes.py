"""The size report of a bundle against what others measure: nm, and a stack that shows how far it was used."""

from __future__ import annotations

import platform
from pathlib import Path

import pytest

from glowpy import BundleOptions, CpuBackend, CpuOptions, UserError, bundle
from glowpy.backends.cpu.options import Optimize
from glowpy.bundling.report import SizeReport
from glowpy.bundling.wasm_file import read_wasm_sections
from glowpy.llvm.machine import Machine
from glowpy.llvm.object_file import is_elf, read_sections
from glowpy.llvm.objects import compile_whole
from tests.bundles.networks import command, make, mlp, need, relu

NATIVE = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "AMD64"), reason="needs an x86-64 machine"
)

WATERMARK = r"""
#define _GNU_SOURCE
#include "net.h"
#include <stdio.h>
#include <string.h>
#include <ucontext.h>

static _Alignas(64) uint8_t mutable_area[NET_MUTABLE_SIZE], activations[NET_ACTIVATIONS_SIZE + 1];
static _Alignas(64) uint8_t stack[1 << 18];
static ucontext_t outside, inside;
static uint8_t *mark;
register uint8_t *top __asm__("rsp");

static void run(void) {
  mark = top;
  net(net_constants, mutable_area, activations);
}

int main(void) {
  size_t i = 0;
  net(net_constants, mutable_area, activations); /* binds memset */
  memset(stack, 0xA5, sizeof stack);
  getcontext(&inside);
  inside.uc_stack.ss_sp = stack;
  inside.uc_stack.ss_size = sizeof stack;
  inside.uc_link = &outside;
  makecontext(&inside, run, 0);
  swapcontext(&outside, &inside);
  while (stack[i] == 0xA5) i++;
  printf("%ld\n", (long)(mark - (stack + i)));
  return 0;
}
"""


PARTS = """
@zeros = global [100 x i8] zeroinitializer
@written = global [3 x i32] [i32 1, i32 2, i32 3]
@read = constant [5 x i32] [i32 1, i32 2, i32 3, i32 4, i32 5]
declare void @other() "glowpy-external"
define ptr @caller() nounwind {
  call void @other()
  call void @other()
  ret ptr @written
}
define ptr @constant() nounwind {
  ret ptr @read
}
"""


@pytest.mark.parametrize("triple", ["wasm32-unknown-unknown", "aarch64-unknown-linux-gnu"])
def test_sections_of_an_object_file(triple: str) -> None:
    code, _ = compile_whole(PARTS, Machine(triple, "", ""), (), "object_code")
    sections = read_sections(code) if is_elf(code) else read_wasm_sections(code)
    assert (sections.bss, sections.data, sections.rodata) == (100, 12, 20)
    assert sections.functions.keys() == {"caller", "constant"}
    assert min(sections.functions.values()) > 0
    assert sections.text == sum(sections.functions.values())
    assert sections.undefined == ("other",)


def report(
    folder: Path, target: str, name: str = "mlp", optimize: Optimize = "speed"
) -> SizeReport:
    sizes = make(folder, target, name, optimize=optimize, weights="embedded").report
    assert sizes is not None
    return sizes


@NATIVE
@pytest.mark.parametrize(
    ("target", "name", "optimize"),
    [
        ("x86-64-v2", "mlp", "speed"),
        ("x86-64-v2", "mlp", "size"),
        ("x86-64-v2", "squeezenet", "speed"),
        ("x86-64-v3", "mlp", "speed"),
        ("x86-64-v3", "squeezenet", "speed"),
    ],
)
def test_the_stack_is_used_as_far_as_reported(
    target: str, name: str, optimize: Optimize, tmp_path: Path
) -> None:
    need("gcc")
    if target == "x86-64-v3" and "avx2" not in Path("/proc/cpuinfo").read_text():
        pytest.skip("this machine has no AVX2")
    limit = report(tmp_path, target, name, optimize).stack
    (tmp_path / "watermark.c").write_text(WATERMARK)
    done = command(tmp_path, "gcc", "-O1", "watermark.c", "net.o", "-o", "watermark")
    assert done.returncode == 0, done.stderr
    used = int(command(tmp_path, "./watermark").stdout)
    assert limit - 80 <= used <= limit


@NATIVE
def test_code_is_as_large_as_nm_says(tmp_path: Path) -> None:
    need("nm")
    size_report = report(tmp_path, "x86-64-v2")
    lines = command(tmp_path, "nm", "-S", "net.o").stdout.splitlines()
    sizes = {line.split()[3]: int(line.split()[1], 16) for line in lines if len(line.split()) == 4}
    assert size_report.weights == sizes["net_constants"]
    for instruction in size_report.instructions:
        assert sizes[f"net.{instruction.name}"] == instruction.text
    code = sum(sizes[f"net.{instruction.name}"] for instruction in size_report.instructions)
    assert (
        code < size_report.text < code + sizes["net"] + sizes["net_check_weights"] + 16 * len(sizes)
    )


@pytest.mark.parametrize(
    ("model", "limit", "blamed"),
    [
        (mlp(), "max_flash", r"cpu_matmul 'first\w*' takes \d+ bytes.*%\w+ \(\d+\)"),
        (relu(), "max_flash", "max 'relu' takes"),
        (mlp(rows=32), "max_ram", "most is alive at"),
        (mlp(), "max_ram", r"'first\w*' takes most of the stack"),
        (relu(), "max_ram", "'x' alone takes 32"),
    ],
)
def test_budgets_blame_an_instruction(
    model: object, limit: str, blamed: str, tmp_path: Path
) -> None:
    options = BundleOptions("net", **{limit: 10})  # type: ignore[arg-type]
    with pytest.raises(UserError, match=blamed):
        bundle(model, tmp_path / "out", options, CpuBackend(CpuOptions("cortex-m7")))  # type: ignore[arg-type]
