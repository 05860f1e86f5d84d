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
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from statistics import median

import numpy as np

from glowpy.backend import CompileOptions, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.jit import JitFunction
from glowpy.backends.cpu.measuring.peaks import Peaks
from glowpy.backends.cpu.measuring.roofline import Effort, efforts
from glowpy.backends.cpu.measuring.tuning import Tuned
from glowpy.backends.cpu.strategy.explain import Explanation
from glowpy.benchmark.peers import Contestant, loaded, nothing
from glowpy.core.elemkind import ElemKind
from glowpy.core.extents import extents_of
from glowpy.core.tensor import Array
from glowpy.debugging.compare import compare
from glowpy.engine import compilation
from glowpy.graph.work import called_multiply_adds
from glowpy.recipe import Compilation, state_ports
from glowpy.runtime.compiled import CompiledFunction
from glowpy.support.console import progress
from glowpy.support.errors import UserError
from glowpy.support.progress import report
from glowpy.support.symbolic import symbols_of

__all__ = ["CLOCKS", "Layer", "Measured", "Plan", "Subject", "measure", "pinned"]

Clock = Callable[[], float]
CLOCKS: Mapping[str, Clock] = {"wall": time.perf_counter, "cpu": time.process_time}

_ROUNDS = 10
_RTOL, _ATOL, _SHARE = 1e-3, 1e-5, 1e-3
"""Other runtimes may add up in another order; a wrong kernel is off by far more."""

_QUIET, _MOST_SETTLING = 0.02, 1.0
"""Seconds for which other threads are to be at rest before anything is timed, and how long that is waited for."""

_OWN, _TWIN = "glowpy", "glowpy, timed by layers"


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
    clock: str


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


@dataclass(frozen=True)
class Layer:
    """A run of instructions.

    Attributes:
        effort: Its work and traffic.
        seconds: The median of how long it takes.
        start: When it begins in the median run of the network, in seconds from its beginning.
        least: How long it takes at least, by the roofline.
        bound: The resource that this bound is the time of: `arithmetic` or `bytes`.
        explanation: The strategy's decision about its product, if it has one.
        declined: Alternatives that were not taken, such as an algorithm or a pass, and why.
    """

    effort: Effort
    seconds: float
    start: float
    least: float
    bound: str
    explanation: Explanation | None
    declined: Mapping[str, str]

    @property
    def end(self) -> float:
        """When it ends in that run."""
        return self.start + self.seconds

    @property
    def name(self) -> str:
        """The name of its run."""
        return self.effort.run.name

    @property
    def origin(self) -> str:
        """The node of the user's model that it is from; empty if that is not known."""
        return self.effort.run.loc.node

    @property
    def kernel(self) -> str:
        """The mnemonic of its first instruction."""
        return self.effort.run.head.SCHEMA.mnemonic

    @property
    def fused(self) -> list[str]:
        """The mnemonics of what else is computed in the same loop."""
        return [inst.SCHEMA.mnemonic for inst in self.effort.run.following]

    @property
    def flops(self) -> float:
        """Operations of its product in a second, those that are computed."""
        return self.effort.flops / self.seconds

    @property
    def direct_flops(self) -> float:
        """The operations that the direct algorithm needs for the product, in a second."""
        return 2 * self.effort.direct_macs / self.seconds

    @property
    def bandwidth(self) -> float:
        """Bytes that it reads and writes in a second."""
        return self.effort.bytes / self.seconds

    @property
    def share_of_roof(self) -> float:
        """How much of what the machine could do it does: 1 is the roofline."""
        return self.least / self.seconds


