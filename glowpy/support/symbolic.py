"""Symbolic integers: expressions over named extents with bounds, in a canonical form.

A `Dim` is an int, or an `Expr` that depends on `Symbol`s: `seq`, `past+1`, `4*batch`, `div(width-1,2)+1`. Sums,
products, floor division, the least and the greatest of several are again a `Dim`; what does not depend on a symbol
is always an int. Equal expressions have one form, so `==` and hashes compare what they mean:

* a sum of products of *atoms*, with integer factors: a polynomial. `(a+b)*a - a*b` is `a*a`;
* an atom is a symbol, a quotient that does not divide evenly, or the least or the greatest of several.

Whether one is less than another follows from the bounds of their difference, or else it is not known:
`UndecidedError`. `==` between expressions that differ is False, although they may be equal for some extents.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import TypeAlias, final, overload

from glowpy.support.atoms import (
    UNBOUNDED,
    Atom,
    Extreme,
    Quotient,
    Symbol,
    at_extents,
    highest,
    lowest,
)
from glowpy.support.errors import UserError
from glowpy.support.polynomials import Term, collected, divided, multiplied
from glowpy.support.questions import UndecidedError, UnequalError, UnorderedError

__all__ = [
    "UNBOUNDED",
    "Atom",
    "Dim",
    "Expr",
    "Extreme",
    "Quotient",
    "Symbol",
    "UndecidedError",
    "UnequalError",
    "UnorderedError",
    "at_extents",
    "ceil_div",
    "depends_on_symbols",
    "greatest",
    "highest",
    "is_at_most",
    "least",
    "likely_extent",
    "lowest",
    "product",
    "static",
    "substituted",
    "symbol",
    "symbols_of",
]

_Product: TypeAlias = tuple[Atom, ...]
"""Atoms in the order of their texts."""


@final
class Expr:
    """A symbolic integer that depends on at least one symbol. Made by arithmetic, from `symbol` on.

    Raises UndecidedError where it is compared and the bounds do not say the answer.
    """

    def __init__(self, terms: tuple[Term[Atom], ...]) -> None:
        self._terms = terms
        self._hash = hash(terms)

    @property
    def terms(self) -> tuple[Term[Atom], ...]:
        """Products with their factors; the constant, if any, last."""
        return self._terms

    @property
    def _is_constant(self) -> bool:
        """Whether it is a number, as the dividend of a quotient may be."""
        return not self._terms[0][0]

    @cached_property
    def symbol(self) -> Symbol | None:
        """The symbol that it is, if it is nothing else."""
        (atoms, factor), *rest = self._terms
        alone = len(atoms) == factor == 1 and not rest
        return atoms[0] if alone and isinstance(atoms[0], Symbol) else None

    @cached_property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols that it depends on, by name, in the order in which they occur."""
        symbols: dict[str, Symbol] = {}
        for atom in [atom for atoms, _ in self._terms for atom in atoms]:
            symbols |= {atom.name: atom} if isinstance(atom, Symbol) else symbols_of(atom.parts)
        return symbols

    @cached_property
    def bounds(self) -> tuple[int, int]:
        """The lowest and the highest value, where each symbol occurs once; else it may lie further inside."""
        return _bounds(self)

    @property
    def low(self) -> int:
        """A bound from below."""
        return self.bounds[0]

    @property
    def high(self) -> int:
        """A bound from above."""
        return self.bounds[1]

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Expr) and self._hash == other._hash and self._terms == other._terms

    def __repr__(self) -> str:
        """The text of the extent as lists of dimensions have it, which messages show."""
        return self._text

    def __str__(self) -> str:
        return self._text

    @cached_property
    def _text(self) -> str:
        texts = []
        for product, factor in self._terms:
            atoms = "*".join(map(str, product))
            if not product or abs(factor) != 1:
                atoms = "*".join([str(abs(factor)), atoms] if product else [str(abs(factor))])
            texts.append(("-" if factor < 0 else "+") + atoms)
        return "".join(texts).removeprefix("+")

    # Arithmetic.

    def __add__(self, other: Dim) -> Dim:
        if isinstance(other, Expr) or self._is_constant:
            return _sum((*self._terms, *_terms(other)))
        last, constant = self._terms[-1]
        total = other if last else constant + other
        others = self._terms if last else self._terms[:-1]
        return Expr((*others, ((), total)) if total else others)

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return self * -1

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        if isinstance(other, Expr) or other == 0 or self._is_constant:
            return _sum(multiplied(self._terms, _terms(other)))
        # The order of terms does not depend on their factors.
        return (
            self if other == 1 else Expr(tuple([(p, factor * other) for p, factor in self._terms]))
        )

    __rmul__ = __mul__

    def __floordiv__(self, other: Dim) -> Dim:
        return _quotient(self, other)

    def __rfloordiv__(self, other: int) -> Dim:
        return _quotient(other, self)

    def __mod__(self, other: Dim) -> Dim:
        return self - self // other * other

    def __rmod__(self, other: int) -> Dim:
        return other - other // self * self

    # Comparison.

    def __bool__(self) -> bool:
        if self.low > 0 or self.high < 0:
            return True
        raise UnorderedError(0, self)

    def __lt__(self, other: Dim) -> bool:
        return _is_less(self, other)

    def __gt__(self, other: Dim) -> bool:
        return _is_less(other, self)

    def __le__(self, other: Dim) -> bool:
        return not _is_less(other, self)

    def __ge__(self, other: Dim) -> bool:
        return not _is_less(self, other)


