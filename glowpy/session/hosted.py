"""Interpreter in a session for the parts between compiled code: strings, sequences, optionals and maps.

The importer splits such a model into steps. Those of machine code are models of their own, with a session for each;
the others are functions of Python. Strings are numbers in machine code: each is its place among all the strings that go
in, in order, so that what moves and compares integers moves and compares them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn, Protocol, TypeAlias, final

import numpy as np

from glowpy.core.tensor import Array
from glowpy.importer.declared import ValueInfo
from glowpy.importer.host_plan import HostPlan, HostStep, Segment
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.importer.reports import located, raise_all
from glowpy.importer.value_types import HostInfo, HostValue, ValueType
from glowpy.rounds import Rounds, RunsRounds
from glowpy.runtime.compiled import CompiledFunction
from glowpy.session.feeds import check_out, listed
from glowpy.session.host.node import HostNode
from glowpy.session.host.registry import rule_of
from glowpy.session.preparation import Range
from glowpy.session.wiring import BodyWiring, wiring_of
from glowpy.support.errors import UserError
from glowpy.support.forks import Lock

__all__ = ["Hosted", "Opening"]

Step = Callable[[dict[str, HostValue]], None]
"""Computes values of others, by name."""


_MOST_FUNCTIONS = 4
"""The number of functions that are remembered of a part, each for a range of extents."""


class Session(Protocol):
    """Session that runs a model of numbers."""

    def run(
        self, output_names: Sequence[str] | None, input_feed: Mapping[str, Array]
    ) -> list[Array]:
        """Computes outputs."""

    def close(self) -> None:
        """Drops what was compiled."""

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function that is all of such a call; None if there is more to it, or none compiled yet."""

    @property
    def assumptions(self) -> dict[str, str]:
        """Describes what open dimensions are assumed to be."""


Opening: TypeAlias = Callable[[Model], Session]
"""Opens a session of a part of a model."""


