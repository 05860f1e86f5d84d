"""Runs a network over inputs, and keeps statistics of all its values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sized
from dataclasses import dataclass, field
from typing import Protocol, runtime_checkable

import numpy as np
from xxhash import xxh3_128

from glowpy.backend import Backend
from glowpy.core.tensor import Array
from glowpy.engine import compile
from glowpy.graph.function import Function, Module
from glowpy.quantization.instrument import instrument, unprofiled
from glowpy.quantization.optimized import optimized
from glowpy.quantization.profile import Profile, ProfiledValue
from glowpy.quantization.signature import Signature
from glowpy.quantization.statistics import Statistics
from glowpy.runtime.state import State
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.limits import within_limits
from glowpy.support.progress import report

__all__ = [
    "DataReader",
    "Inputs",
    "Profiler",
    "Sample",
    "number_of",
    "profile",
    "sample_digest",
    "samples_of",
]

Sample = Mapping[str, Array]
"""An array for each input of a network."""


@runtime_checkable
class DataReader(Protocol):
    """A source of samples, as onnxruntime's CalibrationDataReader."""

    def get_next(self) -> Mapping[str, Array] | None:
        """The next sample, or None after the last."""


Inputs = Iterable[Sample] | DataReader

GROWTH = 0.05
"""A range grows if it becomes larger by more than this part of itself."""

RECENT = 0.1
"""The part of the inputs that a range should not grow in any more: the last ones."""


def samples_of(inputs: Inputs) -> Iterator[Sample]:
    """The samples of an iterable or of a reader. Raises UserError for what is neither."""
    if isinstance(inputs, DataReader):
        return iter(inputs.get_next, None)
    if isinstance(inputs, Mapping | str) or not hasattr(inputs, "__iter__"):
        got = "one dict" if isinstance(inputs, Mapping) else type(inputs).__name__
        raise UserError(
            f"expected an iterable of dicts, or an object with get_next, as inputs, got {got}"
        )
    return iter(inputs)


def number_of(inputs: Inputs) -> int:
    """How many samples there are; 0 where that is not known, as of readers: their `len` raises an error."""
    return len(inputs) if isinstance(inputs, Sized) and not isinstance(inputs, DataReader) else 0


@dataclass
class _Growth:
    """When a range, which zero is in, last grew by much, and how large it was then."""

    size: float
    run: int = 0

    def note(self, run: int, size: float) -> None:
        """Looks at the size after a run; they are counted from 1."""
        if size > self.size * (1 + GROWTH):
            self.size, self.run = size, run


@dataclass(frozen=True)
class _State:
    """The knowledge of a profiler after a sample, replaced in one step: an interrupted sample leaves no trace."""

    statistics: list[Statistics]
    runs: int
    digest: str
    """The digest of the sample; those of earlier ones are kept apart."""


@dataclass
class _Sequence:
    """The samples that go on from each other.

    Attributes:
        length: How many there have been.
        digest: Names them, in order.
        skipped: The last of them, which were run before in such a sequence: they are run again if another one follows.
        state: The variables after all but these.
    """

    length: int = 0
    digest: str = ""
    skipped: list[Sample] = field(default_factory=list)
    state: State | None = None


