"""The table of what each instruction means."""

from __future__ import annotations

from collections.abc import Callable

from glowpy.support.rules import Rules

__all__ = ["interpret"]

interpret: Rules[Callable[..., None]] = Rules("interpret")
"""`@interpret(XInst)` functions take a Tensor for every operand, in schema order, and the attributes as keywords.

The arrays of the tensors are views into the program's memory; a rule writes those of its outputs in place."""
