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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import TypeAlias, final, overload

from glowpy.support.errors import UserError

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

UNBOUNDED = 1 << 40
"""The highest extent of a symbol without a bound: more than any tensor has elements."""


@dataclass(frozen=True, slots=True)
class Symbol:
    """A named extent and its bounds, both of which it may have.

    Code is made for the likely extent, of the others it only has to be right.
    """

    name: str
    low: int = 1
    high: int = UNBOUNDED
    likely: int = UNBOUNDED

    def __str__(self) -> str:
        return self.name

    def at(self, value: Callable[[Symbol], Dim]) -> Dim:
        """What it is where `value` says what symbols are."""
        return value(self)


@dataclass(frozen=True, slots=True)
class Quotient:
    """The floor of a quotient of expressions; the divisor is positive."""

    dividend: Expr
    divisor: Dim

    @property
    def low(self) -> int:
        """The least that it can be."""
        return min(
            self.dividend.low // end for end in (lowest(self.divisor), highest(self.divisor))
        )

    @property
    def high(self) -> int:
        """The most that it can be."""
        return max(
            self.dividend.high // end for end in (lowest(self.divisor), highest(self.divisor))
        )

    def __str__(self) -> str:
        return f"div({self.dividend},{self.divisor})"

    def at(self, value: Callable[[Symbol], Dim]) -> Dim:
        """What it is where `value` says what symbols are."""
        return _replaced(self.dividend, value) // _replaced(self.divisor, value)

    def number(self, extents: Mapping[str, int]) -> int:
        """What it is for these extents."""
        return at_extents(self.dividend, extents) // at_extents(self.divisor, extents)


@dataclass(frozen=True, slots=True)
class Extreme:
    """The least (`min`) or the greatest (`max`) of several, in the order of their texts."""

    name: str
    choices: tuple[Dim, ...]

    @property
    def low(self) -> int:
        """The least that it can be."""
        return (min if self.name == "min" else max)(map(lowest, self.choices))

    @property
    def high(self) -> int:
        """The most that it can be."""
        return (min if self.name == "min" else max)(map(highest, self.choices))

    def __str__(self) -> str:
        return f"{self.name}({','.join(map(str, self.choices))})"

    def at(self, value: Callable[[Symbol], Dim]) -> Dim:
        """What it is where `value` says what symbols are."""
        return _extreme(self.name, [_replaced(choice, value) for choice in self.choices])

    def number(self, extents: Mapping[str, int]) -> int:
        """What it is for these extents."""
        return (min if self.name == "min" else max)(
            at_extents(dim, extents) for dim in self.choices
        )


Atom: TypeAlias = Symbol | Quotient | Extreme
"""What sums of products are made of."""
_Product: TypeAlias = tuple[Atom, ...]
"""Atoms in the order of their texts; the same one several times is a power."""


_DIVISIONS = 64
"""Steps of a long division at most; one that has more is left as it stands."""


class UndecidedError(UserError):
    """Something has to be known of a symbolic extent that its bounds do not say.

    Attributes:
        symbols: The names of the symbols on which it depends.
    """

    def __init__(self, message: str, dims: Iterable[Dim]) -> None:
        self.symbols = tuple(symbols_of(dims))
        names = " or ".join(f"'{name}'" for name in self.symbols)
        note = f"give {names} one extent, or closer bounds" if names else ""
        super().__init__(message, note=note)


class UnequalError(UndecidedError):
    """Two symbolic extents have to be equal, and are not for all extents of their symbols.

    Attributes:
        pair: The two.
    """

    def __init__(self, dim: Dim, other: Dim) -> None:
        super().__init__(f"expected equal extents, got {dim} and {other}", [dim, other])
        self.pair = dim, other


class UnorderedError(UndecidedError):
    """One symbolic extent is less than another for some extents of their symbols, and not for others.

    Attributes:
        pair: The two.
    """

    def __init__(self, left: Dim, right: Dim) -> None:
        super().__init__(f"it is not known whether {left} < {right}", [left, right])
        self.pair = left, right


