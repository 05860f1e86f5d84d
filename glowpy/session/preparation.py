"""Preparation: what a session compiles before it is called, for all extents of open dimensions within ranges.

A session learns from its calls what compiling needs to know of open dimensions. Here calls are made up: the corners of
the ranges first, then every extent of each dimension beside the others where the
model allows some. What code there is for costs no more than a look, so that most models are compiled once for each
range. What has no code in the end, and was not tried, is warned of.
"""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias, final

from glowpy.core.tensor import Array
from glowpy.importer.declared import ValueInfo, computed_dims
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.session.assumptions import Assumptions
from glowpy.session.shape_plan import ShapePlan
from glowpy.support.callers import warn_caller
from glowpy.support.errors import Diagnostic, FrozenError, ResourceError, UserError
from glowpy.support.symbolic import Dim, UndecidedError
from glowpy.support.text import parse_dim, symbol_name

__all__ = [
    "MOST_PROGRAMS",
    "CompileEvent",
    "Gate",
    "Range",
    "Ranges",
    "given_values",
    "parse_ranges",
    "prepared",
]

Bounds: TypeAlias = tuple[int, int]
"""The least and the greatest extent."""
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""Those of inputs, by name."""
Range: TypeAlias = int | str | range | Sequence[int | str | range]
"""`8`, `"1..32"`, a `range`, or a list of these, each of which is compiled for by itself; or what it is computed of."""

MOST_PROGRAMS = 64
"""More programs are not prepared: some dimension turned out to be one that each extent is compiled for."""
_MOST_CORNERS = 64
_MOST_PAIRED = 6
"""The number of dimensions up to which all pairs of them are tried."""
_SWEPT = 1 << 14
"""So many extents of each dimension are looked at, the lowest; and as many of the highest."""
_COMBINED = 1 << 12
"""So many combinations of extents are looked at beside those."""
_GOLDEN = (math.sqrt(5) - 1) / 2
"""Steps of this share of a whole lead everywhere evenly (Knuth 1973, volume 3, section 6.4)."""
_SOUGHT = 256
"""So many extents are tried to find some that the model allows, where it allows no corner."""
_IN_VAIN = 8
"""After so many that the model does not allow, those are not tried that are at odds with what is learned."""
_MOST_IN_VAIN = 64
"""After so many, none is tried."""
_LARGEST = 1 << 31
_PIECE = re.compile(r"\s*([0-9]{1,10})(?:\s*\.\.\s*([0-9]{1,10}))?\s*")


@dataclass(frozen=True)
class CompileEvent:
    """Event: a session has compiled something, or found it in the cache.

    Attributes:
        model: How messages call the model.
        dims: The sizes that the code assumes for open dimensions: `{"batch": "1..32"}`.
        why: The reason for it.
        seconds: How long it took.
        recalled: Whether it was in the cache as a whole.
    """

    model: str
    dims: Mapping[str, str]
    why: str
    seconds: float
    recalled: bool

    def __str__(self) -> str:
        dims = ", ".join(f"{name} = {text}" for name, text in self.dims.items())
        what = "taken from the cache" if self.recalled else "compiled"
        return (
            f"{self.model}: {what} in {self.seconds:.2f} s for {dims or 'its shapes'}: {self.why}"
        )


@dataclass
class Gate:
    """Listener for the compilations of a session and its parts, and permission to compile.

    Attributes:
        listener: Who hears of them.
        frozen: Whether there are to be no more.
    """

    listener: Callable[[CompileEvent], object] | None = None
    frozen: bool = False

    def admit(self, why: str = "") -> None:
        """Raises FrozenError if nothing is to be compiled any more, for a call or to prepare."""
        if self.frozen:
            what = f"has no code for this call: {why}" if why else "prepares nothing any more"
            raise FrozenError(
                f"the session is frozen, and {what}",
                note="prepare the session for it before freeze()",
            )


class Ranges:
    """The ranges that open dimensions of some inputs are to have.

    Args:
        infos: The inputs.
        given: A range for each symbolic dimension, by its name, or `x[0]` or `x_0` where it has none.

    Attributes:
        parts: The bounds of all of them, for each part that is compiled by itself.

    Raises UserError for dimensions that the model does not have, those that are missing, and what is no range.
    """

    def __init__(self, infos: Sequence[ValueInfo], given: Mapping[str, Range]) -> None:
        self._infos = infos
        names = _names(infos)
        aliases = {alias: name for name, spelled in names.items() for alias in (spelled, name)}
        pieces: dict[str, list[Bounds]] = {}
        self._texts: dict[str, str] = {}
        for alias, value in given.items():
            if alias not in aliases:
                expected = ", ".join(f"'{name}'" for name in names)
                what = (
                    f"ranges of the dimensions {expected}"
                    if names
                    else "no ranges: no dimension is open"
                )
                raise UserError(f"expected {what}, got '{alias}'")
            name = aliases[alias]
            if isinstance(value, str) and re.search("[A-Za-z_]", value):  # computed of others
                self._texts[name] = value
            else:
                pieces[name] = list(_pieces(name, value))
        self.parts = [
            dict(zip(pieces, bounds, strict=True)) for bounds in itertools.product(*pieces.values())
        ]
        if len(self.parts) > MOST_PROGRAMS:
            raise UserError(f"expected at most {MOST_PROGRAMS} parts, got {len(self.parts)}")
        lowest_extents = self.extents({name: low for name, (low, _) in self.parts[0].items()})
        if missing := [name for name in names if name not in lowest_extents]:
            raise UserError(
                f"expected a range of '{missing[0]}' as well",
                note="every open dimension needs extents, such as 1..64, or what it is computed of, such as past+seq",
            )

    def extents(self, own: Mapping[str, int]) -> dict[str, int]:
        """Those of all dimensions, for these: some are computed of others."""
        extents: dict[str, Dim] = dict(own)
        names = _names(self._infos)
        for name, text in self._texts.items():
            numbers = {names[other]: extent for other, extent in extents.items()}
            try:
                extents[name] = parse_dim(_in_symbols(text, names), numbers)
            except UserError as error:
                raise UserError(f"'{name}': {error.diagnostics[0].message}, in '{text}'") from None
        rest = [name for name in names if name not in extents]
        extents |= computed_dims(rest, extents)
        return {name: extent for name, extent in extents.items() if isinstance(extent, int)}

    def shapes(self, own: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
        """Those of the inputs, for these extents."""
        extents = self.extents(own)
        return {
            info.name: tuple(
                dim if isinstance(dim, int) else extents[dim or f"{info.name}[{axis}]"]
                for axis, dim in enumerate(info.shape or ())
            )
            for info in self._infos
        }

    @property
    def corners(self) -> list[dict[str, int]]:
        """The lowest and the highest extents of each part."""
        ends = [(part, end) for part in self.parts for end in (0, 1)]
        return [{name: bounds[end] for name, bounds in part.items()} for part, end in ends]


def given_values(names: Sequence[str], arrays: Mapping[str, Array]) -> dict[str, Array]:
    """The elements of inputs that have to be known. Raises UserError where some are not given."""
    for name in names:
        if name not in arrays:
            raise UserError(
                f"expected the elements of '{name}' to prepare for",
                note=f"session.prepare(..., values={{'{name}': array}})",
            )
    return {name: arrays[name] for name in names}


def prepared(
    ranges: Ranges,
    assumed: Assumptions,
    fits: Callable[[Shapes], bool],
    compile: Callable[[ShapePlan, Shapes], object],
) -> Assumptions:
    """Compiles for everything that a model allows within some ranges; returns the assumptions about dimensions then.

    Args:
        ranges: The ranges.
        assumed: The assumptions before.
        fits: Whether there is code for inputs of these shapes.
        compile: Compiles for a plan, and for inputs of these shapes; raises what compiling raises.

    Raises the first error of a part of which nothing is allowed, and UserError for too many programs.
    """
    learned = assumed.in_advance()
    for part in ranges.parts:
        preparation = _Preparation(ranges, part, learned.copy(), fits, compile)
        preparation.run()
        learned = preparation.assumed
    learned.bound(*map(ranges.shapes, ranges.corners))
    return learned.after_all()


@final
class _Preparation:
    """Compiles a part of some ranges. What is `assumed` learns, and admits the part in the end."""

    def __init__(
        self,
        ranges: Ranges,
        part: Mapping[str, Bounds],
        assumed: Assumptions,
        fits: Callable[[Shapes], bool],
        compile: Callable[[ShapePlan, Shapes], object],
    ) -> None:
        self._ranges, self._part = ranges, part
        self.assumed = assumed
        self._fits, self._compile = fits, compile
        self._errors: list[UserError] = []
        self._refused: set[tuple[str, int]] = set()  # at the base, whatever else is there
        self._untried: list[Mapping[str, int]] = []
        lows = {name: low for name, (low, _) in part.items()}
        highs = {name: high for name, (_, high) in part.items()}
        self.assumed.bound(ranges.shapes(lows), ranges.shapes(highs))
        self._programs = 0

    def run(self) -> None:
        """Compiles until there is code for all that the model allows, of what is looked at.

        Raises the first error if that is nothing.
        """
        corners = list(_corners(self._part))
        base = self._base(corners)
        for extents in corners:
            self._try(extents)
        self._untried.clear()  # until more is known
        for names in _together(self._part):
            self._errors.clear()
            for extent in _swept(self._part, names):
                fits = self._try({**base, **_clamped(self._part, names, extent)})
                if not fits and len(names) == 1:
                    self._refused.add((names[0], extent))
        for some in (_combined(self._part), corners):
            self._errors.clear()
            for extents in some:
                self._try(extents)
        if self._untried:
            first, last = (
                ", ".join(f"{name} = {extent}" for name, extent in self._untried[end].items())
                for end in (0, -1)
            )
            more = f" to {last} ({len(self._untried)} in all)" if first != last else ""
            warn_caller(f"no code is prepared for {first}{more}, which was not tried")

    def _base(self, corners: Sequence[Mapping[str, int]]) -> Mapping[str, int]:
        """Extents that the model allows: a corner, or others. Raises the first error if there are none."""
        inner = (_clamped(self._part, self._part, corner) for corner in _from_the_ends(self._part))
        tried = 0
        for extents in itertools.chain(corners, itertools.islice(inner, _SOUGHT)):
            if self._try(extents, exactly=True):
                self._errors.clear()
                return extents
            tried += 1
        error = self._errors[0]
        if math.prod(high - low + 1 for low, high in self._part.values()) > tried:
            which = f"expected ranges with extents that the model allows, which {tried} are not"
            raise UserError.of([Diagnostic(which), *error.diagnostics]) from error
        raise error

    def _try(self, extents: Mapping[str, int], *, exactly: bool = False) -> bool:
        """Compiles for these extents, unless there is code for them, or only for others too. False if that fails."""
        shapes = self._ranges.shapes(extents)
        if not exactly and self._fits(shapes):
            return True
        if not exactly and len(self._errors) >= _IN_VAIN:
            if not self._refused.isdisjoint(extents.items()) or self.assumed.contradictions(shapes):
                return False
            if len(self._errors) >= _MOST_IN_VAIN:
                self._untried.append(extents)
                return False
        before = self.assumed.copy()
        try:
            self._compiled(shapes)
            constants = self.assumed.compiled_for_each
            if exactly:
                self._check(constants)
            elif constants.keys() != before.compiled_for_each.keys():
                self.assumed = before  # what is odd about these extents does not count for others
        except (FrozenError, ResourceError, RoundsError, _TooManyError, ValueNeededError):
            raise
        except UserError as error:
            self.assumed = before
            self._errors.append(error)
            return False
        return True

    def _compiled(self, shapes: Shapes) -> None:
        while True:
            plan = self.assumed.plan(shapes)
            try:
                self._compile(plan, shapes)
            except (UndecidedError, ValueNeededError) as error:
                if not self.assumed.ask(error.need, plan, shapes):
                    raise
                continue
            self._programs += 1
            if self._programs > MOST_PROGRAMS:
                raise _TooManyError(
                    f"expected ranges that at most {MOST_PROGRAMS} programs are for"
                )
            return

    def _check(self, constants: Mapping[str, tuple[int, str]]) -> None:
        """Raises TooManyError where each extent of a dimension would be compiled for, and there are too many."""
        if math.prod(count for count, _ in constants.values()) > MOST_PROGRAMS:
            name, (count, why) = max(constants.items(), key=lambda item: item[1][0])
            raise _TooManyError(
                f"expected at most {MOST_PROGRAMS} extents of '{name}', got {count}: code is compiled for each: {why}"
            )


class _TooManyError(UserError):
    """So many programs are not prepared."""


def _corners(part: Mapping[str, Bounds]) -> Iterator[dict[str, int]]:
    """Extents at which something may be different: the highest first, then equal ones, multiples, and the lowest."""
    yield {name: high for name, (_, high) in part.items()}
    ends = (
        [min(high for _, high in part.values()), max(low for low, _ in part.values())]
        if part
        else []
    )
    yield from (_clamped(part, part, extent) for extent in ends)
    choices = []
    for low, high in part.values():
        multiples = [high - high % step for step in (2, 4, 8, 16, 32)]
        near = [high, *multiples, low, low + 1]
        choices.append([*dict.fromkeys(extent for extent in near if low <= extent <= high)])
    yield from (
        dict(zip(part, extents, strict=True))
        for extents in itertools.islice(itertools.product(*choices), _MOST_CORNERS)
    )
    highest = {name: high for name, (_, high) in part.items()}
    for name, (low, _) in part.items():
        yield {**highest, name: low}
    yield {name: low for name, (low, _) in part.items()}


def _together(part: Mapping[str, Bounds]) -> Iterator[Sequence[str]]:
    """Dimensions that are varied together, as some have to be equal: each by itself, each two, and all."""
    yield from ([name] for name in part)
    if len(part) <= _MOST_PAIRED:
        yield from itertools.combinations(part, 2)
    yield from [[*part]] if len(part) > 2 else []


def _swept(part: Mapping[str, Bounds], names: Iterable[str]) -> Iterator[int]:
    """The extents of dimensions that are varied together, without those in the middle of very many."""
    low, high = min(part[name][0] for name in names), max(part[name][1] for name in names)
    split = min(low + _SWEPT, high + 1)
    yield from range(low, split)
    yield from range(max(split, high + 1 - _SWEPT), high + 1)


def _combined(part: Mapping[str, Bounds]) -> Iterator[dict[str, int]]:
    """Combinations of extents, in an order that is the same each time: all, or some spread evenly over many."""
    counts = [high - low + 1 for low, high in part.values()]
    count = math.prod(counts)
    step = max(int(count * _GOLDEN), 1)
    while math.gcd(step, count) != 1:
        step += 1
    for place in range(min(count, _COMBINED)) if len(counts) > 1 else ():
        rest, extents = place * step % count, {}
        for (name, (low, _)), number in zip(part.items(), counts, strict=True):
            rest, offset = divmod(rest, number)
            extents[name] = low + offset
        yield extents


def _from_the_ends(part: Mapping[str, Bounds]) -> Iterator[int]:
    """The same, the lowest and the highest in turns."""
    extents = [*_swept(part, part)] if part else []
    half = (len(extents) + 1) // 2
    for low, high in itertools.zip_longest(extents[:half], reversed(extents[half:])):
        yield low
        if high is not None:
            yield high


def _clamped(part: Mapping[str, Bounds], names: Iterable[str], extent: int) -> dict[str, int]:
    """An extent for each dimension, as near as its bounds allow."""
    return {name: min(max(extent, part[name][0]), part[name][1]) for name in names}


def _names(infos: Sequence[ValueInfo]) -> dict[str, str]:
    """The dimensions that inputs leave open, and how texts spell them. Raises UserError for an input of any rank."""
    names: dict[str, str] = {}
    for info in infos:
        if info.shape is None:
            raise UserError(f"expected inputs of a known rank, got '{info.name}' of any")
        for axis, dim in enumerate(info.shape):
            if not isinstance(dim, int):
                name = dim or f"{info.name}[{axis}]"
                names[name] = symbol_name(dim or f"{info.name}_{axis}")
    return names


def _in_symbols(text: str, names: Mapping[str, str]) -> str:
    """A dimension in the user's names, such as `x[0]+1`, as texts of types spell it."""
    for name in sorted(names, key=len, reverse=True):
        if name != names[name]:
            text = text.replace(name, names[name])
    return text


