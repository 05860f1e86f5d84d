"""Suppositions: what a session takes extents to be that elements decide, which each run then shows.

Nothing bounds how long a sentence is spoken, and nothing says that each of four experts gets a word: memory needs a
bound, and operators two extents that are equal. So code is made for what is supposed, and the network gives what it
has found as well: a bound that is exceeded grows, and a run that has found anything else than it was made for is void.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeAlias, final

import numpy as np

from glowpy.core.extents import extents_of
from glowpy.core.tensor import Array
from glowpy.importer.added_outputs import count_output
from glowpy.runtime.arrays import given_inputs, store_outputs
from glowpy.runtime.compiled import CompiledFunction
from glowpy.session.facts import BOUNDS, Facts, in_table, meaning_facts, meanings_of
from glowpy.support.callers import warn_caller
from glowpy.support.errors import NoRoomError, UserError
from glowpy.support.questions import Asked
from glowpy.support.remedies import known_from, solutions
from glowpy.support.symbolic import (
    UNBOUNDED,
    Dim,
    at_extents,
    highest,
    lowest,
    substituted,
    symbol,
    symbols_of,
)

__all__ = [
    "Constants",
    "Elements",
    "Shapes",
    "Suppositions",
    "Ways",
    "beyond_limits",
    "called_with",
    "is_limit",
    "supposed_outputs",
    "void",
]

Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
"""Those of inputs, by name."""
Constants: TypeAlias = frozenset[tuple[str, int]]
"""Dimensions, and the numbers that they are in some code."""
Compute: TypeAlias = Callable[[CompiledFunction, Mapping[str, Array] | None], dict[str, Array]]
"""The outputs that something compiled has for a call, some in arrays of the caller's."""

_FIRST, _LEAST = 9, 3
"""The exponents of limits at first, as powers of 2: several extents without bounds share one, each has the least."""
_GROWTH = 4
"""A limit that is exceeded becomes so many times larger."""
_SPREAD = 6
"""All limits together then allow for 2 to this power times the extents that were found, and one for 16 times."""
_MOST = 1 << 28
"""No limit is higher."""
_HIGHEST_LOW = 64
"""Nothing is supposed to be at least more."""


def is_limit(name: str, dim: Dim) -> bool:
    """Whether what is supposed of an extent is that it is between bounds."""
    return name in symbols_of([dim])


def beyond_limits(supposed: Mapping[str, Dim], found: Mapping[str, int]) -> dict[str, int]:
    """The extents that are beyond what they were supposed to be at most."""
    return {
        name: extent
        for name, extent in found.items()
        if name in supposed and is_limit(name, supposed[name]) and extent > highest(supposed[name])
    }


class Ways(NamedTuple):
    """How a session comes to what computes a call.

    Attributes:
        function_for: Returns the function for inputs and state of these shapes.
        for_elements: Returns the function for the elements of this call that decide some extents; raises the error if
            nothing can be.
        exceeded: Whether what a run has found is beyond limits, which are higher from then on.
    """

    function_for: Callable[[Shapes], CompiledFunction]
    for_elements: Callable[[Shapes, Sequence[str], UserError], CompiledFunction]
    exceeded: Callable[[CompiledFunction, Mapping[str, int]], bool]


def called_with(feeds: Mapping[str, Array]) -> Compute:
    """Calls whatever is compiled with these inputs; nothing is kept."""
    return lambda function, out: function(given_inputs(function, feeds), out)


def supposed_outputs(
    function: CompiledFunction,
    shapes: Shapes,
    out: Mapping[str, Array] | None,
    compute: Compute,
    ways: Ways,
) -> tuple[dict[str, Array], CompiledFunction]:
    """Outputs of what is compiled for suppositions, and again where it finds something else; and what computed them.

    Args:
        function: The function for inputs and state of these shapes.
        shapes: Those.
        out: As of `Executable`.
        compute: The outputs that something compiled has for the call, each time as if for the first time.
        ways: The ways to compute them.
    """
    while supposed := function.supposed:
        try:
            outputs = compute(function, None)
            extents = _found_otherwise(function, shapes, outputs)
        except NoRoomError as error:  # for as much as may be found
            function = ways.for_elements(shapes, [*supposed], error)
            break
        if not extents:
            store_outputs(outputs, out or {})
            return outputs, function
        if not ways.exceeded(function, extents):
            name, extent = next(iter(extents.items()))
            mismatch = UserError(
                f"expected '{name}' = {supposed[name]}, as for others, got {extent}"
            )
            function = ways.for_elements(shapes, [*extents], mismatch)
            break
        function = ways.function_for(shapes)
    return compute(function, out), function


