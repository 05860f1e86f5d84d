"""`Image`: all of a compiled network but its weights, as the cache keeps it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Any, final

import numpy as np

from glowpy.core.initial import Initial, Initializer, initializer
from glowpy.core.state import StatePort
from glowpy.core.tensor import Tensor
from glowpy.core.type import parse_type
from glowpy.llvm.code_image import Code, LinkedCode
from glowpy.runtime.executable import Port
from glowpy.support.symbolic import Dim, Symbol, symbol

__all__ = ["Image"]

_ELEMENTS = "elements"
"""Word in the head for an initial value that comes after the object files."""


@final
@dataclass(frozen=True)
class Image:
    """A compiled network.

    Attributes:
        entry: The name of its entry point.
        inputs: The ports of inputs.
        outputs: The ports of outputs.
        state: Its variables.
        arena_size: Bytes of working memory.
        symbols: The symbols of which the entry point is told the extents, in that order.
        table: The placeholders and variables in the order of the table of pointers that the entry point takes.
        weights: The keys of its large constants, in the order in which their addresses begin the block of constants.
        block: The block; the addresses are for the process to fill in.
        code: The code.
    """

    entry: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    state: tuple[StatePort, ...]
    arena_size: int
    symbols: tuple[Symbol, ...]
    table: tuple[str, ...]
    weights: tuple[str, ...]
    block: bytes
    code: Code

    @property
    def code_size(self) -> int:
        """Bytes of the code."""
        code = (self.code.content,) if isinstance(self.code, LinkedCode) else self.code
        return sum(map(len, code))

    def payload(self) -> bytes:
        """The image as bytes: a line of JSON, then the block, the code, and initial values of variables."""
        is_linked = isinstance(self.code, LinkedCode)
        codes = [self.code.payload()] if isinstance(self.code, LinkedCode) else [*self.code]
        values = [port.initial for port in self.state if isinstance(port.initial, Tensor)]
        parts = [self.block, *codes, *(_stored(tensor) for tensor in values)]
        head = {
            "entry": self.entry,
            "inputs": [_fields(port) for port in self.inputs],
            "outputs": [_fields(port) for port in self.outputs],
            "state": [_state_fields(port) for port in self.state],
            "arena_size": self.arena_size,
            "symbols": [(s.name, s.low, s.high, s.likely) for s in self.symbols],
            "table": self.table,
            "weights": self.weights,
            "is_linked": is_linked,
            "sizes": [len(part) for part in parts],
        }
        return b"".join([json.dumps(head).encode(), b"\n", *parts])

    @staticmethod
    def parse(payload: bytes) -> Image:
        """The image that `payload` gave. Raises ValueError for one whose code is damaged."""
        line, _, rest = payload.partition(b"\n")
        head = json.loads(line)
        ends = accumulate(head["sizes"], initial=0)
        block, *others = (rest[start:end] for start, end in pairwise(ends))
        stored = sum(fields[-1] == _ELEMENTS for fields in head["state"])
        codes, values = others[: len(others) - stored], iter(others[len(others) - stored :])
        symbols = {fields[0]: symbol(*fields) for fields in head["symbols"]}
        return Image(
            head["entry"],
            tuple(_port(fields, symbols) for fields in head["inputs"]),
            tuple(_port(fields, symbols) for fields in head["outputs"]),
            tuple(_state_port(fields, symbols, values) for fields in head["state"]),
            head["arena_size"],
            tuple(Symbol(*fields) for fields in head["symbols"]),
            tuple(head["table"]),
            tuple(head["weights"]),
            block,
            LinkedCode.parse(codes[0]) if head["is_linked"] else tuple(codes),
        )


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


def _state_port(
    fields: Sequence[Any], symbols: Mapping[str, Dim], values: Iterator[bytes]
) -> StatePort:
    name, placeholder, *types, stored = fields
    type, following, memory = (parse_type(text, symbols) for text in types)
    initial: Initial = None
    if stored == _ELEMENTS:
        initial = Tensor(type, np.frombuffer(next(values), type.kind.dtype).reshape(type.extents))
    elif stored is not None:
        initial = initializer(*stored)
    return StatePort(name, placeholder, type, following, memory, initial)


def _stored(tensor: Tensor) -> bytes:
    return b"".join(piece.tobytes() for piece in tensor.raw_pieces())


def _port(fields: Sequence[str], symbols: Mapping[str, Dim]) -> Port:
    name, placeholder, type = fields
    return Port(name, placeholder, parse_type(type, symbols))
