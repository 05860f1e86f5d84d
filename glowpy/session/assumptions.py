"""Assumptions: what a session takes the symbolic dimensions of its model to be, learned from the calls it gets.

A dimension is constant as long as it is 0 or 1 or compiling needs to know it, equal to another or a multiple where
the model says so, and else any extent up to a bound; code is made for the one that it was compiled with. Bounds grow
by a factor, so that a model is compiled a logarithmic number of times, however many extents it meets. One that is 1
again, as where words follow a prompt, is constant in what has to be compiled then. Nothing is believed: every call is
checked against what was assumed for the code it runs.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any, final

from glowpy.importer.declared import ValueInfo
from glowpy.session.facts import BOUNDS, Facts, in_table, meaning_facts, meanings_of
from glowpy.session.grids import Grid
from glowpy.session.shape_plan import ShapePlan
from glowpy.session.suppositions import Constants, Suppositions
from glowpy.support.callers import warn_caller
from glowpy.support.names import UniqueNames
from glowpy.support.questions import Need, Question
from glowpy.support.remedies import divisors, known_from, solutions
from glowpy.support.symbolic import (
    Dim,
    Expr,
    Extreme,
    at_extents,
    highest,
    lowest,
    product,
    substituted,
    symbol,
    symbols_of,
)
from glowpy.support.text import symbol_name

__all__ = ["Assumptions"]

_SPREAD = 6
"""All first bounds together allow for 2 to this power times the extents of the first call, and one for 16 times."""
_MANY = 1 << 16
"""Bounds are lowered one by one, from no more."""
_GROWTH = 4
"""A bound that is exceeded becomes so many times larger."""
_LEAST_GROWN = 64
"""An extent that turns out to vary is bounded by no less, nor by less than at first."""


@final
class Assumptions:
    """Assumptions about the dimensions of some inputs. Not safe for use by several threads at once.

    `fixed` says that nothing is left open: there is code for one extent of each dimension only.

    Attributes:
        found: The supposed extents that elements decide.
    """

    def __init__(self, inputs: Sequence[ValueInfo], *, fixed: bool = False) -> None:
        self._fixed = fixed
        self._inputs = {info.name: info for info in inputs}
        self._names: dict[str | tuple[str, int], str] = {}
        self._declared_as: dict[str, str | tuple[str, int]] = {}
        self._unique = UniqueNames()
        self._bounds: dict[str, tuple[int, int, int]] = {}
        self._constants: dict[str, str] = {}  # why
        self._told: dict[str, str] = {}  # those that follow from no compilation
        self._met: dict[str, int | None] = {}  # extents of constants; None once they have varied
        self._equal: dict[str, dict[Constants, Dim]] = {}  # by what was compiled as 0 or 1
        self._grids: dict[str, Grid] = {}
        self._in_advance = False
        self.found = Suppositions()

    def copy(self) -> Assumptions:
        """The same, which what is learned here from now on does not change."""
        other = copy(self)
        other._bounds, other._constants = dict(self._bounds), dict(self._constants)
        other._told = dict(self._told)
        other._met, other._grids = dict(self._met), dict(self._grids)
        other.found = self.found.copy()
        other._equal = {name: dict(meanings) for name, meanings in self._equal.items()}
        return other

    @property
    def facts(self) -> Facts:
        """All that was learned."""
        tables: dict[str, Mapping[str, Any]] = {
            BOUNDS: self._bounds,
            "constant": self._constants,
            "told": self._told,
            "met": self._met,
            "grid": self._grids,
        }
        facts: Facts = {
            (word, name): table[name] for word, table in tables.items() for name in table
        }
        return facts | meaning_facts("equal", self._equal) | self.found.facts

    def with_facts(self, facts: Facts) -> Assumptions:
        """The same, with these facts in place of what was learned."""
        other = copy(self)
        other._bounds, other._constants = in_table(facts, BOUNDS), in_table(facts, "constant")
        other._told, other._met = in_table(facts, "told"), in_table(facts, "met")
        other._grids, other._equal = in_table(facts, "grid"), meanings_of("equal", facts)
        other.found = Suppositions.of(facts)
        return other

    def unlearned(self) -> Assumptions:
        """The same without what compiling turned out to need: for code in which other elements are known."""
        other = copy(self)
        other._bounds, other._told = dict(self._bounds), dict(self._told)
        other._constants, other._met = dict(self._told), {}
        other._equal, other._grids, other.found = {}, {}, Suppositions()
        return other

    def in_advance(self) -> Assumptions:
        """The same for calls that are made up, so that nobody is warned of them."""
        other = self.copy()
        other._in_advance = True
        return other

    def after_all(self) -> Assumptions:
        """The same for calls again."""
        other = self.copy()
        other._in_advance, other._met = False, {}
        return other

    def bound(self, *corners: Mapping[str, tuple[int, ...]]) -> None:
        """Lets dimensions be what they are for inputs of these shapes, and whatever is between."""
        extents = [self._extents(shapes) for shapes in corners]
        for name in extents[0]:
            lows, highs = min(e[name] for e in extents), max(e[name] for e in extents)
            self._bounds[name] = lows, highs, highs

    @property
    def compiled_for_each(self) -> dict[str, tuple[int, str]]:
        """Dimensions that are constants although they have bounds: how many extents these allow, and why."""
        bounds = {name: self._bounds[name] for name in self._constants if name in self._bounds}
        return {
            self._spelling(name): (high - low + 1, self._constants[name])
            for name, (low, high, _) in bounds.items()
        }

    def spelled(self, plan: ShapePlan) -> dict[str, str]:
        """Returns what a plan takes dimensions to be, by the user's names for them: `1..32`, `8`, `past+seq`."""
        return {
            self._spelling(name): f"{name_of_dim.low}..{name_of_dim.high}"
            if isinstance(dim, Expr) and (name_of_dim := dim.symbol) is not None
            else self._text(dim)
            for name, dim in self._dims_of(plan).items()
        }

    def _spelling(self, name: str) -> str:
        """How the user writes a dimension: as the model does, and `x[0]` where it has no name there."""
        declared = self._declared_as.get(name, name)
        return declared if isinstance(declared, str) else "{}[{}]".format(*declared)

    def _text(self, dim: Dim) -> str:
        """Formats the expression that a dimension is computed from, in the user's names."""
        names = {name: self._spelling(name) for name in symbols_of([dim])}
        return str(substituted(dim, {name: symbol(text, 0) for name, text in names.items()}))

    def beyond(self, shapes: Mapping[str, tuple[int, ...]], plans: Sequence[ShapePlan]) -> str:
        """Why no plan is for inputs of these shapes: what is outside of all of them, and what they are for."""
        extents = self._extents(shapes)
        inside = {
            name
            for plan in plans
            for name, extent in extents.items()
            if lowest(self._dims_of(plan)[name]) <= extent <= highest(self._dims_of(plan)[name])
        }
        outside = {name: n for name, n in extents.items() if name not in inside} or extents
        got = ", ".join(f"'{self._spelling(name)}' = {n}" for name, n in outside.items())
        ranges = "; ".join(
            ", ".join(f"{name} = {text}" for name, text in self.spelled(plan).items())
            for plan in plans
        )
        return f"{got or 'other shapes'}, where code is for {ranges}"

    def _dims_of(self, plan: ShapePlan) -> dict[str, Dim]:
        pairs = (
            zip(self._declared(name, shape), shape, strict=True)
            for name, shape in plan.shapes.items()
        )
        return {
            declared: dim
            for zipped in pairs
            for declared, dim in zipped
            if isinstance(declared, str)
        }

    def plan(self, shapes: Mapping[str, tuple[int, ...]]) -> ShapePlan:
        """Returns the plan to compile for inputs of these shapes; widens bounds if necessary.

        Warns when a constant, and not because it is 0 or 1, turns out to vary: each of its extents is compiled for.
        """
        if self._fixed:
            return ShapePlan(shapes)
        extents = self._extents(shapes)
        spread = _spread(sum(extent > 1 for extent in extents.values()))
        for name, extent in extents.items():
            if name in self._constants:
                self._meet(name, extent)
            else:
                self._grow(name, extent, spread)
        return self._planned(shapes)

    def _planned(self, shapes: Mapping[str, tuple[int, ...]]) -> ShapePlan:
        extents, dims = self._extents(shapes), dict[str, Dim]()
        for name, extent in extents.items():
            dims |= self._dims(name, extent)
        meanings, numbers = self._meanings(extents), self._numbers(extents)
        for name, equal in [*meanings.items()] * len(meanings):  # one may be said by another
            dims |= self._meaning(name, equal, dims, numbers)
        planned = {
            name: tuple(
                dims[dim] if isinstance(dim, str) else dim for dim in self._declared(name, shape)
            )
            for name, shape in shapes.items()
        }
        return ShapePlan(planned, self.found.dims(self._few(extents), dims))

    def _few(self, extents: Mapping[str, int]) -> Constants:
        """Returns the dimensions that are compiled as the constant 0 or 1 although they may be larger."""
        open_ = [name for name in extents if name in self._bounds and name not in self._constants]
        few = {name: extents[name] for name in open_ if extents[name] <= 1}
        return frozenset(
            (name, extent)
            for name, extent in few.items()
            if self._dims(name, extent) == {name: extent}
        )

    def _meanings(self, extents: Mapping[str, int]) -> dict[str, Dim]:
        """Returns what dimensions are equal to, as learned from calls in which no more of them were 0 or 1."""
        few = self._few(extents)
        fitting = {
            name: [constants for constants in meanings if constants <= few]
            for name, meanings in self._equal.items()
            if name in extents
        }
        return {name: self._equal[name][min(s, key=len)] for name, s in fitting.items() if s}

    def _meaning(
        self, name: str, equal: Dim, dims: Mapping[str, Dim], numbers: Mapping[str, int]
    ) -> dict[str, Dim]:
        """Returns what a dimension that equals others is, and what these are if it differs from them in this call.

        That is an error of the caller's, which is to have no consequences, unless one is 1 and is repeated.
        """
        symbols = symbols_of([equal])
        if not dims.keys() >= symbols.keys():
            return {name: numbers[name]}
        if at_extents(equal, numbers) == numbers[name]:
            return {name: substituted(equal, dims)}
        concerned = (name, *symbols)
        ones: dict[str, Dim] = {other: 1 for other in concerned if numbers[other] == 1}
        return ones or {other: numbers[other] for other in concerned}

    def _numbers(self, extents: Mapping[str, int]) -> dict[str, int]:
        """Returns the extents of dimensions in a call, and the numbers that count their multiples."""
        return dict(extents) | {
            grid.count: grid.place(extents[name])
            for name, grid in self._grids.items()
            if name in extents
        }

    def _dims(self, name: str, extent: int) -> dict[str, Dim]:
        """Returns the dimension that code compiled for this extent has, and the symbol that counts its multiples."""
        grid = self._grids.get(name)
        if name in self._constants or (grid is not None and extent not in grid):
            return {name: extent}
        low, high, likely = self._bounds[name]
        if grid is not None:
            count = grid.counted(low, high, likely)
            return {grid.count: count, name: grid.step * count + grid.first}
        return {name: 1 if extent == low == 1 else symbol(name, low, high, likely)}

    def learn(self, need: Need, plan: ShapePlan, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Assumes what compiling by a plan turned out to need, as it is for inputs of these shapes.

        False if that is nothing that the inputs say.
        """
        if self._fixed:
            return False
        extents = self._extents(shapes)
        if not extents.keys() <= self._bounds.keys() | self._constants.keys():
            return True  # another thread's call has failed since, and what it learned is forgotten
        if self._planned(shapes) != plan:
            return True  # another thread has learned since
        counts = {grid.count: name for name, grid in self._grids.items() if name in extents}
        numbers = self._numbers(extents)
        # What a network finds while it runs is known from no shape.
        is_complete = numbers.keys() >= set(need.symbols)
        learned = (
            is_complete and need.question is not None and self._answered(need.question, numbers)
        )
        if not learned or self._planned(shapes) == plan:  # or that changes nothing for this call
            names = [counts.get(name, name) for name in need.symbols]
            self._constants |= {name: need.why for name in names if name in extents}
        return self._planned(shapes) != plan

    def _answered(self, question: Question, extents: Mapping[str, int]) -> bool:
        """Assumes the answer to a question, as it is in this call; False if there is nothing to assume."""
        answer = self._unify if question.relation == "equal" else self._raised
        return answer(question.left, question.right, extents)

    def ask(self, need: Need, plan: ShapePlan, shapes: Mapping[str, tuple[int, ...]]) -> bool:
        """Assumes, or supposes of extents that elements decide, what compiling by a plan turned out to need.

        False if that is nothing that may be.
        """
        if not self._fixed:
            extents = self._extents(shapes)
            few, numbers = self._few(extents), self._numbers(extents)
            if self.found.ask(need.asked, need.counts, need.inputs, few, numbers):
                return True
        return bool(need.symbols) and self.learn(need, plan, shapes)

    def know(self, names: Sequence[str], shapes: Mapping[str, tuple[int, ...]]) -> None:
        """Assumes that some inputs, whose elements are known while compiling, have constant shapes."""
        for name in names:
            dims = [dim for dim in self._declared(name, shapes[name]) if isinstance(dim, str)]
            self._told |= dict.fromkeys(dims, f"the elements of '{name}' have to be known")
        self._constants |= self._told

    @property
    def summary(self) -> dict[str, str]:
        """Summarizes the assumptions by dimension: `1..64`, `8..64, 4*w_4`, `past+seq`, `constant: why`."""
        texts = {name: f"{low}..{high}" for name, (low, high, _) in self._bounds.items()}
        texts |= {name: f"{texts[name]}, {grid}" for name, grid in self._grids.items()}
        for name, meanings in self._equal.items():
            for few, dim in meanings.items():
                if all(
                    self._bounds[name_of_dim][:2] == (extent, extent) for name_of_dim, extent in few
                ):
                    texts[name] = str(dim)
        texts |= {name: f"constant: {why}" for name, why in self._constants.items()}
        return texts | self.found.summary

    def contradictions(self, shapes: Mapping[str, tuple[int, ...]]) -> list[str]:
        """Returns sentences about what was learned that these shapes, which the model allows, contradict."""
        if not all(self._inputs[name].admits(shape) for name, shape in shapes.items()):
            return []
        extents = self._extents(shapes)
        numbers = self._numbers(extents)
        owners = {
            dim: name
            for name, shape in shapes.items()
            for dim in self._declared(name, shape)
            if isinstance(dim, str)
        }
        meanings = {
            name: f"{self._text(equal)} = {at_extents(equal, numbers)}"
            if isinstance(equal, Expr)
            else f"{equal}"
            for name, equal in self._meanings(extents).items()
            if symbols_of([equal]).keys() <= numbers.keys()
            and at_extents(equal, numbers) != numbers[name]
        }
        multiples = {
            name: str(grid)
            for name, grid in self._grids.items()
            if name in extents and extents[name] not in grid
        }
        return [
            f"'{owners[name]}': expected '{self._spelling(name)}' = {meaning}, as before, got {extents[name]}"
            for name, meaning in (meanings | multiples).items()
        ]

    def _unify(self, left: Dim, right: Dim, extents: Mapping[str, int]) -> bool:
        """Gives one symbol the meaning with which two dimensions are equal, if they are in this call."""
        if at_extents(left, extents) != at_extents(right, extents):
            return False
        if self._bounded(left, right, extents) or self._bounded(right, left, extents):
            return True
        difference = _chosen(left, extents) - _chosen(right, extents)
        for name, meaning in solutions(difference):
            if name in self._bounds and at_extents(meaning, extents) == extents[name]:
                few = self._few(extents)
                for meanings in self._equal.values():
                    for constants in meanings:
                        if constants >= few:
                            meanings[constants] = substituted(meanings[constants], {name: meaning})
                self._equal.setdefault(name, {})[few] = meaning
                return True
        return self._narrowed(difference, extents) or self._spaced(difference, extents)

    def _narrowed(self, difference: Dim, extents: Mapping[str, int]) -> bool:
        """Raises the lower bounds of symbols until a difference is 0 for whatever is in bounds, if it is then."""
        open_ = [
            open_symbol
            for open_symbol in symbols_of([difference]).values()
            if open_symbol.name in self._bounds
        ]
        lows = {open_symbol.name: extents[open_symbol.name] for open_symbol in open_}

        def is_equal(lows: Mapping[str, int]) -> bool:
            bounded = {
                open_symbol.name: symbol(open_symbol.name, lows[open_symbol.name], open_symbol.high)
                for open_symbol in open_
            }
            return substituted(difference, bounded) == 0

        if not is_equal(lows):
            return False
        for open_symbol in open_:
            choices = range(open_symbol.low, lows[open_symbol.name])
            at = bisect_left(
                choices, True, key=lambda low: is_equal(lows | {open_symbol.name: low})
            )
            lows[open_symbol.name] = open_symbol.low + at
        if any(
            open_symbol.low < open_symbol.high == lows[open_symbol.name] for open_symbol in open_
        ):
            return False  # nothing would be open between such bounds
        for open_symbol in open_:
            self._bounds[open_symbol.name] = (
                lows[open_symbol.name],
                *self._bounds[open_symbol.name][1:],
            )
        return True

    def _spaced(self, difference: Dim, extents: Mapping[str, int]) -> bool:
        """Takes a symbol for a multiple, and what this call leaves of it, if a difference is 0 then."""
        owners = {grid.count: name for name, grid in self._grids.items()}
        for one in symbols_of([difference]).values():
            name = owners.get(one.name, one.name)
            for step in divisors(difference, one):
                first = extents[one.name] % step
                count = symbol("count", 0)
                if substituted(difference, {one.name: step * count + first}) != 0:
                    continue
                old = self._grids.get(name, Grid("", 1, 0))
                step, first = old.step * step, old.first + old.step * first
                self._grids[name] = Grid(self._unique.take(f"{name}_{step}"), step, first)
                return True
        return False

    def _raised(self, left: Dim, right: Dim, extents: Mapping[str, int]) -> bool:
        """Raises the lower bound of a symbol until it is known whether one dimension is less than another."""
        for name, symbol_of_name in symbols_of([left, right]).items():
            if name not in self._bounds or not symbol_of_name.low < extents[name]:
                continue
            low = known_from(left, right, symbol_of_name, extents[name])
            if low is not None:
                self._bounds[name] = low, *self._bounds[name][1:]
                return True
        return False

    def _bounded(self, limited: Dim, dim: Dim, extents: Mapping[str, int]) -> bool:
        """Lowers the bound of a symbol that has to be the least of itself and a number."""
        for one in symbols_of([dim]).values():
            if dim != symbol(one.name, one.low, one.high, one.likely):
                continue
            for high in range(one.high - 1, extents[one.name] - 1, -1) if one.high < _MANY else ():
                own = symbol(one.name, one.low, high, one.likely)
                if substituted(limited, {one.name: own}) == own:
                    self._bounds[one.name] = one.low, high, one.likely
                    return True
        return False

    def _meet(self, name: str, extent: int) -> None:
        """Warns once of a constant that has another extent than before."""
        first_extent = self._met.setdefault(name, extent)
        if first_extent not in (None, extent) and not self._in_advance:
            self._met[name] = None
            why = self._constants[name]
            what = self._spelling(name)
            warn_caller(f"code is compiled for each extent of '{what}', now {extent}: {why}")

    def _grow(self, name: str, extent: int, spread: int) -> None:
        """Makes the bounds of a symbol admit an extent; the first upper one is `spread` times it, rounded up."""
        bounds = self._bounds.get(name)
        if bounds is None:
            low, high = (1, spread * _rounded_up(extent)) if extent > 1 else (extent, extent)
            self._bounds[name] = low, high, extent
        elif not bounds[0] <= extent <= bounds[1]:
            low, high = min(bounds[0], extent), bounds[1]
            if extent > high:
                first = spread * _rounded_up(extent) if high <= 1 else _rounded_up(extent)
                high = max(first, _GROWTH * high, _LEAST_GROWN)
            self._bounds[name] = low, high, extent

    def _extents(self, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, int]:
        """Returns the extents of symbols for shapes. The caller refuses shapes of another rank."""
        return {
            dim: size
            for name, shape in shapes.items()
            for dim, size in zip(self._declared(name, shape), shape, strict=False)
            if isinstance(dim, str)
        }

    def _declared(self, name: str, shape: Sequence[Dim]) -> list[int | str]:
        """The dimensions of an input: numbers, and names of symbols."""
        declared = self._inputs[name].shape
        dims = [None] * len(shape) if declared is None else declared
        return [
            dim if isinstance(dim, int) else self._symbol(dim or (name, axis))
            for axis, dim in enumerate(dims)
        ]

    def _symbol(self, declared: str | tuple[str, int]) -> str:
        """A name as the text of types spells it, for one that a model may spell in any way, or an axis of an input."""
        if declared not in self._names:
            text = declared if isinstance(declared, str) else "{}_{}".format(*declared)
            self._names[declared] = self._unique.take(symbol_name(text))
            self._declared_as[self._names[declared]] = declared
        return self._names[declared]


def _chosen(dim: Dim, extents: Mapping[str, int]) -> Dim:
    """A dimension in which the least and the greatest of several are those of this call."""
    if not isinstance(dim, Expr):
        return dim
    total: Dim = 0
    for atoms, factor in dim.terms:
        parts = [
            min(atom.choices, key=lambda choice: at_extents(choice, extents))
            if isinstance(atom, Extreme) and atom.name == "min"
            else max(atom.choices, key=lambda choice: at_extents(choice, extents))
            if isinstance(atom, Extreme)
            else Expr((((atom,), 1),))
            for atom in atoms
        ]
        total = total + factor * product(parts)
    return total


def _spread(symbols: int) -> int:
    """How much larger each first bound is, of so many."""
    return int(1 << min(_SPREAD // max(symbols, 1), 4))


def _rounded_up(extent: int) -> int:
    """The next power of two."""
    return 1 << max(extent - 1, 0).bit_length()
