"""`ByRounds`: runs a model of numbers whose branches a session chooses, and whose loops it runs round by round."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from glowpy.core.tensor import Array
from glowpy.importer.declared import ValueInfo
from glowpy.importer.model import HostedModel
from glowpy.importer.value_types import HostValue
from glowpy.session.feeds import check_out, checked_feeds, kept_types, narrow_types
from glowpy.session.hosted import Hosted, Opening, RunInParts

__all__ = ["ByRounds"]


@final
class ByRounds(RunInParts):
    """A model that cannot be compiled as a whole, with sessions for its parts.

    Attributes:
        inputs: Those of the whole, whose types a call has to have.
        outputs: Those of the whole.
        state: None: no variables can be kept.
    """

    def __init__(
        self,
        model: HostedModel,
        inputs: Sequence[ValueInfo],
        outputs: Sequence[ValueInfo],
        opening: Opening,
    ) -> None:
        self.inputs, self.outputs, self.state = inputs, outputs, None
        self._parts = Hosted(model, opening)
        self._types, self._narrow = kept_types(self.inputs), narrow_types(self.outputs)

    @property
    def assumptions(self) -> dict[str, str]:
        """Describes what the sessions of parts assume open dimensions to be, by name."""
        return self._parts.assumptions

    def run(
        self, names: Sequence[str], input_feed: Mapping[str, Any], out: Mapping[str, Array] | None
    ) -> list[HostValue]:
        """The outputs of these names. Raises UserError for inputs that the model as a whole does not take."""
        if out is not None:
            check_out(out, self._narrow)
        checked_feeds(input_feed, self._types, self._infos)
        return self._parts.run(names, input_feed, out)

    def _infos(self) -> Sequence[ValueInfo]:
        return self.inputs

    def close(self) -> None:
        """Drops what was compiled."""
        self._parts.close()
