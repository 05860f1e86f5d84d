"""Figures of a model that was timed: as a whole, by runs of its instructions, and of other runtimes beside it."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from statistics import median

import numpy as np

from glowpy.backend import Program
from glowpy.measuring.meter import Decision
from glowpy.measuring.peaks import Peaks
from glowpy.measuring.roofline import Effort
from glowpy.measuring.tuned import Tuned

__all__ = ["OWN", "TWIN", "Layer", "Measured"]

OWN, TWIN = "glowpy", "glowpy, timed by layers"
"""The contestants that are not another runtime's."""


@dataclass(frozen=True)
class Layer:
    """A run of instructions.

    Attributes:
        effort: Its work and traffic.
        seconds: The median of how long it takes.
        start: When it begins in the median run of the network, in seconds from its beginning.
        least: How long it takes at least, by the roofline.
        bound: The resource that this bound is the time of: `arithmetic` or `bytes`.
        decision: The decision of the backend about its product, if it has one.
        declined: Alternatives that were not taken, such as an algorithm or a pass, and why.
    """

    effort: Effort
    seconds: float
    start: float
    least: float
    bound: str
    decision: Decision | None
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

    def samples(self, name: str = OWN) -> list[float]:
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
        return median(self.samples(TWIN)) if TWIN in self.rounds else None

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
        others = [name for name in self.rounds if name not in (OWN, TWIN)]
        return {name: median(self.samples(name)) for name in others}

    def ratio(self, peer: str) -> float:
        """Our time in parts of another runtime's: the median over rounds. Below 1 glowpy is faster."""
        pairs = zip(self.rounds[OWN], self.rounds[peer], strict=True)
        return median(median(seconds) / median(other) for seconds, other in pairs)

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
