"""`HostNode`: a node that a session computes itself, and `on_host`, the table of the rules for operators.

A rule reads the parameters of a node, once, and returns the function that computes its outputs from its inputs:
arrays, lists, dicts, and None for what is not given. Where a node has graphs, as `Loop` does, the function also gets
what these read of the graph around them, by name, as its first argument.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeAlias, TypeVar, final

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.host_plan import Attribute, HostStep
from glowpy.importer.value_types import HostValue, ValueType
from glowpy.rounds import Rounds
from glowpy.support.errors import UserError

__all__ = ["RULES", "Body", "HostNode", "Rule", "number", "on_host"]


T = TypeVar("T", int, float, str)


class Body(Protocol):
    """A graph of a node."""

    @property
    def input_names(self) -> Sequence[str]:
        """The names of its inputs."""

    @property
    def input_types(self) -> Sequence[ValueType | None]:
        """The types of its inputs, as far as they are known."""

    @property
    def output_types(self) -> Sequence[ValueType | None]:
        """The types of its outputs, as far as they are known."""

    def __call__(
        self, inputs: Sequence[HostValue], outer: Mapping[str, HostValue]
    ) -> list[HostValue]:
        """Its outputs for inputs, and for values around it by name."""

    def advance(self, rounds: Rounds, outer: Mapping[str, HostValue]) -> bool:
        """Computes the next rounds of a loop whose body it is, if several can be computed at once; False if not."""


Rule: TypeAlias = Callable[["HostNode"], Callable[..., HostValue]]

RULES: dict[str, Rule] = {}
"""The rule of each operator, by its name. `registry` fills it."""


def on_host(*operators: str) -> Callable[[Rule], Rule]:
    """Registers a rule for operators."""

    def add(rule: Rule) -> Rule:
        for operator in operators:
            RULES[operator] = rule
        return rule

    return add


@final
class HostNode:
    """A node: its parameters by their types, its graphs as functions, and what is known of the types of its inputs.

    Parameters raise UserError where one is given that is of another type.
    """

    def __init__(self, step: HostStep, bodies: Mapping[str, Body]) -> None:
        self._attributes = step.attributes
        self.bodies = bodies
        self.types = step.input_types
        self.num_inputs, self.num_outputs = len(step.inputs), len(step.outputs)
        self._outputs = step.outputs

    def gives(self, place: int) -> bool:
        """Whether anybody asks for the output at a place."""
        return any(self._outputs[place : place + 1])

    def ports(self, name: str) -> tuple[int, int]:
        """How many values a graph takes and gives."""
        body = self.bodies[name]
        return len(body.input_types), len(body.output_types)

    def integer(self, name: str, default: int) -> int:
        """An integer parameter."""
        value = self._attributes.get(name, default)
        return value if isinstance(value, int) else _refuse(name, "an integer", value)

    def flag(self, name: str, default: bool = False) -> bool:
        """An integer parameter that means yes or no."""
        return self.integer(name, default) != 0

    def integers(self, name: str) -> tuple[int, ...] | None:
        """A parameter of several integers; None if it is not given."""
        return self._several(name, int, "integers")

    def real(self, name: str, default: float) -> float:
        """A floating-point parameter. The default is rounded to f32 as well."""
        value = self._attributes.get(name, default)
        return float(
            np.float32(value if isinstance(value, float) else _refuse(name, "a float", value))
        )

    def reals(self, name: str) -> tuple[float, ...] | None:
        """A parameter of several floating-point numbers; None if it is not given."""
        return self._several(name, float, "floats")

    def text(self, name: str, default: str) -> str:
        """A text parameter."""
        value = self._attributes.get(name, default)
        return value if isinstance(value, str) else _refuse(name, "text", value)

    def texts(self, name: str) -> tuple[str, ...]:
        """A parameter of several texts; none if it is not given."""
        return self._several(name, str, "texts") or ()

    def array(self, name: str) -> Array | None:
        """A tensor, perhaps of strings; None if it is not given."""
        value = self._attributes.get(name)
        return (
            value
            if value is None or isinstance(value, np.ndarray)
            else _refuse(name, "a tensor", value)
        )

    def _several(self, name: str, kind: type[T], what: str) -> tuple[T, ...] | None:
        value = self._attributes.get(name)
        if value is None:
            return None
        items = value if isinstance(value, tuple) else _refuse(name, what, value)
        return tuple(
            item if isinstance(item, kind) else _refuse(name, what, value) for item in items
        )


def _refuse(name: str, expected: str, value: Attribute) -> NoReturn:
    raise UserError(f"attribute '{name}': expected {expected}, got {type(value).__name__}")


def number(what: str, array: Array) -> int:
    """The integer in an array of one element. Raises UserError for an array of others."""
    if array.size != 1 or array.dtype.kind not in "iu":
        raise UserError(f"expected one integer as {what}, got {array.dtype} {list(array.shape)}")
    return int(array.reshape(-1)[0])
