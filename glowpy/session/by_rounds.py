"""`ByRounds`: a `Hosted` model of numbers alone, whose branches and loops `host.control` runs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, final

from glowpy.core.tensor import Array
from glowpy.importer.declared import ValueInfo
from glowpy.importer.model import HostedModel
from glowpy.importer.value_types import HostValue
from glowpy.session.feeds import check_out, checked_feeds, kept_types, narrow_types
from glowpy.session.hosted import Hosted, Opening

__all__ = ["ByRounds"]


@final
class ByRounds(Hosted):
    """A model of numbers that cannot be compiled as a whole, with sessions for its parts.

    Args:
        model: The model, split.
        inputs: Those of the whole, whose types a call has to have.
        outputs: Those of the whole.
        opening: Opens sessions.
    """

    def __init__(
        self,
        model: HostedModel,
        inputs: Sequence[ValueInfo],
        outputs: Sequence[ValueInfo],
        opening: Opening,
    ) -> None:
        super().__init__(model, opening)
        self._inputs, self._outputs = inputs, outputs
        self._types, self._narrow = kept_types(inputs), narrow_types(outputs)

    @property
    def inputs(self) -> Sequence[ValueInfo]:
        """The inputs of the whole."""
        return self._inputs

    @property
    def outputs(self) -> Sequence[ValueInfo]:
        """The outputs of the whole."""
        return self._outputs

    def run(
        self, names: Sequence[str], feed: Mapping[str, Any], out: Mapping[str, Array] | None
    ) -> list[HostValue]:
        """The outputs of these names. Raises UserError for inputs that the model as a whole does not take."""
        if out is not None:
            check_out(out, self._narrow)
        checked_feeds(feed, self._types, lambda: self._inputs)
        return super().run(names, feed, out)
