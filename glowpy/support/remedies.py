"""Remedies where the bounds of dimensions leave open what has to be known."""

from __future__ import annotations

import shlex
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice, permutations

from glowpy.support.symbolic import (
    Dim,
    Expr,
    Quotient,
    Symbol,
    UndecidedError,
    ceil_div,
    highest,
    lowest,
    substituted,
    symbol,
    symbols_of,
)
from glowpy.support.text import symbol_name

__all__ = ["divisors", "known_from", "remedied", "remedy", "solutions", "spelled_dims"]

_MANY = 64
"""Larger divisors are not tried."""


def remedied(error: UndecidedError, dims: Mapping[str, Dim]) -> dict[str, Dim]:
    """The dimensions that have to be others, and what they have to be; none where that is not known."""
    changes = remedy(error)
    others = {name: substituted(dim, changes) for name, dim in dims.items()}
    return {
        name: dim
        for name, dim in others.items()
        if spelled_dims({name: dim}) != spelled_dims({name: dims[name]})
    }


def remedy(error: UndecidedError) -> dict[str, Dim]:
    """Finds a remedy for one symbol: an expression of others, a multiple, or a higher bound; empty if there is none."""
    question = error.question
    if question is None:
        return {}
    if question.relation == "less":
        return _raised(question.left, question.right)
    difference = question.left - question.right
    return dict(islice(solutions(difference), 1)) or _multiple(difference)


def spelled_dims(dims: Mapping[str, Dim], known: Iterable[Dim] = ()) -> list[str]:
    """Spells dimensions as --shape takes them: `seq=1..64`, `total=past+seq`; then unknown ones that they need."""
    texts = {}
    names = {*symbols_of(known)}
    for name, dim in dims.items():
        one = dim.symbol if isinstance(dim, Expr) else None
        if one is None or one.name != symbol_name(name):
            texts[name] = str(dim)
        else:
            texts[name] = f"{one.low}..{one.high}"
            names.add(one.name)
    rest = [extent for name, extent in symbols_of(dims.values()).items() if name not in names]
    return [
        *(f"{name}={text}" for name, text in texts.items()),
        *(f"{extent.name}={extent.low}..{extent.high}" for extent in rest),
    ]


def solutions(difference: Dim) -> Iterator[tuple[str, Dim]]:
    """The symbols of a difference, and what each is where that is 0, if that follows and is never negative.

    Last come those that are another symbol then.
    """
    symbols = symbols_of([difference])
    for name in symbols:
        meaning = _solved_for(difference, name)
        if meaning is None and symbols[name].high == 1 and _is_never_0(difference, name):
            meaning = 1
        if meaning is not None and lowest(meaning) >= 0:
            yield name, meaning
    for name, other in permutations(symbols, 2):
        extent = symbols[other]
        meaning = symbol(other, extent.low, extent.high, extent.likely)
        if substituted(difference, {name: meaning}) == 0:
            yield name, meaning


def _is_never_0(difference: Dim, name: str) -> bool:
    """Whether a difference is never 0 where a symbol is."""
    rest = substituted(difference, {name: 0})
    return lowest(rest) > 0 or highest(rest) < 0


def _multiple(difference: Dim) -> dict[str, Dim]:
    for name, extent in symbols_of([difference]).items():
        for step in divisors(difference, extent):
            for first in range(min(step, _MANY)):
                low, high = ceil_div(extent.low - first, step), (extent.high - first) // step
                if low > high:
                    continue
                dim = step * symbol(f"{name}_{step}", low, high) + first
                if substituted(difference, {name: dim}) == 0:
                    return {name: dim}
    return {}


def _raised(left: Dim, right: Dim) -> dict[str, Dim]:
    for name, extent in symbols_of([left, right]).items():
        low = known_from(left, right, extent, extent.high)
        if low is not None:
            return {name: symbol(name, low, extent.high)}
    return {}


def known_from(left: Dim, right: Dim, one: Symbol, highest_low: int) -> int | None:
    """The least lower bound of a symbol, above its own, by which it is known whether one dimension is less.

    None that is more than `highest_low`, or than the symbol's upper bound.
    """
    most = min(highest_low, one.high)

    def is_known(low: int) -> bool:
        difference = substituted(right - left, {one.name: symbol(one.name, low, one.high)})
        return lowest(difference) > 0 or highest(difference) <= 0

    low = bisect_left(range(most + 1), True, lo=min(one.low, most) + 1, key=is_known)
    return low if low <= most else None


def divisors(dim: Dim, one: Symbol) -> list[int]:
    """Returns the divisors of the quotients in a sum that depend on a symbol, in ascending order."""
    terms = dim.terms if isinstance(dim, Expr) else ()
    quotients = [atom for atoms, _ in terms for atom in atoms if isinstance(atom, Quotient)]
    numbers = {q.divisor for q in quotients if one.name in symbols_of([q.dividend])}
    return sorted(number for number in numbers if isinstance(number, int))


def _solved_for(difference: Dim, name: str) -> Dim | None:
    """Solves for a symbol the equation that a difference is 0, if that is a sum with the symbol once, by itself."""
    if not isinstance(difference, Expr):
        return None
    factor = 0
    rest: Dim = difference
    for atoms, count in difference.terms:
        if len(atoms) == 1 and isinstance(atoms[0], Symbol) and atoms[0].name == name:
            factor = count
            rest = difference - Expr(((atoms, count),))
    if factor not in (1, -1) or name in symbols_of([rest]):
        return None
    return -factor * rest


def advice(changes: Mapping[str, Dim], dims: Mapping[str, Dim]) -> str:
    """Options to type for dimensions that have to change."""
    texts = spelled_dims(changes, dims.values())
    options = " ".join(f"--shape {shlex.quote(text)}" for text in texts)
    return f"say what {' and '.join(map(repr, changes))} may be: {options}"
