"""`Image`: all of a compiled network but its weights, as the cache keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import final

from glowpy.backend import Port
from glowpy.core.type import parse_type

__all__ = ["Image"]


@final
@dataclass(frozen=True)
class Image:
    """A compiled network.

    Attributes:
        entry: The name of its entry point.
        inputs: What goes in.
        outputs: What comes out.
        arena_size: Bytes of working memory.
        table: The placeholders in the order of the table of pointers that the entry point takes.
        weights: The keys of its large constants, in the order in which their addresses begin the block of constants.
        block: That block; the addresses are for the process to fill in.
        codes: The object files.
    """

    entry: str
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    arena_size: int
    table: tuple[str, ...]
    weights: tuple[str, ...]
    block: bytes
    codes: tuple[bytes, ...]

    def payload(self) -> bytes:
        """The image as bytes: a line of JSON, then the block and the object files."""
        parts = [self.block, *self.codes]
        head = {
            "entry": self.entry,
            "inputs": [_fields(port) for port in self.inputs],
            "outputs": [_fields(port) for port in self.outputs],
            "arena_size": self.arena_size,
            "table": self.table,
            "weights": self.weights,
            "sizes": [len(part) for part in parts],
        }
        return b"".join([json.dumps(head).encode(), b"\n", *parts])

    @staticmethod
    def parse(payload: bytes) -> Image:
        """The image that `payload` gave."""
        line, _, rest = payload.partition(b"\n")
        head = json.loads(line)
        ends = accumulate(head["sizes"], initial=0)
        block, *codes = (rest[start:end] for start, end in pairwise(ends))
        return Image(
            head["entry"],
            tuple(_port(*fields) for fields in head["inputs"]),
            tuple(_port(*fields) for fields in head["outputs"]),
            head["arena_size"],
            tuple(head["table"]),
            tuple(head["weights"]),
            block,
            tuple(codes),
        )


def _fields(port: Port) -> tuple[str, str, str]:
    return port.name, port.placeholder, str(port.type)


def _port(name: str, placeholder: str, type: str) -> Port:
    return Port(name, placeholder, parse_type(type))