Dim: TypeAlias = int | Expr
"""An extent, or a number computed from some."""


def symbol(name: str, low: int = 1, high: int = UNBOUNDED, likely: int = UNBOUNDED) -> Dim:
    """The extent of that name, between the bounds; they themselves are possible. An int where they are equal.

    The likely one is the highest unless it is given. Raises UserError for bounds that no extent is between.
    """
    if not 0 <= low <= high:
        raise UserError(f"symbol '{name}': expected bounds 0 <= low <= high, got {low}..{high}")
    return low if low == high else Expr((((Symbol(name, low, high, min(likely, high)),), 1),))


@overload
def ceil_div(extent: int, step: int) -> int: ...
@overload
def ceil_div(extent: Dim, step: Dim) -> Dim: ...
def ceil_div(extent: Dim, step: Dim) -> Dim:
    """How many steps it takes to cover an extent."""
    return -(-extent // step)


def likely_extent(dim: Dim) -> int:
    """Returns the value of a dimension for the likely extents."""
    return dim if isinstance(dim, int) else _number(_replaced(dim, lambda one: one.likely))


def is_at_most(dim: Dim, other: Dim) -> bool:
    """Whether it is known that one is not larger than another."""
    return lowest(other - dim) >= 0


@overload
def product(dims: Iterable[int]) -> int: ...
@overload
def product(dims: Iterable[Dim]) -> Dim: ...
def product(dims: Iterable[Dim]) -> Dim:
    """The product of some dimensions; 1 of none."""
    total: Dim = 1
    for dim in dims:
        total = total * dim
    return total


def least(*choices: Dim) -> Dim:
    """The least of some numbers."""
    return _extreme("min", choices)


def greatest(*choices: Dim) -> Dim:
    """The greatest of some numbers."""
    return _extreme("max", choices)


def depends_on_symbols(value: object) -> bool:
    """Whether a dimension, or one of several, is symbolic; False for all else."""
    if isinstance(value, tuple):
        return any(isinstance(item, Expr) for item in value)
    return isinstance(value, Expr)


def static(dims: Iterable[Dim]) -> tuple[int, ...]:
    """Returns the dimensions as integers. Raises UndecidedError where one is symbolic."""
    extents = tuple(dims)
    numbers = tuple(dim for dim in extents if not isinstance(dim, Expr))
    if len(numbers) != len(extents):
        shown = " x ".join(map(str, extents))
        raise UndecidedError(f"expected constant extents, got [{shown}]", extents)
    return numbers


def symbols_of(dims: Iterable[Dim]) -> dict[str, Symbol]:
    """The symbols that some dimensions depend on, by name, in the order in which they occur."""
    symbols: dict[str, Symbol] = {}
    for dim in dims:
        if isinstance(dim, Expr):
            symbols |= dim.symbols
    return symbols


def substituted(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dimension with some symbols, given by name, replaced."""
    if isinstance(dim, int):
        return dim
    return _replaced(dim, lambda one: values.get(one.name, Expr((((one,), 1),))))


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def _terms(dim: Dim) -> tuple[Term[Atom], ...]:
    return dim.terms if isinstance(dim, Expr) else (((), dim),)


def _sum(terms: Iterable[Term[Atom]]) -> Dim:
    """The number, or the expression, that a sum of products is."""
    collected_terms = collected(terms)
    if not collected_terms:
        return 0
    return Expr(collected_terms) if collected_terms[0][0] else collected_terms[0][1]


def _reduced(dividend: Expr, divisor: Dim) -> tuple[Dim, Dim] | None:
    """Dividend and divisor without a number or atom that both are multiples of; None if there is none.

    What a constant leaves, divided by that number, is less than 1, and makes no difference to the floor.
    """
    terms = (*_terms(divisor), *dividend.terms)
    number = math.gcd(*(factor for _, factor in _terms(divisor)))
    number = math.gcd(number, *(factor for product, factor in dividend.terms if product))
    if number > 1:
        return dividend // number, divisor // number
    for atom in dict.fromkeys(terms[0][0]):
        if atom.low > 0 and all(atom in product for product, _ in terms):
            one = _sum([((atom,), 1)])
            return _divided(dividend, one)[0], _divided(divisor, one)[0]
    return None


def _divided(dividend: Dim, divisor: Dim) -> tuple[Dim, Dim]:
    """Divides with remainder; returns quotient and remainder."""
    quotient, rest = divided(_terms(dividend), _terms(divisor))
    return _sum(quotient), _sum(rest)


_FEW = 3
"""Terms of a sum that are taken apart in all orders: one may say what another does not."""

_SHORT = 6
"""Atoms of products are taken apart in sums of no more terms."""

_DEEPEST = 8
"""The number of atoms taken apart one after the other, the first two in all orders: time doubles with each."""


@lru_cache(maxsize=1 << 14)
def _bounds(dim: Dim, depth: int = 0) -> tuple[int, int]:
    """Computes the bounds of all terms together, or by taking one atom apart, if that says more."""
    if isinstance(dim, int):
        return dim, dim
    low, high = _sum_of_intervals(dim)
    if len(dim.terms) == 1 or depth == _DEEPEST:
        return low, high
    if (other := _without_least(dim)) != dim:
        return _bounds(other, depth + 1)
    # (a - 1) * b is a * b - b, of which b may be anything unless a counts from 1.
    shifted = _replaced(dim, lambda one: one.low + symbol(one.name, 0, one.high - one.low))
    ends = _sum_of_intervals(shifted) if isinstance(shifted, Expr) else (shifted, shifted)
    low, high = max(low, ends[0]), min(high, ends[1])
    parts = [*_parts(dim, products=depth < 2 and len(dim.terms) <= _SHORT)]
    for atom, factor, rest in parts if len(parts) <= _FEW and depth < 2 else parts[:1]:
        ends = _bounds_apart(atom, factor, rest, depth + 1)
        low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def _without_least(dim: Expr) -> Dim:
    """Replaces min(a, b) by a + b - max(a, b) where max(a, b) occurs as well: both follow from one of them.

    The one may be of choices that are as much more than those of the other.
    """
    atoms = {atom for factors, _ in dim.terms for atom in factors if isinstance(atom, Extreme)}
    pairs = [atom for atom in atoms if len(atom.choices) == 2]
    others: dict[Atom, Dim] = {}
    for minimum in (atom for atom in pairs if atom.name == "min"):
        for maximum in (atom for atom in pairs if atom.name == "max"):
            (a, b), (c, d) = minimum.choices, maximum.choices
            if a - c == b - d or a - d == b - c:
                others[minimum] = (
                    a + b - _sum([((maximum,), 1)]) - (a - c if a - c == b - d else a - d)
                )
    if not others:
        return dim
    total: Dim = 0
    for factors, number in dim.terms:
        parts = (others[atom] if atom in others else _sum([((atom,), 1)]) for atom in factors)
        total += number * product(parts)
    return total


def _parts(dim: Expr, *, products: bool) -> Iterator[tuple[Quotient | Extreme, Dim, Dim]]:
    """The atoms that may be taken apart, what each is multiplied by, and what is added to that.

    Those that are multiplied by numbers come first, others only if `products` are asked for.
    """
    atoms = [
        atom
        for factors, _ in sorted(dim.terms, key=lambda term: len(term[0]))
        for atom in (factors if products else factors[: len(factors) == 1])
    ]
    for atom in dict.fromkeys(atoms):
        concerned = [term for term in dim.terms if atom in term[0]]
        if isinstance(atom, Symbol) or any(factors.count(atom) > 1 for factors, _ in concerned):
            continue
        if products or all(len(factors) == 1 for factors, _ in concerned):
            others = [
                (tuple(factor for factor in p if factor != atom), number) for p, number in concerned
            ]
            yield atom, _sum(others), _sum(term for term in dim.terms if term not in concerned)


def _bounds_apart(atom: Quotient | Extreme, factor: Dim, rest: Dim, depth: int) -> tuple[int, int]:
    """Computes the bounds of a sum by taking an atom apart, where the sign of its factor is known."""
    low, high = _bounds(factor, depth)
    if low < 0 < high:
        return -UNBOUNDED, UNBOUNDED
    if isinstance(atom, Extreme):
        sums = [_bounds(rest + factor * choice, depth) for choice in atom.choices]
        choose = min if (atom.name == "min") == (low >= 0) else max
        return choose(low for low, _ in sums), choose(high for _, high in sums)
    # The quotient times its divisor is the dividend less a remainder, which is below the divisor.
    scale = atom.divisor
    quotient, remainder = _divided(factor, scale)
    if remainder == 0:
        scale, factor = 1, quotient
    most = scale * rest + factor * atom.dividend
    least = most - factor * (atom.divisor - 1)
    if low < 0:
        least, most = most, least
    low, high = _bounds(least, depth)[0], _bounds(most, depth)[1]
    narrow, wide = lowest(scale), highest(scale)
    return -(-low // (wide if low > 0 else narrow)), high // (wide if high < 0 else narrow)


def _sum_of_intervals(dim: Expr) -> tuple[int, int]:
    low = high = 0
    for product, factor in dim.terms:
        ends = _interval(product, factor)
        low, high = low + ends[0], high + ends[1]
    return low, high


def _interval(product: _Product, factor: int) -> tuple[int, int]:
    low = high = factor
    for atom in product:
        ends = [end * other for end in (low, high) for other in (atom.low, atom.high)]
        low, high = min(ends), max(ends)
    return low, high


def _is_less(left: Dim, right: Dim) -> bool:
    difference = right - left
    if lowest(difference) > 0:
        return True
    if highest(difference) <= 0:
        return False
    raise UnorderedError(left, right)


def _replaced(dim: Dim, value: Callable[[Symbol], Dim]) -> Dim:
    """The dimension where `value` says what symbols are."""
    if isinstance(dim, int):
        return dim
    parts = [f * product([_atom_at(atom, value) for atom in atoms]) for atoms, f in dim.terms]
    return parts[0] if len(parts) == 1 else _sum(term for part in parts for term in _terms(part))


def _atom_at(atom: Atom, value: Callable[[Symbol], Dim]) -> Dim:
    match atom:
        case Symbol():
            return value(atom)
        case Quotient(dividend, divisor):
            return _replaced(dividend, value) // _replaced(divisor, value)
        case Extreme(name, choices):
            return _extreme(name, [_replaced(choice, value) for choice in choices])


def _extreme(name: str, choices: Iterable[Dim]) -> Dim:
    """Drops choices that the bounds, or another choice, rule out, and symbols that all have in common.

    So `seq + max(0, 256 - seq)` is `max(256, seq)`.
    """
    spread: list[Dim] = []
    for choice in choices:
        spread += [dim for dim in _choices_of(name, choice) if dim not in spread]
    distinct: list[Dim] = []
    for index, dim in enumerate(spread):
        others = [*distinct, *spread[index + 1 :]]
        if not any(_rules_out(name, other, dim) for other in others):
            distinct.append(dim)
    if len(distinct) == 1:
        return distinct[0]
    common = _common(distinct)
    differences = sorted((dim - common for dim in distinct), key=str)
    return common + Expr((((Extreme(name, tuple(differences)),), 1),))


def _rules_out(name: str, other: Dim, dim: Dim) -> bool:
    """Whether `other` is never worse than `dim`."""
    return lowest(dim - other if name == "min" else other - dim) >= 0


def _choices_of(name: str, dim: Dim) -> list[Dim]:
    """The choices that one that is itself the least, or the greatest, stands for, each with what is added to it."""
    for term in _terms(dim):
        match term:
            case (Extreme(own, choices),), 1 if own == name:
                rest = dim - _sum([term])
                return [rest + choice for choice in choices]
    return [dim]


def _common(dims: Sequence[Dim]) -> Dim:
    """The sum in which each symbol is as often as in the sum that has it least often by itself."""
    factors = [
        {p: factor for p, factor in _terms(dim) if len(p) == 1 and isinstance(p[0], Symbol)}
        for dim in dims
    ]
    products = dict.fromkeys(product for terms in factors for product in terms)
    return _sum((p, min(terms.get(p, 0) for terms in factors)) for p in products)


def _begins_negative(dim: Dim) -> bool:
    return isinstance(dim, Expr) and dim.terms[0][1] < 0


def _quotient(dividend: Dim, divisor: Dim) -> Dim:
    """The floor of a quotient. Raises UndecidedError unless the divisor is known to be positive."""
    if lowest(divisor) < 1:
        raise UnorderedError(0, divisor)
    quotient, rest = _divided(dividend, divisor)
    if lowest(rest) >= 0 and lowest(divisor - rest) > 0:
        return quotient
    if isinstance(divisor, int) and lowest(rest) // divisor == highest(rest) // divisor:
        return quotient + lowest(rest) // divisor
    if _begins_negative(rest):
        flipped = divisor - 1 - rest
        if not _begins_negative(_divided(flipped, divisor)[1]):  # which would be flipped back
            return quotient - _quotient(flipped, divisor)
    if isinstance(rest, Expr) and (smaller := _reduced(rest, divisor)) is not None:
        return quotient + _quotient(*smaller)
    if isinstance(rest, Expr) and isinstance(divisor, int):
        first, factor = rest.terms[0]
        constant = rest - _sum([rest.terms[0]])
        if isinstance(constant, int) and factor == 1 and isinstance(first[0], Quotient):
            inner = first[0]
            if len(first) == 1 and isinstance(inner.divisor, int):
                return quotient + (inner.dividend + constant * inner.divisor) // (
                    inner.divisor * divisor
                )
    dividend = rest if isinstance(rest, Expr) else Expr((((), rest),))
    return quotient + Expr((((Quotient(dividend, divisor),), 1),))