def _found_otherwise(
    function: CompiledFunction, shapes: Shapes, outputs: Mapping[str, Array]
) -> dict[str, int]:
    """Returns the extents that a run has found to differ from those supposed when its network was compiled."""
    types = function.inputs | {port.name: port.type for port in function.state_ports}
    extents = extents_of({name: (type.shape, shapes[name]) for name, type in types.items()})
    counts = {name: outputs.get(count_output(name)) for name in function.supposed}
    found = {name: int(count[0]) for name, count in counts.items() if count is not None}
    return void(function.supposed, found, extents)


def void(
    supposed: Mapping[str, Dim], found: Mapping[str, int], extents: Mapping[str, int]
) -> dict[str, int]:
    """The extents that a run has found, and that are not what was supposed; `extents` are what inputs say."""
    return {
        name: found[name]
        for name, dim in supposed.items()
        if name in found
        and not (
            lowest(dim) <= found[name] <= highest(dim)
            if is_limit(name, dim)
            else found[name] == at_extents(dim, extents)
        )
    }


@final
class Suppositions:
    """Suppositions about extents that elements decide, by name. Not safe for use by several threads at once.

    Attributes:
        inputs: The inputs whose elements decide them, by name.
    """

    def __init__(self) -> None:
        self.inputs: dict[str, tuple[str, ...]] = {}
        self._bounds: dict[str, tuple[int, int]] = {}
        self._meanings: dict[str, dict[Constants, Dim]] = {}  # by what was compiled as 0 or 1

    def copy(self) -> Suppositions:
        """The same, which what is learned here from now on does not change."""
        other = Suppositions()
        other.inputs, other._bounds = dict(self.inputs), dict(self._bounds)
        other._meanings = {name: dict(meanings) for name, meanings in self._meanings.items()}
        return other

    @property
    def facts(self) -> Facts:
        """All that is supposed."""
        facts: Facts = {(BOUNDS, "found", name): fact for name, fact in self._bounds.items()}
        facts |= {("inputs", name): fact for name, fact in self.inputs.items()}
        return facts | meaning_facts("found", self._meanings)

    @staticmethod
    def of(facts: Facts) -> Suppositions:
        """The suppositions among facts."""
        other = Suppositions()
        other.inputs = in_table(facts, "inputs")
        other._bounds = in_table(facts, BOUNDS, "found")
        other._meanings = meanings_of("found", facts)
        return other

    def limit(self, names: Sequence[str], inputs: Sequence[str]) -> bool:
        """Supposes that extents are not large which nothing bounds; False if that is not new."""
        fresh = [name for name in names if self._bounds.get(name, (0, UNBOUNDED))[1] == UNBOUNDED]
        first = 1 << max(_FIRST // max(len(self._bounds) + len(fresh), 1), _LEAST)
        for name in fresh:
            low = self._bounds.get(name, (0, 0))[0]
            self._bounds[name] = low, max(first, _GROWTH * low)
            self.inputs[name] = tuple(inputs)
        return bool(fresh)

    def ask(
        self,
        asked: Sequence[Asked],
        counts: Sequence[str],
        inputs: Sequence[str],
        few: Constants,
        known: Mapping[str, int],
    ) -> bool:
        """Supposes what lets compiling go on, where no more than `few` is 0 or 1; False if there is nothing new.

        `known` has what the shapes of inputs say in this call, and `counts` need a bound.
        """
        answers = [self.suppose(question, few, known, inputs) for question in asked]
        return self.limit(counts, inputs) or any(answers)

    def suppose(
        self,
        asked: Asked,
        few: Constants,
        known: Mapping[str, int],
        inputs: Sequence[str],
    ) -> bool:
        """Supposes the answer to a question; False if there is none that is new."""
        question = asked.question
        for name in [name for name in reversed(asked.found) if name not in known]:
            if question.relation == "equal":
                fresh = self._equate(name, question.left, question.right, few, known)
            else:
                fresh = self._raise(name, question.left, question.right)
            if fresh:
                self.inputs[name] = tuple(inputs)
                return True
        return False

    def _equate(
        self, name: str, left: Dim, right: Dim, few: Constants, known: Mapping[str, int]
    ) -> bool:
        """Supposes that an extent is what it has to be for two dimensions to be equal."""
        meaning = dict(solutions(left - right)).get(name)
        if meaning is None or not symbols_of([meaning]).keys() <= known.keys():
            return False
        meanings = self._meanings.setdefault(name, {})
        if meanings.get(few) == meaning:
            return False
        meanings[few] = meaning
        return True

    def _raise(self, name: str, left: Dim, right: Dim) -> bool:
        """Supposes that an extent is not so small that one dimension might be less than another, or might not."""
        one = symbols_of([left, right])[name]
        least, high = self._bounds.get(name, (0, UNBOUNDED))
        low = known_from(left, right, one, min(_HIGHEST_LOW, high))
        if low is None:
            return False
        self._bounds[name] = max(least, low), high
        return True

    def dims(self, few: Constants, dims: Mapping[str, Dim]) -> dict[str, Dim]:
        """Returns the supposed extents where `few` are 0 or 1, and dimensions of inputs are `dims`."""
        supposed = {name: symbol(name, low, high) for name, (low, high) in self._bounds.items()}
        for name, meanings in self._meanings.items():
            fitting = [constants for constants in meanings if constants <= few]
            if fitting:
                supposed[name] = substituted(meanings[min(fitting, key=len)], dims)
        return supposed

    def inputs_of(self, names: Sequence[str]) -> list[str]:
        """The inputs whose elements decide some extents."""
        return [
            *dict.fromkeys(input_name for name in names for input_name in self.inputs.get(name, ()))
        ]

    def exceed(self, found: Mapping[str, int]) -> None:
        """Makes limits higher that a run has found to be too low.

        Raises UserError for an extent that no memory is large enough for.
        """
        for name, extent in found.items():
            if extent > _MOST:
                raise UserError(f"expected an extent '{name}' of at most {_MOST}, got {extent}")
            low, high = self._bounds.get(name, (0, UNBOUNDED))
            if extent > high:
                room = (1 << (extent - 1).bit_length()) << min(_SPREAD // len(self._bounds), 4)
                self._bounds[name] = low, max(room, _GROWTH * high)

    @property
    def summary(self) -> dict[str, str]:
        """Summarizes the suppositions, by name: `0..512`, `2*batch`."""
        texts = {
            name: f"{low}.." if high == UNBOUNDED else f"{low}..{high}"
            for name, (low, high) in self._bounds.items()
        }
        for name, meanings in self._meanings.items():
            texts[name] = " or ".join(dict.fromkeys(map(str, meanings.values())))
        return texts


@final
class Elements:
    """The inputs whose elements have to be known while compiling: why, and which they were."""

    def __init__(self) -> None:
        self._whys: dict[str, str] = {}
        self._met: dict[str, bytes | None] = {}  # None once they have varied

    def need(self, names: Sequence[str], why: str) -> None:
        """Notes why elements of inputs have to be known."""
        self._whys |= dict.fromkeys(names, why)

    def meet(self, arrays: Mapping[str, Array]) -> None:
        """Warns once of an input that has others than before; a truth value has two at most."""
        for name, array in arrays.items():
            content = array.tobytes()
            if name not in self._whys or self._met.setdefault(name, content) in (None, content):
                continue
            if array.dtype != np.bool_ or array.size > 1:
                self._met[name] = None
                warn_caller(f"code is compiled for each value of '{name}': {self._whys[name]}")
