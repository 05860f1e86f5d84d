"""State that networks keep between runs: memories of variables on a device, and the shapes of their contents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Never, Self, SupportsIndex, final

import numpy as np

from glowpy.core.extents import Extents, shape_at
from glowpy.core.state import Known, StatePort, box
from glowpy.core.tensor import Array
from glowpy.core.type import Shape, Type
from glowpy.runtime.memory import Memory
from glowpy.support.errors import UserError
from glowpy.support.symbolic import highest

__all__ = ["DeviceState", "State"]


class _Contents:
    """The present shapes of variables by name, and how often they were changed."""

    def __init__(self, shapes: dict[str, tuple[int | None, ...]]) -> None:
        self.shapes = shapes
        self.changes = 0


class State(ABC):
    """A store of named memories: the variables of networks between two runs. Not for several threads at once.

    They lie in the memory of the device on which the networks run. Initial values at first, or zeros. A network uses
    those that it names, so that networks may share a state: one that trains and one that evaluates. Of several ports
    for one variable, the state has one.

    Attributes:
        ports: The ports of the variables.
        memory: The memory that they lie in.
        buffers: Their pieces of it, by their names in dumps; a run changes them. On the host these are arrays.
        addresses: The address at which each of these begins.

    Raises UserError for ports that are at odds about a variable, and where there is no memory for them.
    """

    def __init__(self, ports: Sequence[StatePort], memory: Memory[Any]) -> None:
        self.ports = _merged(ports)
        self.memory = memory
        self._index()
        self._fresh = {port.name: port.fresh for port in self.ports}
        self.reset()

    def _index(self) -> None:
        self._ports = {port.name: port for port in self.ports}
        self._alike: dict[tuple[Shape, Shape], list[str]] = {}
        """The names of variables that are declared alike, as caches of layers are."""
        for port in self.ports:
            self._alike.setdefault((port.type.shape, port.following.shape), []).append(port.name)

    def reset(self) -> None:
        """Makes all variables what they were at first. Raises UserError where there is no memory for them."""
        self._keep(
            {port.placeholder: self._made(port) for port in self.ports},
            _Contents(dict(self._fresh)),
        )

    def _keep(self, buffers: Mapping[str, Any], contents: _Contents) -> None:
        """Makes these buffers the memory. Where they lie is asked for in every run, so that it is found out once."""
        self.buffers = buffers
        self.addresses = {name: self.memory.address(buffer) for name, buffer in buffers.items()}
        self._contents = contents
        self._known: Known = ()  # what the shapes say
        self._known_since = -1  # after so many changes
        self._parts: dict[int, Self] = {}

    @abstractmethod
    def _made(self, port: StatePort) -> Any:
        """New memory for a variable, with what that holds before the first run."""

    @abstractmethod
    def _elements(self, port: StatePort) -> Array:
        """All of a variable's memory: not copied on the host."""

    @abstractmethod
    def _write(self, port: StatePort, content: Array) -> None:
        """Copies an array to the beginning along each axis of a variable's memory."""

    @abstractmethod
    def holds(self, array: Array) -> bool:
        """Whether a contiguous array of the host is some of this memory."""

    def part(self, ports: tuple[StatePort, ...]) -> Self:
        """The variables that a network names, in the same memory. Raises UserError for one that is not here."""
        if ports == self.ports:
            return self
        part = self._parts.get(id(ports))
        if part is None or part.ports is not ports:
            for port in ports:
                mine = self._ports.get(port.name)
                if mine is None or _place(mine) != _place(port):
                    raise UserError(
                        f"expected a state of this network, got one without '{port.name}' in {port.memory}",
                        note="network.state() makes one, network.state(other) one for both",
                    )
            part = type(self).__new__(type(self))
            part.ports = ports
            part.memory = self.memory
            part._index()
            part._fresh = {port.name: self._fresh[port.name] for port in ports}
            names = (port.placeholder for port in ports)
            part._keep({name: self.buffers[name] for name in names}, self._contents)
            self._parts[id(ports)] = part
        return part

    def __getitem__(self, name: str) -> Array:
        """Returns the contents of a variable: those themselves on the host, a copy from another device.

        A dimension that only inputs say is 0 before the first run.
        """
        return self._elements(self._port(name))[box(self.shapes[name])]

    def __setitem__(self, name: str, array: Array) -> None:
        """Makes a copy of an array what a variable holds.

        Raises UserError for another element type, rank or fixed size, and for more than there is room for.
        """
        port = self._port(name)
        content = np.asarray(array)
        memory = port.memory
        is_alike = content.dtype == memory.kind.dtype and content.ndim == memory.rank
        if not is_alike or any(
            isinstance(dim, int) and dim != size
            for dim, size in zip(port.type.shape, content.shape, strict=True)
        ):
            got = f"{content.dtype}[{'x'.join(map(str, content.shape))}]"
            raise UserError(f"'{name}': expected an array of type {port.type}, got {got}")
        self._hold(name, content)

    def _hold(self, name: str, content: Array) -> None:
        port = self._port(name)
        self._check_room(port, content.shape)
        self._write(port, content)
        self._contents.shapes[name] = content.shape
        self._contents.changes += 1

    @property
    def shapes(self) -> Mapping[str, tuple[int | None, ...]]:
        """Shapes of the variables' contents; None for a dimension that only inputs say, before the first run."""
        return self._contents.shapes

    def shape(self, name: str) -> tuple[int | None, ...]:
        """One of these."""
        return self.shapes[self._port(name).name]

    def _port(self, name: str) -> StatePort:
        if name not in self._ports:
            names = ", ".join(map(repr, self._ports)) or "(there are none)"
            raise UserError(f"expected one of the variables {names}, got '{name}'")
        return self._ports[name]

    def known(self) -> Known:
        """Returns the extents that the variables fix for the next run. Raises UserError where one is full."""
        if self._known_since != self._contents.changes:
            self._known, self._known_since = self._stated(), self._contents.changes
        for name, dims, sizes in self._known:
            for dim, size in zip(dims, sizes, strict=True):
                if size > highest(dim):
                    self._check_room(self._ports[name], self.shapes[name])
        return self._known

    def _stated(self) -> Known:
        """One variable for each shape of those that are declared alike."""
        known: list[tuple[str, Shape, tuple[int, ...]]] = []
        for (declared, _), names in self._alike.items():
            firsts: dict[tuple[int | None, ...], str] = {}
            for name in names:
                firsts.setdefault(self.shapes[name], name)
            for shape, name in firsts.items():
                pairs = zip(declared, shape, strict=True)
                stated = [(dim, size) for dim, size in pairs if size is not None]
                dims, sizes = tuple(dim for dim, _ in stated), tuple(size for _, size in stated)
                known.append((name, dims, sizes))
        return tuple(known)

    @staticmethod
    def _check_room(port: StatePort, shape: Sequence[int | None]) -> None:
        for axis, (dim, size) in enumerate(zip(port.type.shape, shape, strict=True)):
            if size is not None and size > highest(dim):
                raise UserError(
                    f"the state '{port.name}' is full: expected at most {highest(dim)} along axis {axis}"
                    f" of {port.type}, got {size}",
                    note="reset it, or compile with a higher bound",
                )

    def advance(self, extents: Extents) -> None:
        """Notes that a run with these extents has left its variables."""
        known: list[tuple[str, Shape, tuple[int, ...]]] = []
        for (declared, following), names in self._alike.items():
            shape = shape_at(following, extents)
            self._contents.shapes |= dict.fromkeys(names, shape)
            known.append((names[0], declared, shape))
        self._contents.changes += 1
        self._known, self._known_since = tuple(known), self._contents.changes

    def moved_to(self, ports: Sequence[StatePort]) -> Self:
        """Moves the contents to a state of another compilation of the network, in the same memory if that is alike."""
        state = self._other(ports)
        memories, own_memories = ({p.placeholder: p.memory for p in s.ports} for s in (state, self))
        if memories == own_memories:
            state._keep(self.buffers, self._contents)
            return state
        for name, shape in self.shapes.items():
            if None not in shape:
                state._hold(name, self[name])
        return state

    @abstractmethod
    def _other(self, ports: Sequence[StatePort]) -> Self:
        """A fresh state of these ports in the same memory."""

    def contents(self) -> dict[str, Array]:
        """Copies of what all variables hold, by name."""
        return {port.name: self[port.name].copy() for port in self.ports}


