"""`Meter`: the part of a backend that measures a machine and what runs there, for `glowpy bench`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol

from glowpy.backend import Backend, Program
from glowpy.core.tensor import Array
from glowpy.measuring.peaks import Peaks
from glowpy.runtime.compiled import CompiledFunction
from glowpy.support.errors import UserError
from glowpy.support.text import Attr

__all__ = ["Decision", "Meter", "Timed", "TimedFunction", "meter_of"]

Timed = Literal["wall", "cpu"]
"""Clocks of runs of instructions: a counter of the processor, or what the calling thread has had of it."""


class Decision(Protocol):
    """The decision of a backend about an instruction: how it is computed, and why."""

    @property
    def name(self) -> str:
        """The name of the instruction."""

    @property
    def function(self) -> str:
        """The function that it is in, if others call it; empty for the network itself."""

    @property
    def decision(self) -> Mapping[str, Attr]:
        """The attributes that were decided."""

    @property
    def declined(self) -> Mapping[str, str]:
        """Alternatives that were not taken, and why."""

    @property
    def summary(self) -> str:
        """All of it for people, in one line."""


@dataclass(frozen=True)
class TimedFunction:
    """A compiled program that notes when it begins, and when each run of instructions ends.

    Attributes:
        function: The program.
        stamps: Returns what was noted in the last run: first of the beginning, then, after the number of its head in
            the program, of every run; 0 where nothing was called. In ticks of a counter, or nanoseconds.
    """

    function: CompiledFunction
    stamps: Callable[[], Array]


class Meter(ABC):
    """Measures on the machine that a backend is bound to."""

    @property
    @abstractmethod
    def processor(self) -> str:
        """The processor that code is made for, by LLVM's name."""

    @property
    @abstractmethod
    def variant(self) -> str:
        """The variant of the kernels."""

    @abstractmethod
    def peaks(self, threads: int, *, fresh: bool = False) -> Peaks:
        """The peaks of so many threads, as they were measured before unless they are to be measured afresh."""

    @abstractmethod
    def timed(self, program: Program, clock: Timed) -> TimedFunction:
        """Compiles a program as the backend does, to note the time as well."""

    @abstractmethod
    def decisions(self, program: Program) -> Iterator[Decision]:
        """Yields the decisions about a program that the backend has compiled."""


def meter_of(backend: Backend) -> Meter:
    """The meter of a backend. Raises UserError for one that has none."""
    meter = backend.meter
    if meter is None:
        raise UserError(
            f"the {backend.name} backend measures no peaks of a machine", note="use the cpu backend"
        )
    return meter
