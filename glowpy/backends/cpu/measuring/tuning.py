"""Measures which way to compute a product is the fastest on this machine, and keeps what was found on disk.

Strategies list some ways for each product, first the one that the model of the processor takes. Those of a network's
products that take longest by the model are measured: each way becomes a network of its own, which is run on random
numbers. Between two runs as much memory is read as the network has weights, so that a layer finds its own where it
finds them in the network; its input was written just before.

* Ways are run by turns, and each turn begins with another one. What is much slower after a few turns is left out.
* Another way wins if it takes less time by more than `_NOISE` in the median turn, and at best.
* The time is shared by what the model thinks the products take. Where that is too little to compile two ways, the
  product waits for the next time: what has been measured is kept, and is not measured again.
* An entry is named after the processor, the kernels, this package, the product and the ways: under another processor
  or another glowpy there is none.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import islice
from statistics import median
from typing import TypeVar

from glowpy.backend import Operation
from glowpy.backends.cpu.strategy.depthwise import DepthwiseDecision
from glowpy.backends.cpu.strategy.product import Decision
from glowpy.backends.cpu.strategy.strassen import StrassenDecision
from glowpy.backends.cpu.strategy.ways import Chooser
from glowpy.backends.cpu.strategy.winograd import WinogradDecision
from glowpy.graph.alone import alone
from glowpy.graph.function import Module
from glowpy.graph.node import Node
from glowpy.measuring.tuned import Tuned
from glowpy.support.cache import Key, read, write
from glowpy.support.progress import report

__all__ = ["Collector", "Prepare", "Tuner"]

Way = Decision | WinogradDecision | StrassenDecision | DepthwiseDecision
W = TypeVar("W")

Prepare = Callable[[Module, Chooser], Callable[[], float]]
"""Compiles a network, whose product is computed as the chooser says; what comes out runs it and gives the seconds."""

_MOST_WAYS = 8
_LEAST_SECONDS = 1.5
"""A product gets so much time at least, or none: to compile two ways takes about half of it."""
_LEAST_TURNS, _MOST_TURNS = 5, 60
_HOPELESS = 1.25
"""The multiple of the best time from which a candidate is not run again after `_LEAST_TURNS`."""
_NOISE = 0.03


@dataclass(frozen=True)
class _Record:
    """Record in the cache: the seconds of each way, and the index of the taken one."""

    seconds: tuple[float, ...]
    taken: int

    def payload(self) -> bytes:
        """The entry of the cache."""
        return json.dumps({"seconds": self.seconds, "taken": self.taken}).encode()

    @classmethod
    def parse(cls, payload: bytes | None, ways: int) -> _Record | None:
        """Parses an entry; None if there is none, or it is about something else."""
        try:
            fields = json.loads(payload or b"null")
            seconds, taken = tuple(map(float, fields["seconds"])), fields["taken"]
        except (ValueError, TypeError, KeyError):
            return None
        fits = type(taken) is int and len(seconds) == ways and 0 <= taken < ways
        return cls(seconds, taken) if fits and seconds[taken] > 0 else None


def _listed(ways: Iterable[W]) -> tuple[W, ...]:
    return tuple(islice(ways, _MOST_WAYS))


@dataclass(frozen=True)
class _Fixed(Chooser):
    """Takes one of the ways for one product, and the model's for all others."""

    ways: tuple[object, ...]
    index: int

    def choose(self, n: Node, ways: Iterable[W]) -> W:
        """The way of that number, if these are the ways."""
        del n
        listed = _listed(ways)
        return listed[self.index if listed == self.ways else 0]


@dataclass
class _Question:
    """A product that was asked about.

    Attributes:
        name: The name of the first node that it is.
        product: Operator, types and attributes.
        network: A network of this node alone.
        ways: To compute it.
        cycles: The cycles of all products like this one, by the model.
    """

    name: str
    product: str
    network: Module
    ways: tuple[Way, ...]
    cycles: float = 0.0


@dataclass
class Collector(Chooser):
    """Takes what the model takes, and notes what it is asked about; but what depends on symbols cannot be measured.

    Attributes:
        identity: The part of the entries' names beside products and ways.
        questions: By the keys of their entries.
    """

    identity: Sequence[str]
    questions: dict[Key, _Question] = field(default_factory=dict)

    def choose(self, n: Node, ways: Iterable[W]) -> W:
        """The first."""
        listed = _listed(ways)
        if all(value.type.is_static for value in (*n.inputs, *n.results)):
            key = _key(self.identity, n, listed)
            if key not in self.questions:
                self.questions[key] = _Question(n.name, _text(n), alone(n), listed)  # type: ignore[arg-type]
            self.questions[key].cycles += self.questions[key].ways[0].cycles
        return listed[0]


