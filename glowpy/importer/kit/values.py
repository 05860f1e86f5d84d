"""Values during an import: a node's result, a known tensor, or a few numbers of symbolic extents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from glowpy.core.tensor import Array, Tensor
from glowpy.core.type import Type
from glowpy.graph.node import NodeValue
from glowpy.support.symbolic import Dim

__all__ = ["Ratio", "SymbolicTensor", "Value"]

Value: TypeAlias = NodeValue | Tensor
"""A tensor of the graph: computed at run time, or known while importing."""


@dataclass(frozen=True, slots=True)
class Ratio:
    """A quotient that is not rounded, such as half an extent. The divisor is positive."""

    dividend: Dim
    divisor: int

    def __str__(self) -> str:
        return f"({self.dividend})/{self.divisor}"


@dataclass(frozen=True)
class SymbolicTensor:
    """A few numbers that depend on symbolic extents: the shape of something, or a part of it.

    The array holds Python numbers, expressions, and in floats also ratios.
    """

    type: Type
    array: Array