def _pieces(name: str, value: object) -> Iterator[Bounds]:
    """The bounds that a range stands for. Raises UserError for what is none."""
    match value:
        case int() if not isinstance(value, bool):
            bounds = [(value, value)]
        case range() if value.step == 1 and len(value):
            bounds = [(value[0], value[-1])]
        case str():
            matches = [_PIECE.fullmatch(text) for text in value.split(",")]
            bounds = [(int(m[1]), int(m[2] or m[1])) for m in matches if m is not None]
            bounds = bounds if len(bounds) == len(matches) else []
        case list() | tuple():
            bounds = [piece for item in value for piece in _pieces(name, item)]
        case _:
            bounds = []
    if not bounds or not all(0 <= low <= high <= _LARGEST for low, high in bounds):
        raise UserError(
            f"'{name}': expected extents such as 8, '1..32' or ['1', '2..32'], got {value!r}"
        )
    yield from bounds


def parse_ranges(texts: Sequence[str]) -> dict[str, Range]:
    """Parses the ranges in options: `batch=1..32`, `batch=1,2..32`, `total=past+seq`. Raises UserError."""
    ranges: dict[str, Range] = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not (name and separator and value):
            raise UserError(f"expected DIMENSION=LOW..HIGH, got '{text}'")
        if name in ranges:
            raise UserError(f"'{name}' is given twice")
        ranges[name] = value
    return ranges
