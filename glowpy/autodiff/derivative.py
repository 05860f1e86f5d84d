"""The table of derivatives: what each operator does to the gradients of its results."""

from __future__ import annotations

from collections.abc import Callable

from glowpy.graph.node import Operand
from glowpy.support.rules import Rules

__all__ = ["derivative"]

derivative: Rules[Callable[..., list[Operand | None]]] = Rules(
    "derivative",
    "Declare one with @derivative in glowpy/ops/, or say no_derivative=... in its spec.",
)
"""`@derivative(XNode)` functions take the function, the node and the gradient of each of its results, in order.

A node of one result is asked only where a gradient reaches that; of several results, those that none reaches have None.
They return the gradient of each input, in the shape of the result where the inputs broadcast, and None where
none flows.
"""
