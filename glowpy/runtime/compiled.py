"""`CompiledFunction`: what a backend makes of a program, and `Observer`, which sees it run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from glowpy.core.tensor import Array
from glowpy.runtime.host_call import HostCall
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from glowpy.ir.inst import Instruction
    from glowpy.rounds import Rounds, Wiring

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

    def advance(self, wiring: Wiring, rounds: Rounds, values: Mapping[str, Array]) -> bool:
        """Computes the next rounds of a loop whose body this is, if it can compute several at once; False if not.

        Args:
            wiring: How a round follows from the one before it.
            rounds: Where the loop is, and then where it is.
            values: The inputs of the next round, by name; those that are scanned, with all their elements.
        """
        del wiring, rounds, values
        return False
