"""`CopyingFunction`: how networks on a device apart are called as those of the host are."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, final

import numpy as np

from glowpy.core.extents import Extents
from glowpy.core.tensor import Array
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.executable import Executable
from glowpy.runtime.host_memory import HOST
from glowpy.runtime.memory import Buffer

__all__ = ["CopyingFunction"]


@final
class CopyingFunction(CompiledFunction, Generic[Buffer]):
    """A network in the memory of a device apart, called as one of the host.

    A run copies there what it reads, and back what it writes. Variables are in the host's memory between two runs.
    """

    def __init__(self, executable: Executable[Buffer]) -> None:
        super().__init__(executable.ports, 0)
        self._executable = executable
        self._areas: list[Buffer] = []  # arenas there; append and pop are atomic
        variables = {port.placeholder for port in self.state_ports}
        self._reads = {port.placeholder for port in self.input_ports} | variables
        self._writes = {port.placeholder for port in self.output_ports} | variables

    def execute(self, bindings: Mapping[str, Array], arena: Array, extents: Extents) -> Extents:
        """Runs in buffers that are made for this run, and an arena of the device's."""
        del arena
        memory = self._executable.memory
        buffers = {name: memory.allocate(array.nbytes) for name, array in bindings.items()}
        for name, array in bindings.items():
            if name in self._reads and array.nbytes:
                memory.write(buffers[name], array.reshape(-1).view(np.uint8).data)
        try:
            area = self._areas.pop()
        except IndexError:
            area = memory.allocate(self._executable.arena_size)
        try:
            found = self._executable.execute(buffers, area, extents)
        finally:
            self._areas.append(area)
        for name, array in bindings.items():
            if name in self._writes:
                HOST.write(array, memory.read(buffers[name]))
        return found
