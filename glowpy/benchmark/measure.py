"""Times one model for `glowpy bench`: as a whole, run by run of its instructions, and beside other runtimes.

* Rounds time every contestant for a while, and each begins with another one: a change of the machine's speed hits all.
* The first run of a contestant in a round is not counted where there are others: they have left it cold caches.
* Runs of instructions are timed by a twin of the network, which notes the time after each of them: the processor's
  counter, or the thread's clock where runs are timed by processor time. It takes its turns with the network itself, so
  that what that costs is known.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from glowpy.backend import Backend
from glowpy.benchmark.measured import OWN, TWIN, Layer, Measured
from glowpy.benchmark.peers import Contestant, loaded, nothing
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import extents_of
from glowpy.core.tensor import Array
from glowpy.debugging.compare import compare
from glowpy.engine import compilation
from glowpy.graph.work import called_multiply_adds
from glowpy.importer import is_onnx
from glowpy.measuring.meter import Decision, Timed, TimedFunction, meter_of
from glowpy.measuring.peaks import Peaks
from glowpy.measuring.roofline import Effort, efforts
from glowpy.measuring.tuned import Tuned
from glowpy.recipe import Compilation, state_ports
from glowpy.runtime.compiled import CompiledFunction
from glowpy.support.console import progress
from glowpy.support.errors import UserError
from glowpy.support.progress import report
from glowpy.support.symbolic import symbols_of

__all__ = ["CLOCKS", "Plan", "Subject", "measure", "pinned"]

Clock = Callable[[], float]
CLOCKS: Mapping[Timed, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}

_ROUNDS = 10
_RTOL, _ATOL, _SHARE = 1e-3, 1e-5, 1e-3
"""Other runtimes may add up in another order; a wrong kernel is off by far more."""

_QUIET, _MOST_SETTLING = 0.02, 1.0
"""Seconds for which other threads are to be at rest before anything is timed, and how long that is waited for."""


@dataclass(frozen=True)
class Plan:
    """How long to measure, and what.

    Attributes:
        seconds: How long every contestant runs at least.
        repeat: How often it runs at least.
        peers: Other runtimes.
        ncnn_models: Where ncnn finds models.
        threads: How many threads compute, of other runtimes too.
        core: The core that the process is pinned to; None for wherever it may run.
        clock: A name of CLOCKS.
    """

    seconds: float
    repeat: int
    peers: tuple[str, ...]
    ncnn_models: Path | None
    threads: int
    core: int | None
    clock: Timed


@dataclass(frozen=True)
class Subject:
    """A model that is timed.

    Attributes:
        path: The file.
        stages: Its compilation.
        feeds: Arrays for its inputs and variables, by name.
        tuned: Measurements of its products; None unless --tune asked for them.
    """

    path: str
    stages: Compilation
    feeds: Mapping[str, Array]
    tuned: Sequence[Tuned] | None = None


@contextmanager
def pinned(core: int | None) -> Iterator[None]:
    """Keeps this process on a processor inside the `with`. Raises UserError for one that it may not use."""
    if core is None:
        yield
        return
    before = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {core})
    except OSError:
        usable = ", ".join(map(str, sorted(before)))
        raise UserError(f"--core: expected one of the processors {usable}, got {core}") from None
    try:
        yield
    finally:
        os.sched_setaffinity(0, before)


def measure(
    subject: Subject, backend: Backend, peaks: Peaks, plan: Plan, *, layers: bool
) -> Measured:
    """Times a model.

    Args:
        subject: The model.
        backend: The backend that compiles it.
        peaks: The peaks of this machine.
        plan: How long, and beside what.
        layers: Whether runs of instructions are timed as well.

    Raises as `compile` does, and UserError for a backend that measures nothing.
    """
    stages, feeds, meter = subject.stages, subject.feeds, meter_of(backend)
    with progress(f"compiling {subject.path}"):
        program, compiled = stages.program, stages.compiled
        timed = meter.timed(program, plan.clock) if layers else None
        called = called_multiply_adds(compilation(stages.function, backend).optimized)
    extents = _extents(compiled, feeds)
    costs = efforts(program, extents)
    result = Measured(
        subject.path,
        plan.threads,
        called + sum(effort.macs for effort in costs),
        called + sum(effort.direct_macs for effort in costs),
        program,
        peaks,
        {kind.value: peaks.flops_of(kind) for kind in _multiplied(costs)},
        costs,
        sum(effort.least(peaks) for effort in costs),
        tuned=subject.tuned,
    )
    contestant = _contestant(OWN, compiled, feeds, extents)
    contestants = [contestant]
    stamps: list[_Stamps] = []
    with pinned(plan.core), progress(f"timing {subject.path}"):
        if timed is not None:
            note = partial(_note, timed, stamps)
            contestants.append(_contestant(TWIN, timed.function, feeds, extents, note))
        contestant.run()
        contestants += _peers(subject, contestant, plan, result)
        _time(contestants, plan, result)
    if stamps:
        result.layers = _layers(result, stamps, meter.decisions(program), plan.clock)
    return result


def _multiplied(costs: Sequence[Effort]) -> list[ElemKind]:
    """Returns the element kinds that products multiply; f32 where there are none."""
    return list(dict.fromkeys(cost.kind for cost in costs if cost.macs)) or [ElemKind.F32]


def _extents(compiled: CompiledFunction, feeds: Mapping[str, Array]) -> dict[str, int]:
    """Returns the extents of symbols for these inputs and variables."""
    shapes = {port.name: port.type.shape for port in compiled.input_ports}
    shapes |= {port.name: port.type.shape for port in compiled.state_ports}
    return extents_of({name: (shape, feeds[name].shape) for name, shape in shapes.items()})


@dataclass(frozen=True)
class _Stamps:
    """The stamps of a run, and when it had ended by the clock, in seconds."""

    ticks: Array
    end: float


def _note(timed: TimedFunction, stamps: list[_Stamps]) -> None:
    stamps.append(_Stamps(timed.stamps().copy(), time.perf_counter()))


def _contestant(
    name: str,
    compiled: CompiledFunction,
    feeds: Mapping[str, Array],
    extents: Mapping[str, int],
    after: Callable[[], None] = nothing,
) -> Contestant:
    """The compiled network in memory of its own. Every run begins with the same variables."""
    state = compiled.state()

    def keep() -> None:
        for port in compiled.state_ports:
            state[port.name] = feeds[port.name]

    keep()
    fixed = symbols_of(dim for _, dims, _ in state.known() for dim in dims)
    instance = compiled.instance(state, **{n: e for n, e in extents.items() if n not in fixed})
    for one in compiled.inputs:
        instance.write(one, feeds[one])
    written = {port.placeholder for port in compiled.output_ports}
    both = [port.name for port in compiled.input_ports if port.placeholder in written]

    def before() -> None:
        keep()
        for one in both:
            instance.write(one, feeds[one])

    def outputs() -> list[Array]:
        return [instance[one].copy() for one in compiled.outputs]

    return Contestant(name, instance.run, outputs, before, after)


def _peers(subject: Subject, own: Contestant, plan: Plan, result: Measured) -> Iterator[Contestant]:
    """The other runtimes that compute what glowpy computes; notes why others have no figure."""
    function = subject.stages.function
    inputs = {port.original: subject.feeds[port.original] for port in function.parameters}
    expected = {str(index): array for index, array in enumerate(own.outputs())}
    for name in plan.peers:
        try:
            if not is_onnx(subject.path):
                raise UserError(f"{name} runs ONNX files only")
            if state_ports(function):
                raise UserError(f"{name} keeps no state between runs: leave out --state")
            peer = loaded(name, Path(subject.path), inputs, result.threads, plan.ncnn_models)
        except UserError as error:
            notes = [
                note
                for diagnostic in error.diagnostics
                for note in (diagnostic.message, diagnostic.note)
                if note
            ]
            result.missing[name] = "; ".join(notes)
            continue
        got = {str(index): array for index, array in enumerate(peer.outputs())}
        differences = compare(got, expected, _RTOL, _ATOL, _SHARE)
        if all(difference.within for difference in differences):
            yield peer
        else:
            farthest = max(difference.absolute for difference in differences)
            result.missing[name] = f"its outputs differ from ours by {farthest:.3g}"


def _settle() -> None:
    """Waits, for a second at most, until no other thread computes: those of numpy's products go on for a while."""
    end = time.perf_counter() + _MOST_SETTLING
    while time.perf_counter() < end:
        used = time.process_time()
        time.sleep(_QUIET)
        if time.process_time() - used < _QUIET / 10:
            return


