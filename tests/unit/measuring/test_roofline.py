"""Work and traffic of runs, peaks of a machine, and the stamps of runs that are timed."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from glowpy import CpuBackend, CpuOptions
from glowpy.backends.cpu.compiler import counter_of
from glowpy.backends.cpu.measuring import peaks as peaks_module
from glowpy.backends.cpu.measuring.peaks import peaks_of
from glowpy.core.elemkind import ElemKind
from glowpy.engine import compilation
from glowpy.graph.parser import parse_module
from glowpy.measuring.meter import Timed
from glowpy.measuring.peaks import Peaks
from glowpy.measuring.roofline import efforts
from glowpy.support.cache import write
from glowpy.support.errors import UserError

ELEMENTWISE = """
module {
  placeholder %x : f32[1000]
  placeholder %y : f32[1000]
  function @main {
    %t = tanh(%x) : f32[1000]
    %u = tanh(%t) : f32[1000]
    save(%u, %y)
  }
}
"""

INSERTED = """
module {
  placeholder %x : f32[30x8]
  placeholder %z : f32[2x8]
  placeholder %y : f32[32x8]
  function @main {
    %all = concat(%x, %z) {axis=0} : f32[32x8]
    save(%all, %y)
  }
}
"""


def test_bytes_are_what_is_read_and_written() -> None:
    module = parse_module(ELEMENTWISE, "text")
    program = compilation(module, CpuBackend()).program
    (effort,) = efforts(program, {})
    assert len(effort.run.members) == 2
    assert [(move.access, move.bytes) for move in effort.moves] == [("read", 4000), ("write", 4000)]
    assert effort.macs == 0
    peaks = Peaks(1, 1e9, ((1 << 14, 2e9), (1 << 16, 1e9)), ((1 << 14, 1e9), (1 << 16, 5e8)))
    assert effort.moving(peaks) == pytest.approx(4000 / 2e9 + 4000 / 1e9)
    assert effort.bound(peaks) == "bytes"


def test_what_is_inserted_is_what_moves() -> None:
    module = parse_module(INSERTED, "text")
    program = compilation(module, CpuBackend()).program
    inserted = [e for e in efforts(program, {}) if e.run.head.SCHEMA.mnemonic == "insert_tensor"]
    assert sorted(effort.bytes for effort in inserted) == [2 * 4 * 8 * 2, 2 * 4 * 8 * 30]


def test_what_was_touched_last_is_near() -> None:
    module = parse_module(ELEMENTWISE, "text")
    (effort,) = efforts(compilation(module, CpuBackend()).program, {})
    # The result is written after the input was read: when both are used again, each is as far as the other is large.
    assert [move.distance for move in effort.moves] == [4000, 0]


def test_peaks_between_sizes_and_of_other_kinds() -> None:
    peaks = Peaks(2, 1e9, ((1 << 14, 4e9), (1 << 16, 2e9)), ((1 << 14, 1e9), (1 << 16, 1e9)))
    assert peaks.bandwidth("read", 0) == 4e9
    assert peaks.bandwidth("read", 2 << 15) == pytest.approx(3e9)  # each of two threads has half
    assert peaks.bandwidth("read", 1 << 30) == peaks.memory == 2e9
    assert peaks.flops_of(ElemKind.F32) == peaks.flops_of(ElemKind.I8) == 1e9
    factors = {ElemKind.F64: 0.5, ElemKind.I8: 4.0}
    assert replace(peaks, factors=factors).flops_of(ElemKind.F64) == 5e8
    assert replace(peaks, factors=factors).flops_of(ElemKind.I8) == 4e9


@pytest.mark.usefixtures("cache_folder")
def test_peaks_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    target = CpuBackend().target
    peaks = peaks_of(target, 1)
    assert peaks.flops > 0
    assert peaks.flops_of(ElemKind.F64) < peaks.flops < peaks.flops_of(ElemKind.I8)
    other = Peaks(1, 1e9, peaks.read, peaks.write)
    monkeypatch.setattr(peaks_module, "_measured", lambda target, threads: other)
    assert peaks_of(target, 1) == peaks
    assert peaks_of(target, 1, fresh=True) == other
    assert peaks_of(target, 1) == other


@pytest.mark.usefixtures("cache_folder")
@pytest.mark.parametrize(
    "kept",
    [
        *("", "[]", "{}", "nothing"),
        '{"threads": 1, "flops": 0.0, "read": [[16384, 1e9]], "write": [[16384, 1e9]]}',
        '{"threads": 1, "flops": 1e9, "read": [[16384, 0.0]], "write": [[16384, 1e9]]}',
        '{"threads": 1, "flops": 1.0, "read": [[16384, 1e9]], "write": [[16384, 1e9]]}',
        '{"threads": 1, "flops": NaN, "read": [[16384, 1e9]], "write": [[16384, 1e9]]}',
        '{"threads": 1, "flops": 1e9, "read": [], "write": [[16384, 1e9]]}',
    ],
)
def test_kept_peaks_that_no_machine_has_are_measured_again(
    kept: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, rates = CpuBackend().target, ((1 << 14, 1e9),)
    measured = Peaks(1, 1e9, rates, rates)
    monkeypatch.setattr(peaks_module, "_measured", lambda target, threads: measured)
    monkeypatch.setattr(peaks_module, "write", lambda key, payload: write(key, kept.encode()))
    assert peaks_of(target, 1) == measured
    monkeypatch.setattr(peaks_module, "write", write)
    assert peaks_of(target, 1) == measured
    monkeypatch.setattr(peaks_module, "_measured", lambda target, threads: None)
    assert peaks_of(target, 1) == measured


@pytest.mark.usefixtures("cache_folder")
def test_peaks_of_threads_that_wait_for_others_are_not_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    target, now, used = CpuBackend().target, iter(range(100)), iter([0, 1, 0, 2])
    slow, fast = (Peaks(2, flops, ((1 << 14, 1e9),), ((1 << 14, 1e9),)) for flops in (1e9, 2e9))
    measured = iter([slow, fast])
    monkeypatch.setattr(peaks_module, "_measured", lambda target, threads: next(measured))
    monkeypatch.setattr("time.perf_counter", lambda: next(now))
    monkeypatch.setattr("time.process_time", lambda: next(used))
    assert peaks_of(target, 2, fresh=True) == slow
    assert peaks_of(target, 2, fresh=True) == fast
    assert peaks_of(target, 2) == fast


def test_loops_for_old_processors_have_no_fused_instructions() -> None:
    text = peaks_module._text(
        CpuBackend(CpuOptions(cpu="x86-64", target="x86_64-linux-gnu")).target
    )
    assert "llvm.fma" not in text
    assert "fmul <4 x float>" in text


@pytest.mark.parametrize("clock", ["wall", "cpu"])
def test_stamps_ascend_and_are_of_runs(clock: Timed) -> None:
    program = compilation(parse_module(ELEMENTWISE, "text"), CpuBackend()).program
    timed = CpuBackend().meter.timed(program, clock)
    outputs = timed.function({"x": np.ones(1000, np.float32)})
    assert np.allclose(outputs["y"], np.tanh(np.tanh(1.0)))
    assert len(timed.stamps()) == 1 + len(program.ir.instructions)
    (run_of_both,) = efforts(program, {})
    assert list(np.flatnonzero(timed.stamps())) == [0, run_of_both.index + 1]
    assert timed.stamps()[0] < timed.stamps()[run_of_both.index + 1]


def test_processors_without_a_counter_for_programs() -> None:
    target = CpuBackend(CpuOptions(target="riscv64-linux-gnu")).target
    with pytest.raises(UserError, match="cannot time instructions on 'riscv64'"):
        counter_of(target, "wall")
