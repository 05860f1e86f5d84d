"""`Instance`: memory to run one network in, again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from glowpy.core.extents import Extents, largest_at, shape_at, type_at
from glowpy.core.state import given_extents
from glowpy.core.tensor import Array
from glowpy.runtime.arrays import check_array
from glowpy.runtime.host_memory import HOST, part_of
from glowpy.support.errors import UserError
from glowpy.support.process_bound import ProcessBound

if TYPE_CHECKING:
    from glowpy.runtime.host_call import HostCall
    from glowpy.runtime.ports import Port
    from glowpy.runtime.state import State

__all__ = ["Instance"]


class Instance(ProcessBound):
    """Memory to run a network in. Not for several threads at once; make one instance each.

    `instance["x"]` is the array an input or output lives in: write inputs there, call `run`, read
    outputs there, nothing is copied. `bind` puts an array of the caller's in its place. Where a shape depends on what
    variables hold, an input's array is for the next run, and an output's is of the last one.

    Attributes:
        state: The variables, which each run changes; others may share them.
    """

    def __init__(self, function: HostCall, extents: Extents, state: State) -> None:
        self._function = function
        self._given = extents
        self.state = state
        self._known = self._own.known()
        self._extents = given_extents(function.symbols, self._given, self._known)
        self._arena = HOST.allocate(function.arena_size)
        self._found: Extents = {}
        self._arrays: dict[str, Array] = {}
        self._flat: dict[str, Array] = {}
        for port in (*function.input_ports, *function.output_ports):
            if port.placeholder not in self._arrays:
                room = largest_at(port.type, extents).room
                self._flat[port.placeholder] = HOST.allocate(room).view(port.type.kind.dtype)
                self._arrays[port.placeholder] = self._shaped(port)
        self._ports = {port.name: port for port in (*function.input_ports, *function.output_ports)}

    @property
    def _own(self) -> State:
        """The part of the state that the network names."""
        return self._function.state_part(self.state)

    def _shaped(self, port: Port) -> Array:
        """The memory of a port in its present shape."""
        type = largest_at(port.type, self._extents)
        return self._flat[port.placeholder][: type.room // type.kind.size].reshape(type.extents)

    def _prepare(self) -> None:
        """Lets inputs have the shapes of the next run. Raises UserError for variables that are full or at odds."""
        known = self._own.known()
        if known != self._known:
            self._extents = given_extents(self._function.symbols, self._given, known)
            self._known = known
            self._shape(self._function.input_ports)

    def _shape(self, ports: Sequence[Port]) -> None:
        for port in ports:
            if not port.type.is_static and port.placeholder in self._flat:
                self._arrays[port.placeholder] = self._shaped(port)

    def _port(self, name: str) -> Port:
        port = self._ports.get(name)
        if port is None:
            raise UserError(
                f"expected one of the inputs and outputs {', '.join(map(repr, self._ports))}, got '{name}'"
            )
        return port

    def __getitem__(self, name: str) -> Array:
        """The array the input or output called `name` lives in.

        Of an output whose shape depends on what the network finds it is the part that the last run wrote, and before
        the first run all there is room for.
        """
        port = self._port(name)
        if port in self._function.input_ports:
            self._prepare()
        array = self._arrays[port.placeholder]
        if not self._found or port not in self._function.open_ports:
            return array
        return part_of(array, shape_at(port.type.shape, {**self._extents, **self._found}))

    def bind(self, name: str, array: Array) -> None:
        """Makes `array` the memory of an input or output.

        Raises UserError unless it is C-contiguous, aligned, and of exactly the port's dtype and shape.
        """
        port = self._port(name)
        if self._known and not port.type.is_static:
            raise UserError(f"'{name}': expected a port of one shape to bind, got {port.type}")
        check_array(name, largest_at(port.type, self._extents), array)
        if not array.flags.c_contiguous:
            raise UserError(
                f"'{name}': expected a C-contiguous array to bind",
                note="use numpy.ascontiguousarray",
            )
        if not array.flags.aligned:
            raise UserError(f"'{name}': expected an array aligned to its element")
        if port in self._function.output_ports and not array.flags.writeable:
            raise UserError(f"'{name}': expected a writeable array for an output")
        for name, other in self._arrays.items():
            if name != port.placeholder and np.may_share_memory(array, other):
                raise UserError(f"'{port.name}': expected memory of its own, got some of %{name}'s")
        if self.state.holds(array):
            raise UserError(f"'{port.name}': expected memory of its own, got some of a variable's")
        self._arrays[port.placeholder] = array
        self._flat.pop(port.placeholder, None)

    def write(self, name: str, array: Array) -> None:
        """Copies `array` into an input. Raises UserError for another dtype or shape."""
        port = self._port(name)
        content = np.asarray(array)
        self._prepare()
        check_array(name, type_at(port.type, self._extents), content)
        self._arrays[port.placeholder][...] = content

    def run(self) -> None:
        """Computes the outputs from what the inputs hold now. Raises UserError where variables are full or at odds."""
        if self._function.state_ports:
            self._prepare()
            self._shape(self._function.output_ports)
            state = self._own
            self._found = self._function.execute_on(state, self._arrays, self._arena, self._extents)
            state.advance({**self._extents, **self._found})
        else:
            self._found = self._function.execute(self._arrays, self._arena, self._extents)

    def reset(self) -> None:
        """Makes the variables what they were before the first run."""
        self.state.reset()
