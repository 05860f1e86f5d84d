"""`CompiledFunction`: what a backend makes of a program, and `Observer`, which sees it run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from glowpy.core.tensor import Array
from glowpy.runtime.host_call import HostCall
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from glowpy.ir.inst import Instruction
    from glowpy.rounds import RunsRounds, Wiring

__all__ = ["CompiledFunction", "Observer"]


class Observer(Protocol):
    """Observer of a running, instrumented network. Operands are arrays by name, in the network's own memory."""

    def before(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Called before an instruction; outputs hold what is there by chance."""

    def after(self, inst: Instruction, operands: Mapping[str, Array]) -> None:
        """Called after an instruction."""


class CompiledFunction(HostCall):
    """A program that a backend has made executable. Its working memory is the plan's activations."""

    observer: Observer | None = None
    """Sees every instruction, if the function was compiled with `instrument`."""
    supposed: Mapping[str, Dim] = {}
    """Assumed values of extents that the network finds, by name; outputs hold the actual ones."""
    checks: Sequence[str] = ()
    """The outputs that say whether indices led out of range, for whoever runs it."""

    @property
    def code_size(self) -> int:
        """Bytes of machine code; 0 for a function that has none."""
        return 0

    def rounds(
        self, wiring: Wiring, networks: Sequence[Sequence[CompiledFunction]]
    ) -> RunsRounds | None:
        """Makes code for many rounds of a loop in one call; None if it cannot, and each round is computed by itself.

        Args:
            wiring: What a round does, and how one follows from the one before it.
            networks: Functions for each of its calls, of which the first one that is for the extents is called; this
                is one of them.
        """
        del wiring, networks
        return None
