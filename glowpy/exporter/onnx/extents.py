"""Symbolic dimensions in a file: vectors of i64, which it computes from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import final

from glowpy.graph.node import Placeholder
from glowpy.support.symbolic import (
    Atom,
    Dim,
    Expr,
    Extreme,
    Quotient,
    Symbol,
    ceil_div,
    lowest,
    symbols_of,
)

__all__ = ["ExtentVectors"]


@final
class ExtentVectors:
    """Writes operators for dimensions; equal expressions are computed once.

    Attributes:
        defined: The values of symbols that the network finds, by name.
    """

    def __init__(
        self,
        parameters: Sequence[Placeholder],
        add: Callable[..., str],
        constant: Callable[[Iterable[int]], str],
        refuse: Callable[[str], None],
    ) -> None:
        """Prepares to compute the symbols of a function with these parameters.

        Args:
            parameters: Whose shapes say what symbols are.
            add: Adds an operator with these inputs and attributes, and names its result.
            constant: Names a vector of numbers.
            refuse: Notes what cannot be written.
        """
        self._parameters = parameters
        self._add = add
        self._constant = constant
        self._refuse = refuse
        self._known: dict[object, str] = {}
        self.defined: dict[str, str] = {}

    def vector(self, dims: Sequence[Dim]) -> str:
        """The name of a vector with these numbers."""
        key = tuple(dims)
        if key not in self._known:
            parts: list[str] = []
            for is_open, group in groupby(dims, lambda dim: isinstance(dim, Expr)):
                run = list(group)
                parts += map(self._one, run) if is_open else [self._numbers(run)]
            self._known[key] = parts[0] if len(parts) == 1 else self._add("Concat", *parts, axis=0)
        return self._known[key]

    def _numbers(self, dims: Iterable[Dim]) -> str:
        return self._constant(dim for dim in dims if isinstance(dim, int))

    def _one(self, dim: Dim) -> str:
        """A vector of one number."""
        if isinstance(dim, int):
            return self._constant([dim])
        if dim not in self._known:
            total = ""
            for atoms, factor in dim.terms:
                product = self._product(atoms, abs(factor))
                if total or factor < 0:
                    operator = "Sub" if factor < 0 else "Add"
                    product = self._add(operator, total or self._constant([0]), product)
                total = product
            self._known[dim] = total
        return self._known[dim]

    def _product(self, atoms: Sequence[Atom], factor: int) -> str:
        numbers = [self._atom(atom) for atom in atoms]
        if factor != 1 or not numbers:
            numbers.append(self._constant([factor]))
        total, *factors = numbers
        for other in factors:
            total = self._add("Mul", total, other)
        return total

    def _atom(self, atom: Atom) -> str:
        if atom not in self._known:
            match atom:
                case Symbol():
                    number = self._symbol(atom)
                case Quotient():
                    number = self._quotient(atom)
                case Extreme():
                    choices = [self._one(choice) for choice in atom.choices]
                    number = self._add(atom.name.capitalize(), *choices)
            self._known[atom] = number
        return self._known[atom]

    def _quotient(self, atom: Quotient) -> str:
        """The floor, in operators that round towards zero: what they divide is made positive before."""
        shift = max(ceil_div(-atom.dividend.low, lowest(atom.divisor)), 0)
        dividend = atom.dividend + shift * atom.divisor
        quotient = self._add("Div", self._one(dividend), self._one(atom.divisor))
        return self._add("Sub", quotient, self._constant([shift])) if shift else quotient

    def _symbol(self, one: Symbol) -> str:
        """Reads a symbol off the shape of a parameter: a dimension that is the symbol, or a sum with no other in it."""
        if one.name in self.defined:
            return self.defined[one.name]
        places = [
            (parameter, axis, dim)
            for parameter in self._parameters
            for axis, dim in enumerate(parameter.type.shape)
            if isinstance(dim, Expr) and list(symbols_of([dim])) == [one.name]
        ]
        for parameter, axis, dim in sorted(places, key=lambda place: len(place[2].terms)):
            (atoms, factor), *rest = dim.terms
            if atoms != (one,) or any(product for product, _ in rest):
                continue
            size = self._add("Shape", parameter.original, start=axis, end=axis + 1)
            constant = sum(number for _, number in rest)
            if constant:
                size = self._add("Sub", size, self._constant([constant]))
            return size if factor == 1 else self._add("Div", size, self._constant([factor]))
        self._refuse(f"no input's shape says by itself what '{one.name}' is")
        return self._constant([0])
