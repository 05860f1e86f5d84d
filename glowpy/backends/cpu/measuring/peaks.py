"""Peaks of this machine, measured: multiply-adds in registers, and bytes from every level of its caches.

Three loops are made for the processor and timed: multiply-adds whose operands are in registers, reads and writes of
memory of several sizes. What is read again after so many bytes comes from the cache that has room for as many: the
bandwidth for a size serves as the roof for data with that distance from their last use. See Williams, Waterman,
Patterson, "Roofline: an insightful visual performance model" (2009).
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import platform
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from statistics import median
from threading import Barrier

import numpy as np

from glowpy.backends.cpu.strategy.machine import Machine
from glowpy.backends.cpu.target import CpuTarget
from glowpy.backends.cpu.variant import Variant
from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import address_of
from glowpy.llvm.machine import LLVM_VERSION, LoadedCode
from glowpy.llvm.objects import compile_objects, load_objects
from glowpy.measuring.peaks import Access, Peaks
from glowpy.runtime.host_memory import aligned_array
from glowpy.support.cache import Key, read, write
from glowpy.support.progress import report

__all__ = ["passing_on", "peaks_of"]

_SIZES = tuple(1 << power for power in (14, 16, 18, 20, 22, 24, 26, 27))
"""Bytes of memory that is read or written again and again: from what any first-level cache holds on."""

_LEAST_RATE = 1e6
"""Operations and bytes a second that any processor does: the cache has less only where something went wrong."""

_LEAST_TIME = 1e-9
"""Seconds that a trial is taken to last at least, where the clock shows none."""

_SECONDS, _TRIALS, _SWEEPS = 0.003, 3, 5
"""How long a trial takes at least, how many there are together, and how often: the fastest counts."""

_LEAST_BUSY = 0.75
"""The part of the time for which each of several threads has to have a processor: a little goes into beginning."""

_FILL = 1
"""Element that fills memory before it is read: unwritten pages are all one page of zeros, which a cache holds."""

_PASSED, _PASSINGS = 1 << 20, 31
"""Bytes that one processor writes and another one reads, and how often; the median counts."""

_SUMS, _UNROLLED = 12, 8
"""Sums that multiply-adds go to, as many as registers of any processor hold; vectors that a step reads or writes."""


def _per_cycle(machine: Machine) -> float:
    return machine.lanes * machine.multiplies * machine.dot / machine.parts


def _factors(variant: Variant) -> dict[ElemKind, float]:
    """The peak of products whose input is of another kind than f32, by the models of the processor."""
    kinds = ElemKind.F64, ElemKind.BF16, ElemKind.I8, ElemKind.U8
    floats = _per_cycle(variant.machine)
    return {kind: _per_cycle(variant.machine_for(kind)) / floats for kind in kinds}


def peaks_of(target: CpuTarget, threads: int, *, fresh: bool = False) -> Peaks:
    """The peaks of this machine, from the cache if they were measured before and are not to be measured afresh.

    What several threads do together is not kept where other processes had their processors meanwhile: one alone finds
    its processor free at some time.
    """
    names = target.machine.cpu, target.machine.features, platform.node(), str(threads)
    key = Key.of(
        "peaks",
        _text(target),
        LLVM_VERSION,
        *names,
        str((_SIZES, _FILL, _SECONDS, _TRIALS, _SWEEPS)),
    )
    payload = None if fresh else read(key)
    peaks = _kept(payload) if payload is not None else None
    if peaks is None:
        start, used = time.perf_counter(), time.process_time()
        peaks = _measured(target, threads)
        busy = (time.process_time() - used) / max(time.perf_counter() - start, 1e-9)
        if threads == 1 or busy > _LEAST_BUSY * threads:
            write(key, json.dumps(_fields(peaks)).encode())
    return replace(peaks, factors=_factors(target.variant))


def _kept(payload: bytes) -> Peaks | None:
    """Returns the peaks that the cache has; None if they are none that a machine can have."""
    try:
        fields = json.loads(payload)
        pairs = {name: tuple(map(tuple, fields[name])) for name in ("read", "write")}
        peaks = Peaks(fields["threads"], fields["flops"], pairs["read"], pairs["write"])
        rates = [peaks.flops, *(rate for curve in pairs.values() for _, rate in curve)]
    except (KeyError, TypeError, ValueError):
        return None
    are_possible = all(math.isfinite(rate) and rate > _LEAST_RATE for rate in rates)
    return peaks if are_possible and all(pairs.values()) else None


def _fields(peaks: Peaks) -> dict[str, object]:
    """Returns what is measured of peaks, for JSON."""
    return {name: getattr(peaks, name) for name in ("threads", "flops", "read", "write")}


def passing_on(target: CpuTarget, writer: int, reader: int) -> tuple[float, float]:
    """Bytes a second that a processor reads of a megabyte that it has just written, and that another one has.

    The second is close to the first where both share a cache, and to that of memory where they do not. Linux only.
    """
    loaded, steps = _loaded(target), _PASSED // (4 * target.variant.machine.lanes * _UNROLLED)
    loops: dict[Access, _Loop] = {"read": _loop(loaded, "read"), "write": _loop(loaded, "write")}
    area = aligned_array(_PASSED)
    area.fill(_FILL)

    def timed(access: Access) -> float:
        start = time.perf_counter()
        loops[access](address_of(area), steps, 1)
        return time.perf_counter() - start

    with (
        ThreadPoolExecutor(1, "", os.sched_setaffinity, (0, {reader})) as own,
        ThreadPoolExecutor(1, "", os.sched_setaffinity, (0, {writer})) as other,
    ):
        seconds: list[list[float]] = [[], []]
        for _ in range(_PASSINGS):
            for pool, times in zip((own, other), seconds, strict=True):
                pool.submit(timed, "write").result()
                times.append(own.submit(timed, "read").result())
    mine, others = (_PASSED / median(times) for times in seconds)
    return mine, others


_Loop = Callable[[int, int, int], None]
"""The address of memory, its size in steps, how many rounds."""


def _measured(target: CpuTarget, threads: int) -> Peaks:
    """Measures by turns, so that whatever else the machine does hits all of them."""
    lanes = target.variant.machine.lanes
    loaded = _loaded(target)
    multiply, rounds = _loop(loaded, "multiply"), 0.0
    loops: dict[Access, _Loop] = {"read": _loop(loaded, "read"), "write": _loop(loaded, "write")}
    passes = {access: [0.0] * len(_SIZES) for access in loops}
    registers = [np.zeros(lanes * (_SUMS + 2), np.float32) for _ in range(threads)]
    areas = [aligned_array(_SIZES[-1]) for _ in range(threads)]
    for area in areas:
        area.fill(_FILL)
    with ThreadPoolExecutor(threads) as pool:
        for sweep in range(_SWEEPS):
            report("peaks", sweep, _SWEEPS)
            best = _fastest(pool, multiply, list(map(address_of, registers)), 1)
            rounds = max(rounds, best)
            for index, size in enumerate(_SIZES):
                steps = size // (4 * lanes * _UNROLLED)
                for access, loop in loops.items():
                    best = _fastest(pool, loop, list(map(address_of, areas)), steps)
                    passes[access][index] = max(passes[access][index], best)
    read, write = (_curve(passes[access], threads) for access in loops)
    return Peaks(threads, rounds * 2 * _SUMS * lanes * threads, read, write)


def _curve(passes: Sequence[float], threads: int) -> tuple[tuple[int, float], ...]:
    """Bytes a second by size. What more memory reaches, less does as well: that it was slower was chance."""
    rates = np.multiply(passes, _SIZES) * threads
    least = np.maximum.accumulate(rates[::-1])[::-1]
    return tuple(zip(_SIZES, least.tolist(), strict=True))


def _loaded(target: CpuTarget) -> LoadedCode:
    (code,) = compile_objects([_text(target)], target.machine, [], use_cache=True)
    return load_objects(target.machine, [code])


def _loop(code: LoadedCode, name: str) -> _Loop:
    types = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t
    return ctypes.CFUNCTYPE(None, *types)(code.address(f"peak_{name}"))


def _fastest(pool: ThreadPoolExecutor, loop: _Loop, addresses: Sequence[int], steps: int) -> float:
    """How many rounds a second all threads do at the same time, in the fastest trial."""
    rounds = 1
    while _trial(pool, loop, addresses, steps, rounds) < _SECONDS:
        rounds *= 2
    trials = [_trial(pool, loop, addresses, steps, rounds) for _ in range(_TRIALS)]
    return rounds / max(min(trials), _LEAST_TIME)


def _trial(
    pool: ThreadPoolExecutor, loop: _Loop, addresses: Sequence[int], steps: int, rounds: int
) -> float:
    """Seconds from when all threads begin to when the last one ends."""
    barrier = Barrier(len(addresses))

    def work(address: int) -> tuple[float, float]:
        barrier.wait()
        start = time.perf_counter()
        loop(address, steps, rounds)
        return start, time.perf_counter()

    times = list(pool.map(work, addresses))
    return max(end for _, end in times) - min(start for start, _ in times)


def _text(target: CpuTarget) -> str:
    """The three loops as LLVM IR: `void (ptr memory, iN steps, iN rounds)`."""
    variant = target.variant
    width = f'"prefer-vector-width"="{8 * variant.vector_bytes}"'
    return _TEMPLATE.format(
        dim=f"i{target.pointer_bits}",
        attributes=f'nounwind "min-legal-vector-width"="{8 * variant.vector_bytes}" {width}',
        declaration=_declaration(target),
        multiply="\n".join(_multiplying(target)),
        read="\n".join(_reading(target)),
        write="\n".join(_writing(target)),
    )


_TEMPLATE = """\
{declaration}
define void @peak_multiply(ptr %memory, {dim} %steps, {dim} %rounds) {attributes} {{
{multiply}
}}
define void @peak_read(ptr %memory, {dim} %steps, {dim} %rounds) {attributes} {{
{read}
}}
define void @peak_write(ptr %memory, {dim} %steps, {dim} %rounds) {attributes} {{
{write}
}}
"""


def _declaration(target: CpuTarget) -> str:
    machine = target.variant.machine
    type = f"<{machine.lanes} x float>"
    function = f"{type} @llvm.fma.v{machine.lanes}f32({type}, {type}, {type})"
    return f"declare {function}" if machine.fused else ""


def _multiplying(target: CpuTarget) -> Iterator[str]:
    """Sums that are multiplied and added to in turn; each step of a round is one of each sum."""
    dim, lanes = f"i{target.pointer_bits}", target.variant.machine.lanes
    type = f"<{lanes} x float>"
    yield "entry:"
    for index in range(_SUMS + 2):
        yield f"  %p{index} = getelementptr {type}, ptr %memory, {dim} {index}"
        yield f"  %v{index} = load {type}, ptr %p{index}, align 4"
    yield f"  br label %loop\nloop:\n  %i = phi {dim} [ 0, %entry ], [ %next, %loop ]"
    for index in range(_SUMS):
        yield f"  %s{index} = phi {type} [ %v{index}, %entry ], [ %t{index}, %loop ]"
    scale, shift = f"%v{_SUMS}", f"%v{_SUMS + 1}"
    for index in range(_SUMS):
        if target.variant.machine.fused:
            operands = f"{type} %s{index}, {type} {scale}, {type} {shift}"
            yield f"  %t{index} = call {type} @llvm.fma.v{lanes}f32({operands})"
        else:
            yield f"  %m{index} = fmul {type} %s{index}, {scale}"
            yield f"  %t{index} = fadd {type} %m{index}, {shift}"
    yield f"  %next = add {dim} %i, 1\n  %done = icmp eq {dim} %next, %rounds"
    yield "  br i1 %done, label %exit, label %loop\nexit:"
    for index in range(_SUMS):
        yield f"  store {type} %t{index}, ptr %p{index}, align 4"
    yield "  ret void"


def _reading(target: CpuTarget) -> Iterator[str]:
    """Adds all vectors up, as integers, in as many sums as a step reads."""
    type = f"<{target.variant.machine.lanes} x i32>"
    names = [f"%s{index}" for index in range(_UNROLLED)]
    loads = [
        line
        for index in range(_UNROLLED)
        for line in (
            f"  %v{index} = load {type}, ptr %p{index}, align 4",
            f"  %t{index} = add {type} %s{index}, %v{index}",
        )
    ]
    carried = [(name, type, "zeroinitializer", f"%t{index}") for index, name in enumerate(names)]
    stores = [f"  store {type} %t{index}, ptr %q{index}, align 4" for index in range(_UNROLLED)]
    places = [
        f"  %q{index} = getelementptr {type}, ptr %memory, i{target.pointer_bits} {index}"
        for index in range(_UNROLLED)
    ]
    yield from _passes(target, type, carried, loads, [*places, *stores])


def _writing(target: CpuTarget) -> Iterator[str]:
    """Stores a vector that nothing is known of, so that no loop becomes a call of memset."""
    type = f"<{target.variant.machine.lanes} x i32>"
    first = f"  %value = load {type}, ptr %memory, align 4"
    stores = [f"  store {type} %value, ptr %p{index}, align 4" for index in range(_UNROLLED)]
    yield from _passes(target, type, [], stores, [], first)


def _passes(
    target: CpuTarget,
    type: str,
    carried: Sequence[tuple[str, str, str, str]],
    step: Sequence[str],
    end: Sequence[str],
    first: str = "",
) -> Iterator[str]:
    """Rounds over memory, some vectors a step; `carried` are registers: name, type, value at first and after a step."""
    dim = f"i{target.pointer_bits}"
    yield f"entry:\n{first}\n  br label %outer\nouter:"
    yield f"  %round = phi {dim} [ 0, %entry ], [ %next.round, %after ]"
    for name, kind, start, after in carried:
        yield f"  {name}.outer = phi {kind} [ {start}, %entry ], [ {after}, %after ]"
    yield f"  br label %inner\ninner:\n  %i = phi {dim} [ 0, %outer ], [ %next, %inner ]"
    for name, kind, _, after in carried:
        yield f"  {name} = phi {kind} [ {name}.outer, %outer ], [ {after}, %inner ]"
    yield f"  %base = mul {dim} %i, {_UNROLLED}"
    for index in range(_UNROLLED):
        yield f"  %o{index} = add {dim} %base, {index}"
        yield f"  %p{index} = getelementptr {type}, ptr %memory, {dim} %o{index}"
    yield from step
    yield f"  %next = add {dim} %i, 1\n  %last = icmp eq {dim} %next, %steps"
    yield "  br i1 %last, label %after, label %inner\nafter:"
    yield f"  %next.round = add {dim} %round, 1\n  %done = icmp eq {dim} %next.round, %rounds"
    yield "  br i1 %done, label %exit, label %outer\nexit:"
    yield from end
    yield "  ret void"