@dataclass
class Measured:
    """Measurements of one model.

    Attributes:
        path: The file.
        threads: How many threads computed it.
        macs: Multiply-adds of its products that are computed.
        direct_macs: Those that the direct algorithm needs. What branches and loops call counts as it does, in both.
        program: The compiled program.
        peaks: Those of the machine.
        roofs: Operations in a second at most, for each kind of number that products are of.
        efforts: Work and traffic of its runs of instructions.
        least: How long all of them take at least, one after the other.
        rounds: Seconds of the runs of each round, by runtime.
        busy: The share of the time for which this process had the processor: below 1, others had it as well.
        missing: Why another runtime has no figure.
        tuned: Measurements of its products; None unless --tune asked for them.
        layers: Its runs of instructions in the order in which they are computed; none unless they were asked for.
    """

    path: str
    threads: int
    macs: int
    direct_macs: int
    program: Program
    peaks: Peaks
    roofs: Mapping[str, float]
    efforts: Sequence[Effort]
    least: float
    rounds: dict[str, list[list[float]]] = field(default_factory=dict)
    busy: float = 1.0
    missing: dict[str, str] = field(default_factory=dict)
    tuned: Sequence[Tuned] | None = None
    layers: list[Layer] = field(default_factory=list)

    def samples(self, name: str = _OWN) -> list[float]:
        """The seconds of all runs of a runtime."""
        return [seconds for runs in self.rounds[name] for seconds in runs]

    @cached_property
    def median(self) -> float:
        """Seconds of a run."""
        return median(self.samples())

    @property
    def p95(self) -> float:
        """The 95th percentile: one of 20 runs takes longer than this many seconds."""
        return float(np.quantile(self.samples(), 0.95))

    @property
    def instrumented(self) -> float | None:
        """Seconds of a run that notes when each of its parts ends; None if layers were not asked for."""
        return median(self.samples(_TWIN)) if _TWIN in self.rounds else None

    @property
    def flops(self) -> float:
        """Operations of products in a second, those that are computed: a multiply-add is two."""
        return 2 * self.macs / self.median

    @property
    def direct_flops(self) -> float:
        """The operations that the direct algorithm needs, in a second."""
        return 2 * self.direct_macs / self.median

    @property
    def bandwidth(self) -> float:
        """Bytes that its runs of instructions read and write in a second, from caches or memory."""
        return sum(effort.bytes for effort in self.efforts) / self.median

    @property
    def share_of_roof(self) -> float:
        """How much of what the machine could do it does: 1 is the roofline."""
        return self.least / self.median

    @property
    def peers(self) -> dict[str, float]:
        """The median seconds of each other runtime that has figures."""
        others = [name for name in self.rounds if name not in (_OWN, _TWIN)]
        return {name: median(self.samples(name)) for name in others}

    def ratio(self, peer: str) -> float:
        """Our time in parts of another runtime's: the median over rounds. Below 1 glowpy is faster."""
        pairs = zip(self.rounds[_OWN], self.rounds[peer], strict=True)
        return median(median(own) / median(other) for own, other in pairs)

    def moment(self, index: int) -> float:
        """When an instruction of the program is reached, in seconds from the beginning of a run with layers."""
        place = bisect_left(self.layers, index, key=lambda layer: layer.effort.index)
        if place == len(self.layers):
            return self.layers[-1].end if self.layers else 0.0
        return self.layers[place].start

    def alive(self, layer: Layer) -> int:
        """The bytes of the activations that are in use while a layer is computed."""
        index, slots = layer.effort.index, self.program.plan.activations.slots
        lives = ((slot.live, slot.size) for slot in slots)
        return sum(size for live, size in lives if live and live[0] <= index <= live[1])


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
    subject: Subject, backend: CpuBackend, twin: CpuBackend | None, peaks: Peaks, plan: Plan
) -> Measured:
    """Times a model.

    Args:
        subject: The model.
        backend: The backend that compiles it.
        twin: The same with the option `timed`; None for no layers.
        peaks: The peaks of this machine.
        plan: How long, and beside what.

    Raises as `compile` does.
    """
    stages, feeds = subject.stages, subject.feeds
    with progress(f"compiling {subject.path}"):
        program, compiled = stages.program, stages.compiled
        timed = None if twin is None else twin.compile(program, CompileOptions())
        called = called_multiply_adds(compilation(stages.function, backend).optimized)
    extents = _extents(compiled, feeds)
    costs, variant = efforts(program, extents), backend.target.variant
    result = Measured(
        subject.path,
        plan.threads,
        called + sum(effort.macs for effort in costs),
        called + sum(effort.direct_macs for effort in costs),
        program,
        peaks,
        {kind.value: peaks.flops_of(kind, variant) for kind in _multiplied(costs)},
        costs,
        sum(effort.least(peaks, variant) for effort in costs),
        tuned=subject.tuned,
    )
    own = _contestant(_OWN, compiled, feeds, extents)
    contestants = [own]
    stamps: list[_Stamps] = []
    with pinned(plan.core), progress(f"timing {subject.path}"):
        if isinstance(timed, JitFunction):
            note = partial(_note, timed, stamps)
            contestants.append(_contestant(_TWIN, timed, feeds, extents, note))
        own.run()
        contestants += _peers(subject, own, plan, result)
        _time(contestants, plan, result)
    if stamps:
        result.layers = _layers(result, stamps, backend, plan.clock)
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


def _note(function: JitFunction, stamps: list[_Stamps]) -> None:
    stamps.append(_Stamps(function.stamps.copy(), time.perf_counter()))


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
    said = symbols_of(dim for _, dims, _ in state.known() for dim in dims)
    instance = compiled.instance(state, **{n: e for n, e in extents.items() if n not in said})
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
            if not subject.path.endswith(".onnx"):
                raise UserError(f"{name} runs ONNX files only")
            if state_ports(function):
                raise UserError(f"{name} keeps no state between runs: leave out --state")
            peer = loaded(name, Path(subject.path), inputs, result.threads, plan.ncnn_models)
        except UserError as error:
            notes = [note for one in error.diagnostics for note in (one.message, one.note) if note]
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
    result: Measured, stamps: Sequence[_Stamps], backend: CpuBackend, clock: str
) -> list[Layer]:
    """Returns the layers that the time stamps of all runs measure; leaves out runs for which nothing was called."""
    first, last = stamps[0], stamps[-1]
    index = np.flatnonzero(first.ticks)
    ticks = np.array([one.ticks[index] for one in stamps], np.int64)
    tick = 1e-9
    if clock == "wall":
        tick = (last.end - first.end) / max(int(ticks[-1, -1] - ticks[0, -1]), 1)
    seconds = np.median(np.diff(ticks, axis=1), axis=0) * tick
    starts = np.concatenate([[0.0], np.cumsum(seconds)])
    places = {int(stamp) - 1: place for place, stamp in enumerate(index[1:])}
    variant = backend.target.variant
    known = {one.name: one for one in backend.explained(result.program) if not one.function}
    declined = dict(result.program.declined) | {name: one.declined for name, one in known.items()}
    return [
        Layer(
            effort,
            max(float(seconds[place]), tick),
            float(starts[place]),
            effort.least(result.peaks, variant),
            effort.bound(result.peaks, variant),
            known.get(effort.run.head.name),
            {
                name: reason
                for inst in effort.run.members
                for name, reason in declined.get(inst.name, {}).items()
            },
        )
        for effort in result.efforts
        if (place := places.get(effort.index)) is not None
    ]
