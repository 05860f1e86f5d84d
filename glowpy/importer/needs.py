"""Errors that keep a model from being built for some shapes, although it could be for others, or in parts."""

from __future__ import annotations

from collections.abc import Sequence

from glowpy.support.errors import UnsupportedError, UserError
from glowpy.support.loc import Loc
from glowpy.support.questions import Asked, Need

__all__ = ["RoundsError", "ValueNeededError"]


class ValueNeededError(UserError):
    """An operator needs elements that are not known before the model runs: they depend on inputs of the graph.

    Attributes:
        inputs: The names of those inputs. Importing with their `values` gets further.
        counts: The names of extents that have no bound. Importing with something `supposed` of them gets further, too.
        asked: What has to be known of extents that the network finds. The same holds for these.
    """

    def __init__(
        self,
        message: str,
        inputs: Sequence[str],
        *,
        counts: Sequence[str] = (),
        asked: Sequence[Asked] = (),
        loc: Loc | None = None,
        note: str = "",
    ) -> None:
        super().__init__(message, loc=loc or Loc(), note=note)
        self.inputs = tuple(inputs)
        self.counts = tuple(counts)
        self.asked = tuple(asked)

    @property
    def need(self) -> Need:
        """The need that, once it is met, lets the import that has raised this go on."""
        why = self.diagnostics[0].message
        return Need(why, inputs=self.inputs, counts=self.counts, asked=self.asked)

    @classmethod
    def of_all(cls, errors: Sequence[ValueNeededError]) -> ValueNeededError:
        """One error for several."""
        merged = cls(
            str(errors[0]),
            list(dict.fromkeys(name for error in errors for name in error.inputs)),
            counts=[name for error in errors for name in error.counts],
            asked=[one for error in errors for one in error.asked],
        )
        merged.diagnostics = [d for error in errors for d in error.diagnostics]
        return merged


class RoundsError(UnsupportedError):
    """A loop whose rounds cannot be compiled as one: a session can run them one by one."""

    def __init__(self, message: str, *, loc: Loc | None = None, note: str = "") -> None:
        remedy = (
            "run the model with glowpy run, or in a session without state, which go round by round"
        )
        super().__init__(message, loc=loc or Loc(), note=f"{note}, or {remedy}" if note else remedy)
