"""`Runner`: the protocol of the three ways in which a session runs its model.

`Compiled` has code for the model as a whole. `Hosted` computes nodes itself between what it has compiled. `ByRounds`
does so for a model of numbers, whose branches it chooses and whose loops it runs round by round.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from glowpy.core.tensor import Array
    from glowpy.importer.declared import ValueInfo
    from glowpy.importer.needs import RoundsError, ValueNeededError
    from glowpy.importer.value_types import HostInfo, HostValue
    from glowpy.runtime.compiled import CompiledFunction
    from glowpy.session.hosted import Opening
    from glowpy.session.preparation import Range
    from glowpy.session.state import SessionState

__all__ = ["Runner"]


class Runner(Protocol):
    """Runs the model of a session. Safe from several threads."""

    @property
    def inputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The inputs of a run."""

    @property
    def outputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The outputs that a run gives unless it is asked for others."""

    @property
    def state(self) -> SessionState | None:
        """The variables that it keeps from run to run; None where it can have none."""

    @property
    def assumptions(self) -> dict[str, str]:
        """Describes what open dimensions are assumed to be, by name."""

    def run(
        self, names: Sequence[str], input_feed: Mapping[str, Any], out: Mapping[str, Array] | None
    ) -> list[HostValue]:
        """The outputs of these names, some in arrays of the caller's.

        Raises UserError for inputs that do not fit, and RoundsError or ValueNeededError where another runner is needed.
        """

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function that does all of such a call; None if there is more to do, or none is compiled yet."""

    def prepare(self, ranges: Mapping[str, Range], values: Mapping[str, Array]) -> None:
        """Compiles for all extents within ranges. Raises UserError where the model is not compiled as a whole."""

    def split(self, error: RoundsError | ValueNeededError, opening: Opening) -> Runner:
        """Returns a runner of the model in parts, to take its place. Raises the error if there can be none."""

    def close(self) -> None:
        """Drops what was compiled."""