class Profiler:
    """A network that is run over one sample after another. Its memory does not grow with their number.

    Args:
        model: The function, or a module with one; not changed.
        start: The profile of other samples.
        backend: The backend that runs it: a name, or a backend with options.
        steps: The number of samples in a row that are one sequence, at whose beginning variables are as before the
            first run; each sample goes on from what the one before has left there.

    Attributes:
        unprofiled: The nodes on floats in functions that are called, of whose values nothing is kept.

    Raises UserError if `start` is not a profile of this model, and what `glowpy.compile` raises.
    """

    def __init__(
        self,
        model: Module | Function,
        start: Profile | None = None,
        backend: str | Backend = "cpu",
        steps: int = 1,
    ) -> None:
        if steps < 1:
            raise UserError(f"expected at least one step in a sequence, got {steps}")
        work = optimized(model)
        self._signature = Signature.of(work)
        if start is not None:
            start.check_signature(self._signature)
        self.unprofiled = tuple(node.name for _, node in unprofiled(work))
        self._watched = instrument(work)
        if not self._watched:
            raise UserError("the model computes nothing with floating-point numbers")
        self._samples = set(start.samples) if start is not None else set()
        statistics = [
            Statistics.none() if start is None else start[watched.name] for watched in self._watched
        ]
        self._state = _State(statistics, 0, "")
        self._steps, self._sequence = steps, _Sequence()
        self._growth = [_Growth(value_statistics.size) for value_statistics in statistics]
        self._function = compile(work, backend)
        given = (model.main if isinstance(model, Module) else model).parameters
        self._unread = {p.original for p in given} - set(self._function.inputs)
        work.module.forget()

    def add(self, sample: Sample) -> bool:
        """Runs a sample; False if an equal one was run before, after equal ones in its sequence, which counts once.

        Raises UserError for a missing or unknown name, and for an array of another type or shape.
        """
        if not isinstance(sample, Mapping):
            raise UserError(f"expected a dict of inputs, got {type(sample).__name__}")
        before = self._state
        if before.runs:
            self._samples.add(before.digest)
        if self._sequence.length == self._steps:
            self._sequence = _Sequence()
        sequence = self._sequence
        digest = sample_digest(sample, after=sequence.digest)
        sequence.length, sequence.digest = sequence.length + 1, digest
        if digest in self._samples:
            sequence.skipped.append(sample)
            return False
        for skipped in sequence.skipped:
            self._outputs(skipped)
        sequence.skipped = []
        outputs = self._outputs(sample)
        statistics = [
            value_statistics.merged(Statistics.of_run(*(outputs[name] for name in watched.outputs)))
            for value_statistics, watched in zip(before.statistics, self._watched, strict=True)
        ]
        self._state = _State(statistics, before.runs + 1, digest)
        for growth, value_statistics in zip(self._growth, statistics, strict=True):
            growth.note(self.runs, value_statistics.size)
        return True

    def _outputs(self, sample: Sample) -> Mapping[str, Array]:
        """Runs the next sample of the sequence."""
        function, sequence = self._function, self._sequence
        if sequence.state is None and function.state_ports:
            sequence.state = function.state()
        arrays = {k: v for k, v in sample.items() if k not in self._unread}
        return function(arrays, state=sequence.state)

    @property
    def runs(self) -> int:
        """How many samples were run."""
        return self._state.runs

    @property
    def profile(self) -> Profile:
        """The profile of all samples so far."""
        state = self._state
        values = {
            w.name: ProfiledValue(w.name, w.type, w.origin, w.part_of, statistics)
            for w, statistics in zip(self._watched, state.statistics, strict=True)
        }
        latest = {state.digest} if state.runs else set()
        return Profile(self._signature, frozenset(self._samples | latest), values)

    @property
    def growing(self) -> list[str]:
        """The values whose ranges grew by more than GROWTH in the last RECENT part of the samples."""
        settled = self.runs - math.ceil(self.runs * RECENT)
        return [
            watched.name
            for watched, growth in zip(self._watched, self._growth, strict=True)
            if growth.run > settled
        ]


@within_limits
def profile(
    model: Module | Function,
    inputs: Inputs,
    *,
    start: Profile | None = None,
    backend: str | Backend = "cpu",
    steps: int = 1,
) -> Profile:
    """Profiles a network: the ranges and histograms of its values over some inputs.

    Args:
        model: The function, or a module with one; not changed.
        inputs: Dicts with an array for each input, or an object with onnxruntime's `get_next`. Equal ones count once.
        start: A profile of other inputs of this model, to which these are added.
        backend: The backend that runs the network. The profile serves any other as well.
        steps: The number of inputs in a row that are one sequence, for a network with variables: they are as before the
            first run when a sequence begins, and each input goes on from what the one before has left there.

    Raises UserError if there are no inputs, for inputs that do not fit, and for a `start` of another model.
    """
    profiler = Profiler(model, start, backend, steps)
    total = number_of(inputs)
    for index, sample in enumerate(samples_of(inputs)):
        report("inputs", index, total)
        try:
            profiler.add(sample)
        except UserError as error:
            raise located(error, f"input {index}") from None
    result = profiler.profile
    if not result.samples:
        raise UserError("expected at least one input to profile with, got none")
    return result


def located(error: UserError, place: str) -> UserError:
    """The error, with the sample that it is about."""
    return UserError.of(
        Diagnostic(f"{place}: {d.message}", d.loc, d.context, d.note) for d in error.diagnostics
    )


def sample_digest(sample: Sample, after: str = "") -> str:
    """The digest of a sample's names, types and elements, and of what it comes after in a sequence."""
    digest = xxh3_128(after.encode())
    for name in sorted(sample):
        array = np.ascontiguousarray(sample[name])
        digest.update(f"{name} {array.dtype} {array.shape} ".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