class Tuner(Chooser):
    """Takes what was measured to be the fastest, and what the model takes where nothing was measured.

    Attributes:
        results: Measurements of the products of the networks that were compiled.
        measured: The names of the nodes of which something is known.
        changed: Those of them that are computed in another way than the model takes.
    """

    def __init__(
        self,
        seconds: float,
        identity: Sequence[str],
        clock: Callable[[], float] = time.perf_counter,
        own_clock: Callable[[], float] = time.thread_time,
    ) -> None:
        """`seconds` is how long to measure for each function, `identity` what entries are named after.

        `clock` goes on all the time, `own_clock` only while the calling thread has a processor.
        """
        self.identity = tuple(identity)
        self.results: list[Tuned] = []
        self.measured: set[str] = set()
        self.changed: set[str] = set()
        self._seconds = seconds
        self._clock = clock
        self._own_clock = own_clock
        self._elapsed = self._used = 0.0
        self._records: dict[Key, _Record | None] = {}

    @property
    def busy(self) -> float:
        """The share of the time of all measurements for which they had a processor, at most 1; 1 without any."""
        return min(self._used / self._elapsed, 1.0) if self._elapsed else 1.0

    def choose(self, n: Node, ways: Iterable[W]) -> W:
        """The fastest of the ways."""
        listed = _listed(ways)
        record = self._known(_key(self.identity, n, listed), len(listed))
        if record is None:
            return listed[0]
        self.measured.add(n.name)
        if record.taken:
            self.changed.add(n.name)
        return listed[record.taken]

    def measure(self, collector: Collector, prepare: Prepare) -> None:
        """Measures what was asked about and is not known, as far as there is time; at most one compilation longer."""
        recorded_keys = {
            key
            for key, question in collector.questions.items()
            if self._known(key, len(question.ways))
        }
        open_ones = [
            (key, question)
            for key, question in collector.questions.items()
            if key not in recorded_keys and len(question.ways) > 1
        ]
        open_ones.sort(key=lambda pair: -pair[1].cycles)
        questions = self._affordable(open_ones)
        end, cycles = (
            self._clock() + self._seconds,
            sum(question.cycles for _, question in questions),
        )
        for number, (key, question) in enumerate(questions):
            report("tune", number, len(questions))
            start = self._clock()
            if start >= end:
                break
            own_end = start + (end - start) * question.cycles / cycles
            cycles -= question.cycles
            record = self._contest(question, prepare, own_end)
            if record is not None:
                self._records[key] = record
                write(key, record.payload())
        for key, question in collector.questions.items():
            if (known := self._records.get(key)) is not None:
                ways = tuple(map(str, question.ways))
                self.results.append(
                    Tuned(question.name, question.product, ways, known.seconds, known.taken, key in recorded_keys)
                )  # fmt: skip

    def _known(self, key: Key, ways: int) -> _Record | None:
        """Returns the record of a measurement in this process or an earlier one."""
        if key not in self._records:
            self._records[key] = _Record.parse(read(key), ways)
        return self._records[key]

    def _affordable(self, questions: list[tuple[Key, _Question]]) -> list[tuple[Key, _Question]]:
        """Returns the longest products, as many as each get `_LEAST_SECONDS`."""
        total, count = 0.0, 0
        for number, (_, question) in enumerate(questions):
            total += question.cycles
            if self._seconds * question.cycles >= _LEAST_SECONDS * total:
                count = number + 1
        return questions[:count]

    def _contest(self, question: _Question, prepare: Prepare, end: float) -> _Record | None:
        """The ways by turns until `end`; None if there was no time for two of them and a few turns."""
        start = self._clock()
        runs: list[Callable[[], float]] = []
        for index in range(len(question.ways)):
            spent = self._clock() - start
            if spent >= end - start or (index > 1 and spent > (end - start) / 2):
                break
            runs.append(prepare(question.network, _Fixed(question.ways, index)))
        if len(runs) < 2:
            return None
        begun, used = self._clock(), self._own_clock()
        samples = self._turns(runs, end)
        self._elapsed += self._clock() - begun
        self._used += self._own_clock() - used
        return self._judged(samples, len(question.ways))

    def _turns(self, runs: Sequence[Callable[[], float]], end: float) -> list[list[float]]:
        """The seconds of each way in each turn until `end`; those that are much slower have fewer."""
        samples: list[list[float]] = [[] for _ in runs]
        hopeful = list(range(len(runs)))
        for turn in range(_MOST_TURNS):
            first = turn % len(hopeful)
            for index in (*hopeful[first:], *hopeful[:first]):
                if self._clock() >= end:
                    return samples
                samples[index].append(runs[index]())
            if turn + 1 == _LEAST_TURNS:
                limit = _HOPELESS * min(map(min, samples))
                hopeful = [index for index in hopeful if not index or min(samples[index]) <= limit]
        return samples

    @staticmethod
    def _judged(samples: Sequence[Sequence[float]], ways: int) -> _Record | None:
        """Returns the way that is taken after so many turns; None after too few."""
        if len(samples[0]) < _LEAST_TURNS:
            return None

        def is_faster(own: Sequence[float]) -> bool:
            turns = zip(own, samples[0], strict=False)
            ratio = median(one / other for one, other in turns)
            return max(ratio, min(own) / min(samples[0])) < 1 - _NOISE

        medians = [median(seconds) if seconds else float("inf") for seconds in samples]
        winners = [index for index, seconds in enumerate(samples) if seconds and is_faster(seconds)]
        taken = min(winners, key=lambda index: medians[index], default=0)
        return _Record((*medians, *[float("inf")] * (ways - len(samples))), taken)


def _key(identity: Sequence[str], n: Node, ways: Sequence[object]) -> Key:
    """Names what is known of a product."""
    constant = [str(value.constant is not None) for value in n.inputs]
    return Key.of("tuning", *identity, _text(n), *constant, *map(repr, ways))


def _text(n: Node) -> str:
    """Describes the computation of a node, without its name."""
    attrs = ", ".join(f"{name}={value}" for name, value in n.attrs.items())
    return f"{Operation.of_node(n)} {{{attrs}}}"