class Hosted:
    """A model that is split, with sessions for its parts. Safe from several threads.

    Raises UserError that lists the nodes whose attributes are wrong.
    """

    def __init__(self, model: HostedModel, session_of: Opening) -> None:
        self._model = model
        self._session_of = session_of
        self._sessions: list[Session] = []
        self._opening = Lock(is_brief=False)
        self._known = frozenset(info.name for info in model.inputs)
        self._needed = frozenset(info.name for info in model.inputs if not info.is_optional)
        errors: list[UserError] = []
        self._graph = self._prepared(model.plan, errors, inner=False)
        raise_all(errors)

    @property
    def inputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The inputs, as the model declares them."""
        return self._model.inputs

    @property
    def outputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The outputs, as the model declares them."""
        return self._model.outputs

    @property
    def assumptions(self) -> dict[str, str]:
        """Describes what the sessions of parts assume open dimensions to be, by name."""
        return {name: text for part in self._sessions for name, text in part.assumptions.items()}

    @property
    def state(self) -> None:
        """None: no variables can be kept."""

    def run(
        self, names: Sequence[str], feed: Mapping[str, object], out: Mapping[str, Array] | None
    ) -> list[HostValue]:
        """The outputs of these names. Raises UserError for inputs that do not fit, and what the nodes raise.

        What `out` has arrays for is copied to these.
        """
        if out is not None:
            check_out(out, {})
        if not isinstance(feed, (dict, Mapping)):  # the latter takes four times as long
            raise UserError(f"expected a dict of inputs, got {type(feed).__name__}")
        inputs = self._model.inputs
        if not self._needed <= feed.keys() <= self._known:
            expected = listed(info.name for info in inputs)
            raise UserError(f"expected the inputs {expected}, got {listed(feed)}")
        values = {info.name: info.value(feed.get(info.name)) for info in inputs}
        if not out:
            self._graph.compute(values)
            return [values[name] for name in names]
        outputs = [info.name for info in self._model.outputs]
        if unknown := [name for name in out if name not in outputs]:
            raise UserError(
                f"out: expected one of the outputs {listed(outputs)}, got '{unknown[0]}'"
            )
        self._graph.compute(values)
        for name, array in out.items():
            result = values[name]
            if _spelled(result) != _spelled(array) or not isinstance(array, np.ndarray):
                raise UserError(
                    f"out: expected {_spelled(result)} for '{name}', got {_spelled(array)}"
                )
            np.copyto(array, result)
        return [out[name] if name in out else values[name] for name in names]

    def close(self) -> None:
        """Drops what was compiled."""
        for session in self._sessions:
            session.close()
        self._graph.forget()

    def compiled(self, feeds: Mapping[str, Array]) -> None:
        """Returns None: there is always more to a call."""
        del feeds

    def prepare(self, ranges: Mapping[str, Range], values: Mapping[str, Array]) -> None:
        """Raises UserError: parts are compiled when they first run."""
        del ranges, values
        raise UserError(
            "expected a model that is compiled as a whole to prepare: "
            "parts of this one are compiled when they first run"
        )

    def split(self, error: RoundsError | ValueNeededError, opening: Opening) -> NoReturn:
        """Raises the error: parts are split by their own sessions."""
        del opening
        raise error

    def _prepared(self, plan: HostPlan, errors: list[UserError], *, inner: bool) -> _Graph:
        """The steps of the model, or of an `inner` graph, which may never be computed: its segments wait.

        Adds to the errors what is wrong with nodes.
        """
        steps: list[Step] = []
        parts: list[_Part] = []
        for step in plan.steps:
            if isinstance(step, Segment):
                parts.append(_Part(step, self._opened, self._opening, inner=inner))
                steps.append(parts[-1])
                continue
            try:
                steps.append(self._host_step(step, errors, parts))
            except UserError as error:
                errors.append(located(error, step.loc, f"{step.operator}: "))
        return _Graph(plan, steps, parts)

    def _opened(self, segment: Segment) -> Session:
        model = segment.model()
        with self._opening:
            session = self._session_of(model)
            self._sessions.append(session)
        return session

    def _host_step(self, step: HostStep, errors: list[UserError], parts: list[_Part]) -> Step:
        """The step of a node that the session computes; adds the parts of its graphs."""
        if step.problem is not None:
            return _failing(step.problem)
        bodies = {
            name: self._prepared(body, errors, inner=True) for name, body in step.bodies.items()
        }
        for graph in bodies.values():
            parts += graph.parts
        function = rule_of(step.operator)(HostNode(step, bodies))
        inputs, outputs, outer, loc = step.inputs, step.outputs, step.outer, step.loc
        what = f"{step.operator}: "

        def compute_one(values: dict[str, HostValue]) -> None:
            try:
                result = function(*[values[name] for name in inputs])
            except UserError as error:
                raise located(error, loc, what) from None
            values[outputs[0]] = result[0] if isinstance(result, tuple) else result

        def compute(values: dict[str, HostValue]) -> None:
            operands = [values[name] if name else None for name in inputs]
            if bodies:
                operands.insert(0, {name: values[name] for name in outer})
            try:
                results = function(*operands)
            except UserError as error:
                raise located(error, loc, what) from None
            several = results if isinstance(results, tuple) else (results,)
            values.update({n: item for n, item in zip(outputs, several, strict=False) if n})

        is_plain = len(outputs) == 1 and outputs[0] and all(inputs) and not bodies
        return compute_one if is_plain else compute


def _failing(problem: UserError) -> Step:
    """Returns a step of a branch that cannot be taken: it raises what is wrong."""

    def compute(values: dict[str, HostValue]) -> None:
        del values
        raise problem

    return compute


@final
class _Part:
    """A segment, with a session that is opened at once, or when it first runs.

    Attributes:
        segment: The segment.
        is_watched: Whether it is remembered what has computed it.
        functions: What has, the last ones first.
    """

    def __init__(
        self, segment: Segment, open: Callable[[Segment], Session], opening: Lock, *, inner: bool
    ) -> None:
        self.segment = segment
        self._open, self._opening = open, opening
        self._session = None if inner else open(segment)
        self._spelled = [name for name in segment.outputs if name in segment.strings]
        self.is_watched = False
        self.functions: tuple[CompiledFunction, ...] = ()

    def _note(self, function: CompiledFunction | None) -> None:
        """Remembers what has computed a call, for code that runs rounds."""
        if function is not None and function not in self.functions[:1]:
            others = [other for other in self.functions if other is not function]
            self.functions = (function, *others[: _MOST_FUNCTIONS - 1])

    @property
    def session(self) -> Session:
        """The session that computes it."""
        if self._session is None:
            with self._opening:
                if self._session is None:  # another thread may have opened it
                    self._session = self._open(self.segment)
        return self._session

    def __call__(self, values: dict[str, HostValue]) -> None:
        """Computes its outputs."""
        segment = self.segment
        feed = {name: values[name] for name in segment.inputs}
        words = _numbered(feed, segment.strings) if segment.strings else None
        session = self._session or self.session
        values.update(zip(segment.outputs, session.run(None, feed), strict=True))
        if self.is_watched:
            self._note(session.compiled(feed))
        if words is not None:
            for name in self._spelled:
                values[name] = np.asarray(words[values[name]], object)


