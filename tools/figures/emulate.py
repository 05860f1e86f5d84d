"""Counts the instructions that one run of a bundle executes, where an emulator counts them the same way every time.

Cortex-M: QEMU with a clock of one nanosecond for each instruction, which the processor's own timer reads.
x86-64: Valgrind, which counts inside the entry point alone.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from glowpy.support.errors import UserError

__all__ = ["executed"]

_BOARD = Path(__file__).resolve().parents[2] / "docs" / "examples" / "cortex-m7"
_MACHINES = {"cortex-m4": "mps2-an386", "cortex-m7": "mps2-an500"}

_PROGRAM = """\
#include <stdint.h>
#include "net.h"

static uint8_t mutable_area[NET_MUTABLE_SIZE] __attribute__((aligned(64)));
static uint8_t activations[NET_ACTIVATIONS_SIZE + 1] __attribute__((aligned(64)));
"""

_HOSTED = f"""{_PROGRAM}
int main(void) {{ return net(net_constants, mutable_area, activations); }}
"""

_BARE = f"""{_PROGRAM}
#define CONTROL (*(volatile uint32_t *)0xE000E010u)
#define RELOAD (*(volatile uint32_t *)0xE000E014u)
#define TIMER (*(volatile uint32_t *)0xE000E018u)

static uint32_t call(uint32_t operation, void *argument) {{
  register uint32_t r0 __asm("r0") = operation;
  register void *r1 __asm("r1") = argument;
  __asm volatile("bkpt 0xab" : "+r"(r0) : "r"(r1) : "memory");
  return r0;
}}

void quit(int status) {{
  call(0x18, (void *)(uintptr_t)(status ? 0x20023 : 0x20026));
  for (;;) continue;
}}

int main(void) {{
  char text[16] = {{0}}, *digit = text + 14;
  uint32_t before, ticks;
  int status;
  RELOAD = 0xffffff;
  TIMER = 0;
  CONTROL = 5;
  before = TIMER;
  status = net(net_constants, mutable_area, activations);
  ticks = (before - TIMER) & 0xffffff;
  do *--digit = (char)('0' + ticks % 10);
  while (ticks /= 10);
  call(0x04, digit); /* writes the text */
  return status;
}}
"""

_PER_TICK = 40
"""The boards' clock has 25 MHz: so many nanoseconds, and instructions, are between two ticks."""


def executed(folder: Path, target: str) -> dict[str, int]:
    """The figure `executed` of a bundle called `net` for a target; none where the emulator is not installed."""
    counters = {"cortex-m4": _on_board, "cortex-m7": _on_board, "x86-64-v3": _under_valgrind}
    return counters[target](folder, target)


def _compile(folder: Path, source: str, flags: Sequence[str]) -> Path:
    (folder / "count.c").write_text(source, encoding="utf-8")
    zig = [sys.executable, "-m", "ziglang", "cc", "-O2", *flags]
    program = folder / "count"
    files = [str(folder / "count.c"), str(folder / "net.o")]
    _output([*zig, "-I", str(folder), *files, "-o", str(program)])
    return program


def _on_board(folder: Path, target: str) -> dict[str, int]:
    emulator = shutil.which("qemu-system-arm")
    if emulator is None:
        return {}
    script = str(_BOARD / "mps2-an500.ld")
    flags = ["-target", "thumb-freestanding-eabihf", f"-mcpu={target.replace('-', '_')}"]
    flags += ["-T", script, "-Wl,--entry=reset", str(_BOARD / "startup.c")]
    program = _compile(folder, _BARE, flags)
    run = [emulator, "-M", _MACHINES[target], "-icount", "shift=0", "-nographic", "-semihosting"]
    ticks = _output([*run, "-kernel", str(program)])
    return {"executed": int(ticks) * _PER_TICK}


def _under_valgrind(folder: Path, target: str) -> dict[str, int]:
    valgrind = shutil.which("valgrind")
    if valgrind is None:
        return {}
    flags = ["-target", "x86_64-linux-musl", f"-mcpu={target.replace('-', '_')}", "-g0"]
    program = _compile(folder, _HOSTED, flags)
    run = [valgrind, "--tool=callgrind", "--toggle-collect=net", "--callgrind-out-file=/dev/null"]
    counted = re.search(r"Collected : (\d+)", _output([*run, str(program)]))
    if counted is None:
        raise UserError("expected a count from valgrind, got none")
    return {"executed": int(counted[1])}


def _output(words: Sequence[str]) -> str:
    """Runs a program and returns its output. Raises UserError where it fails."""
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise UserError(f"{Path(words[0]).name} ends with {done.returncode}: {done.stderr.strip()}")
    return done.stdout + done.stderr
