"""Peaks of a machine: how many operations it does in a second, and how many bytes come from where.

What is read again after so many bytes comes from the cache that has room for as many: the bandwidth for a size serves
as the roof for data with that distance from their last use. See Williams, Waterman, Patterson, "Roofline: an insightful
visual performance model" (2009).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from glowpy.core.elemkind import ElemKind

__all__ = ["Access", "Peaks"]

Access = Literal["read", "write"]


@dataclass(frozen=True)
class Peaks:
    """The most that some threads of a machine do in a second.

    Attributes:
        threads: How many threads did it together.
        flops: Operations on f32, a multiply-add being two.
        read: Bytes, for memory of each size (of one thread) that is read again and again: pairs that ascend.
        write: The same for writing.
        factors: Operations on other kinds than f32 in the same time, as multiples.
    """

    threads: int
    flops: float
    read: tuple[tuple[int, float], ...]
    write: tuple[tuple[int, float], ...]
    factors: Mapping[ElemKind, float] = field(default_factory=dict, compare=False)

    def bandwidth(self, access: Access, distance: float) -> float:
        """Bytes a second of data last used `distance` bytes of other data ago: between sizes, by its logarithm."""
        sizes, rates = zip(*(self.read if access == "read" else self.write), strict=True)
        share = max(distance, 1.0) / self.threads
        return float(np.interp(np.log2(share), np.log2(sizes), rates))

    def flops_of(self, kind: ElemKind) -> float:
        """Returns the peak of products whose input is of a kind: that of f32 where no other is known."""
        return self.flops * self.factors.get(kind, 1.0)

    @property
    def memory(self) -> float:
        """Bytes a second that are read from memory, or from the largest cache if that holds the largest size."""
        return self.read[-1][1]
