"""The CPU backend's meter."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, final

from glowpy.backend import Program
from glowpy.backends.cpu.jit import JitFunction
from glowpy.backends.cpu.measuring.peaks import peaks_of
from glowpy.measuring.meter import Meter, Timed, TimedFunction
from glowpy.measuring.peaks import Peaks

if TYPE_CHECKING:
    from glowpy.backends.cpu.backend import CpuBackend
    from glowpy.backends.cpu.strategy.explain import Explanation

__all__ = ["CpuMeter"]


@final
class CpuMeter(Meter):
    """Measures a processor by loops of its own, and runs by its counter of time."""

    def __init__(self, backend: CpuBackend, twin: Callable[[Timed], CpuBackend]) -> None:
        """`twin` makes a backend like it whose functions note the time."""
        self._backend = backend
        self._twin = twin

    @property
    def processor(self) -> str:
        """The processor, by LLVM's name."""
        return self._backend.target.machine.cpu

    @property
    def variant(self) -> str:
        """The variant of the kernels."""
        return self._backend.target.variant.name

    def peaks(self, threads: int, *, fresh: bool = False) -> Peaks:
        """The peaks of so many threads."""
        return peaks_of(self._backend.target, threads, fresh=fresh)

    def timed(self, program: Program, clock: Timed) -> TimedFunction:
        """Compiles a program to note the time, by a backend of the same class; nothing is tuned for it."""
        function = self._twin(clock).function(program)
        assert isinstance(function, JitFunction)
        return TimedFunction(function, lambda: function.stamps)

    def decisions(self, program: Program) -> Iterator[Explanation]:
        """Yields the decisions about the products of a program."""
        return self._backend.explained(program)
