"""What a session keeps between its runs, in the memory of whatever was compiled for the last of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import final

import numpy as np

from glowpy.core.state import State
from glowpy.core.tensor import Array
from glowpy.executable import CompiledFunction
from glowpy.fresh_state import fresh_shapes
from glowpy.graph.state import StatePairs
from glowpy.importer import OnnxModel
from glowpy.support.errors import UserError

__all__ = ["SessionState"]

Shapes = dict[str, tuple[int, ...]]

_MAX_FRESH = 64
"""Of so many shapes of inputs it is remembered how state begins."""


@final
class SessionState:
    """The variables of one session. One run at a time: others wait.

    Attributes:
        pairs: Inputs of the model, and the outputs that they are in the next run.
    """

    def __init__(self, model: OnnxModel, pairs: StatePairs) -> None:
        model.check_state(pairs)
        self.pairs = dict(pairs)
        self._inputs = {info.name: info for info in model.inputs}
        self._model = model
        self._fresh: dict[Hashable, Shapes] = {}  # by what else is known
        self._lock = threading.Lock()
        self._owner: int | None = None
        self._contents: dict[str, Array] = {}
        """What variables hold for the first run; zeros are not listed."""
        self._state: State | None = None
        """What they hold since."""

    @contextmanager
    def _turn(self) -> Iterator[None]:
        if self._owner == threading.get_ident():
            raise UserError("expected a callback that does not use the session that is running")
        with self._lock:
            self._owner = threading.get_ident()
            try:
                yield
            finally:
                self._owner = None

    def run(
        self,
        names: Sequence[str],
        feeds: Mapping[str, Array],
        out: Mapping[str, Array] | None,
        function_for: Callable[[Shapes], CompiledFunction],
    ) -> dict[str, Array]:
        """The outputs of the next run, and what it leaves in the variables of which `names` has the outputs.

        Args:
            names: Outputs of the model.
            feeds: All inputs but the variables.
            out: As of `CompiledFunction`.
            function_for: What is compiled for inputs and variables of these shapes.
        """
        with self._turn():
            shapes = self._shapes(feeds)
            function = function_for(shapes)
            state = self._moved(function, shapes)
            inputs = {port.name: feeds[port.name] for port in function.input_ports}
            outputs = function(inputs, out, state=state)
            self._state, self._contents = state, {}
            kept = {output: name for name, output in self.pairs.items() if output in names}
            return outputs | {output: state[name].copy() for output, name in kept.items()}

    def _moved(self, function: CompiledFunction, shapes: Shapes) -> State:
        """The variables in the memory of a function."""
        if self._state is not None:
            same = self._state.ports == function.state_ports
            return self._state if same else self._state.moved_to(function.state_ports)
        state = function.state()
        for port in state.ports:
            zeros = np.zeros(shapes[port.name], port.memory.kind.dtype)
            state[port.name] = self._contents.get(port.name, zeros)
        return state

    def _shapes(self, feeds: Mapping[str, Array]) -> Shapes:
        """The shapes of all inputs, and those of variables before the next run."""
        given = {name: array.shape for name, array in feeds.items()}
        if self._state is not None:
            kept = {name: self._state.shape(name) for name in self.pairs}
            given |= {name: tuple(size or 0 for size in shape) for name, shape in kept.items()}
        else:
            given |= {name: array.shape for name, array in self._contents.items()}
            key = frozenset(given.items())
            if key not in self._fresh:
                if len(self._fresh) == _MAX_FRESH:
                    self._fresh.clear()
                self._fresh[key] = fresh_shapes(self._model, self.pairs, given, feeds)
            given |= self._fresh[key]
        return {name: given[name] for name in self._inputs}

    def reset(self) -> None:
        """Makes all variables zero, or empty."""
        with self._turn():
            self._state, self._contents = None, {}

    def contents(self) -> dict[str, Array]:
        """Copies of what variables hold, by the names of the inputs; none that hold nothing yet."""
        with self._turn():
            if self._state is not None:
                return self._state.contents()
            return {name: array.copy() for name, array in self._contents.items()}

    def restore(self, contents: Mapping[str, Array]) -> None:
        """Makes variables hold copies of these arrays, and the others nothing."""
        arrays = {name: np.array(array) for name, array in contents.items()}
        for name, array in arrays.items():
            if name not in self.pairs:
                names = ", ".join(map(repr, self.pairs)) or "(there are none)"
                raise UserError(f"expected one of the variables {names}, got '{name}'")
            info = self._inputs[name]
            if array.dtype != info.kind.dtype or not info.admits(array.shape):
                got = f"{array.dtype}[{'x'.join(map(str, array.shape))}]"
                raise UserError(f"'{name}': expected {info.type} of shape {info.shape}, got {got}")
        with self._turn():
            self._state, self._contents = None, arrays