@final
class DeviceState(State):
    """Variables in the memory of a device apart, where they stay from run to run. The host reads and writes copies."""

    def _made(self, port: StatePort) -> Any:
        buffer = self.memory.allocate(port.memory.room)
        if port.initial is not None:
            self.memory.write(buffer, port.contents.array.reshape(-1).view(np.uint8).data)
        return buffer

    def _elements(self, port: StatePort) -> Array:
        content = self.memory.read(self.buffers[port.placeholder])
        return np.frombuffer(content, port.memory.kind.dtype).reshape(port.memory.extents)

    def _write(self, port: StatePort, content: Array) -> None:
        elements = self._elements(port)
        elements[box(content.shape)] = content
        self.memory.write(self.buffers[port.placeholder], elements.reshape(-1).view(np.uint8).data)

    def holds(self, array: Array) -> bool:
        """No array of the host is."""
        del array
        return False

    def _other(self, ports: Sequence[StatePort]) -> DeviceState:
        return DeviceState(ports, self.memory)

    def __deepcopy__(self, memo: object) -> DeviceState:
        """A state with memory of its own on the same device."""
        del memo
        twin = DeviceState(self.ports, self.memory)
        for name, buffer in self.buffers.items():
            self.memory.copy(buffer, twin.buffers[name])
        twin._contents.shapes = dict(self.shapes)
        twin._contents.changes += 1
        return twin

    def __reduce_ex__(self, protocol: SupportsIndex) -> Never:
        """Raises UserError."""
        del protocol
        raise UserError(
            "cannot pickle a state on a device apart", note="state.contents() copies it to the host"
        )


def _place(port: StatePort) -> tuple[str, Type, Type]:
    """Returns the properties of a variable that all networks sharing it must agree on; its new value is up to each."""
    return port.placeholder, port.type, port.memory


def _merged(ports: Sequence[StatePort]) -> tuple[StatePort, ...]:
    """One port for each variable: that of a network which changes its shape, if there is one."""
    merged: dict[str, StatePort] = {}
    for port in ports:
        other = merged.setdefault(port.name, port)
        if _place(other) != _place(port):
            raise UserError(
                f"expected one variable '{port.name}', got {other.type} in {other.memory}"
                f" and {port.type} in {port.memory}",
                note="networks that share a state are functions of one module",
            )
        if port.growing and not other.growing:
            merged[port.name] = port
    if isinstance(ports, tuple) and len(merged) == len(ports):
        return ports  # the very one, by which the network knows its state
    return tuple(merged.values())
