"""What a session keeps between its runs, in the memory of whatever was compiled for the last of them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import final

import numpy as np

from glowpy.core.state import State
from glowpy.core.tensor import Array
from glowpy.executable import CompiledFunction
from glowpy.graph.state import StatePairs
from glowpy.importer import OnnxModel, ValueInfo
from glowpy.support.errors import UserError

__all__ = ["SessionState"]

Shapes = dict[str, tuple[int, ...]]


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
            shapes = {
                name: feeds[name].shape if name in feeds else self._shape(name, feeds)
                for name in self._inputs
            }
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

    def _shape(self, name: str, feeds: Mapping[str, Array]) -> tuple[int, ...]:
        """The shape of a variable before the next run."""
        if self._state is not None:
            return tuple(size or 0 for size in self._state.shape(name))
        if name in self._contents:
            return self._contents[name].shape
        return self._fresh(name, feeds)

    def _fresh(self, name: str, feeds: Mapping[str, Array]) -> tuple[int, ...]:
        """The shape of a variable that holds nothing yet.

        A dimension is what another input says by its name, such as a batch, and else 0: it grows.
        """
        said = {
            dim: size
            for other, array in feeds.items()
            for dim, size in zip(_dims(self._inputs[other], array.ndim), array.shape, strict=True)
            if isinstance(dim, str)
        }
        dims = self._inputs[name].shape
        if dims is None:
            raise UserError(
                f"'{name}' has no declared shape, expected what it is before the first run",
                note="set_state says that",
            )
        return tuple(dim if isinstance(dim, int) else said.get(dim or "", 0) for dim in dims)

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


def _dims(info: ValueInfo, rank: int) -> Sequence[int | str | None]:
    """The declared dimensions; unknown ones where there are none."""
    dims = info.shape
    return dims if dims is not None and len(dims) == rank else [None] * rank
