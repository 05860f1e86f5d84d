"""Targets of reshapes that a model writes as numbers, for inputs of other sizes than it was written for.

Exporters that trace a network with a batch of 1 write `1x128x12x64` in place of `batch x 128 x 12 x 64`. The network is
imported for the sizes that it was written for first, which says what each reshape does to the elements; then for the
others, where a target follows the sizes that have changed. Where nothing says which of the numbers follow, that is an
error: a guess would compute something else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from math import gcd
from typing import NamedTuple

from glowpy.core.type import Shape
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Dim, product, static

__all__ = ["Factor", "Merged", "Targets", "adapted"]


class Factor(NamedTuple):
    """A size, or a part of one: what it was, and what it is."""

    old: int
    new: Dim


class _Place(NamedTuple):
    """A factor of the size of an axis, and the product of what is before it, of the sizes a model was written for.

    `is_known` if it is known to be no product of several.
    """

    axis: int
    start: int
    factor: Factor
    is_known: bool

    @property
    def end(self) -> int:
        """The product of what is before it and itself."""
        return self.start * self.factor.old


Merged = dict[tuple[int, Dim], list[Factor] | None]
"""The factors of sizes that reshapes have merged, the outermost first; None for those merged in two orders."""


@dataclass
class Targets:
    """Targets of reshapes: noted for the sizes that a model was written for, by name, and adapted to others.

    Attributes:
        fixed: The names of the targets that depend on constants alone, for who asks.
        merged: The factors of sizes; those of the inputs have one each.
        is_known: Whether reshapes are noted already, and targets are to follow.
        is_partial: Whether reshapes may be missing, as elements did not fit the sizes that the model was written for.
    """

    fixed: frozenset[str] = frozenset()
    merged: Merged = field(default_factory=dict)
    is_known: bool = False
    is_partial: bool = False
    _noted: dict[tuple[str, int], tuple[Shape, Shape]] = field(default_factory=dict)
    _seen: dict[str, int] = field(default_factory=dict)

    def begun_again(self) -> Targets:
        """Returns the same before anything was noted, for an import that may not get to all reshapes."""
        return Targets(self.fixed, dict(self.merged), is_partial=True)

    def follow(self) -> None:
        """Lets targets follow from now on."""
        self.is_known = True
        self._seen.clear()

    def target(
        self,
        name: str,
        shape: Shape,
        written: Sequence[Dim],
        resolved: Callable[[], Sequence[Dim]],
        *,
        is_fixed: bool,
    ) -> Sequence[Dim]:
        """Computes the target of a reshape.

        Args:
            name: Names the reshape; one in a body that is imported again has the same.
            shape: The shape of the input.
            written: The target as it is written, with -1 and 0.
            resolved: Computes the shape for that target. Raises UserError if it does not fit the shape.
            is_fixed: Whether the target depends on constants alone.

        Raises UserError where nothing says which of the numbers follow a size that has changed.
        """
        count = self._seen[name] = self._seen.get(name, 0) + 1
        if not self.is_known:
            result = tuple(resolved())
            self._noted[name, count] = shape, result
            return result
        if (name, count) not in self._noted:
            if self.is_partial and is_fixed:
                self._check_unseen(written)
            return resolved()
        if self._noted[name, count][0] == shape:
            return resolved()
        before, target = self._noted[name, count]
        if not is_fixed:
            result = tuple(resolved())
            self._note_merged(before, shape, target, result)
            return result
        rest = list(written).index(-1) if -1 in written else None
        return adapted(before, shape, target, rest, self.merged)

    def _check_unseen(self, written: Sequence[Dim]) -> None:
        """Raises UserError for a target with -1 whose other numbers may follow a size that has changed."""
        changed = {old for old, _ in self.merged}
        numbers = [size for size in written if isinstance(size, int) and size > 0]
        pairs = [(old, number) for old in changed for number in numbers]
        if -1 in written and any(old == 1 or gcd(old, number) > 1 for old, number in pairs):
            raise UserError(
                f"the shape {_spelled(tuple(written))} is written in the model; the elements that are given do not fit "
                "the sizes that it was written for, which would say which of its sizes follow"
            )

    def _note_merged(self, before: Shape, shape: Shape, target: Shape, result: Shape) -> None:
        """Notes what a reshape has merged that follows by itself."""
        merged = dict(self.merged)
        try:
            if adapted(before, shape, target, None, merged) == tuple(result):
                self.merged = merged
        except UserError:
            return


def adapted(
    before: Shape,
    shape: Shape,
    target: Shape,
    rest: int | None = None,
    merged: Merged | None = None,
) -> Shape:
    """Computes the target for `shape` of a reshape that makes `target` of `before`; `rest` is where -1 is written.

    Raises UserError where that does not follow.
    """
    merged = {} if merged is None else merged
    problem = UserError(
        f"the shape {_spelled(target)} is written in the model, for an input of {_spelled(before)};"
        f" it does not say which of its sizes follow those of {_spelled(shape)}"
    )
    sizes_above_zero = [size for size in (*before, *target) if isinstance(size, int) and size > 0]
    if len(sizes_above_zero) < len(before) + len(target) or len(before) != len(shape) or not target:
        raise problem
    layout = _Layout(static(before), static(target), rest)
    parts: list[list[_Place]] = [[] for _ in target]
    num_cut = 0
    for place in _places(before, shape, merged):
        if place.factor.old == place.factor.new:
            continue
        found = layout.axis_of(place)
        num_cut += found is None
        if found is not None:
            parts[found].append(place)
        elif num_cut > 1 or not layout.rest_takes(place):
            raise problem
    result = [
        product([size // product(place.factor.old for place in places)]
                + [place.factor.new for place in places])
        for size, places in zip(layout.after, parts, strict=True)
    ]  # fmt: skip
    if rest is not None and num_cut:
        count = product([*result[:rest], *result[rest + 1 :]])
        result[rest] = product(shape) // count
    if product(result) != product(shape):
        raise problem
    if not num_cut:
        _note_parts(layout.after, parts, result, merged)
    return tuple(result)


def _places(before: Shape, shape: Shape, merged: Merged) -> Iterator[_Place]:
    """The factors of all sizes. Raises UserError for sizes merged in two orders."""
    start = 1
    for axis, (old, new) in enumerate(zip(static(before), shape, strict=True)):
        factors = merged.get((old, new), [Factor(old, new)])
        if factors is None:
            raise UserError(f"sizes that have become {new} from {old} are merged in two orders")
        for factor in factors:
            yield _Place(axis, start, factor, (old, new) in merged)
            start *= factor.old


@dataclass
class _Layout:
    """The sizes before and after a reshape, and the place of -1."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    rest: int | None

    def axis_of(self, place: _Place) -> int | None:
        """The size that a factor is a part of; None if that is not clear."""
        found = self._taking_in(place) if place.factor.old == 1 else self._covering(place)
        size = 1 if found is None else self.after[found]
        return found if size % place.factor.old == 0 else None

    def rest_takes(self, place: _Place) -> bool:
        """Whether -1 stands where a factor is, so that it says what becomes of that."""
        if self.rest is None:
            return False
        start, end = place.start, place.end
        first = product(self.after[: self.rest])
        last = first * self.after[self.rest]
        return first <= start <= last if start == end else max(first, start) < min(last, end)

    def _covering(self, place: _Place) -> int | None:
        for axis, (start, size) in enumerate(zip(_starts(self.after), self.after, strict=True)):
            end = start * size
            if size > 1 and start <= place.start and place.end <= end:
                is_whole = place.start % start == 0 and end % place.end == 0
                is_clear = place.is_known or not any(map(self._has_new_ones, (start, end)))
                return axis if is_whole and is_clear else None
        return None

    def _has_new_ones(self, start: int) -> bool:
        """Whether there are more sizes of 1 than before: what seems one size may be two that were merged."""
        return len(_ones(self.after, start)) > len(_ones(self.before, start))

    def _taking_in(self, place: _Place) -> int | None:
        """Where a 1 is in the same place, or the only size that can have taken it in."""
        ones, own = _ones(self.after, place.start), _ones(self.before, place.start)
        if place.axis in own and len(ones) == len(own):
            return ones[own.index(place.axis)]
        if len(ones) == 1 or (ones and place.start == 1):
            return ones[0]
        return None if ones else self._around(place.start)

    def _around(self, point: int) -> int | None:
        """The size that goes on at a point between elements; None between two sizes."""
        for axis, (start, size) in enumerate(zip(_starts(self.after), self.after, strict=True)):
            if start < point < start * size:
                return axis if point % start == 0 and start * size % point == 0 else None
        if point == 1:
            return 0
        return len(self.after) - 1 if point == product(self.after) else None


def _starts(sizes: Sequence[int]) -> list[int]:
    """The products of what is before each size."""
    return [product(sizes[:axis]) for axis in range(len(sizes))]


def _ones(sizes: Sequence[int], start: int) -> list[int]:
    """The axes of size 1 before which there is so much."""
    pairs = enumerate(zip(_starts(sizes), sizes, strict=True))
    return [axis for axis, (begin, size) in pairs if size == 1 and begin == start]


def _note_parts(
    sizes: Sequence[int], parts: Sequence[Sequence[_Place]], result: Sequence[Dim], merged: Merged
) -> None:
    """Notes of which factors each size is that has changed, if there are several."""
    for begin, size, places, new in zip(_starts(sizes), sizes, parts, result, strict=True):
        factors: list[Factor] = []
        start = begin
        for place in places:
            if place.start > start:
                factors.append(Factor(place.start // start, place.start // start))
            factors.append(place.factor)
            start = place.end
        if start < begin * size:
            factors.append(Factor(begin * size // start, begin * size // start))
        if len(factors) > 1:
            is_other = merged.get((size, new), factors) != factors
            merged[size, new] = None if is_other else factors


def _spelled(shape: Shape) -> str:
    return f"[{'x'.join(map(str, shape))}]"
