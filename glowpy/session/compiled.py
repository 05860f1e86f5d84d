"""`Compiled`: runs a model of numbers by code for all of it, which `programs` compiles for the calls it gets."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, final

from glowpy.core.tensor import Array
from glowpy.importer.added_outputs import raise_wrong
from glowpy.importer.declared import ValueInfo
from glowpy.importer.model import Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.runtime.arrays import given_inputs
from glowpy.runtime.compiled import CompiledFunction
from glowpy.session.feeds import check_out, checked_feeds, kept_types, narrow_types, narrowed
from glowpy.session.preparation import Range, Ranges
from glowpy.session.programs import Compiling, Programs
from glowpy.session.state import SessionState
from glowpy.session.suppositions import called_with, supposed_outputs
from glowpy.support.errors import Diagnostic, UserError

if TYPE_CHECKING:
    from glowpy.session.by_rounds import ByRounds
    from glowpy.session.hosted import Opening

__all__ = ["Compiled"]


@final
class Compiled:
    """A model that is compiled as a whole.

    Attributes:
        model: The model.
        inputs: Those that a run takes: all but what is kept.
        outputs: Those that a run gives: all but what is kept.
        state: The variables that are kept from run to run, perhaps none.
        programs: The code of the model, and what is known for that of the calls so far.
    """

    def __init__(self, model: Model, state: SessionState, compiling: Compiling) -> None:
        self.model, self.state = model, state
        pairs = state.pairs
        self.inputs = [info for info in model.inputs if info.name not in pairs]
        self.outputs = [info for info in model.outputs if info.name not in pairs.values()]
        self.programs = Programs(model, compiling, pairs)
        self._gate = compiling.gate
        self._types, self._narrow = kept_types(self.inputs), narrow_types(model.outputs)

    @property
    def assumptions(self) -> dict[str, str]:
        """Describes what open dimensions are assumed to be, by name."""
        return self.programs.summary

    def run(
        self, names: Sequence[str], input_feed: Mapping[str, Any], out: Mapping[str, Array] | None
    ) -> list[Array]:
        """The outputs of these names; what an equal call has run computes them without another question."""
        if out is not None:
            check_out(out, self._narrow)
        feeds = checked_feeds(input_feed, self._types, self._infos)
        if not self.state.pairs and (function := self.programs.latest(feeds)) is not None:
            outputs = function(given_inputs(function, feeds), out)
            if function.checks:
                raise_wrong(outputs, function.checks, self.model.file)
        else:
            outputs = self._outputs(names, feeds, out)
        if self._narrow:
            outputs = narrowed(outputs, self._narrow)
        return [outputs[name] for name in names]

    def _outputs(
        self, names: Sequence[str], feeds: Mapping[str, Array], out: Mapping[str, Array] | None
    ) -> dict[str, Array]:
        """The outputs for a call that may need something compiled, or more than one run."""
        ways = self.programs.ways(feeds)
        if self.state.pairs:
            return self.state.run(names, feeds, out, ways)
        shapes = {name: array.shape for name, array in feeds.items()}
        first, compute = ways.function_for(shapes), called_with(feeds)
        outputs, function = supposed_outputs(first, shapes, out, compute, ways)
        raise_wrong(outputs, function.checks, self.model.file)
        return outputs

    def _infos(self) -> Sequence[ValueInfo]:
        return self.inputs

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function that does all of such a call; None if there is more to do, or none is compiled yet."""
        function = self.programs.compiled(feeds)
        return None if function is None or function.supposed or self._narrow else function

    def prepare(self, ranges: Mapping[str, Range], values: Mapping[str, Array]) -> None:
        """Compiles for all extents within ranges. Raises UserError where that takes branches or rounds of a loop."""
        wanted = Ranges(self.model.inputs, ranges)
        try:
            self.programs.prepare(wanted, values)
        except (RoundsError, ValueNeededError) as error:
            refusal = Diagnostic("expected a model that is compiled as a whole to prepare")
            raise UserError.of([refusal, *error.diagnostics]) from error

    def split(self, error: RoundsError | ValueNeededError, opening: Opening) -> ByRounds:
        """Returns a runner that chooses branches, and runs loops, while the model runs.

        Raises the error if there is state, or if it is about no branches and no loop; FrozenError if nothing is to be
        compiled any more.
        """
        from glowpy.session.by_rounds import ByRounds  # noqa: PLC0415 - most models are compiled as a whole

        model = self.model.in_parts(error)
        if self.state.pairs or model is None or not model.has_host_steps:
            raise error
        self._gate.admit(error.diagnostics[0].message)
        return ByRounds(model, self.inputs, self.outputs, opening)

    def close(self) -> None:
        """Drops what was compiled."""
        self.programs.specialisations.clear()
