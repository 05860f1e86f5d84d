"""Tiles of 8-bit integers on other processors, each of which multiplies bytes in a way of its own."""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from libjit.compile import ROOT, read_targets

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("ziglang") is None, reason="the compiler, ziglang, is not installed"
)

FLAGS = [
    "-std=c11",
    "-O1",
    "-fno-builtin",
    "-fno-stack-protector",
    "-fwrapv",
    "-fno-sanitize=all",
    "-g0",
    "-Wno-pass-failed",
]

_LOAD = (
    "WebAssembly.instantiate(require('fs').readFileSync(process.argv[1]))"
    ".then(({instance}) => process.exit(instance.exports.check() ? 1 : 0))"
)


@dataclass(frozen=True)
class Processor:
    """A processor of a variant, what runs programs for it, and what zig calls it if not as the variant does.

    Those that QEMU runs programs for divide, and have Cortex-M4's instructions for bytes.
    """

    variant: str
    target: str
    runner: str
    qemu_cpu: str = ""
    cpu: str = ""

    def __str__(self) -> str:
        return self.variant


PROCESSORS = [
    Processor("aarch64_neon", "aarch64-linux-musl", "qemu-aarch64"),
    Processor("aarch64_dotprod", "aarch64-linux-musl", "qemu-aarch64"),
    Processor("aarch64_i8mm", "aarch64-linux-musl", "qemu-aarch64", "max"),
    Processor("armv7_neon", "arm-linux-musleabihf", "qemu-arm", cpu="cortex_a15"),
    Processor("thumbv7em", "arm-linux-musleabihf", "qemu-arm", cpu="cortex_a15-neon"),
    Processor("riscv64", "riscv64-linux-musl", "qemu-riscv64"),
    Processor("riscv64_v", "riscv64-linux-musl", "qemu-riscv64", "rv64,v=true,vlen=128"),
    Processor("riscv64_v256", "riscv64-linux-musl", "qemu-riscv64", "rv64,v=true,vlen=256"),
    Processor("powerpc64le", "powerpc64le-linux-musl", "qemu-ppc64le"),
    Processor("wasm32", "wasm32-freestanding", "node"),
    Processor("wasm32_simd", "wasm32-freestanding", "node"),
]


@pytest.mark.parametrize("processor", PROCESSORS, ids=str)
def test_sums_of_bytes(processor: Processor, tmp_path: Path) -> None:
    runner = shutil.which(processor.runner) or shutil.which(f"{processor.runner}-static")
    if runner is None:
        pytest.skip(f"no {processor.runner} is installed")
    program = tmp_path / "program"
    cpu = processor.cpu or read_targets()[processor.variant].zig_cpu
    for_node = processor.runner == "node"
    link = ["-nostdlib", *(["-Wl,--no-entry", "-Wl,--export=check"] if for_node else ["-static"])]
    sources = [ROOT / "src" / "tile.c", Path(__file__).with_name("dot_driver.c")]
    command = [sys.executable, "-m", "ziglang", "cc", "-target", processor.target, f"-mcpu={cpu}"]
    command += [*FLAGS, *link, "-I", str(ROOT / "include"), *map(str, sources), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    environment = {**os.environ, **({"QEMU_CPU": processor.qemu_cpu} if processor.qemu_cpu else {})}
    run = [runner, "-e", _LOAD, str(program)] if for_node else [runner, str(program)]
    assert subprocess.run(run, env=environment, check=False).returncode == 0
