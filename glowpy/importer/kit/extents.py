"""Arithmetic of numbers that depend on symbolic extents: integers, and floats that are exact or quotients of what is.

Readers compute shapes with it while they import, as a network would that knew its extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TypeAlias

from glowpy.core.elemkind import ElemKind
from glowpy.importer.kit.values import Ratio
from glowpy.support.symbolic import (
    Dim,
    Expr,
    Extreme,
    Quotient,
    UndecidedError,
    greatest,
    highest,
    is_at_most,
    least,
    lowest,
)

__all__ = [
    "EXACT",
    "Real",
    "chosen",
    "exact_ratio",
    "fraction",
    "is_equal",
    "is_small",
    "magnitude",
    "of_fractions",
    "quotient",
    "real",
    "real_quotient",
    "remainder",
    "rounded",
    "slice_bounds",
    "truncated",
]

_MOST_FACTORS = 1 << 8
"""Longer expressions are computed at run time, as are numbers that wrap: a model may square one again and again."""


def is_small(item: object, kind: ElemKind) -> bool:
    """Whether the kind, and i64, hold a number, whatever its symbols are, and its expression is short."""
    dim = item.dividend if isinstance(item, Ratio) else item
    if isinstance(dim, bool) or not isinstance(dim, int | Expr):
        return True
    least, most = (kind if kind.is_integer else ElemKind.I64).limits
    return _factors(dim) <= _MOST_FACTORS and least <= lowest(dim) and highest(dim) <= most


def _factors(item: Dim) -> int:
    """How many factors an expression has, those in its quotients and extremes included."""
    if not isinstance(item, Expr):
        return 0
    total = 0
    for atom in [atom for atoms, _ in item.terms for atom in atoms]:
        match atom:
            case Quotient():
                total += _factors(atom.dividend) + _factors(atom.divisor)
            case Extreme():
                # Which bounds extremes of extremes have takes time that doubles with each.
                total += 2 * sum(map(_factors, atom.choices))
            case _:
                total += 1
    return total


EXACT = {
    ElemKind.F16: 1 << 11,
    ElemKind.BF16: 1 << 8,
    ElemKind.F32: 1 << 24,
    ElemKind.F64: 1 << 53,
}
"""Up to where floats are all integers; quotients of what is less round to an integer only if they are one."""

Real: TypeAlias = "Dim | float | Ratio"
"""A float: exact, or a quotient of what is exact, which rounds once."""


def fraction(number: Real) -> tuple[Dim, int]:
    """Dividend and divisor. Raises UndecidedError for what only rounding makes."""
    if isinstance(number, Ratio):
        return number.dividend, number.divisor
    if isinstance(number, int | Expr):
        return number, 1
    wide = float(number)  # halves come as scalars of numpy's
    if not math.isfinite(wide) or wide.as_integer_ratio()[1] > _MOST_DIVIDED:
        raise UndecidedError(f"{wide} is no simple fraction", [])
    return wide.as_integer_ratio()


def exact_ratio(number: Real) -> tuple[Dim, int]:
    """Dividend and divisor of what no float has rounded yet: the divisor is a power of 2."""
    dividend, divisor = fraction(number)
    if divisor & (divisor - 1):
        raise UndecidedError(f"{number} is rounded", [dividend])
    return dividend, divisor


_MOST_DIVIDED = 1 << 10
"""The largest divisor of a fraction."""


def real(dividend: Dim, divisor: int) -> Real:
    """A quotient in lowest terms: a float where it is known."""
    if isinstance(dividend, int):
        return dividend / divisor
    common = math.gcd(divisor, *(factor for _, factor in dividend.terms))
    dividend, divisor = dividend // common, divisor // common
    return dividend if divisor == 1 else Ratio(dividend, divisor)


def of_fractions(compute: Callable[[Dim, int, Dim, int], Real]) -> Callable[..., Real]:
    """Makes a function of two floats of one of their dividends and divisors."""
    return lambda left, right: compute(*exact_ratio(left), *exact_ratio(right))


def real_quotient(a: Dim, b: int, c: Dim, d: int) -> Real:
    """The quotient of `a / b` and `c / d`. Raises UndecidedError unless the divisor is a positive constant."""
    if not isinstance(c, int) or c < 1:
        raise UndecidedError(f"expected a positive constant as divisor, got {c}", [a, c])
    return real(a * d, b * c)


def chosen(choose: Callable[..., Dim]) -> Callable[..., Real]:
    """The least, or the greatest, of several."""

    def choice(*numbers: Real) -> Real:
        pairs = [exact_ratio(number) for number in numbers]
        divisor = max(divisor for _, divisor in pairs)
        return real(
            choose(*(dim * (divisor // denominator) for dim, denominator in pairs)), divisor
        )

    return choice


def rounded(number: Real, function: Callable[[Dim, int], Dim]) -> Real:
    """A float that a function of dividend and divisor makes whole."""
    result = function(*fraction(number))
    return float(result) if isinstance(result, int) else result


def truncated(dividend: Dim, divisor: Dim) -> Dim:
    """A quotient without its fraction. The divisor is positive."""
    if divisor == 1 or lowest(dividend) >= 0:
        return dividend // divisor
    if highest(dividend) > 0:
        raise UndecidedError(f"{dividend} may be negative", [dividend])
    return -(-dividend // divisor)


def quotient(dividend: Dim, divisor: Dim) -> Dim:
    """Integers are divided towards zero, which is the floor of what is not negative."""
    if lowest(divisor) < 1:
        raise UndecidedError(f"{divisor} may be negative or zero", [dividend, divisor])
    return truncated(dividend, divisor)


def remainder(dividend: Dim, divisor: Dim) -> Dim:
    """Computes the remainder of a floor division: it has the sign of the divisor."""
    if lowest(divisor) < 1:
        raise UndecidedError(f"{divisor} may be negative or zero", [dividend, divisor])
    return dividend % divisor


def magnitude(dim: Dim) -> Dim:
    """The absolute value."""
    return dim if lowest(dim) >= 0 else greatest(dim, -dim, 0)


def is_equal(left: Dim, right: Dim) -> bool:
    """Whether two numbers are the same. Raises UndecidedError where that depends on the extents."""
    if left == right:
        return True
    if is_at_most(left + 1, right) or is_at_most(right + 1, left):
        return False
    raise UndecidedError(f"it is not known whether {left} is {right}", [left, right])


def slice_bounds(start: Dim, end: Dim, step: int, size: Dim) -> tuple[Dim, Dim]:
    """The first element of a slice of `size` elements and how many it has, as ONNX clamps and counts.

    As in Python, but that a slice in reverse begins with the first element where it would begin before that.

    Raises UndecidedError where bounds of symbols do not say on which side of zero an end lies.
    """
    low, high = (0, size) if step > 0 else (-1, size - 1)

    def clamped(place: Dim, lowest_place: Dim) -> Dim:
        place = place + size if place < 0 else place
        return greatest(least(place, high), lowest_place)

    first, last = clamped(start, least(0, high)), clamped(end, low)
    distance, stride = (last - first, step) if step > 0 else (first - last, -step)
    return first, greatest(-(-distance // stride), 0)