def _time(contestants: Sequence[Contestant], plan: Plan, result: Measured) -> None:
    """Fills in the rounds."""
    _settle()
    rounds, clock = min(_ROUNDS, plan.repeat), CLOCKS[plan.clock]
    repeat, seconds = -(-plan.repeat // rounds), plan.seconds / rounds
    result.rounds = {contestant.name: [] for contestant in contestants}
    start, used = time.perf_counter(), time.process_time()
    for number in range(rounds):
        report("rounds", number, rounds)
        first = number % len(contestants)
        for contestant in (*contestants[first:], *contestants[:first]):
            if len(contestants) > 1 or not number:
                _run(contestant, clock)
            result.rounds[contestant.name].append(_runs(contestant, repeat, seconds, clock))
    elapsed = time.perf_counter() - start
    result.busy = min((time.process_time() - used) / elapsed, 1.0)


def _runs(contestant: Contestant, repeat: int, least: float, clock: Clock) -> list[float]:
    """The seconds of so many runs, and of more if they take less than `least` together."""
    seconds = [_run(contestant, clock) for _ in range(repeat)]
    while sum(seconds) < least:
        seconds.append(_run(contestant, clock))
    return seconds


def _run(contestant: Contestant, clock: Clock) -> float:
    contestant.before()
    start = clock()
    contestant.run()
    seconds = clock() - start
    contestant.after()
    return seconds


def _layers(
    result: Measured, stamps: Sequence[_Stamps], decisions: Iterable[Decision], clock: Timed
) -> list[Layer]:
    """Returns the layers that the time stamps of all runs measure; leaves out runs for which nothing was called."""
    first, last = stamps[0], stamps[-1]
    index = np.flatnonzero(first.ticks)
    ticks = np.array([stamp.ticks[index] for stamp in stamps], np.int64)
    tick = 1e-9
    if clock == "wall":
        tick = (last.end - first.end) / max(int(ticks[-1, -1] - ticks[0, -1]), 1)
    seconds = np.median(np.diff(ticks, axis=1), axis=0) * tick
    starts = np.concatenate([[0.0], np.cumsum(seconds)])
    places = {int(stamp) - 1: place for place, stamp in enumerate(index[1:])}
    decided = {decision.name: decision for decision in decisions if not decision.function}
    declined = dict(result.program.declined) | {
        name: decision.declined for name, decision in decided.items()
    }
    return [
        Layer(
            effort,
            max(float(seconds[place]), tick),
            float(starts[place]),
            effort.least(result.peaks),
            effort.bound(result.peaks),
            decided.get(effort.run.head.name),
            {
                name: reason
                for inst in effort.run.members
                for name, reason in declined.get(inst.name, {}).items()
            },
        )
        for effort in result.efforts
        if (place := places.get(effort.index)) is not None
    ]
