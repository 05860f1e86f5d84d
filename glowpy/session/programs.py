"""Programs: what a session has compiled of a model as a whole, and what it knows for that of the calls it got.

A model with symbolic dimensions is compiled for ranges of extents, which grow with what it meets: see `assumptions`.
A model whose shapes depend on the elements of an input is compiled once for each value of that input. What was compiled
is kept; the least recently used is dropped first.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, final

from glowpy.backend import Backend, CompileOptions
from glowpy.core.tensor import Array
from glowpy.importer.added_outputs import checks_among
from glowpy.importer.model import Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.recall import compile_or_recall
from glowpy.runtime.compiled import CompiledFunction, Observer
from glowpy.session.assumptions import Assumptions
from glowpy.session.facts import Changes, changed, joined, reverted
from glowpy.session.feeds import key_of, listed
from glowpy.session.kept_needs import NEEDS, KeptNeed
from glowpy.session.preparation import CompileEvent, Gate, Ranges, given_values, prepared
from glowpy.session.shape_plan import ShapePlan
from glowpy.session.specialisations import Specialisations
from glowpy.session.suppositions import Elements, Shapes, Ways, beyond_limits
from glowpy.support.errors import Diagnostic, FrozenError, ResourceError, UserError
from glowpy.support.forks import Lock
from glowpy.support.loc import Loc
from glowpy.support.questions import Need
from glowpy.support.symbolic import UndecidedError

if TYPE_CHECKING:
    from glowpy.core.state_pairs import StatePairs
    from glowpy.graph.function import Module

__all__ = ["Compiling", "Programs"]

MAX_VALUE = 1 << 16
"""An input of more elements is data, not a shape: compiling for each of its values is refused."""
_FEW_ELEMENTS = 8
"""An input of more elements is data, no switch that chooses branches."""
_FEW_VALUES = 4
"""After so many values of what chooses branches, the session chooses them itself."""
_OF_NO_SHAPE = FrozenError, ResourceError, RoundsError, ValueNeededError
"""Errors that do not come from the shapes of a call."""


@dataclass(frozen=True)
class Compiling:
    """How a session, and those of its parts, compile.

    Attributes:
        backend: The backend.
        options: How to compile.
        limit: How many programs of a model are kept.
        observer: Sees every instruction of every run.
        gate: Hears of all that is compiled, and says whether it may be.
    """

    backend: Backend
    options: CompileOptions = field(default_factory=CompileOptions)
    limit: int = 16
    observer: Observer | None = None
    gate: Gate = field(default_factory=Gate)


@dataclass
class _Attempt:
    """An attempt to get code for a call.

    Attributes:
        shapes: The shapes of the inputs, and of what is kept.
        values: Elements that have to be known.
        known: Those as a part of keys.
        changes: What it has changed of the assumptions.
        needed: The error that asked for elements, in place of which something is supposed.
        why: Why something has to be compiled.
    """

    shapes: tuple[tuple[str, tuple[int, ...]], ...]
    values: Mapping[str, Array]
    known: Hashable
    changes: Changes = field(default_factory=dict)
    needed: ValueNeededError | None = None
    why: str = ""


@final
class Programs:
    """The compiled functions of a model for a backend. Safe from several threads.

    Attributes:
        specialisations: The compiled functions.
        values: The inputs whose elements have to be known while compiling.
    """

    def __init__(self, model: Model, compiling: Compiling, pairs: StatePairs) -> None:
        self._model, self._pairs = model, pairs
        self._backend, self._options = compiling.backend, compiling.options
        self._gate, self._limit = compiling.gate, compiling.limit
        self._observer = compiling.observer
        self.specialisations = Specialisations[tuple[ShapePlan, Hashable]](self._limit)
        self.values: tuple[str, ...] = ()
        self._lock = Lock()  # of what is assumed
        self._fresh = Assumptions(model.inputs, fixed=not self._backend.symbolic)
        self._assumptions: OrderedDict[Hashable, Assumptions] = OrderedDict()  # by known elements
        self._elements = Elements()
        self._choice: ValueNeededError | None = None  # for which these have to be known

    def compile_static(self) -> None:
        """Compiles a model without symbolic dimensions at once."""
        static = {
            info.name: tuple(dim for dim in info.shape if isinstance(dim, int))
            for info in self._model.inputs
            if info.shape is not None
        }
        shapes = [(info.name, info.shape) for info in self._model.inputs]
        if any(shape is None or len(static[name]) != len(shape) for name, shape in shapes):
            return
        try:
            self._specialized(tuple(static.items()), {})
        except ValueNeededError as error:
            if not self._may_know(error, static, {}):
                raise
            if not self._counts(
                error
            ):  # else a call runs it, unless `prepare` compiles for a number of rounds
                self._know(error, static, {})

    def ways(self, feeds: Mapping[str, Array]) -> Ways:
        """The ways to compute the outputs for these inputs."""
        return Ways(partial(self._for, feeds), partial(self._for_elements, feeds), self._exceeded)

    @property
    def summary(self) -> dict[str, str]:
        """The ranges or sizes assumed for open dimensions, by name."""
        with self._lock:
            assumed = [*self._assumptions.values()]
        return {name: text for assumptions in assumed for name, text in assumptions.summary.items()}

    def prepare(self, ranges: Ranges, arrays: Mapping[str, Array]) -> None:
        """Compiles for all extents within ranges, and for these elements where they have to be known.

        Raises what `prepared` raises, and what says that the model is not compiled as a whole.
        """
        model = self._model.as_whole()
        while True:
            known = given_values(self.values, arrays)
            try:
                self._prepare(model, ranges, known)
                self._model = model  # a split for rounds would drop what is prepared
                return
            except ValueNeededError as error:
                shapes = ranges.shapes(ranges.corners[-1])
                if not self._may_know(error, shapes, known):
                    raise
                self._know(error, shapes, known)

    def _prepare(self, model: Model, ranges: Ranges, values: Mapping[str, Array]) -> None:
        known = key_of(values)
        before = self._copied_assumptions(known)

        def compile(plan: ShapePlan, shapes: Shapes) -> None:
            work = partial(self._compiled, model, plan, values, known, "prepare")
            call = tuple(shapes.items()), known
            self.specialisations.get((plan, known), call, work, pinned=True)

        def fits(shapes: Shapes) -> bool:
            plan = self._fitting(shapes, known)
            return plan is not None and self.specialisations.pin((plan, known))

        learned = prepared(ranges, before, fits, compile)
        changes = changed(before.facts, learned.facts)
        with self._lock:  # under which calls have perhaps learned meanwhile
            assumed = self._assumptions.get(known, learned)
            self._assumptions[known] = assumed.with_facts(joined(assumed.facts, changes))

    def latest(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function that an equal call has run, if neither its inputs nor its outputs need a check."""
        if self.values:
            return None
        shapes = tuple([(name, array.shape) for name, array in feeds.items()])
        function = self.specialisations.latest((shapes, ()))
        return None if function is not None and function.supposed else function

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function for such a call; None if elements must be known for it, or nothing is compiled yet."""
        function, shapes = self.latest(feeds), {name: a.shape for name, a in feeds.items()}
        if function is None and not self.values and self._fitting(shapes, ()):
            function = self._for(feeds, shapes)
        return function

    def _exceeded(self, function: CompiledFunction, others: Mapping[str, int]) -> bool:
        """Whether a run has found extents that are beyond their limits, which are higher now."""
        limits = beyond_limits(function.supposed, others)
        if limits:  # nothing is dropped that nothing may replace
            found = ", ".join(f"'{name}' = {extent}" for name, extent in limits.items())
            self._gate.admit(f"elements make {found}")
        with self._lock:
            for assumed in self._assumptions.values():
                assumed.found.exceed(limits)
        self.specialisations.keep(lambda key: not beyond_limits(key[0].supposed, limits))
        return bool(limits)

    def _for_elements(
        self, feeds: Mapping[str, Array], shapes: Shapes, names: Sequence[str], error: UserError
    ) -> CompiledFunction:
        """Compiles for the elements of this call, which decide extents that differ from the supposed ones.

        Raises the error where these are data.
        """
        with self._lock:
            assumed = [*self._assumptions.values()]
            inputs = [one for each in assumed for one in each.found.inputs_of(names)]
        if not inputs or any(n not in feeds or feeds[n].size > MAX_VALUE for n in inputs):
            raise error
        why = error.diagnostics[0].message
        values = {one: feeds[one] for one in dict.fromkeys([*self.values, *inputs])}
        known, plan = key_of(values), ShapePlan(shapes)
        with self._lock:
            self._elements.need(inputs, why)
            if not self._gate.frozen:
                self._elements.meet(values)
        compile = partial(self._compiled, self._model, plan, values, known, why)
        return self.specialisations.get((plan, known), (tuple(shapes.items()), known), compile)

    def _for(self, feeds: Mapping[str, Array], shapes: Shapes) -> CompiledFunction:
        """The specialisation for inputs, and what is kept, of these shapes; compiled if there is none."""
        while True:
            values = {name: feeds[name] for name in self.values} if self.values else {}
            try:
                return self._specialized(tuple(shapes.items()), values)
            except ValueNeededError as error:
                if self._counts(error) or not self._may_know(error, shapes, values):
                    raise
                self._know(error, shapes, values)

    def _may_know(
        self, error: ValueNeededError, shapes: Shapes, known: Mapping[str, Array]
    ) -> bool:
        """Whether to compile for elements of inputs that are needed.

        Not if they were `known`, are kept, or are data: many elements, or floats or more than a few elements that
        decide about branches.
        """
        names = [name for name in error.inputs if name not in known]
        is_kept = any(name in self._pairs for name in names)
        large = any(math.prod(shapes[name]) > MAX_VALUE for name in error.inputs)
        if is_kept or not names or large:
            return False
        floats = {info.name for info in self._model.inputs if info.kind.has_fractions}
        many = any(math.prod(shapes[name]) > _FEW_ELEMENTS for name in error.inputs)
        data = many or not floats.isdisjoint(error.inputs)
        return not (data and self._decides(error))

    def _decides(self, error: ValueNeededError) -> bool:
        """Whether the session can choose by these elements while it runs: they decide about branches or rounds."""
        split = None if self._pairs else self._model.in_parts(error)
        return split is not None and split.has_host_steps

    def _counts(self, error: ValueNeededError) -> bool:
        """Whether the elements decide how often a loop runs, which the session can run round by round at once."""
        return not self._pairs and self._model.asks_for_rounds(error)

    def _know(self, error: ValueNeededError, shapes: Shapes, known: Mapping[str, Array]) -> None:
        """Notes inputs whose elements must be known beside those that are; another thread may have noted them."""
        decides, names = self._decides(error), [n for n in error.inputs if n not in known]
        with self._lock:
            self._fresh.know(names, shapes)
            if not decides:  # else the session chooses where there are more than a few
                self._elements.need(names, error.diagnostics[0].message)
            self._assumptions.clear()
            self._choice = error if decides else self._choice
            self.values = tuple(dict.fromkeys([*self.values, *names]))

    def _assumed_with(self, known: Hashable) -> Assumptions:
        """Returns the assumptions for known elements: those of other elements may not fit. The lock is held.

        Raises what chooses branches where too many values of it would be compiled for.
        """
        if known not in self._assumptions:
            if self._choice is not None and len(self._assumptions) >= _FEW_VALUES:
                raise self._choice
            latest = next(reversed(self._assumptions.values()), self._fresh)
            self._assumptions[known] = latest.unlearned()
            if len(self._assumptions) > self._limit:
                self._assumptions.popitem(last=False)
        self._assumptions.move_to_end(known)
        return self._assumptions[known]

    def _specialized(
        self, shapes: tuple[tuple[str, tuple[int, ...]], ...], values: Mapping[str, Array]
    ) -> CompiledFunction:
        """Returns the function for ranges that contain these shapes, compiled now if need be."""
        known = key_of(values)
        call = shapes, known
        function = self.specialisations.at_hand(
            call, lambda key: key[1] == known and key[0].admits(dict(shapes))
        )
        if function is not None:
            return function
        attempt = _Attempt(shapes, values, known)
        try:
            while function is None:
                function = self._tried(attempt)
        except UserError as error:
            self._unlearn(attempt)
            if isinstance(error, _OF_NO_SHAPE):
                raise
            if attempt.needed is not None:
                raise attempt.needed from error
            self._raise_contradictions(known, dict(shapes), error)
            raise
        return function

    def _tried(self, attempt: _Attempt) -> CompiledFunction | None:
        """Returns code for a call; None where compiling needs something of dimensions, which is assumed from now on."""
        shapes, values, known = dict(attempt.shapes), attempt.values, attempt.known
        plan = self._fitting(shapes, known)
        if plan is None:
            attempt.why = self._why(shapes, known)
            plan = self._assumed(attempt)
        compile = partial(self._compiled, self._model, plan, values, known, attempt.why)
        try:
            return self.specialisations.get((plan, known), (attempt.shapes, known), compile)
        except (UndecidedError, ValueNeededError) as error:
            if not self._answered(error.need, plan, attempt):
                raise
            if isinstance(error, ValueNeededError):
                attempt.needed = error
            return None

    def _unlearn(self, attempt: _Attempt) -> None:
        """Forgets what a call has changed: nothing is learned from one that cannot be computed."""
        with self._lock:
            if attempt.changes and attempt.known in self._assumptions:
                assumed = self._assumptions[attempt.known]
                facts = reverted(assumed.facts, attempt.changes)
                self._assumptions[attempt.known] = assumed.with_facts(facts)

    def _raise_contradictions(self, known: Hashable, shapes: Shapes, error: UserError) -> None:
        """Raises an error that says first what a call is at odds with, if it is with what is assumed."""
        if contradictions := self._copied_assumptions(known).contradictions(shapes):
            reasons = [Diagnostic(sentence, Loc(self._model.file)) for sentence in contradictions]
            raise UserError.of([*reasons, *error.diagnostics]) from error

    def _answered(self, need: Need, plan: ShapePlan, attempt: _Attempt) -> bool:
        """Assumes what compiling by a plan needs, for a call; False if nothing gets it further."""
        with self._changing(attempt) as assumed:
            return assumed.ask(need, plan, dict(attempt.shapes))

    @contextmanager
    def _changing(self, attempt: _Attempt) -> Iterator[Assumptions]:
        """The assumptions for a call, under the lock; notes what it changes of them."""
        with self._lock:
            assumed = self._assumed_with(attempt.known)
            before = assumed.facts
            try:
                yield assumed
            finally:
                attempt.changes = changed(before, assumed.facts, attempt.changes)

    def _copied_assumptions(self, known: Hashable) -> Assumptions:
        with self._lock:
            return self._assumed_with(known).copy()

    def _fitting(self, shapes: Shapes, known: Hashable) -> ShapePlan | None:
        """The closest plan that there is code of for these shapes and known elements."""
        keys = self.specialisations.keys
        fitting = [plan for plan, values in keys if values == known and plan.admits(shapes)]
        return min(fitting, key=lambda plan: plan.openness) if fitting else None

    def _why(self, shapes: Shapes, known: Hashable) -> str:
        """Why something has to be compiled for a call."""
        keys = self.specialisations.keys
        plans = [plan for plan, values in keys if values == known]
        if plans:
            return self._fresh.beyond(shapes, plans)
        return f"other elements of {listed(self.values)}" if keys else "nothing is compiled yet"

    def _assumed(self, attempt: _Attempt) -> ShapePlan:
        """The plan to compile by for a call, if anything is to be compiled."""
        shapes = dict(attempt.shapes)
        try:
            self._model.key(shapes=shapes)  # raises where they contradict each other
        except UserError as error:  # its remedy is for those who give shapes in advance
            note = self._resizing(shapes)
            error.diagnostics = [replace(diagnostic, note=note) for diagnostic in error.diagnostics]
            raise
        self._gate.admit(attempt.why)  # before anything is learned, or warned of
        with self._changing(attempt) as assumed:
            self._elements.meet(attempt.values)
            return assumed.plan(shapes)

    def _resizing(self, shapes: Shapes) -> str:
        """How to open the model for shapes that it has other sizes for; empty where that would not help."""
        if not self._model.is_resizable:
            return ""
        infos = {info.name: info for info in self._model.inputs}
        other = {
            name: shape
            for name, shape in shapes.items()
            if not infos[name].admits(shape) and len(shape) == len(infos[name].shape or ())
        }
        return (
            f"glowpy.InferenceSession has other sizes if it is opened with shapes={other}"
            * bool(other)
        )

    def _compiled(
        self,
        model: Model,
        plan: ShapePlan,
        values: Mapping[str, Array],
        known: Hashable,
        why: str,
    ) -> CompiledFunction:
        """From the backend's memory of what it compiled, or compiled now if that may be. Replaces narrower bounds."""
        self._gate.admit(why)
        copies = {name: array.copy() for name, array in values.items()}
        modules: list[Module] = []
        start = time.perf_counter()

        def build() -> Module:
            need.ask()
            modules.append(model.build(**given))
            return modules[0]

        given: Any = {"shapes": plan.shapes, "supposed": plan.supposed, "values": copies}
        given["state"] = self._pairs
        key = model.key(**given)
        asker = f"{model.file} {key} {model.runs_rounds}"  # which says how long a loop may be
        need = KeptNeed(asker, self._backend, self._options)
        try:
            function = compile_or_recall(key, build, self._backend, self._options)
        except NEEDS as error:
            need.keep(error)
            raise
        finally:
            for module in modules:
                module.forget()
        function.observer, function.supposed = self._observer, plan.supposed
        function.checks = checks_among(function.outputs)
        if self._gate.listener is not None:
            dims, seconds = self._fresh.spelled(plan), time.perf_counter() - start
            self._gate.listener(CompileEvent(model.file, dims, why, seconds, not modules))
        own = plan, known
        self.specialisations.replace(own, lambda k: k[1] == known and plan.replaces(k[0]))
        return function
