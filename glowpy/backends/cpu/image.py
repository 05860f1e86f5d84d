"""`Image`: all of a compiled network but its weights, as the cache keeps it."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import final

from glowpy.llvm.code_image import Code, LinkedCode
from glowpy.runtime.ports import Ports, symbol_fields
from glowpy.support.symbolic import Symbol

__all__ = ["Image"]


@final
@dataclass(frozen=True)
class Image:
    """A compiled network.

    Attributes:
        entry: The name of its entry point.
        ports: Its inputs, outputs and variables.
        arena_size: Bytes of working memory.
        symbols: The symbols of which the entry point is told the extents, in that order.
        table: The placeholders and variables in the order of the table of pointers that the entry point takes.
        weights: The keys of its large constants, in the order in which their addresses begin the block of constants.
        block: The block; the addresses are for the process to fill in.
        code: The code.
    """

    entry: str
    ports: Ports
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
        """The image as bytes: a line of JSON, then the ports, the block, and the code."""
        is_linked = isinstance(self.code, LinkedCode)
        codes = [self.code.payload()] if isinstance(self.code, LinkedCode) else [*self.code]
        parts = [self.ports.payload(), self.block, *codes]
        head = {
            "entry": self.entry,
            "arena_size": self.arena_size,
            "symbols": symbol_fields(self.symbols),
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
        ports, block, *codes = (rest[start:end] for start, end in pairwise(ends))
        return Image(
            head["entry"],
            Ports.parse(ports),
            head["arena_size"],
            tuple(Symbol(*fields) for fields in head["symbols"]),
            tuple(head["table"]),
            tuple(head["weights"]),
            block,
            LinkedCode.parse(codes[0]) if head["is_linked"] else tuple(codes),
        )
