"""Options of the CPU backend. Imports neither LLVM nor the code generator."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from glowpy.support.cores import usable_cores

__all__ = ["MOST_THREADS", "CpuOptions", "Optimize", "Precision", "Timed"]

MOST_THREADS = 1024
"""The most threads: as many as one could want, and few enough for most systems to start them."""

Optimize = Literal["speed", "size"]
Timed = Literal["", "wall", "cpu"]
Precision = Literal["f32", "bf16"]


@dataclass(frozen=True)
class CpuOptions:
    """Options for the processor to compile for, and for what to leave to debuggers and profilers.

    Attributes:
        target: LLVM triple of the machine to compile for, or a preset such as `rpi4`; empty for this one.
        cpu: LLVM name of its processor; empty for this machine's, or the target's baseline.
        features: LLVM features to add or remove, such as `+avx2,-fma`.
        float_abi: `soft` passes floats in integer registers, `hard` in those of the floating-point unit; empty for
            what the triple says. Arm and RISC-V only.
        relocation: `static` or `pic`; empty for position-independent code under an operating system, else static.
        code_model: How far code and data may be from each other, in LLVM's words; empty for `small`.
        optimize: `speed`, or `size`: code as small as it gets, without tiles or vectors.
        debug: Folder to write the IR's text to; machine code then carries debug information about it.
        perf_map: Tell Linux's perf where the code of every instruction is, in /tmp/perf-PID.map.
        jitdump: Folder to write a jitdump to, from which `perf inject --jit` makes annotations.
        timed: Note when each run of instructions ends, in `JitFunction.stamps`: by the processor's counter (`wall`), or
            by what the calling thread has had of the processor (`cpu`). One run at a time only.
        exact: Compute convolutions and matrix products with all of their multiplications, never by Winograd's or
            Strassen's algorithm, which have fewer and round more: up to 1e-4 of the largest result. Long sums of f32
            are computed in parts of some 1,024 products, which round less.
        precision: What products in f32 are computed in: `f32`, or `bf16` where that is faster, which rounds what
            they multiply to 8 bits and adds it up in f32. Processors that do not multiply numbers in bf16 are refused.
        low_memory: Keep weights in no more memory than those of the model: no convolution by Winograd's algorithm,
            which is faster, and has 1.8 to 7 times the weights.
        tune: For how many seconds to measure how products are computed best on this machine, beside what was measured
            before; 0 uses that alone, None not even that: the model of the processor decides. Results may then differ
            in their last bits from one machine to another, and are the same for any number of threads.
        threads: How many threads compute, the calling one among them, at most MOST_THREADS; 0 for as many as the
            process may use processors. Results have the same bits for any number.
    """

    target: str = ""
    cpu: str = ""
    features: str = ""
    float_abi: str = ""
    relocation: str = ""
    code_model: str = ""
    optimize: Optimize = "speed"
    debug: str = ""
    perf_map: bool = False
    jitdump: str = ""
    timed: Timed = ""
    exact: bool = False
    precision: Precision = "f32"
    low_memory: bool = False
    tune: float | None = None
    threads: int = 1

    @property
    def thread_count(self) -> int:
        """How many threads compute here."""
        return self.threads or min(usable_cores(), MOST_THREADS)
