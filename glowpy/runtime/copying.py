"""`CopyingFunction`: how networks on a device apart are called as those of the host are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, TypeAlias, final

import numpy as np

from glowpy.core.extents import Extents
from glowpy.core.tensor import Array
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.executable import Executable
from glowpy.runtime.host_memory import HOST
from glowpy.runtime.memory import Buffer
from glowpy.runtime.state import State

__all__ = ["CopyingFunction"]

_MAX_SIZES = 8
"""The number of sets of sizes for which buffers are kept."""

_Sizes: TypeAlias = frozenset[tuple[str, int]]
"""Bytes of every buffer, by the name of its placeholder."""


@final
class CopyingFunction(CompiledFunction, Generic[Buffer]):
    """A network in the memory of a device apart, called as one of the host.

    A run copies there what it reads, and back what it writes, in buffers that the next run takes again. Variables stay
    there.
    """

    def __init__(self, executable: Executable[Buffer]) -> None:
        super().__init__(executable.ports, 0)
        self._executable = executable
        self._areas: dict[_Sizes, list[tuple[Buffer, dict[str, Buffer]]]] = {}
        """Arenas there, each with buffers of some sizes; append and pop are atomic."""
        variables = {port.placeholder for port in self.state_ports}
        self._reads = {port.placeholder for port in self.input_ports} | variables
        self._writes = {port.placeholder for port in self.output_ports} | variables

    def state(self, *others: Executable[Any]) -> State:
        """The variables, in the memory of the device."""
        return self._executable.state(*others)

    def state_part(self, state: State | None) -> State:
        """The part of a state on the device that the network names. Raises UserError where that is missing."""
        return self._executable.state_part(state)

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs in buffers and an arena of the device's."""
        del arena
        return self._run(bindings, {}, extents)

    def execute_on(
        self, state: State, bindings: Mapping[str, Array], arena: Array, extents: Extents
    ) -> Extents:
        """Runs on variables that the device has."""
        del arena
        return self._run(bindings, state.buffers, extents)

    def _run(
        self, bindings: Mapping[str, Array], variables: Mapping[str, Buffer], extents: Extents
    ) -> Extents:
        memory = self._executable.memory
        free = self._free(frozenset((name, array.nbytes) for name, array in bindings.items()))
        try:
            area, buffers = free.pop()
        except IndexError:
            area = memory.allocate(self._executable.arena_size)
            buffers = {name: memory.allocate(array.nbytes) for name, array in bindings.items()}
        try:
            for name, array in bindings.items():
                if name in self._reads and array.nbytes:
                    memory.write(buffers[name], array.reshape(-1).view(np.uint8).data)
            found = self._executable.execute({**buffers, **variables}, area, extents)
            for name, array in bindings.items():
                if name in self._writes:
                    HOST.write(array, memory.read(buffers[name]))
        finally:
            free.append((area, buffers))
        return found

    def _free(self, sizes: _Sizes) -> list[tuple[Buffer, dict[str, Buffer]]]:
        """The arenas and buffers of these sizes that no run uses."""
        free = self._areas.get(sizes)
        if free is None:
            if len(self._areas) >= _MAX_SIZES:
                self._areas.clear()
            free = self._areas.setdefault(sizes, [])
        return free  # another thread may have dropped it already
