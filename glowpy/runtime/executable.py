"""`Executable`: a network that is ready to run in the memory of a device."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any, Generic

from glowpy.core.extents import Extents, symbols_of_types
from glowpy.core.state import StatePort
from glowpy.core.type import Type
from glowpy.runtime.memory import Buffer, Memory
from glowpy.runtime.ports import Ports
from glowpy.runtime.state import DeviceState, State
from glowpy.support.errors import UserError
from glowpy.support.process_bound import ProcessBound
from glowpy.support.symbolic import Symbol

__all__ = ["Executable"]


class Executable(ProcessBound, ABC, Generic[Buffer]):
    """A network that is ready to run in some memory. Immutable and shared by any number of threads.

    Attributes:
        memory: Where everything lies that a run reads and writes.
        ports: Inputs, outputs and variables.
        input_ports: The ports of inputs.
        output_ports: The ports of outputs.
        open_ports: Those of them whose shapes depend on extents that the network finds.
        state_ports: Its variables.
        arena_size: Bytes of working memory that a run has beside its inputs and outputs.
    """

    def __init__(
        self,
        memory: Memory[Buffer],
        ports: Ports,
        arena_size: int,
    ) -> None:
        self.memory = memory
        self.ports = ports
        self.input_ports = ports.inputs
        self.output_ports = ports.outputs
        self.state_ports = ports.state
        self.arena_size = arena_size
        known = self.symbols
        self.open_ports = [
            port
            for port in self.output_ports
            if not symbols_of_types([port.type]).keys() <= known.keys()
        ]

    @property
    def inputs(self) -> dict[str, Type]:
        """The type of every input by its name."""
        return {port.name: port.type for port in self.input_ports}

    @property
    def outputs(self) -> dict[str, Type]:
        """The type of every output by its name."""
        return {port.name: port.type for port in self.output_ports}

    @property
    def signature(self) -> str:
        """Inputs and outputs for people: `x f32[2x3] -> y f32[2]`."""
        ports = [
            ", ".join(f"{name} {type}" for name, type in types.items()) or "nothing"
            for types in (self.inputs, self.outputs)
        ]
        return " -> ".join(ports)

    def __repr__(self) -> str:
        memory = f"{self.arena_size:,} bytes of working memory"
        return f"<{type(self).__name__}: {self.signature}; {memory}>"

    def _repr_html_(self) -> str:
        """Renders inputs and outputs as a table for notebooks."""
        rows = [
            [direction, name, str(type)]
            for direction, types in (("input", self.inputs), ("output", self.outputs))
            for name, type in types.items()
        ]
        title = f"{type(self).__name__}: {self.arena_size:,} bytes of working memory"
        from glowpy.support.html import html_table  # noqa: PLC0415 - in notebooks

        return html_table(title, ["", "name", "type"], rows)

    @property
    def symbols(self) -> dict[str, Symbol]:
        """The symbols that inputs and variables depend on, by name; every run has extents of its own for them."""
        types = [port.type for port in self.input_ports]
        return symbols_of_types([*types, *(port.type for port in self.state_ports)])

    def state(self, *others: Executable[Any]) -> State:
        """The variables as they are before the first run, and those of `others`, with which the state may be shared.

        Raises UserError for a variable about which they are at odds.
        """
        return DeviceState(self._shared_ports(others), self.memory)

    def _shared_ports(self, others: Sequence[Executable[Any]]) -> Sequence[StatePort]:
        """The ports of variables, and those of others."""
        ports = (port for network in others for port in network.state_ports)
        return (*self.state_ports, *ports) if others else self.state_ports

    def state_part(self, state: State | None) -> State:
        """The part of a state that the network names. Raises UserError where that is missing, or on another device."""
        if state is None:
            raise UserError(
                "expected the variables of the network", note="pass state=network.state()"
            )
        try:  # which costs less than to ask for the class
            is_here = state.memory is self.memory
        except AttributeError:
            raise UserError(
                "expected a state of this network", note="network.state() makes one"
            ) from None
        if not is_here:
            raise UserError(
                "expected a state in the memory in which the network runs",
                note="network.state() makes one, and state[name] = array copies to it",
            )
        return state if state.ports is self.state_ports else state.part(self.state_ports)

    @abstractmethod
    def execute(self, bindings: Mapping[str, Buffer], arena: Buffer, extents: Extents) -> Extents:
        """Runs once, and returns the extents of the symbols that the network found.

        Args:
            bindings: A buffer for each placeholder and each variable's memory, by its name in dumps. That of an output
                whose shape depends on what is found has room for the largest; its first elements are written.
            arena: Working memory of `arena_size` bytes.
            extents: The extents of the symbols of inputs' shapes in this run.
        """
