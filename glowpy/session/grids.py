"""Grids: which extents a dimension has that is a multiple of a number, or always a number more than one."""

from __future__ import annotations

from dataclasses import dataclass

from glowpy.support.symbolic import Dim, ceil_div, symbol

__all__ = ["Grid"]


@dataclass(frozen=True)
class Grid:
    """Which extents a symbol has: `first`, and each `step` after it, which the symbol `count` counts."""

    count: str
    step: int
    first: int

    def __contains__(self, extent: int) -> bool:
        return extent % self.step == self.first

    def __str__(self) -> str:
        return f"{self.step}*{self.count}" + (f"+{self.first}" if self.first else "")

    def place(self, extent: int) -> int:
        """How many steps lead to an extent."""
        return (extent - self.first) // self.step

    def counted(self, low: int, high: int, likely: int) -> Dim:
        """The number of steps, for extents within bounds, and for the likely one."""
        return symbol(
            self.count, ceil_div(low - self.first, self.step), self.place(high), self.place(likely)
        )
