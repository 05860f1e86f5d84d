"""`HostState`: variables in the host's memory, whose buffers are arrays."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from typing import Any, final

from glowpy.core.state import StatePort, box
from glowpy.core.tensor import Array, address_of
from glowpy.runtime.host_memory import HOST
from glowpy.runtime.state import State

__all__ = ["HostState"]


@final
class HostState(State):
    """Variables of networks that run in this process. Copies have memory of their own."""

    buffers: Mapping[str, Array]

    def __init__(self, ports: Sequence[StatePort]) -> None:
        super().__init__(ports, HOST)

    def _made(self, port: StatePort) -> Array:
        return port.contents.array

    def _keep(self, buffers: Mapping[str, Array], contents: Any) -> None:
        super()._keep(buffers, contents)
        self._own = {id(array) for array in buffers.values()}
        spans = sorted((self.addresses[name], array.nbytes) for name, array in buffers.items())
        self._starts = [start for start, _ in spans]
        self._ends = [start + size for start, size in spans]

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        """Restores a copy, whose memory lies elsewhere."""
        self.__dict__.update(attributes)
        self._keep(self.buffers, self._contents)

    def _elements(self, port: StatePort) -> Array:
        return self.buffers[port.placeholder]

    def _write(self, port: StatePort, content: Array) -> None:
        self.buffers[port.placeholder][box(content.shape)] = content

    def holds(self, array: Array) -> bool:
        """Whether a contiguous array is some of this memory."""
        if array.base is None:
            return id(array) in self._own
        start = address_of(array)
        place = bisect_right(self._starts, start + max(array.nbytes - 1, 0))
        return place > 0 and start < self._ends[place - 1]

    def _other(self, ports: Sequence[StatePort]) -> HostState:
        return HostState(ports)
