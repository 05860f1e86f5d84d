"""The table of what each instruction means."""

from __future__ import annotations

from collections.abc import Callable

from glowpy.support.rules import Rules

__all__ = ["interpret"]

interpret: Rules[Callable[..., None]] = Rules(
    "interpret", "declare one with @interpret(XInst) in glowpy/ops/"
)
"""`@interpret(XInst)` functions take a Tensor for every operand and the attributes as keywords.

The tensors stand in schema order; their arrays are views into memory. The rule takes the attributes as
keywords; they write the arrays of the outputs in place."""
