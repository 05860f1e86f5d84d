"""`Ports`: inputs, outputs and variables of a network, as programs, artifacts and what runs describe them.

As bytes they are a line of JSON, then the elements of initial values of variables that are no rule. The symbols on
which types depend come with their bounds, so that ports can be read without anything else of the network.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from glowpy.core.extents import symbols_of_types
from glowpy.core.initial import Initial, Initializer, initializer
from glowpy.core.state import StatePort
from glowpy.core.tensor import Tensor
from glowpy.core.type import Type, parse_type
from glowpy.support.symbolic import Dim, Symbol, symbol

__all__ = ["Port", "Ports", "symbol_fields"]

_ELEMENTS = "elements"
"""Word for an initial value whose elements follow."""


@dataclass(frozen=True)
class Port:
    """An input or output: `name` in the user's model, `placeholder` in dumps, and its type."""

    name: str
    placeholder: str
    type: Type


@dataclass(frozen=True)
class Ports:
    """Memories of a network that outlive a run, or that a caller gives: the part of an artifact that everybody reads.

    Attributes:
        inputs: In the order of the user's model.
        outputs: In the order of the user's model. One that is an input as well is in both, with one placeholder.
        state: The variables.
    """

    inputs: tuple[Port, ...] = ()
    outputs: tuple[Port, ...] = ()
    state: tuple[StatePort, ...] = ()

    @property
    def types(self) -> Iterator[Type]:
        """Every type that a run reads or leaves."""
        yield from (port.type for port in (*self.inputs, *self.outputs))
        for variable in self.state:
            yield from (variable.type, variable.following, variable.memory)

    def payload(self) -> bytes:
        """The ports as bytes."""
        head = {
            "symbols": symbol_fields(symbols_of_types(self.types).values()),
            "inputs": [_fields(port) for port in self.inputs],
            "outputs": [_fields(port) for port in self.outputs],
            "state": [_state_fields(port) for port in self.state],
        }
        initial = [port.initial for port in self.state if isinstance(port.initial, Tensor)]
        elements = (piece.tobytes() for tensor in initial for piece in tensor.raw_pieces())
        return b"".join([json.dumps(head).encode(), b"\n", *elements])

    @staticmethod
    def parse(payload: bytes) -> Ports:
        """The ports that `payload` gave."""
        line, _, elements = payload.partition(b"\n")
        head = json.loads(line)
        symbols = {fields[0]: symbol(*fields) for fields in head["symbols"]}
        return Ports(
            tuple(_port(fields, symbols) for fields in head["inputs"]),
            tuple(_port(fields, symbols) for fields in head["outputs"]),
            tuple(_state_ports(head["state"], symbols, elements)),
        )


def symbol_fields(symbols: Iterable[Symbol]) -> list[tuple[str, int, int, int]]:
    """Names and bounds of symbols."""
    return [(extent.name, extent.low, extent.high, extent.likely) for extent in symbols]


def _fields(port: Port) -> tuple[str, str, str]:
    return port.name, port.placeholder, str(port.type)


def _state_fields(port: StatePort) -> tuple[object, ...]:
    types = str(port.type), str(port.following), str(port.memory)
    initial: object = None
    if isinstance(port.initial, Initializer):
        initial = [port.initial.distribution, port.initial.attrs]
    elif port.initial is not None:
        initial = _ELEMENTS
    return port.name, port.placeholder, *types, initial


def _port(fields: Sequence[str], symbols: Mapping[str, Dim]) -> Port:
    name, placeholder, type = fields
    return Port(name, placeholder, parse_type(type, symbols))


def _state_ports(
    every: Sequence[Sequence[Any]], symbols: Mapping[str, Dim], elements: bytes
) -> Iterator[StatePort]:
    start = 0
    for name, placeholder, *types, stored in every:
        type, following, memory = (parse_type(text, symbols) for text in types)
        initial: Initial = None
        if stored == _ELEMENTS:
            flat = np.frombuffer(elements, type.kind.dtype, math.prod(type.extents), start)
            initial = Tensor(type, flat.reshape(type.extents))
            start += flat.nbytes
        elif stored is not None:
            initial = initializer(*stored)
        yield StatePort(name, placeholder, type, following, memory, initial)
