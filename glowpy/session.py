"""`InferenceSession`: a model that compiles itself for the shapes it meets.

A model with symbolic dimensions is compiled for ranges of extents, which grow with what it meets: see
`glowpy.assumptions`. A model whose shapes depend on the elements of an input is compiled once for each value of that
input. What was compiled is kept; the least recently used is dropped first.
"""

from __future__ import annotations

import math
import time
from collections import OrderedDict
from collections.abc import Callable, Hashable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from glowpy.assumptions import Assumptions
from glowpy.backend import Backend, CompileOptions
from glowpy.core.tensor import Array
from glowpy.engine import backend_with, compile_or_recall
from glowpy.executable import CompiledFunction, Observer, given_inputs
from glowpy.graph.function import Module
from glowpy.graph.state import StatePairs
from glowpy.hosted import Hosted
from glowpy.importer import (
    HostInfo,
    HostModel,
    OnnxModel,
    RoundsError,
    ValueInfo,
    ValueNeededError,
    by_rounds,
    checks_among,
    open_model,
    raise_wrong,
)
from glowpy.preparation import CompileEvent, Gate, Range, Ranges, given_values, prepared
from glowpy.session_feeds import check_out, checked_feeds, chosen_outputs, key_of, listed, narrowed
from glowpy.session_state import SessionState, state_pairs
from glowpy.shape_plan import Plan
from glowpy.specialisations import Specialisations
from glowpy.support.errors import Diagnostic, FrozenError, ResourceError, UserError, expect_type
from glowpy.support.forks import Lock
from glowpy.support.html import html_table
from glowpy.support.limits import LIMIT_ERRORS, raise_told, within_limits
from glowpy.support.loc import Loc
from glowpy.support.process_bound import ProcessBound
from glowpy.support.symbolic import UndecidedError
from glowpy.suppositions import (
    Elements,
    Shapes,
    Ways,
    beyond_limits,
    called_with,
    supposed_outputs,
)

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["InferenceSession"]

MAX_VALUE = 1 << 16
"""An input of more elements is data, not a shape: compiling for each of its values is refused."""
_FEW_ELEMENTS = 8
"""An input of more elements is data, no switch that chooses branches."""
_FEW_VALUES = 4
"""After so many values of what chooses branches, the session chooses them itself."""
_OF_NO_SHAPE = FrozenError, ResourceError, RoundsError, ValueNeededError


