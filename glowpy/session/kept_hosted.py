"""Kept models that a session computes in part: the entry has the plan, whose segments are kept models as well."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, TypeAlias, final

from glowpy.importer.host_plan import HostPlan, Segment
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.value_types import HostInfo
from glowpy.session.kept import Kept
from glowpy.session.plan_text import (
    Fields,
    NoTextError,
    Place,
    info_fields,
    info_of,
    plan_fields,
    plan_of,
    segment_at,
)
from glowpy.support.cache import Key
from glowpy.support.errors import LoadError, UserError

__all__ = ["KeptHosted", "hosted_fields"]

MakePart: TypeAlias = Callable[[Key, Fields, Callable[[], Model]], Model]
"""Makes a kept model of the name of a part, what the cache has of it, and what reads it."""


@final
class KeptHosted(HostedModel, Kept):
    """A model that a session computes in part, of which the cache says how.

    Args:
        key: Names it.
        file: How messages call it.
        fields: Returns what the cache has of it; nothing where that is not all.
        reading: Reads the model itself.
        make_part: Makes kept models of its segments.
        has_host_steps: Whether there is a step that the session computes.
        whole: The model itself, if it was read.
    """

    def __init__(
        self,
        key: Key,
        file: str,
        fields: Callable[[], Fields],
        reading: Callable[[], Model | HostedModel | None],
        make_part: MakePart,
        *,
        has_host_steps: bool,
        whole: HostedModel | None = None,
    ) -> None:
        self._key, self._file = key, file
        self._kept, self._reading = fields, reading
        self._make_part = make_part
        self._has_host_steps = has_host_steps
        self._whole = [] if whole is None else [whole]  # once it is read

    @property
    def is_read(self) -> bool:
        """Whether the model itself was read."""
        return bool(self._whole)

    @property
    def identity(self) -> tuple[str, ...]:
        """The name of the entry."""
        return self._key.digest, "hosted"

    @property
    def file(self) -> str:
        """The name of the model in messages."""
        return self._file

    @cached_property
    def inputs(self) -> list[HostInfo]:
        """The inputs, in the order of the model."""
        fields = self._kept()
        return [info_of(one) for one in fields["inputs"]] if fields else self.opened().inputs

    @cached_property
    def outputs(self) -> list[HostInfo]:
        """The outputs, in the order of the model."""
        fields = self._kept()
        return [info_of(one) for one in fields["outputs"]] if fields else self.opened().outputs

    @cached_property
    def plan(self) -> HostPlan:
        """The steps of the model. Raises UserError that lists the nodes that are wrong in themselves."""
        fields = self._kept()
        return plan_of(fields["plan"], self._segment) if fields else self.opened().plan

    @property
    def has_host_steps(self) -> bool:
        """Whether there is a step that the session computes."""
        return self._has_host_steps

    def opened(self) -> HostedModel:
        """The model itself. Raises LoadError if its file was changed since."""
        whole = self._whole[0] if self._whole else self._reading()
        if not isinstance(whole, HostedModel):
            raise LoadError(f"'{self.file}' was changed while it was in use")
        self._whole[:] = [whole]
        return whole

    def _segment(self, fields: Sequence[Any], place: Place) -> Segment:
        inputs, outputs, strings, part = fields
        key = Key.of("model", self._key.digest, f"{place}")
        model = self._make_part(key, part, partial(self._model_at, place))
        return _KeptSegment(tuple(inputs), tuple(outputs), frozenset(strings), model)

    def _model_at(self, place: Place) -> Model:
        """The model of a segment itself."""
        segment = segment_at(self.opened().plan, place)
        if segment is None:
            raise LoadError(f"'{self.file}' was changed while it was in use")
        return segment.model()


@dataclass(frozen=True)
class _KeptSegment(Segment):
    """A segment whose model is kept."""

    kept: Model

    def model(self) -> Model:
        """Returns the model, which was checked before."""
        return self.kept


def hosted_fields(model: HostedModel, part_fields: Callable[[Model], Fields]) -> Fields:
    """The fields of an entry for a model, with those of its segments; none if they are not all that may be asked."""

    def segment_fields(segment: Segment) -> Fields:
        fields = part_fields(segment.model())
        if not fields:
            raise NoTextError
        return fields

    try:
        return {
            "inputs": [info_fields(info) for info in model.inputs],
            "outputs": [info_fields(info) for info in model.outputs],
            "plan": plan_fields(model.plan, segment_fields),
            "has_host_steps": model.has_host_steps,
        }
    except (NoTextError, UserError):  # whoever runs it says what is wrong
        return {}
