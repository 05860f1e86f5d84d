"""The extents of one run: what symbols are, found out from the shapes of inputs, and types with these extents."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from itertools import product as combinations
from typing import final

from glowpy.core.type import Shape, Type
from glowpy.support.errors import Diagnostic, UnsupportedError, UserError
from glowpy.support.symbolic import (
    UNBOUNDED,
    Dim,
    Expr,
    Extreme,
    Quotient,
    Symbol,
    UndecidedError,
    at_extents,
    depends_on_symbols,
    highest,
    substituted,
    symbols_of,
)
from glowpy.support.text import Attr

__all__ = [
    "Extents",
    "PlainShapes",
    "attr_at",
    "check_bounds",
    "check_known",
    "dims_of_attr",
    "extents_of",
    "largest_at",
    "reach",
    "sampled",
    "shape_at",
    "solved",
    "symbols_of_attrs",
    "symbols_of_types",
    "type_at",
    "unsupported",
]

Extents = Mapping[str, int]
"""Extents of symbols, by name."""

_MAX_SAMPLES = 16


class OpenUnsupportedError(UndecidedError, UnsupportedError):
    """Raised for something that cannot be handled with symbolic extents but might be with constant ones."""

    def __init__(self, diagnostics: Iterable[Diagnostic], dims: Iterable[Dim]) -> None:
        collected = list(diagnostics)
        super().__init__(collected[0].message, dims)
        self.diagnostics = collected


def symbols_of_types(types: Iterable[Type]) -> dict[str, Symbol]:
    """The symbols on which shapes depend, by name."""
    return symbols_of(dim for type in types if not type.is_static for dim in type.shape)


def symbols_of_attrs(attrs: Mapping[str, Attr]) -> dict[str, Symbol]:
    """The symbols on which attributes depend, by name."""
    symbols: dict[str, Symbol] = {}
    for value in attrs.values():
        if depends_on_symbols(value):
            symbols |= symbols_of(dims_of_attr(value))
    return symbols


def attr_at(value: Attr, extents: Extents) -> Attr:
    """An attribute with these extents."""
    if not depends_on_symbols(value):
        return value
    numbers = shape_at(dims_of_attr(value), extents)
    return numbers if isinstance(value, tuple) else numbers[0]


def dims_of_attr(value: Attr) -> Shape:
    """The dimensions in an attribute."""
    dims = value if isinstance(value, tuple) else (value,)
    return tuple(dim for dim in dims if isinstance(dim, int | Expr))


def shape_at(shape: Shape, extents: Extents) -> tuple[int, ...]:
    """A shape with these extents."""
    return tuple(at_extents(dim, extents) for dim in shape)


def type_at(type: Type, extents: Extents) -> Type:
    """A type with these extents."""
    return type if type.is_static else Type(type.kind, shape_at(type.shape, extents), type.quant)


def largest_at(type: Type, extents: Extents) -> Type:
    """A type with these extents of some symbols, and as many elements as others allow."""
    if type.is_static:
        return type
    shape = tuple(highest(substituted(dim, extents)) for dim in type.shape)
    return Type(type.kind, shape, type.quant)


def reach(dim: Dim) -> int:
    """How large, below zero or above, anything becomes on the way to a dimension at most."""
    if isinstance(dim, int):
        return abs(dim)
    total, parts = 0, [0]
    for atoms, factor in dim.terms:
        for atom in atoms:
            factor *= max(abs(atom.low), abs(atom.high), 1)
            if isinstance(atom, Quotient):
                parts += reach(atom.dividend), reach(atom.divisor)
            elif isinstance(atom, Extreme):
                parts += map(reach, atom.choices)
        total += abs(factor)
    return max(total, *parts)


def extents_of(shapes: Mapping[str, tuple[Shape, Sequence[int]]]) -> dict[str, int]:
    """The symbols of declared shapes, by what each is in this run: name to declared and actual shape.

    A symbol is known from a dimension that is nothing else, or that depends on it alone in a sum.

    Raises UserError where ranks or constant dimensions differ, two dimensions contradict each other, an extent lies
    outside its bounds, or no shape says what a symbol is.
    """
    pairs: list[tuple[str, Dim, int]] = []
    for name, (declared, actual) in shapes.items():
        if len(declared) != len(actual):
            raise _misfit(name, declared, actual)
        pairs += [(name, dim, size) for dim, size in zip(declared, actual, strict=True)]
    symbols, extents = _known([(dim, size) for _, dim, size in pairs if isinstance(dim, Expr)])
    for name, dim, size in pairs:
        if at_extents(dim, extents) != size:
            declared, actual = shapes[name]
            raise _misfit(name, declared, actual, extents)
    for extent in symbols.values():
        if not extent.low <= extents[extent.name] <= extent.high:
            allowed = (
                f"{extent.low}.." if extent.high == UNBOUNDED else f"{extent.low}..{extent.high}"
            )
            raise UserError(f"expected '{extent.name}' in {allowed}, got {extents[extent.name]}")
    return extents


@final
class PlainShapes:
    """Declared shapes of numbers and symbols alone: what symbols are is read from shapes without arithmetic."""

    def __init__(self, shapes: Iterable[Shape]) -> None:
        self._shapes = [
            tuple(dim.symbol if isinstance(dim, Expr) else dim for dim in shape) for shape in shapes
        ]
        self.is_plain = not any(None in shape for shape in self._shapes)
        """Whether there is no sum, quotient or the like among them."""

    def extents(self, actual: Iterable[tuple[int, ...]]) -> dict[str, int] | None:
        """Returns the extents of symbols that give these shapes; None if the shapes do not fit."""
        extents: dict[str, int] = {}
        for declared, sizes in zip(self._shapes, actual, strict=True):
            if len(declared) != len(sizes):
                return None
            for dim, size in zip(declared, sizes, strict=True):
                if isinstance(dim, Symbol):
                    if (
                        not dim.low <= size <= dim.high
                        or extents.setdefault(dim.name, size) != size
                    ):
                        return None
                elif dim != size:
                    return None
        return extents


def _known(pairs: Sequence[tuple[Expr, int]]) -> tuple[dict[str, Symbol], dict[str, int]]:
    """The symbols of dimensions, and what each is by the first dimension that says it."""
    symbols: dict[str, Symbol] = {}
    extents: dict[str, int] = {}
    sums = []
    for dim, size in pairs:
        if dim.symbol is None:
            sums.append((dim, size))
        else:
            symbols.setdefault(dim.symbol.name, dim.symbol)
            extents.setdefault(dim.symbol.name, size)
    symbols |= symbols_of(dim for dim, _ in sums)
    while len(extents) < len(symbols):
        count = len(extents)
        for dim, size in sums:
            extents |= solved(substituted(dim, extents), size)
        if len(extents) == count:
            raise _unknown(next(name for name in symbols if name not in extents))
    return symbols, extents


def unsupported(diagnostics: Iterable[Diagnostic], types: Iterable[Type]) -> UnsupportedError:
    """The error that reports what cannot be handled, on operands of these types."""
    open_dims = [dim for type in types for dim in type.shape if isinstance(dim, Expr)]
    if open_dims:
        return OpenUnsupportedError(diagnostics, open_dims)
    error = UnsupportedError.of(diagnostics)
    assert isinstance(error, UnsupportedError)
    return error


def check_bounds(types: Iterable[Type]) -> None:
    """Raises UserError if a symbol has other bounds in one type than in another: memory is planned by all of them."""
    symbols_by_name: dict[str, Symbol] = {}
    for type in types:
        for name, one in symbols_of_types([type]).items():
            other = symbols_by_name.setdefault(name, one)
            if (one.low, one.high) != (other.low, other.high):
                ranges = (f"{symbol.low}..{symbol.high}" for symbol in (other, one))
                raise UserError(
                    f"expected one range for '{name}', got {' and '.join(ranges)}",
                    note="give what differs names of its own",
                )


def check_known(symbols: Mapping[str, Symbol], shapes: Mapping[str, Shape]) -> None:
    """Raises UserError unless the declared shapes of inputs, by name, say what each of the symbols is."""
    highest = {name: extent.high for name, extent in symbols.items()}
    shape_symbols = symbols_of(dim for shape in shapes.values() for dim in shape)
    highest |= {name: extent.high for name, extent in shape_symbols.items()}
    known = extents_of({name: (shape, shape_at(shape, highest)) for name, shape in shapes.items()})
    for name in symbols:
        if name not in known:
            raise _unknown(name)


def _unknown(name: str) -> UserError:
    return UserError(
        f"no input's shape says what '{name}' is",
        note=f"give '{name}' one extent, or an input that has it as a dimension",
    )


def solved(dim: Dim, size: int) -> dict[str, int]:
    """The one symbol that a dimension depends on, where it is factor * symbol + constant."""
    if not isinstance(dim, Expr):
        return {}
    (atoms, factor), *rest = dim.terms
    if len(atoms) != 1 or not isinstance(atoms[0], Symbol) or any(other for other, _ in rest):
        return {}
    remainder = size - sum(constant for _, constant in rest)
    return {} if remainder % factor else {atoms[0].name: remainder // factor}


def _misfit(
    name: str, declared: Shape, actual: Sequence[int], extents: Extents | None = None
) -> UserError:
    expected, got = (" x ".join(map(str, shape)) for shape in (declared, actual))
    where = ", ".join(f"{symbol} = {extent}" for symbol, extent in (extents or {}).items())
    note = f"other dimensions say that {where}" if where else ""
    return UserError(f"'{name}': expected the shape [{expected}], got [{got}]", note=note)


def sampled(symbols: Mapping[str, Symbol]) -> Iterator[dict[str, int]]:
    """Some extents that the bounds allow: all highest, all lowest, and mixtures. One without symbols: none."""
    names = list(symbols)
    ends = combinations((True, False), repeat=len(names))
    for highs in islice(ends, _MAX_SAMPLES):
        yield {
            name: symbols[name].high if high else symbols[name].low
            for name, high in zip(names, highs, strict=True)
        }
    if names:
        yield {name: (extent.low + extent.high) // 2 for name, extent in symbols.items()}