class InferenceSession(ProcessBound):
    """Runs an ONNX model, with the calling conventions of onnxruntime. Safe from several threads.

    A session with state runs once at a time: each run goes on where the one before it ended.

    Args:
        model: A path, the bytes of a file, a parsed model, or what `importer.open_model` made of one.
        backend: `cpu` or `interpreter`, or a backend with options.
        options: How to compile.
        limit: How many specialisations are kept.
        threads: How many threads compute, as onnxruntime's `intra_op_num_threads`: 0 for as many as the process may use
            processors. Outputs have the same bits for any number. For a backend that is given by name; 1 if left out.
        low_memory: Keeps weights in the memory of those of the model, where more would be faster; see `CpuOptions`.
            For a backend that is given by name.
        observer: Sees every instruction of every run, from several threads if runs come from several. Networks are
            compiled with `instrument` if there is one.
        state: Inputs that the session keeps, and the outputs that they are in its next run, such as the cache of a
            decoder: `{"past_key_0": "present_key_0"}`, or `auto` for what looks like that by names and types. They are
            zero or empty at first, and no inputs and outputs of the session any more; `run` gives such outputs if it is
            asked for them by name.
        on_compile: Is told of everything that is compiled, or taken from the cache, in the thread that waits for it.
        check_indices: Whether an index that leads out of range is an error of the run that met it, as in onnxruntime.
            If indices are not checked, such an index leads to the nearest element.

    The threads begin with the first run that has work for several, and end with `close`, with the `with` around the
    session, or with the session.

    A model without symbolic dimensions is compiled at once. Raises LoadError, UnsupportedError or UserError as
    `glowpy.load` does.
    """

    @within_limits
    def __init__(
        self,
        model: str | Path | bytes | ModelProto | OnnxModel | HostModel,
        *,
        backend: str | Backend = "cpu",
        options: CompileOptions | None = None,
        limit: int = 16,
        threads: int | None = None,
        low_memory: bool | None = None,
        observer: Observer | None = None,
        state: StatePairs | Literal["auto"] | None = None,
        on_compile: Callable[[CompileEvent], object] | None = None,
        _gate: Gate | None = None,
        check_indices: bool = False,
    ) -> None:
        expect_type("limit", limit, int, "a number of specialisations")
        expect_type("options", options, CompileOptions | None, "CompileOptions")
        if limit < 1:
            raise UserError(f"expected a limit of at least 1, got {limit}")
        self._own, self._checks = isinstance(backend, str), check_indices
        self._backend = backend_with(backend, threads, low_memory=low_memory)
        opened = model if isinstance(model, OnnxModel | HostModel) else open_model(model)
        if isinstance(opened, OnnxModel):
            opened = copy(opened)
            opened.checked = check_indices
            opened.shares_caches = opened.shares_caches or bool(state)
        self._file, self._names = opened.file, [info.name for info in opened.outputs]
        self._given = self._names
        own = options or CompileOptions()
        self._options = own if observer is None else replace(own, instrument=True)
        self._observer, self._limit = observer, limit
        self._gate = _gate or Gate(on_compile)
        self._specialisations = Specialisations[tuple[Plan, Hashable]](limit)
        self._lock = Lock()  # of what is assumed
        self._splitting = Lock(is_brief=False)  # while parts are compiled
        self._values: tuple[str, ...] = ()
        self._choice: ValueNeededError | None = None  # for which these have to be known
        self._narrow: Mapping[str, np.dtype[Any]] = {}  # of outputs in bytes
        self._hosted: Hosted | None = None
        self._rounds: Hosted | None = None  # in place of functions, where a loop needs it
        if isinstance(opened, HostModel):
            if state:
                raise UserError("state: expected a model of numbers alone", loc=Loc(opened.file))
            self._hosted = Hosted(opened, self._part)
            return
        self._model = opened
        self._fresh = Assumptions(self._model.inputs, fixed=not self._backend.symbolic)
        self._assumptions: OrderedDict[Hashable, Assumptions] = OrderedDict()  # by known elements
        self._elements = Elements()
        self._state = SessionState(opened, state_pairs(opened, state))
        inputs = [info for info in self._model.inputs if info.name not in self._state.pairs]
        self._dtypes = [
            (info.name, info.dtype, None if info.dtype == info.kind.dtype else info.kind.dtype)
            for info in inputs
        ]
        self._given = [info.name for info in self.get_outputs()]
        self._narrow = {i.name: i.dtype for i in opened.outputs if i.narrow is not None}
        self._compile_static()

    def _compile_static(self) -> None:
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
        except (RoundsError, ValueNeededError) as error:
            if isinstance(error, RoundsError) or not self._knows(error, static, {}):
                self._run_rounds(error)

    def close(self) -> None:
        """Drops what was compiled, and ends the threads unless the backend is the caller's.

        A session that runs again compiles again.
        """
        self._specialisations.clear()
        for part in filter(None, (self._hosted, self._rounds)):
            part.close()
        if self._own:
            self._backend.close()

    def _part(self, model: OnnxModel) -> InferenceSession:
        """A session of what is compiled of a model that is split."""
        return InferenceSession(
            model,
            backend=self._backend,
            options=self._options,
            limit=self._limit,
            observer=self._observer,
            _gate=self._gate,
            check_indices=self._checks,
        )

    def _run_rounds(self, error: RoundsError | ValueNeededError) -> Hosted:
        """Splits the model, so that the session chooses branches, and runs loops round by round, from now on.

        Raises the error if there is state, or if it is about no branches and no loop.
        """
        model = by_rounds(self._model, error)
        if self._state.pairs or not model.forced:
            raise error
        with self._splitting:
            if self._rounds is None:
                self._gate.admit(error.diagnostics[0].message)
                self._rounds = Hosted(model, self._part)
                self._specialisations.clear()
        return self._rounds

    def prepare(
        self,
        dims: Mapping[str, Range] | None = None,
        /,
        *,
        values: Mapping[str, Any] | None = None,
        **ranges: Range,
    ) -> None:
        """Compiles now for all extents of open dimensions within ranges: `prepare(batch="1..32", seq="1..512")`.

        Args:
            dims: The range of each symbolic dimension by name, `x[0]` for one without a name: `"1..32"`, or `8`. Of a
                list, as `[1, "2..32"]`, each gets code of its own. Text may say what it is computed of: `"past+seq"`.
            values: Elements of inputs that compiling has to know, such as a shape or what chooses between branches.
            ranges: The same as `dims`, for names that Python takes.

        What is prepared stays: see docs/serving.md. Warns of extents without code that were not tried. Raises UserError
        for dimensions that are missing, ranges that each extent would be compiled for, a model that is not compiled as
        a whole, and after `freeze`; and what `run` raises if the model allows none of the extents.
        """
        self._gate.admit()
        whole = "expected a model that is compiled as a whole to prepare"
        if self._hosted is not None or self._rounds is not None:
            raise UserError(f"{whole}: parts of this one are compiled when they first run")
        wanted = Ranges(self._model.inputs, {**(dims or {}), **ranges})
        arrays = {name: np.asarray(array) for name, array in (values or {}).items()}
        while True:
            known = given_values(self._values, arrays)
            try:
                self._prepare(wanted, known)
                return
            except RoundsError as error:
                raise UserError.of([Diagnostic(whole), *error.diagnostics]) from error
            except ValueNeededError as error:
                if not self._knows(error, wanted.shapes(wanted.corners[-1]), known):
                    raise UserError.of([Diagnostic(whole), *error.diagnostics]) from error

    def _prepare(self, ranges: Ranges, values: Mapping[str, Array]) -> None:
        known = key_of(values)
        with self._lock:
            before = self._assumed_with(known).copy()

        def compile(plan: Plan, shapes: Shapes) -> None:
            work = partial(self._compiled, plan, values, known, "prepare")
            call = tuple(shapes.items()), known
            self._specialisations.get((plan, known), call, work, pinned=True)

        def fits(shapes: Shapes) -> bool:
            plan = self._fitting(shapes, known)
            return plan is not None and self._specialisations.pin((plan, known))

        learned = prepared(ranges, before, fits, compile)
        with self._lock:
            self._assumptions[known] = learned

    def freeze(self) -> None:
        """Compiles nothing any more from now on: a call without code raises UserError, and so does `prepare`."""
        self._gate.frozen = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def assumptions(self) -> dict[str, str]:
        """What open dimensions are taken to be since the calls so far, by name: `1..64`, `past+seq`, `constant: why`.

        Names are spelled as in dumps. A call with others has the network compiled again: see docs/shapes.md.
        """
        if (parts := self._hosted or self._rounds) is not None:
            return parts.assumptions
        with self._lock:
            assumed = [*self._assumptions.values()]
        return {name: text for one in assumed for name, text in one.summary.items()}

    def __repr__(self) -> str:
        sides = self.get_inputs(), self.get_outputs()
        ports = [", ".join(map(str, infos)) or "nothing" for infos in sides]
        return f"<InferenceSession of {self._file} on {self._backend.name}: {' -> '.join(ports)}>"

    def _repr_html_(self) -> str:
        """What a notebook shows: inputs and outputs."""
        infos = [("input", info) for info in self.get_inputs()]
        infos += [("output", info) for info in self.get_outputs()]
        rows = [[direction, *str(info).split(" ", 1)] for direction, info in infos]
        title = f"InferenceSession of {self._file} on {self._backend.name}"
        return html_table(title, ["", "name", "type"], rows)

    def get_inputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The inputs: name, type such as `tensor(float)`, and shape with the names of symbolic dimensions."""
        if self._hosted is not None:
            return self._hosted.inputs
        return [info for info in self._model.inputs if info.name not in self._state.pairs]

    def get_outputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The outputs: name, type, and shape as the model declares it."""
        if self._hosted is not None:
            return self._hosted.outputs
        return [i for i in self._model.outputs if i.name not in self._state.pairs.values()]

    def reset_state(self) -> None:
        """Makes what the session keeps zero, or empty, as it was at first."""
        if self._hosted is None:
            self._state.reset()

    def get_state(self) -> dict[str, Array]:
        """Copies of what the session keeps, by the names of the inputs; empty before a first run and after a reset."""
        return {} if self._hosted is not None else self._state.contents()

    def set_state(self, contents: Mapping[str, Array]) -> None:
        """Goes on from copies of these arrays, by the names of the inputs: all that the session keeps.

        Raises UserError for other names, arrays that are missing, that the model does not take, or that contradict
        each other.
        """
        if self._hosted is None:
            self._state.restore(contents)
        elif contents:
            raise UserError(f"expected none of the inputs, got {listed([*contents])}")

    def run(
        self,
        output_names: Sequence[str] | None,
        input_feed: Mapping[str, Any],
        *,
        out: Mapping[str, Array] | None = None,
    ) -> list[Array]:
        """Computes outputs.

        Args:
            output_names: Which outputs, and in which order; None, or none, for all but what the session keeps.
            input_feed: An array for each input, of its element type and shape; strings are text, bytes or objects. A
                list for a sequence, a dict for a map, and None for an optional that is empty.
            out: Arrays to store outputs in, by name; the result has these.

        Returns new arrays that belong to the caller; lists, dicts and None for outputs of other types. Raises UserError
        for a name the model does not have and for an array that does not fit.
        """
        try:
            if out is not None:
                check_out(out, self._narrow)
            names = chosen_outputs(output_names, self._given, self._names)
            if self._hosted is not None:
                return self._hosted.run(names, input_feed, out)
            feeds = checked_feeds(input_feed, self._dtypes, self.get_inputs)
            if self._rounds is not None:
                return self._rounds.run(names, input_feed, out)
            if not self._state.pairs and (function := self._latest(feeds)) is not None:
                outputs = function(given_inputs(function, feeds), out)
                if function.checks:
                    raise_wrong(outputs, function.checks, self._file)
            else:
                try:
                    outputs = self._outputs(names, feeds, out)
                except (RoundsError, ValueNeededError) as error:
                    return self._run_rounds(error).run(names, input_feed, out)
            if self._narrow:
                outputs = narrowed(outputs, self._narrow)
            return [outputs[name] for name in names]
        except LIMIT_ERRORS as error:
            raise_told(error)

    def _outputs(
        self, names: Sequence[str], feeds: Mapping[str, Array], out: Mapping[str, Array] | None
    ) -> dict[str, Array]:
        """The outputs for a call that may need something compiled, or more than one run."""
        ways = Ways(partial(self._for, feeds), partial(self._for_elements, feeds), self._exceeded)
        if self._state.pairs:
            return self._state.run(names, feeds, out, ways)
        shapes = {name: array.shape for name, array in feeds.items()}
        first, compute = ways.function_for(shapes), called_with(feeds)
        outputs, function = supposed_outputs(first, shapes, out, compute, ways)
        raise_wrong(outputs, function.checks, self._file)
        return outputs

    def _latest(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """What an equal call has run, if nothing has to be asked about its inputs or its outputs."""
        if self._values:
            return None
        shapes = tuple([(name, array.shape) for name, array in feeds.items()])
        function = self._specialisations.latest((shapes, ()))
        return None if function is not None and function.supposed else function

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """What there is for such a call, and all that it does; None if there is more to it, or nothing compiled yet."""
        function, shapes = self._latest(feeds), {name: a.shape for name, a in feeds.items()}
        if function is None and not self._values and self._fitting(shapes, ()):
            function = self._for(feeds, shapes)
        return None if function is None or function.supposed or self._narrow else function

    def _exceeded(self, function: CompiledFunction, others: Mapping[str, int]) -> bool:
        """Whether a run has found extents that are beyond their limits, which are higher now."""
        if limits := beyond_limits(
            function.supposed, others
        ):  # nothing is dropped that nothing may replace
            found = ", ".join(f"'{name}' = {extent}" for name, extent in limits.items())
            self._gate.admit(f"elements make {found}")
        with self._lock:
            for assumed in self._assumptions.values():
                assumed.found.exceed(limits)
        self._specialisations.keep(lambda key: not beyond_limits(key[0].supposed, limits))
        return bool(limits)

    def _for_elements(
        self, feeds: Mapping[str, Array], shapes: Shapes, names: Sequence[str], error: UserError
    ) -> CompiledFunction:
        """What is compiled for the elements of this call, which decide extents that are not as supposed.

        Raises the error where these are data.
        """
        with self._lock:
            assumed = [*self._assumptions.values()]
            inputs = [one for each in assumed for one in each.found.inputs_of(names)]
        if not inputs or any(n not in feeds or feeds[n].size > MAX_VALUE for n in inputs):
            raise error
        why = error.diagnostics[0].message
        values = {one: feeds[one] for one in dict.fromkeys([*self._values, *inputs])}
        known, plan = key_of(values), Plan(shapes)
        with self._lock:
            self._elements.need(inputs, why)
            if not self._gate.frozen:
                self._elements.meet(values)
        compile = partial(self._compiled, plan, values, known, why)
        return self._specialisations.get((plan, known), (tuple(shapes.items()), known), compile)

    def _for(self, feeds: Mapping[str, Array], shapes: Shapes) -> CompiledFunction:
        """The specialisation for inputs, and what is kept, of these shapes; compiled if there is none."""
        while True:
            values = {name: feeds[name] for name in self._values} if self._values else {}
            try:
                return self._specialized(tuple(shapes.items()), values)
            except ValueNeededError as error:
                if not self._knows(error, shapes, values):
                    raise

    def _knows(self, error: ValueNeededError, shapes: Shapes, known: Mapping[str, Array]) -> bool:
        """Notes inputs whose elements must be known.

        False if they were `known`, are kept, or are data: many elements, or floats or more than a few elements that
        decide about branches.
        """
        names = [name for name in error.inputs if name not in known]
        kept = any(name in self._state.pairs for name in names)
        large = any(math.prod(shapes[name]) > MAX_VALUE for name in error.inputs)
        if kept or not names or large:
            return False
        decides = not self._state.pairs and by_rounds(self._model, error).forced
        floats = {info.name for info in self._model.inputs if info.kind.has_fractions}
        many = any(math.prod(shapes[name]) > _FEW_ELEMENTS for name in error.inputs)
        if decides and (many or not floats.isdisjoint(error.inputs)):
            return False
        with self._lock:  # another thread may have noted them
            self._fresh.know(names, shapes)
            if not decides:  # else the session chooses where there are more than a few
                self._elements.need(names, error.diagnostics[0].message)
            self._assumptions.clear()
            self._choice = error if decides else self._choice
            self._values = tuple(dict.fromkeys([*self._values, *names]))
        return True

    def _assumed_with(self, known: Hashable) -> Assumptions:
        """What is assumed where these elements are known: what others need may not fit. The lock is held.

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
        """What was compiled for ranges that have these shapes, perhaps now."""
        known = key_of(values)
        call = shapes, known
        function = self._specialisations.at_hand(
            call, lambda key: key[1] == known and key[0].admits(dict(shapes))
        )
        if function is not None:
            return function
        before: Assumptions | None = None  # what this call assumes and learns
        needed: ValueNeededError | None = None  # what is supposed of elements in place of it
        why = ""
        try:
            while True:
                plan = self._fitting(dict(shapes), known)
                if plan is None:
                    before = before or self._copied_assumptions(known)
                    why = self._why(dict(shapes), known)
                    plan = self._assumed(dict(shapes), values, why)
                compile = partial(self._compiled, plan, values, known, why)
                try:
                    return self._specialisations.get((plan, known), call, compile)
                except (UndecidedError, ValueNeededError) as error:
                    before = before or self._copied_assumptions(known)
                    with self._lock:
                        self._assumed_with(known).ask(error, plan, dict(shapes))
                    needed = error if isinstance(error, ValueNeededError) else needed
        except UserError as error:  # nothing is learned from what cannot be computed
            with self._lock:
                if before is not None and known in self._assumptions:
                    self._assumptions[known] = before
            if isinstance(error, _OF_NO_SHAPE):
                raise
            if needed is not None:
                raise needed from error
            before = before or self._copied_assumptions(known)
            if contradictions := before.contradictions(dict(shapes)):
                reasons = [Diagnostic(one, Loc(self._model.file)) for one in contradictions]
                raise UserError.of([*reasons, *error.diagnostics]) from error
            raise

    def _copied_assumptions(self, known: Hashable) -> Assumptions:
        with self._lock:
            return self._assumed_with(known).copy()

    def _fitting(self, shapes: Shapes, known: Hashable) -> Plan | None:
        """The closest plan that there is code of for these shapes and known elements."""
        keys = self._specialisations.keys
        fitting = [plan for plan, values in keys if values == known and plan.admits(shapes)]
        return min(fitting, key=lambda plan: plan.openness) if fitting else None

    def _why(self, shapes: Shapes, known: Hashable) -> str:
        """Why something has to be compiled for a call."""
        keys = self._specialisations.keys
        plans = [plan for plan, values in keys if values == known]
        if plans:
            return self._fresh.beyond(shapes, plans)
        return f"other elements of {listed(self._values)}" if keys else "nothing is compiled yet"

    def _assumed(self, shapes: Shapes, values: Mapping[str, Array], why: str) -> Plan:
        """The plan to compile by for these shapes, and elements that have to be known, if anything is to be."""
        try:
            self._model.key(shapes=shapes)  # raises where they contradict each other
        except UserError as error:  # its remedy is for those who give shapes in advance
            error.diagnostics = [replace(diagnostic, note="") for diagnostic in error.diagnostics]
            raise
        self._gate.admit(why)  # before anything is learned, or warned of
        with self._lock:
            self._elements.meet(values)
            return self._assumed_with(key_of(values)).plan(shapes)

    def _compiled(
        self, plan: Plan, values: Mapping[str, Array], known: Hashable, why: str
    ) -> CompiledFunction:
        """From the backend's memory of what it compiled, or compiled now if that may be. Replaces narrower bounds."""
        self._gate.admit(why)
        copies = {name: array.copy() for name, array in values.items()}
        modules: list[Module] = []
        start = time.perf_counter()

        def build() -> Module:
            modules.append(self._model.build(**given))
            return modules[0]

        given: Any = {"shapes": plan.shapes, "supposed": plan.supposed, "values": copies}
        given["state"] = self._state.pairs
        key = self._model.key(**given)
        try:
            function = compile_or_recall(key, build, self._backend, self._options)
        finally:
            for module in modules:
                module.forget()
        function.observer, function.supposed = self._observer, plan.supposed
        function.checks = checks_among(function.outputs)
        if self._gate.listener is not None:
            dims, seconds = self._fresh.spelled(plan), time.perf_counter() - start
            self._gate.listener(CompileEvent(self._file, dims, why, seconds, not modules))
        self._specialisations.replace(
            (plan, known), lambda k: k[1] == known and plan.replaces(k[0])
        )
        return function
