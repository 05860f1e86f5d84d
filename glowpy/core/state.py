"""State that a network keeps between runs: the memory of its variables, and the shapes of their contents."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias, final

import numpy as np

from glowpy.core.extents import Extents, extents_of, shape_at
from glowpy.core.initial import Initial, elements
from glowpy.core.tensor import Array, Tensor, address_of, allocated
from glowpy.core.type import Shape, Type
from glowpy.support.errors import UserError
from glowpy.support.symbolic import Symbol, highest, symbol

__all__ = ["Known", "State", "StatePort", "given_extents"]

Known: TypeAlias = tuple[tuple[str, Shape, tuple[int, ...]], ...]
"""A variable's name, dimensions as they are declared, and what they are: all that it says of the symbols of a run."""


@dataclass(frozen=True)
class StatePort:
    """A variable of a compiled network.

    Attributes:
        name: In the user's model, where it was an input.
        placeholder: In dumps.
        type: The type that a run reads.
        following: The type that the run leaves, which the next one reads.
        memory: Where both lie, at the beginning along each axis.
        initial: The elements that the first run reads; None for zeros. Equal ports may begin differently.
    """

    name: str
    placeholder: str
    type: Type
    following: Type
    memory: Type
    initial: Initial = field(default=None, compare=False)

    @property
    def fresh(self) -> tuple[int | None, ...]:
        """The shape of a variable that no run has saved: dimensions that change are 0, the others what inputs say.

        One with an initial value has the shape of that.
        """
        if self.initial is not None:
            return self.type.extents
        pairs = zip(self.type.shape, self.following.shape, strict=True)
        return tuple(
            0 if size != following else size if isinstance(size, int) else None
            for size, following in pairs
        )

    @property
    def contents(self) -> Tensor:
        """The memory before the first run: the initial value at the beginning along each axis, and zeros."""
        memory = allocated(self.memory.extents, self.memory.kind.dtype)
        if self.initial is not None:
            memory[_box(self.type.extents)] = elements(self.initial, self.type).array
        return Tensor(self.memory, memory)

    @property
    def growing(self) -> Shape:
        """The dimensions that change from run to run."""
        pairs = zip(self.type.shape, self.following.shape, strict=True)
        return tuple(size for size, following in pairs if size != following)


class _Contents:
    """The present shapes of variables by name, and how often they were changed."""

    def __init__(self, shapes: dict[str, tuple[int | None, ...]]) -> None:
        self.shapes = shapes
        self.changes = 0


@final
class State:
    """A store of named memories: the variables of networks between two runs. Not for several threads at once.

    Initial values at first, or zeros. A network uses those that it names, so that networks may share a state: one that
    trains and one that evaluates. Of several ports for one variable, the state has one.

    Attributes:
        ports: The ports of the variables.
        arrays: Their memory, by their names in dumps; a run changes it.
        addresses: Where each of these begins.

    Raises UserError for ports that are at odds about a variable, and where there is no memory for them.
    """

    def __init__(self, ports: Sequence[StatePort]) -> None:
        self.ports = _merged(ports)
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
            {port.placeholder: port.contents.array for port in self.ports},
            _Contents(dict(self._fresh)),
        )

    def _keep(self, arrays: Mapping[str, Array], contents: _Contents) -> None:
        """Makes these arrays the memory. Where they lie is asked for in every run, so that it is found out once."""
        self.arrays = arrays
        self.addresses = {name: address_of(array) for name, array in arrays.items()}
        self._own = {id(array) for array in arrays.values()}
        spans = sorted((self.addresses[name], array.nbytes) for name, array in arrays.items())
        self._starts = [start for start, _ in spans]
        self._ends = [start + size for start, size in spans]
        self._contents = contents
        self._known: Known = ()  # what the shapes say
        self._known_since = -1  # after so many changes
        self._parts: dict[int, State] = {}

    def __setstate__(self, attributes: dict[str, Any]) -> None:
        """Restores a copy, whose memory lies elsewhere."""
        self.__dict__.update(attributes)
        self._keep(self.arrays, self._contents)

    def part(self, ports: tuple[StatePort, ...]) -> State:
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
            part = State.__new__(State)
            part.ports = ports
            part._index()
            part._fresh = {port.name: self._fresh[port.name] for port in ports}
            names = (port.placeholder for port in ports)
            part._keep({name: self.arrays[name] for name in names}, self._contents)
            self._parts[id(ports)] = part
        return part

    def holds(self, array: Array) -> bool:
        """Whether a contiguous array is some of this memory."""
        if array.base is None:
            return id(array) in self._own
        start = address_of(array)
        place = bisect_right(self._starts, start + max(array.nbytes - 1, 0))
        return place > 0 and start < self._ends[place - 1]

    def __getitem__(self, name: str) -> Array:
        """Returns the contents of a variable. A dimension that only inputs say is 0 before the first run."""
        port = self._port(name)
        return self.arrays[port.placeholder][_box(self.shapes[name])]

    def __setitem__(self, name: str, array: Array) -> None:
        """Makes a copy of an array what a variable holds.

        Raises UserError for another element type or rank, and for more than there is room for.
        """
        port = self._port(name)
        content = np.asarray(array)
        memory = port.memory
        if content.dtype != memory.kind.dtype or content.ndim != memory.rank:
            got = f"{content.dtype}[{'x'.join(map(str, content.shape))}]"
            raise UserError(f"'{name}': expected an array of type {port.type}, got {got}")
        self._check_room(port, content.shape)
        self.arrays[port.placeholder][_box(content.shape)] = content
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

    def moved_to(self, ports: Sequence[StatePort]) -> State:
        """Moves the contents to a state of another compilation of the network, in the same memory if that is alike."""
        state = State(ports)
        memories, own_memories = ({p.placeholder: p.memory for p in s.ports} for s in (state, self))
        if memories == own_memories:
            state._keep(self.arrays, self._contents)
            return state
        for name, shape in self.shapes.items():
            if None not in shape:
                state[name] = self[name]
        return state

    def contents(self) -> dict[str, Array]:
        """Copies of what all variables hold, by name."""
        return {port.name: self[port.name].copy() for port in self.ports}


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


def _box(shape: Sequence[int | None]) -> tuple[slice, ...]:
    return tuple(slice(0, size or 0) for size in shape)


def given_extents(symbols: Mapping[str, Symbol], given: Extents, known: Known) -> dict[str, int]:
    """All symbols of a network, of which the user says some and variables the others.

    Raises UserError for a symbol that is none, no whole number or outside its bounds, for contradictions, and for what
    nobody says.
    """
    if unknown := [name for name in given if name not in symbols]:
        expected = ", ".join(map(repr, symbols)) or "(there are none)"
        raise UserError(f"expected the extents of {expected}, got '{unknown[0]}'")
    for name, extent in given.items():
        if not isinstance(extent, int | np.integer):
            raise UserError(f"expected a whole number for '{name}', got {extent!r}")
    dims: dict[str, tuple[Shape, tuple[int, ...]]] = {
        name: (declared, actual) for name, declared, actual in known
    }
    stated = [symbol(name, symbols[name].low, symbols[name].high) for name in given]
    dims["extents"] = tuple(stated), tuple(given.values())
    extents = extents_of(dims)
    if missing := [name for name in symbols if name not in extents]:
        raise UserError(f"expected the extent of {', '.join(map(repr, missing))}")
    return extents
