"""Polynomials with integer factors, as tuples of terms: what atoms are multiplied by each other, and how often.

Atoms are whatever has a hash and a text. A product has its atoms in the order of their texts, the same one several
times for a power. In the canonical form each product occurs once, those with the most atoms come first, the constant
last.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

__all__ = ["Term", "collected", "divided", "multiplied"]

A = TypeVar("A", bound=Hashable)
Term = tuple[tuple[A, ...], int]
"""Atoms and the factor of their product."""

_DIVISIONS = 64
"""Steps of a long division at most; one that has more is left as it stands."""


def collected(terms: Iterable[Term[A]]) -> tuple[Term[A], ...]:
    """The canonical form of a sum; nothing for 0."""
    factors: dict[tuple[A, ...], int] = {}
    for product, factor in terms:
        factors[product] = factors.get(product, 0) + factor
    kept = [(product, factor) for product, factor in factors.items() if factor]
    if len(kept) > 1:
        kept.sort(key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))
    return tuple(kept)


def multiplied(terms: Iterable[Term[A]], others: Iterable[Term[A]]) -> tuple[Term[A], ...]:
    """The product of two sums."""
    factors = tuple(others)
    return collected(
        (_joined(mine, theirs), factor * their_factor)
        for mine, factor in terms
        for theirs, their_factor in factors
    )


def _joined(atoms: tuple[A, ...], others: tuple[A, ...]) -> tuple[A, ...]:
    """The atoms of a product of two, of which one may be a number."""
    return tuple(sorted((*atoms, *others), key=str)) if atoms and others else atoms or others


def divided(
    dividend: Iterable[Term[A]], divisor: tuple[Term[A], ...]
) -> tuple[tuple[Term[A], ...], tuple[Term[A], ...]]:
    """Divides with remainder, by long division by the first term; returns quotient and remainder.

    A constant that is divided by a constant leaves less than that.
    """
    quotient: list[Term[A]] = []
    rest: list[Term[A]] = []
    remainder = collected(dividend)
    for _ in range(_DIVISIONS):
        if not remainder:
            break
        product, factor = remainder[0]
        part = _part(remainder[0], divisor[0])
        if part is not None:
            quotient.append(part)
            remainder = collected((*remainder, *multiplied(((part[0], -part[1]),), divisor)))
        elif not product and not divisor[0][0]:
            quotient.append((product, factor // divisor[0][1]))
            rest.append((product, factor % divisor[0][1]))
            remainder = remainder[1:]
        else:
            rest.append(remainder[0])
            remainder = remainder[1:]
    return collected(quotient), collected((*rest, *remainder))


def _part(term: Term[A], divisor: Term[A]) -> Term[A] | None:
    """The quotient of two terms; None if they do not divide evenly."""
    if term[1] % divisor[1]:
        return None
    left = list(term[0])
    for atom in divisor[0]:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left), term[1] // divisor[1]
