"""`HostPlan`: a graph of which a session computes a part itself, as plain data: nothing here is about a format.

A reader splits such a model. A plan is a list of steps: each is a *segment*, which is a model of numbers and compiled
as any other, or a node for an operator of the session's, which `session/host` has by name.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array
from glowpy.importer.value_types import HostValue, ValueType
from glowpy.support.errors import UserError
from glowpy.support.loc import Loc

if TYPE_CHECKING:
    from glowpy.importer.model import Model

__all__ = ["Attribute", "HostPlan", "HostStep", "Segment"]

Attribute: TypeAlias = (
    int | float | str | tuple[int, ...] | tuple[float, ...] | tuple[str, ...] | Array
)
"""A parameter of an operator; an array has `str` objects if it is of strings."""


@dataclass(frozen=True)
class Segment(ABC):
    """Nodes that are compiled together: a model of their own.

    Attributes:
        inputs: Which values it reads.
        outputs: Which it computes.
        strings: The inputs and outputs that are strings, and numbers in the model.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    strings: frozenset[str]

    @abstractmethod
    def model(self) -> Model:
        """Opens the model, checked. Raises UserError that lists what is wrong with it."""


@dataclass(frozen=True)
class HostStep:
    """A node that the session computes.

    Attributes:
        operator: Which operator it is.
        attributes: The parameters that are given.
        inputs: Which values it reads; an empty name stands for one that is not given.
        outputs: Which it computes, in the same way.
        input_types: The types of what it reads, as far as they are known.
        bodies: The graphs among its parameters, by name.
        loc: Where it is in the model.
        problem: What is wrong with it, in a branch that may never be taken.
    """

    operator: str
    attributes: Mapping[str, Attribute]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_types: tuple[ValueType | None, ...]
    bodies: Mapping[str, HostPlan]
    loc: Loc
    problem: UserError | None = None

    @property
    def outer(self) -> tuple[str, ...]:
        """The values of the graph around it that its graphs read."""
        return tuple(dict.fromkeys(name for plan in self.bodies.values() for name in plan.outer))


@dataclass(frozen=True)
class HostPlan:
    """A graph as steps, in order.

    Attributes:
        inputs: The inputs of the graph.
        outputs: The outputs of the graph.
        input_types: The types of the inputs, as far as they are known.
        output_types: The types of the outputs, as far as they are known.
        outer: The values that it reads of the graph around it.
        constants: The constants that steps and outputs read.
        steps: The steps, in order.
        kinds: The kinds of numbers among all its values.
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    input_types: tuple[ValueType | None, ...]
    output_types: tuple[ValueType | None, ...]
    outer: tuple[str, ...]
    constants: Mapping[str, HostValue]
    steps: tuple[Segment | HostStep, ...]
    kinds: frozenset[ElemKind]

    @property
    def host_steps(self) -> list[HostStep]:
        """The steps that the session computes."""
        return [step for step in self.steps if isinstance(step, HostStep)]
