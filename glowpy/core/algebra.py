"""Algebraic facts about operators, declared in the specs: what passes ask for in place of lists of operators."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np

from glowpy.core.elemkind import ElemKind
from glowpy.core.tensor import Array

__all__ = ["NO_ALGEBRA", "Algebra", "Channels"]


@dataclass(frozen=True, slots=True)
class Algebra:
    """Facts about an operator, all but `bounds` about an element-wise one; all but `affine` are exact for every value.

    For floats they hold to the bit, NaN, infinities and -0 included. Where a fact differs between
    element kinds, it is said for their families `float`, `int` and `bool`. As an integer, -1 has all
    bits of its kind, and an infinity is the greatest or the least value.
    """

    neutral: Mapping[str, float] = field(default_factory=dict, hash=False)
    """`x op neutral` is x."""
    absorbing: Mapping[str, float] = field(default_factory=dict, hash=False)
    """`x op absorbing` is absorbing."""
    associative: tuple[str, ...] = ()
    """The families for which `(x op y) op z` is `x op (y op z)`. Integers wrap."""
    combine: Callable[[Array, Array], Array] | None = None
    """Computes an associative operator on arrays."""
    involution: bool = False
    """`op(op(x))` is x."""
    idempotent: bool = False
    """`x op x` is x; with one operand, `op(op(x))` is `op(x)`."""
    affine: tuple[int, int] | None = None
    """(power, sign): `x op c` would be `x * c**power + sign * c`, were numbers real.

    With the power 0 that is exact for integers, which wrap.
    """
    bounds: tuple[float, float] | None = None
    """The least and the greatest number that the result ever is, whatever it is computed from; NaN is no number."""

    def neutral_of(self, kind: ElemKind) -> Array | None:
        """The neutral element of `kind`, an array of rank 0; None if there is none."""
        return _element(self.neutral.get(kind.family), kind)

    def absorbing_of(self, kind: ElemKind) -> Array | None:
        """The absorbing element of `kind`, an array of rank 0; None if there is none."""
        return _element(self.absorbing.get(kind.family), kind)


NO_ALGEBRA = Algebra()
"""Nothing is known."""


def _element(value: float | None, kind: ElemKind) -> Array | None:
    if value is None:
        return None
    if kind.is_integer and math.isinf(value):
        limits = np.iinfo(kind.dtype.name)
        return np.asarray(limits.max if value > 0 else limits.min, kind.dtype)
    return np.asarray(value).astype(kind.dtype)


@dataclass(frozen=True, slots=True)
class Channels:
    """Channels of an operator that is linear in its input `weights`, plus its input `bias`.

    Channel c of the result depends on `bias[c]` and on slice c of `weights`
    along the dimension `axis`, and on no other slice.
    """

    weights: str
    axis: int
    bias: str
    along: str = ""
    """The attribute that says which dimension of the result the channels are; without one they are the last."""

    def are_last(self, attrs: Mapping[str, object], rank: int) -> bool:
        """Whether the channels of a result of `rank` dimensions are the last dimension."""
        return not self.along or attrs[self.along] == rank - 1
