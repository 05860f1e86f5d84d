"""`InferenceSession`: a model that compiles itself for the shapes it meets.

A session holds one runner (see `runner`), which runs its model as a whole or in parts. Where the first cannot, as a
call may show, another takes its place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from glowpy.backend import Backend, CompileOptions
from glowpy.backend_choice import backend_with
from glowpy.core.tensor import Array
from glowpy.importer.model import HostedModel, Model
from glowpy.importer.needs import RoundsError, ValueNeededError
from glowpy.runtime.compiled import CompiledFunction, Observer
from glowpy.session.compiled import Compiled
from glowpy.session.feeds import chosen_outputs, listed
from glowpy.session.kept_model import open_kept
from glowpy.session.preparation import CompileEvent, Gate, Range
from glowpy.session.programs import Compiling
from glowpy.session.runner import Runner
from glowpy.session.state import SessionState, state_pairs
from glowpy.support.errors import UserError, expect_type
from glowpy.support.forks import Lock
from glowpy.support.limits import LIMIT_ERRORS, raise_told, within_limits
from glowpy.support.loc import Loc
from glowpy.support.process_bound import ProcessBound
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from onnx import ModelProto

    from glowpy.core.state_pairs import StatePairs
    from glowpy.importer.declared import ValueInfo
    from glowpy.importer.value_types import HostInfo

__all__ = ["InferenceSession"]


class InferenceSession(ProcessBound):
    """Runs an ONNX model, with the calling conventions of onnxruntime. Safe from several threads.

    A session with state runs once at a time: each run goes on where the one before it ended.

    Args:
        model: A path, the bytes of a file, a parsed model, or what `glowpy.importer.open_model` made of one.
        backend: `cpu` or `interpreter`, or a backend with options.
        options: How to compile.
        limit: How many specialisations are kept.
        threads: How many threads compute, as onnxruntime's `intra_op_num_threads`: 0 for as many as the process may use
            processors. Outputs have the same bits for any number. For a backend that is given by name; 1 if left out.
        low_memory: Keeps weights in the memory of those of the model, where more would be faster; see `CpuOptions`.
            For a backend that is given by name.
        precision: What products in f32 are computed in: `f32`, or `bf16`, which some processors multiply twice as fast,
            and others are refused for; see `CpuOptions`. For a backend that is given by name.
        observer: Sees every instruction of every run, from several threads if runs come from several. Networks are
            compiled with `instrument` if there is one.
        state: Inputs that the session keeps, and the outputs that they are in its next run, such as the cache of a
            decoder: `{"past_key_0": "present_key_0"}`, or `auto` for what looks like that by names and types. They are
            zero or empty at first, and no inputs and outputs of the session any more; `run` gives such outputs if it is
            asked for them by name. The variables of graph text are state if this is left out, and begin as it says.
        on_compile: Is told of everything that is compiled, or taken from the cache, in the thread that waits for it.
        check_indices: Whether an index that leads out of range is an error of the run that met it, as in onnxruntime.
            If indices are not checked, such an index leads to the nearest element.

        shapes: Other shapes of inputs than the model declares, by name: `{"x": (8, 3, 224, 224)}`; text, such as
            `batch`, names a dimension that is open. Numbers that the model writes elsewhere follow: see docs/shapes.md.

    The threads begin with the first run that has work for several, and end with `close`, with the `with` around the
    session, or with the session.

    A model without symbolic dimensions is compiled at once. Raises LoadError, UnsupportedError or UserError as
    `glowpy.load` does.
    """

    @within_limits
    def __init__(
        self,
        model: str | Path | bytes | ModelProto | Model | HostedModel,
        *,
        backend: str | Backend = "cpu",
        options: CompileOptions | None = None,
        limit: int = 16,
        threads: int | None = None,
        low_memory: bool | None = None,
        precision: Literal["f32", "bf16"] | None = None,
        observer: Observer | None = None,
        state: StatePairs | Literal["auto"] | None = None,
        on_compile: Callable[[CompileEvent], object] | None = None,
        _gate: Gate | None = None,
        check_indices: bool = False,
        shapes: Mapping[str, Sequence[Dim | str | None]] | None = None,
    ) -> None:
        expect_type("limit", limit, int, "a number of specialisations")
        expect_type("options", options, CompileOptions | None, "CompileOptions")
        if limit < 1:
            raise UserError(f"expected a limit of at least 1, got {limit}")
        self._own, self._checks = isinstance(backend, str), check_indices
        chosen = options or CompileOptions()
        if observer is not None:
            chosen = replace(chosen, instrument=True)
        self._compiling = Compiling(
            backend_with(backend, threads, low_memory=low_memory, precision=precision),
            chosen,
            limit,
            observer,
            _gate or Gate(on_compile),
        )
        opened = model if isinstance(model, Model | HostedModel) else open_kept(model)
        self._compiling.backend.expect_probes(chosen)
        self._file, self._names = opened.file, [info.name for info in opened.outputs]
        self._splitting = Lock(is_brief=False)  # while parts are compiled
        self._runner = self._runner_of(opened, state, shapes or {})
        self._given = [info.name for info in self._runner.outputs]

    def _runner_of(
        self,
        opened: Model | HostedModel,
        state: StatePairs | Literal["auto"] | None,
        shapes: Mapping[str, Sequence[Dim | str | None]],
    ) -> Runner:
        """Returns a runner of a model of these shapes: of the whole if that can be compiled."""
        if isinstance(opened, HostedModel):
            from glowpy.session.hosted import Hosted  # noqa: PLC0415 - most models are compiled as a whole

            if state or shapes:
                what = "state" if state else "shapes"
                raise UserError(f"{what}: expected a model of numbers alone", loc=Loc(opened.file))
            return Hosted(opened, self._part)
        resized = opened.resized(shapes) if shapes else opened
        pairs = state_pairs(resized, state)
        model = resized.for_session(checked=self._checks, shares_caches=bool(pairs))
        whole = Compiled(model, SessionState(model, pairs), self._compiling)
        try:
            whole.programs.compile_static()
        except (RoundsError, ValueNeededError) as error:
            return self._split(whole, error)
        return whole

    def _split(self, runner: Runner, error: RoundsError | ValueNeededError) -> Runner:
        """Returns a runner in place of one that cannot run the model. Raises the error if there is none."""
        parts = runner.split(error, self._part)
        runner.close()
        return parts

    def _turned(self, runner: Runner, error: RoundsError | ValueNeededError) -> Runner:
        """Returns the runner from now on in place of one that cannot, and has perhaps been replaced already."""
        with self._splitting:
            if self._runner is runner:
                self._runner = self._split(runner, error)
            return self._runner

    def close(self) -> None:
        """Drops what was compiled, and ends the threads unless the backend is the caller's.

        A session that runs again compiles again.
        """
        self._runner.close()
        if self._own:
            self._compiling.backend.close()

    def _part(self, model: Model) -> InferenceSession:
        """A session of what is compiled of a model that is split."""
        compiling = self._compiling
        return InferenceSession(
            model,
            backend=compiling.backend,
            options=compiling.options,
            limit=compiling.limit,
            observer=compiling.observer,
            _gate=compiling.gate,
            check_indices=self._checks,
        )

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
        self._compiling.gate.admit()
        arrays = {name: np.asarray(array) for name, array in (values or {}).items()}
        self._runner.prepare({**(dims or {}), **ranges}, arrays)

    def freeze(self) -> None:
        """Compiles nothing any more from now on: a call without code raises UserError, and so does `prepare`."""
        self._compiling.gate.frozen = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def assumptions(self) -> dict[str, str]:
        """The sizes assumed for open dimensions after the calls so far, by name: `1..64`, `past+seq`, `constant: why`.

        Names are spelled as in dumps. A call with others has the network compiled again: see docs/shapes.md.
        """
        return self._runner.assumptions

    def __repr__(self) -> str:
        sides = self.get_inputs(), self.get_outputs()
        ports = [", ".join(map(str, infos)) or "nothing" for infos in sides]
        return f"<InferenceSession of {self._file} on {self._compiling.backend.name}: {' -> '.join(ports)}>"

    def _repr_html_(self) -> str:
        """Returns a table of inputs and outputs for notebooks."""
        sides = ("input", self.get_inputs()), ("output", self.get_outputs())
        rows = [[side, *str(info).split(" ", 1)] for side, infos in sides for info in infos]
        title = f"InferenceSession of {self._file} on {self._compiling.backend.name}"
        from glowpy.support.html import html_table  # noqa: PLC0415 - in notebooks

        return html_table(title, ["", "name", "type"], rows)

    def get_inputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The inputs: name, type such as `tensor(float)`, and shape with the names of symbolic dimensions."""
        return list(self._runner.inputs)

    def get_outputs(self) -> Sequence[ValueInfo | HostInfo]:
        """The outputs: name, type, and shape as the model declares it."""
        return list(self._runner.outputs)

    def reset_state(self) -> None:
        """Makes what the session keeps what it was at first: zero, or empty, or the initial values that a file has."""
        if (state := self._runner.state) is not None:
            state.reset()

    def get_state(self) -> dict[str, Array]:
        """Copies of what the session keeps, by the names of the inputs; empty before a first run and after a reset."""
        return {} if (state := self._runner.state) is None else state.contents()

    def set_state(self, contents: Mapping[str, Array]) -> None:
        """Goes on from copies of these arrays, by the names of the inputs: all that the session keeps.

        Raises UserError for other names, arrays that are missing, that the model does not take, or that contradict
        each other.
        """
        if (state := self._runner.state) is not None:
            state.restore(contents)
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
            names = chosen_outputs(output_names, self._given, self._names)
            runner = self._runner
            try:
                return runner.run(names, input_feed, out)
            except (RoundsError, ValueNeededError) as error:
                return self._turned(runner, error).run(names, input_feed, out)
        except LIMIT_ERRORS as error:
            raise_told(error)

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function that does all of such a call; None if there is more to do, or none is compiled yet."""
        return self._runner.compiled(feeds)
