"""Shape plans: what one compilation takes the shapes of a session's inputs to be, and whether those of a call fit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from glowpy.core.extents import PlainShapes, solved
from glowpy.core.type import Shape
from glowpy.support.symbolic import Dim, Expr, Symbol, at_extents, symbols_of
from glowpy.support.text import print_symbol

__all__ = ["ShapePlan"]


@dataclass(frozen=True)
class ShapePlan:
    """Shapes of the inputs that one compilation is for.

    Attributes:
        shapes: The shape of every input.
        supposed: The supposed extents that elements decide, by name.
        form: Equal for plans that differ in bounds only.
        bounds: The bounds of symbols, as texts.
    """

    shapes: Mapping[str, Shape] = field(compare=False)
    supposed: Mapping[str, Dim] = field(default_factory=dict, compare=False)
    form: str = field(init=False)
    bounds: tuple[str, ...] = field(init=False)

    def __post_init__(self) -> None:
        spelled = {name: str(dim) for name, dim in self.supposed.items()}
        object.__setattr__(self, "form", f"{dict(self.shapes)} {spelled}")
        symbols = self._symbols | symbols_of(self.supposed.values())
        texts = tuple(print_symbol(one) for one in symbols.values())
        object.__setattr__(self, "bounds", texts)

    @cached_property
    def _symbols(self) -> dict[str, Symbol]:
        return symbols_of(dim for shape in self.shapes.values() for dim in shape)

    @cached_property
    def _alike(self) -> dict[Shape, list[str]]:
        """The inputs that are declared alike, as caches of layers are."""
        names: dict[Shape, list[str]] = {}
        for name, shape in self.shapes.items():
            names.setdefault(shape, []).append(name)
        return names

    @cached_property
    def _plain(self) -> PlainShapes:
        return PlainShapes(self._alike)

    @property
    def openness(self) -> int:
        """How many symbols it leaves open."""
        return len(self._symbols)

    def replaces(self, other: ShapePlan) -> bool:
        """Whether it is the other one with wider bounds."""
        if self.form != other.form or self.bounds == other.bounds:
            return False
        pairs = [
            *zip(self._symbols.values(), other._symbols.values(), strict=True),
            *zip(
                symbols_of(self.supposed.values()).values(),
                symbols_of(other.supposed.values()).values(),
                strict=True,
            ),
        ]
        return all(bounds.low <= its.low and its.high <= bounds.high for bounds, its in pairs)

    def admits(self, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Whether it is for inputs of these shapes."""
        alike = self._alike.values()
        if any(shapes[name] != shapes[names[0]] for names in alike for name in names[1:]):
            return False
        actual = [shapes[names[0]] for names in alike]
        if self._plain.is_plain:
            return self._plain.extents(actual) is not None
        return self._fits(actual)

    def _fits(self, shapes: Sequence[tuple[int, ...]]) -> bool:
        """Whether shapes of the inputs that differ fit where sums and the like are among dimensions."""
        extents: dict[str, int] = {}
        sums: list[tuple[Expr, int]] = []
        for shape, actual in zip(self._alike, shapes, strict=True):
            if len(actual) != len(shape):
                return False
            for dim, size in zip(shape, actual, strict=True):
                if not isinstance(dim, Expr):
                    if dim != size:
                        return False
                elif dim.symbol is None:
                    sums.append((dim, size))
                elif extents.setdefault(dim.symbol.name, size) != size:
                    return False
        symbols = self._symbols
        if len(extents) < len(symbols):  # some count multiples
            for dim, size in sums:
                extents = solved(dim, size) | extents
        return (
            len(extents) == len(symbols)
            and all(
                symbols[name].low <= size <= symbols[name].high for name, size in extents.items()
            )
            and all(at_extents(dim, extents) == size for dim, size in sums)
        )
