"""`InferenceSession`: a model that compiles itself for the shapes it meets.

What is compiled of a model as a whole is in `programs`; a session of a model that is not runs what `hosted`
splits it into.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Self

import numpy as np

from glowpy.backend import Backend, CompileOptions
from glowpy.core.tensor import Array
from glowpy.engine import backend_with
from glowpy.executable import CompiledFunction, Observer, given_inputs
from glowpy.graph.state import StatePairs
from glowpy.importer import OnnxModel, RoundsError, ValueInfo, ValueNeededError, raise_wrong
from glowpy.session.feeds import check_out, checked_feeds, chosen_outputs, listed, narrowed
from glowpy.session.host.model import HostModel, by_rounds, open_model
from glowpy.session.host.types import HostInfo
from glowpy.session.hosted import Hosted
from glowpy.session.preparation import CompileEvent, Gate, Range, Ranges
from glowpy.session.programs import Programs
from glowpy.session.state import SessionState, state_pairs
from glowpy.session.suppositions import (
    called_with,
    supposed_outputs,
)
from glowpy.support.errors import Diagnostic, UserError, expect_type
from glowpy.support.forks import Lock
from glowpy.support.html import html_table
from glowpy.support.limits import LIMIT_ERRORS, raise_told, within_limits
from glowpy.support.loc import Loc
from glowpy.support.process_bound import ProcessBound
from glowpy.support.symbolic import Dim

if TYPE_CHECKING:
    from onnx import ModelProto

__all__ = ["InferenceSession"]


class InferenceSession(ProcessBound):
    """Runs an ONNX model, with the calling conventions of onnxruntime. Safe from several threads.

    A session with state runs once at a time: each run goes on where the one before it ended.

    Args:
        model: A path, the bytes of a file, a parsed model, or what `open_model` made of one.
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
        shapes: Mapping[str, Sequence[Dim | str | None]] | None = None,
    ) -> None:
        expect_type("limit", limit, int, "a number of specialisations")
        expect_type("options", options, CompileOptions | None, "CompileOptions")
        if limit < 1:
            raise UserError(f"expected a limit of at least 1, got {limit}")
        self._own, self._checks = isinstance(backend, str), check_indices
        self._backend = backend_with(backend, threads, low_memory=low_memory)
        opened = model if isinstance(model, OnnxModel | HostModel) else open_model(model)
        if isinstance(opened, OnnxModel):
            opened = copy(opened.resized(shapes or {}))
            opened.checked = check_indices
            opened.shares_caches = opened.shares_caches or bool(state)
        elif state or shapes:
            what = "state" if state else "shapes"
            raise UserError(f"{what}: expected a model of numbers alone", loc=Loc(opened.file))
        self._file, self._names = opened.file, [info.name for info in opened.outputs]
        self._given = self._names
        own = options or CompileOptions()
        self._options = own if observer is None else replace(own, instrument=True)
        self._observer, self._limit = observer, limit
        self._gate = _gate or Gate(on_compile)
        self._splitting = Lock(is_brief=False)  # while parts are compiled
        self._narrow: Mapping[str, np.dtype[Any]] = {}  # of outputs in bytes
        self._hosted: Hosted | None = None
        self._rounds: Hosted | None = None  # in place of functions, where a loop needs it
        if isinstance(opened, HostModel):
            self._hosted = Hosted(opened, self._part)
            return
        self._model = opened
        self._state = SessionState(opened, state_pairs(opened, state))
        inputs = [info for info in self._model.inputs if info.name not in self._state.pairs]
        self._dtypes = [
            (info.name, info.dtype, None if info.dtype == info.kind.dtype else info.kind.dtype)
            for info in inputs
        ]
        self._given = [info.name for info in self.get_outputs()]
        self._narrow = {i.name: i.dtype for i in opened.outputs if i.narrow is not None}
        settings = self._backend, self._options, self._gate, limit, observer
        self._programs = Programs(opened, *settings, self._state.pairs)
        try:
            self._programs.compile_static()
        except (RoundsError, ValueNeededError) as error:
            self._run_rounds(error)

    def close(self) -> None:
        """Drops what was compiled, and ends the threads unless the backend is the caller's.

        A session that runs again compiles again.
        """
        for part in filter(None, (self._hosted, self._rounds)):
            part.close()
        if self._hosted is None:
            self._programs.specialisations.clear()
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
                self._programs.specialisations.clear()
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
        try:
            self._programs.prepare(wanted, arrays)
        except (RoundsError, ValueNeededError) as error:
            raise UserError.of([Diagnostic(whole), *error.diagnostics]) from error

    def freeze(self) -> None:
        """Compiles nothing any more from now on: a call without code raises UserError, and so does `prepare`."""
        self._gate.frozen = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    @property
    def assumptions(self) -> dict[str, str]:
        """The sizes assumed for open dimensions after the calls so far, by name: `1..64`, `past+seq`, `constant: why`.

        Names are spelled as in dumps. A call with others has the network compiled again: see docs/shapes.md.
        """
        if (parts := self._hosted or self._rounds) is not None:
            return parts.assumptions
        return self._programs.summary

    def __repr__(self) -> str:
        sides = self.get_inputs(), self.get_outputs()
        ports = [", ".join(map(str, infos)) or "nothing" for infos in sides]
        return f"<InferenceSession of {self._file} on {self._backend.name}: {' -> '.join(ports)}>"

    def _repr_html_(self) -> str:
        """Returns a table of inputs and outputs for notebooks."""
        sides = ("input", self.get_inputs()), ("output", self.get_outputs())
        rows = [[side, *str(info).split(" ", 1)] for side, infos in sides for info in infos]
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
            if not self._state.pairs and (function := self._programs.latest(feeds)) is not None:
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
        ways = self._programs.ways(feeds)
        if self._state.pairs:
            return self._state.run(names, feeds, out, ways)
        shapes = {name: array.shape for name, array in feeds.items()}
        first, compute = ways.function_for(shapes), called_with(feeds)
        outputs, function = supposed_outputs(first, shapes, out, compute, ways)
        raise_wrong(outputs, function.checks, self._file)
        return outputs

    def compiled(self, feeds: Mapping[str, Array]) -> CompiledFunction | None:
        """Returns the function that does all of such a call; None if there is more to do, or none is compiled yet."""
        function = self._programs.compiled(feeds)
        return None if function is None or function.supposed or self._narrow else function
