"""The state of a session between its runs, in the memory of the function that ran last."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, cast, final

import numpy as np

from glowpy.core.extents import extents_of, largest_at
from glowpy.core.tensor import Array
from glowpy.importer.added_outputs import raise_wrong
from glowpy.importer.model import Model
from glowpy.runtime.arrays import given_inputs, store_outputs
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.state import State
from glowpy.session.suppositions import Shapes, Ways, supposed_outputs
from glowpy.support.errors import Diagnostic, UserError
from glowpy.support.forks import Lock, tell_in_child
from glowpy.support.loc import Loc
from glowpy.support.symbolic import symbols_of

if TYPE_CHECKING:
    from glowpy.core.state_pairs import StatePairs

__all__ = ["SessionState", "state_pairs"]

_MAX_FRESH = 64
"""Number of shapes of inputs for which the initial state is remembered."""


@final
class _RunLock:
    """Lets in one thread at a time: `with lock: ...`. Raises UserError for one that is inside.

    Attributes:
        is_cut: Whether this process is a fork, made while another thread was inside.
    """

    def __init__(self) -> None:
        self._lock = Lock(is_brief=False)
        self.is_cut = False
        tell_in_child(self)

    def forked(self) -> None:
        """Lets the next thread in, where the one that is inside has stayed in the parent: a run was cut off."""
        self.is_cut = self.is_cut or self._lock.was_cut

    def __enter__(self) -> None:
        if self._lock.is_own:
            raise UserError("expected a callback that does not use the session that is running")
        self._lock.__enter__()

    @property
    def __exit__(self) -> Callable[..., None]:
        """Lets the next thread in."""
        return self._lock.__exit__


@final
class SessionState:
    """The variables of one session. One run at a time: others wait.

    Attributes:
        pairs: Inputs of the model, and the outputs that they are in the next run.
    """

    def __init__(self, model: Model, pairs: StatePairs) -> None:
        model.check_state(pairs)
        self.pairs = dict(pairs)
        self._kept = {output: name for name, output in self.pairs.items()}
        self._inputs = {info.name: info for info in model.inputs}
        self._model = model
        self._fresh: dict[Hashable, Shapes] = {}  # by what else is known
        self._run_lock = _RunLock()
        self._contents: dict[str, Array] = {}
        """The contents of variables for the first run; those that begin as they do are not listed."""
        self._state: State | None = None
        """The memory of variables since the first run."""

    def run(
        self,
        names: Sequence[str],
        feeds: Mapping[str, Array],
        out: Mapping[str, Array] | None,
        ways: Ways,
    ) -> dict[str, Array]:
        """The outputs of the next run, and what it leaves in the variables of which `names` has the outputs.

        Args:
            names: Outputs of the model.
            feeds: All inputs but the variables.
            out: As of `CompiledFunction`; also for what the run leaves in variables.
            ways: The ways to compute them.
        """
        with self._run_lock:
            self._check_whole()
            shapes = self._shapes(feeds)
            kept_names = [name for name in names if name in self._kept]
            copies = {name: array for name, array in (out or {}).items() if name in kept_names}
            other_arrays = (
                {name: out[name] for name in out if name not in kept_names} if out else None
            )
            state = self._state

            def compute(
                function: CompiledFunction, out: Mapping[str, Array] | None
            ) -> dict[str, Array]:
                nonlocal state
                state = self._moved(function, shapes)
                is_open = bool(copies) and _check_copies(
                    function, shapes, {self._kept[name]: copies[name] for name in copies}
                )
                before, held = self._contents, self._state
                if held is not None and (function.checks or function.supposed or is_open):
                    before = held.contents()  # for a run that is void
                outputs = function(given_inputs(function, feeds), out, state=state)
                self._state, self._contents = None, before
                return outputs

            try:
                function = ways.function_for(shapes)
            except UserError as error:
                raise self._with_held_shapes(error, shapes) from error
            if function.supposed:
                outputs, function = supposed_outputs(function, shapes, other_arrays, compute, ways)
            else:
                outputs = compute(function, other_arrays)
            if function.checks:
                raise_wrong(outputs, function.checks, self._model.file)
            assert state is not None
            if kept_names:
                left = {output: state[self._kept[output]] for output in kept_names}
                store_outputs(left, copies)
                outputs |= {n: a if n in copies else a.copy() for n, a in left.items()}
            self._state, self._contents = state, {}
            return outputs

    def _check_whole(self) -> None:
        """Raises UserError where nobody knows what variables hold."""
        if self._run_lock.is_cut:
            raise UserError(
                "the process was forked during a run of the session, which was to go on from what that run leaves",
                note="reset_state() or set_state(...) before the next run",
            )

    def _with_held_shapes(self, error: UserError, shapes: Shapes) -> UserError:
        """The error of a run, with what the session keeps of earlier ones, as inputs may not fit to that."""
        held = self._contents if self._state is None else self.pairs
        if not held:
            return error
        texts = [f"'{name}' of shape [{'x'.join(map(str, shapes[name]))}]" for name in held]
        what = ", ".join(texts[:3]) + (f", and {len(texts) - 3} more" if len(texts) > 3 else "")
        message = f"the session keeps what earlier runs left: {what}"
        note = "reset_state() lets it begin again, with inputs of other shapes"
        return UserError.of([*error.diagnostics, Diagnostic(message, note=note)])

    def _moved(self, function: CompiledFunction, shapes: Shapes) -> State:
        """The variables in the memory of a function."""
        if self._state is not None:
            same = self._state.ports == function.state_ports
            return self._state if same else self._state.moved_to(function.state_ports)
        state = function.state()
        for port in state.ports:
            if port.name in self._contents:
                state[port.name] = self._contents[port.name]
            elif port.initial is None:
                state[port.name] = np.zeros(shapes[port.name], port.memory.kind.dtype)
        return state

    def _shapes(self, feeds: Mapping[str, Array]) -> Shapes:
        """The shapes of all inputs, and those of variables before the next run."""
        given = {name: array.shape for name, array in feeds.items()}
        if self._state is not None:
            given |= cast("Shapes", self._state.shapes)  # which a run has left: all is known
        else:
            given |= {name: array.shape for name, array in self._contents.items()}
            given |= self._begun(given, feeds)
        return {name: given[name] for name in self._inputs}

    def _begun(self, given: Shapes, feeds: Mapping[str, Array]) -> Shapes:
        """The shapes of variables that hold nothing."""
        key = frozenset(given.items())
        if key in self._fresh:
            return self._fresh[key]
        from glowpy.session.initial_state import fresh_shapes  # noqa: PLC0415 - it builds the model

        shapes, by_elements = fresh_shapes(self._model, self.pairs, given, feeds)
        if not by_elements:
            if len(self._fresh) == _MAX_FRESH:
                self._fresh.clear()
            self._fresh[key] = shapes
        return shapes

    def reset(self) -> None:
        """Makes all variables what they were at first."""
        with self._run_lock:
            self._state, self._contents, self._run_lock.is_cut = None, {}, False

    def contents(self) -> dict[str, Array]:
        """Copies of what variables hold, by the names of the inputs; none that hold nothing yet."""
        with self._run_lock:
            self._check_whole()
            if self._state is not None:
                return self._state.contents()
            return {name: array.copy() for name, array in self._contents.items()}

    def restore(self, contents: Mapping[str, Array]) -> None:
        """Makes variables hold copies of these arrays, one for each."""
        arrays = {name: np.array(array) for name, array in contents.items()}
        for name, array in arrays.items():
            if name not in self.pairs:
                names = ", ".join(map(repr, self.pairs)) or "(there are none)"
                raise UserError(f"expected one of the variables {names}, got '{name}'")
            info = self._inputs[name]
            if array.dtype != info.kind.dtype or not info.admits(array.shape):
                got = f"{array.dtype}[{'x'.join(map(str, array.shape))}]"
                raise UserError(f"'{name}': expected {info.type} of shape {info.shape}, got {got}")
        if missing := [name for name in self.pairs if name not in arrays]:
            raise UserError(
                f"expected all variables, missing {', '.join(map(repr, missing))}",
                note="reset_state makes them what they were at first",
            )
        self._check_alike(arrays)
        with self._run_lock:
            self._state, self._contents, self._run_lock.is_cut = None, arrays, False

    def _check_alike(self, arrays: Mapping[str, Array]) -> None:
        """Raises UserError where arrays contradict each other in a dimension that the model gives one name."""
        first_sizes: dict[str, tuple[str, int]] = {}
        for name, array in arrays.items():
            for dim, size in zip(self._inputs[name].shape or (), array.shape, strict=False):
                if (
                    isinstance(dim, str)
                    and (first_size := first_sizes.setdefault(dim, (name, size)))[1] != size
                ):
                    raise UserError(
                        f"'{name}': expected '{dim}' = {first_size[1]} as in '{first_size[0]}', got {size}"
                    )


def _check_copies(function: CompiledFunction, shapes: Shapes, arrays: Mapping[str, Array]) -> bool:
    """Raises UserError for arrays, by variable, that do not take what a run leaves there.

    True where only the run says whether they do, as it finds extents of some.
    """
    types = function.inputs | {port.name: port.type for port in function.state_ports}
    extents = extents_of({name: (type.shape, shapes[name]) for name, type in types.items()})
    ports = [port for port in function.state_ports if port.name in arrays]
    known_ports = [p for p in ports if symbols_of(p.following.shape).keys() <= extents.keys()]
    for port in known_ports:
        array, type = arrays[port.name], largest_at(port.following, extents)
        got = f"{array.dtype}[{'x'.join(map(str, array.shape))}]"
        if array.dtype != type.kind.dtype or array.shape != type.shape:
            raise UserError(f"out, for '{port.name}': expected an array of type {type}, got {got}")
        if not array.flags.writeable:
            raise UserError(f"out, for '{port.name}': expected a writeable array for an output")
    return len(known_ports) < len(ports)


def state_pairs(model: Model, state: StatePairs | Literal["auto"] | None) -> StatePairs:
    """Inputs and the outputs that they are in the next run: the model's own unless others are given.

    Raises UserError where none are found.
    """
    if state != "auto":
        return model.kept if state is None else state
    if not model.state:
        raise UserError(
            "state: no input and output look like state",
            loc=Loc(model.file),
            note="name them: state={INPUT: OUTPUT}",
        )
    return model.state