@final
class Expr:
    """A symbolic integer that depends on at least one symbol. Made by arithmetic, from `symbol` on.

    Raises UndecidedError where it is compared and the bounds do not say the answer.
    """

    def __init__(self, terms: tuple[tuple[_Product, int], ...]) -> None:
        self._terms = terms
        self._hash = hash(terms)

    @property
    def terms(self) -> tuple[tuple[_Product, int], ...]:
        """Products with their factors; the constant, if any, last."""
        return self._terms

    @cached_property
    def symbol(self) -> Symbol | None:
        """The symbol that it is, if it is nothing else."""
        (atoms, factor), *rest = self._terms
        alone = len(atoms) == factor == 1 and not rest
        return atoms[0] if alone and isinstance(atoms[0], Symbol) else None

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
        return f"<Expr {self}>"

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
        return _sum((*self._terms, *_terms(other)))

    __radd__ = __add__

    def __neg__(self) -> Dim:
        return _sum((product, -factor) for product, factor in self._terms)

    def __sub__(self, other: Dim) -> Dim:
        return self + -other

    def __rsub__(self, other: int) -> Dim:
        return -self + other

    def __mul__(self, other: Dim) -> Dim:
        return _sum(
            (tuple(sorted((*mine, *theirs), key=str)) if theirs else mine, factor * their_factor)
            for mine, factor in self._terms
            for theirs, their_factor in _terms(other)
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


def lowest(dim: Dim) -> int:
    """A bound of a dimension from below."""
    return dim.low if isinstance(dim, Expr) else dim


def highest(dim: Dim) -> int:
    """A bound of a dimension from above."""
    return dim.high if isinstance(dim, Expr) else dim


@overload
def ceil_div(extent: int, step: int) -> int: ...
@overload
def ceil_div(extent: Dim, step: Dim) -> Dim: ...
def ceil_div(extent: Dim, step: Dim) -> Dim:
    """How many steps it takes to cover an extent."""
    return -(-extent // step)


def likely_extent(dim: Dim) -> int:
    """What a dimension is for the likely extents."""
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
    """The same dimensions. Raises UndecidedError where one is symbolic."""
    chosen = tuple(dims)
    numbers = tuple(dim for dim in chosen if not isinstance(dim, Expr))
    if len(numbers) != len(chosen):
        shown = " x ".join(map(str, chosen))
        raise UndecidedError(f"expected constant extents, got [{shown}]", chosen)
    return numbers


def symbols_of(dims: Iterable[Dim]) -> dict[str, Symbol]:
    """The symbols that some dimensions depend on, by name, in the order in which they occur."""
    found: dict[str, Symbol] = {}

    def note(one: Symbol) -> Dim:
        found[one.name] = one
        return one.high

    for dim in dims:
        _replaced(dim, note)
    return found


def substituted(dim: Dim, values: Mapping[str, Dim]) -> Dim:
    """The dimension with some symbols, given by name, replaced."""
    if isinstance(dim, int):
        return dim
    return _replaced(dim, lambda one: values.get(one.name, Expr((((one,), 1),))))


def at_extents(dim: Dim, extents: Mapping[str, int]) -> int:
    """The number that a dimension is for these extents. Raises KeyError for a symbol that is not among them."""
    if isinstance(dim, int):
        return dim
    total = 0
    for atoms, factor in dim.terms:
        for atom in atoms:
            factor *= extents[atom.name] if isinstance(atom, Symbol) else atom.number(extents)
        total += factor
    return total


def _number(dim: Dim) -> int:
    assert isinstance(dim, int)
    return dim


def _terms(dim: Dim) -> tuple[tuple[_Product, int], ...]:
    return dim.terms if isinstance(dim, Expr) else (((), dim),)


def _sum(terms: Iterable[tuple[_Product, int]]) -> Dim:
    """The canonical form: each product once, those with the most atoms first, the constant last."""
    factors: dict[_Product, int] = {}
    for product, factor in terms:
        factors[product] = factors.get(product, 0) + factor
    kept = [(product, factor) for product, factor in factors.items() if factor]
    if not any(product for product, _ in kept):
        return kept[0][1] if kept else 0
    if len(kept) > 1:
        kept.sort(key=lambda term: (-len(term[0]), [str(atom) for atom in term[0]]))
    return Expr(tuple(kept))


_FEW = 3
"""Terms of a sum that are taken apart in all orders: one may say what another does not."""

_DEEPEST = 8
"""So many atoms are taken apart one after the other, the first two in all orders: time doubles with each."""


@lru_cache(maxsize=1 << 14)
def _bounds(dim: Dim, depth: int = 0) -> tuple[int, int]:
    """Those of all terms together, or what follows from taking one atom apart, if that says more."""
    if isinstance(dim, int):
        return dim, dim
    low, high = _sum_of_intervals(dim)
    if len(dim.terms) == 1 or depth == _DEEPEST:
        return low, high
    # (a - 1) * b is a * b - b, of which b may be anything unless a counts from 1.
    shifted = _replaced(dim, lambda one: one.low + symbol(one.name, 0, one.high - one.low))
    ends = _sum_of_intervals(shifted) if isinstance(shifted, Expr) else (shifted, shifted)
    low, high = max(low, ends[0]), min(high, ends[1])
    parts = [(atoms[0], factor) for atoms, factor in dim.terms if len(atoms) == 1]
    parts = [(atom, factor) for atom, factor in parts if not isinstance(atom, Symbol)]
    for atom, factor in parts if len(parts) <= _FEW and depth < 2 else parts[:1]:
        rest = dim - _sum([((atom,), factor)])
        if isinstance(atom, Extreme):
            sums = [_bounds(rest + factor * choice, depth + 1) for choice in atom.choices]
            choose = min if (atom.name == "min") == (factor > 0) else max
            ends = choose(end for end, _ in sums), choose(end for _, end in sums)
        elif isinstance(atom, Quotient) and isinstance(atom.divisor, int):
            scaled = _bounds(rest * atom.divisor + factor * atom.dividend, depth + 1)
            ends = _bounds_of_quotient(scaled, factor, atom.divisor)
        low, high = max(low, ends[0]), min(high, ends[1])
    return low, high


def _sum_of_intervals(dim: Expr) -> tuple[int, int]:
    low = high = 0
    for product, factor in dim.terms:
        ends = _interval(product, factor)
        low, high = low + ends[0], high + ends[1]
    return low, high


def _bounds_of_quotient(scaled: tuple[int, int], factor: int, divisor: int) -> tuple[int, int]:
    """Those of factor * quotient + rest, which times the divisor is `scaled` less a remainder below the divisor."""
    remainder = factor * (divisor - 1)
    low, high = scaled[0] - max(remainder, 0), scaled[1] - min(remainder, 0)
    return -(-low // divisor), high // divisor


def _interval(product: _Product, factor: int) -> tuple[int, int]:
    low = high = factor
    for atom in product:
        ends = [one * other for one in (low, high) for other in (atom.low, atom.high)]
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
    total: Dim = 0
    for atoms, factor in dim.terms:
        total = total + factor * product(atom.at(value) for atom in atoms)
    return total


def _extreme(name: str, choices: Iterable[Dim]) -> Dim:
    """Without those that the bounds, or another choice, rule out."""
    spread: list[Dim] = []
    for choice in choices:
        atom = _only_atom(choice)
        inner = atom.choices if isinstance(atom, Extreme) and atom.name == name else (choice,)
        spread += [dim for dim in inner if dim not in spread]
    kept: list[Dim] = []
    for index, dim in enumerate(spread):
        others = [*kept, *spread[index + 1 :]]
        if not any(_rules_out(name, other, dim) for other in others):
            kept.append(dim)
    if len(kept) == 1:
        return kept[0]
    return Expr((((Extreme(name, tuple(sorted(kept, key=str))),), 1),))


def _rules_out(name: str, other: Dim, dim: Dim) -> bool:
    """Whether `other` is never worse than `dim`."""
    return lowest(dim - other if name == "min" else other - dim) >= 0


def _only_atom(dim: Dim) -> Atom | None:
    if isinstance(dim, Expr) and len(dim.terms) == 1:
        product, factor = dim.terms[0]
        if len(product) == 1 and factor == 1:
            return product[0]
    return None


def _quotient(dividend: Dim, divisor: Dim) -> Dim:
    """The floor of a quotient. Raises UndecidedError unless the divisor is known to be positive."""
    if lowest(divisor) < 1:
        raise UnorderedError(0, divisor)
    whole, rest = _divided(dividend, divisor)
    if lowest(rest) >= 0 and lowest(divisor - rest) > 0:
        return whole
    if isinstance(divisor, int) and lowest(rest) // divisor == highest(rest) // divisor:
        return whole + lowest(rest) // divisor
    if isinstance(rest, Expr) and rest.terms[0][1] < 0:
        return whole - _quotient(divisor - 1 - rest, divisor)
    if isinstance(rest, Expr) and isinstance(divisor, int):
        common = math.gcd(divisor, *(factor for product, factor in rest.terms if product))
        if common > 1:
            smaller = _sum((p, factor // common) for p, factor in rest.terms)
            return whole + smaller // (divisor // common)
        first, factor = rest.terms[0]
        constant = rest - _sum([rest.terms[0]])
        if isinstance(constant, int) and factor == 1 and isinstance(first[0], Quotient):
            inner = first[0]
            if len(first) == 1 and isinstance(inner.divisor, int):
                return whole + (inner.dividend + constant * inner.divisor) // (
                    inner.divisor * divisor
                )
    dividend = rest if isinstance(rest, Expr) else Expr((((), rest),))
    return whole + Expr((((Quotient(dividend, divisor),), 1),))


def _divided(dividend: Dim, divisor: Dim) -> tuple[Dim, Dim]:
    """What divides evenly, divided, and the rest: long division of polynomials by the first terms."""
    whole: Dim = 0
    rest: Dim = 0
    left = dividend
    for _ in range(_DIVISIONS):
        if left == 0:
            return whole, rest
        product, factor = _terms(left)[0]
        part = _part(product, factor, *_terms(divisor)[0])
        if part is not None:
            whole, left = whole + part, left - part * divisor
        elif not product and isinstance(divisor, int):
            return whole + factor // divisor, rest + factor % divisor
        else:
            term = _sum([(product, factor)])
            rest, left = rest + term, left - term
    return whole, rest + left


def _part(product: _Product, factor: int, atoms: _Product, number: int) -> Dim | None:
    """One term by another; None if it does not divide evenly."""
    if factor % number:
        return None
    left = list(product)
    for atom in atoms:
        if atom not in left:
            return None
        left.remove(atom)
    return _sum([(tuple(left), factor // number)])