@final
class _Graph:
    """A graph whose steps are ready: what a node calls its body."""

    def __init__(self, plan: HostPlan, steps: Sequence[Step], parts: Sequence[_Part]) -> None:
        """`parts` are those of the graph and of the graphs of its nodes."""
        self._plan, self.parts = plan, parts
        self._wiring: BodyWiring | None = None
        self._is_wired = False
        self._called: list[_Part] = []
        self._machine: tuple[object, RunsRounds | None] = (), None
        self._constants = plan.constants
        self._inputs, self._outputs, self._outer = plan.inputs, plan.outputs, plan.outer
        self._steps = steps
        self.input_names: Sequence[str] = plan.inputs
        self.input_types: Sequence[ValueType | None] = plan.input_types
        self.output_types: Sequence[ValueType | None] = plan.output_types

    def __call__(
        self, inputs: Sequence[HostValue], outer: Mapping[str, HostValue]
    ) -> list[HostValue]:
        """Its outputs for inputs, and for values around it by name."""
        values = dict(zip(self._inputs, inputs, strict=True))
        for name in self._outer:
            values[name] = outer[name]
        self.compute(values)
        return [values[name] for name in self._outputs]

    def advance(self, rounds: Rounds, outer: Mapping[str, HostValue]) -> bool:
        """Computes the next rounds of a loop whose body it is, if several can be computed at once; False if not.

        They can where all of a round is networks, which have run already, branches, and elements of sequences.
        """
        if not self._is_wired:
            self._wiring = wiring_of(self._plan, rounds, outer)
            if self._wiring is not None:
                parts = {id(part.segment): part for part in self.parts}
                self._called = [parts[id(segment)] for segment in self._wiring.segments]
            for part in self._called:
                part.is_watched = True
            self._is_wired = True
        machine = self._rounds_machine() if self._wiring is not None else None
        if machine is None or self._wiring is None:
            return False
        return machine.advance(rounds, self._wiring.values(rounds, outer))

    def _rounds_machine(self) -> RunsRounds | None:
        """Returns the code for rounds with what has computed the parts until now."""
        functions = [part.functions for part in self._called]
        machine = self._machine
        if machine[0] != functions:
            first = next((each[0] for each in functions if each), None)
            rounds = None
            if first is not None and self._wiring is not None:
                rounds = first.rounds(self._wiring.wiring, functions)
            self._machine = machine = functions, rounds
        return machine[1]

    def forget(self) -> None:
        """Drops what was compiled."""
        self._machine = (), None
        for part in self.parts:
            part.functions = ()

    def compute(self, values: dict[str, HostValue]) -> None:
        """Adds all that the steps compute."""
        values.update(self._constants)
        for step in self._steps:
            step(values)


def _numbered(feed: dict[str, Array], texts: frozenset[str]) -> Array:
    """Makes numbers of the strings among arrays, and returns the strings, which have their places as numbers.

    Each is there once, in order; the empty one, which pads are made of, is the first.
    """
    items = {name: feed[name].reshape(-1).tolist() for name in feed if name in texts}
    words = sorted({""}.union(*items.values()))
    numbers = {word: number for number, word in enumerate(words)}
    for name, item in items.items():
        flat = np.array([numbers[word] for word in item], np.int64)
        feed[name] = flat.reshape(feed[name].shape)
    return np.array(words, object)


def _spelled(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype}{list(value.shape)}"
    return type(value).__name__
