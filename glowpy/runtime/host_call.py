"""`HostCall`: how the host calls a network, with arrays that go in and out without copies."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np

from glowpy.core.extents import Extents, PlainShapes, extents_of, largest_at, shape_at
from glowpy.core.state import Known
from glowpy.core.tensor import Array
from glowpy.core.type import Type
from glowpy.runtime.arrays import check_array, input_mismatch, mismatch, store_outputs
from glowpy.runtime.executable import Executable
from glowpy.runtime.host_memory import HOST, part_of
from glowpy.runtime.host_state import HostState
from glowpy.runtime.instance import Instance
from glowpy.runtime.output_memory import OutputMemory
from glowpy.runtime.ports import Port, Ports
from glowpy.runtime.state import State
from glowpy.support.errors import UserError
from glowpy.support.limits import LIMIT_ERRORS, raise_told, within_limits

__all__ = ["HostCall"]

_Made: TypeAlias = tuple[Port, tuple[int, ...], bool]
"""An output, the shape that there is memory for, and whether that is little."""
_Bound: TypeAlias = tuple[Extents, Sequence[_Made]]
"""The extents of a run, and the outputs with them."""

_Taking: TypeAlias = tuple[Port, np.dtype[Any], tuple[int, ...] | None, bool]
"""An input, its dtype, its shape if that has no symbols, and whether it is an output as well."""

_MAX_KNOWN = 1 << 12
"""The number of sets of shapes for which the extents of symbols are remembered."""

_SMALL = 1 << 12
"""Bytes below which it does not matter whether vectors are stored across cache lines."""


class HostCall(Executable[Array]):
    """A network in the host's memory that is called with arrays. Shared by any number of instances and threads.

    Calling it runs it in an arena of its own pool: `outputs = network({"x": array})`. Of a network with
    variables a call is given their `state`, which belongs to the caller.
    """

    def __init__(self, ports: Ports, arena_size: int) -> None:
        super().__init__(HOST, ports, arena_size)
        self._arenas: list[Array] = []  # append and pop are atomic: there is no lock
        self._results = OutputMemory(len(self.output_ports))
        self._is_open = bool(self.symbols or self.open_ports)
        self._plain = PlainShapes(port.type.shape for port in self.input_ports)
        self._known: dict[tuple[tuple[tuple[int, ...], ...], Known], _Bound] = {}
        self._constant: _Bound = {}, [] if self._is_open else self._made({})
        """Result of `_bound` where no shape depends on a symbol."""
        names = {port.placeholder for port in self.output_ports}
        both = names & {port.placeholder for port in self.input_ports}
        self._takings: list[_Taking] = [
            (
                port,
                port.type.kind.dtype,
                port.type.extents if port.type.is_static else None,
                port.placeholder in both,
            )
            for port in self.input_ports
        ]

    def state(self, *others: Executable[Any]) -> State:
        """The variables, as arrays of the host; see `Executable.state`."""
        return HostState(self._shared_ports(others))

    def execute_on(
        self, state: State, bindings: Mapping[str, Array], arena: Array, extents: Extents
    ) -> Extents:
        """Executes with the memory of variables beside the arrays that are bound."""
        return self.execute({**bindings, **state.buffers}, arena, extents)

    @within_limits
    def instance(self, state: State | None = None, /, **extents: int) -> Instance:
        """A new instance, with its own working memory, its own arrays for inputs and outputs, and `state` or its own.

        Arrays of shapes with symbols are made for these extents. Raises UserError unless all symbols have one, but for
        those that variables say, for one outside its bounds, and for the state of another network.
        """
        return Instance(self, extents, self.state() if state is None else state)

    def __call__(
        self,
        inputs: Mapping[str, Array],
        out: Mapping[str, Array] | None = None,
        *,
        state: State | None = None,
    ) -> dict[str, Array]:
        """Runs in an arena of its own pool. Outputs are new arrays that belong to the caller, or those in `out`.

        Args:
            inputs: An array for each input. It is read where it is if it is contiguous, aligned to its element, and no
                part of `state`; any other is copied.
            out: Arrays to store outputs in, by name. One that is contiguous, aligned and no memory of an input or
                of another output is written as it is computed; to any other the result is copied.
            state: The variables, which the run changes, and perhaps more, of networks that share them.

        Raises UserError for a missing or unknown name and for an array of another type or shape, one in `out` that
        cannot be written, and variables that are full, or at odds with an input. Safe from several threads, with a
        state for each. Where an observer or Ctrl-C ends a run, variables may hold what the run has left already,
        and where an array in `out` is not as large as what was found, they hold all of it.
        """
        try:
            bindings = self._bind_inputs(inputs)
            state, known = (
                self._bind_state(state, bindings)
                if state is not None or self.state_ports
                else (None, ())
            )
            extents, outputs = self._bound(bindings, known) if self._is_open else self._constant
            if out:
                self._bind_outputs(out, bindings, outputs, state)
            results = {}
            for port, shape, is_small in outputs:
                array = bindings.get(port.placeholder)
                if array is None:
                    dtype = port.type.kind.dtype
                    array = (
                        np.empty(shape, dtype) if is_small else self._results.array(shape, dtype)
                    )
                    bindings[port.placeholder] = array
                results[port.name] = array
            arena = self._taken_arena()
            try:
                if state is None:
                    found = self.execute(bindings, arena, extents)
                else:
                    found = self.execute_on(state, bindings, arena, extents)
            finally:
                self._arenas.append(arena)
            if state is not None:
                state.advance({**extents, **found})
            for port in self.open_ports:
                shape = shape_at(port.type.shape, {**extents, **found})
                results[port.name] = part_of(results[port.name], shape)
            if out:
                store_outputs(results, out)
            return results
        except LIMIT_ERRORS as error:
            raise_told(error)

    def _taken_arena(self) -> Array:
        """Working memory of the pool, to which it has to be given back."""
        try:
            return self._arenas.pop()
        except IndexError:
            return HOST.allocate(self.arena_size)

    def _bind_inputs(self, inputs: Mapping[str, Array]) -> dict[str, Array]:
        """The arrays by placeholder, or copies of those that cannot be read where they are or are outputs as well."""
        bindings: dict[str, Array] = {}
        if not isinstance(inputs, (dict, Mapping)):  # the latter takes four times as long
            raise UserError(f"expected a dict of inputs, got {type(inputs).__name__}")
        for port, dtype, shape, is_output in self._takings:
            if port.name not in inputs:
                raise input_mismatch(self.inputs, inputs)
            array = np.asarray(inputs[port.name])
            if array.dtype != dtype or (shape is not None and array.shape != shape):
                raise mismatch(port.name, port.type, array)
            flags = array.flags
            if is_output or not (flags.c_contiguous and flags.aligned):
                array = array.copy()
            bindings[port.placeholder] = array
        if len(inputs) != len(bindings):
            raise input_mismatch(self.inputs, inputs)
        return bindings

    def _bind_state(self, state: State | None, bindings: dict[str, Array]) -> tuple[State, Known]:
        """Returns the part of a state that the network names, and the extents it fixes; copies inputs in its memory."""
        part = self.state_part(state)
        for name, array in bindings.items():
            if part.holds(array):  # a run may overwrite it before it has read all inputs
                bindings[name] = array.copy()
        return part, part.known()

    def _bound(self, bindings: Mapping[str, Array], known: Known) -> _Bound:
        """Returns the extents of symbols for these inputs and variables, and the outputs of symbolic types."""
        shapes = tuple([bindings[port.placeholder].shape for port in self.input_ports]), known
        bound = self._known.get(shapes)
        if bound is None:
            plain = self._plain.extents(shapes[0]) if self._plain.is_plain and not known else None
            if plain is None:
                dims = {name: (declared, actual) for name, declared, actual in known}
                pairs = zip(self.input_ports, shapes[0], strict=True)
                dims |= {port.name: (port.type.shape, shape) for port, shape in pairs}
                plain = extents_of(dims)
            extents = plain
            bound = extents, self._made(extents)
            if len(self._known) == _MAX_KNOWN:
                self._known.clear()
            self._known[shapes] = bound
        return bound

    def _made(self, extents: Extents) -> list[_Made]:
        """The outputs with the shapes that they have at these extents, or have room for."""
        outputs = []
        for port in self.output_ports:
            shape = (
                largest_at(port.type, extents).extents
                if port in self.open_ports
                else shape_at(port.type.shape, extents)
            )
            outputs.append((port, shape, math.prod(shape) * port.type.kind.size < _SMALL))
        return outputs

    def _bind_outputs(
        self,
        out: Mapping[str, Array],
        bindings: dict[str, Array],
        outputs: Sequence[_Made],
        state: State | None,
    ) -> None:
        """Checks arrays for outputs, and binds those that can be written while others are read and written."""
        ports = {port.name: (port, shape) for port, shape, _ in outputs}
        for name, array in out.items():
            if name not in ports:
                raise UserError(f"expected the outputs {', '.join(map(repr, ports))}, got '{name}'")
            port, shape = ports[name]
            type = port.type
            check_array(
                name, type if port in self.open_ports else Type(type.kind, shape, type.quant), array
            )
            if not array.flags.writeable:
                raise UserError(f"'{name}': expected a writeable array for an output")
        arrays = [*bindings.values(), *out.values()]
        for name, array in out.items():
            port, _ = ports[name]
            fits = array.flags.c_contiguous and array.flags.aligned and port not in self.open_ports
            shared = sum(bool(np.may_share_memory(array, other)) for other in arrays) > 1
            if fits and state is not None:
                shared = shared or state.holds(array)
            if fits and not shared and port.placeholder not in bindings:
                bindings[port.placeholder] = array
