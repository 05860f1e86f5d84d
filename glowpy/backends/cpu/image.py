"""`Image`: the artifact of the CPU backend, all of a compiled network but its weights, and its bytes in the cache."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, final

from glowpy.llvm.code_image import Code, LinkedCode
from glowpy.runtime.artifact import Artifact, packed, unpacked
from glowpy.runtime.ports import Ports, symbol_fields
from glowpy.support.errors import LoadError, UserError
from glowpy.support.symbolic import Symbol

if TYPE_CHECKING:
    from glowpy.backends.cpu.options import Timed
    from glowpy.ir.irfunction import IRFunction
    from glowpy.llvm.code_image import Functions
    from glowpy.runtime.weights import Weights
    from glowpy.sanitizer import NumberedRuns

__all__ = ["Image", "Probes"]


@dataclass(frozen=True)
class Probes:
    """Reports of a network about its runs beside results: to this process, so that there are no bytes of it.

    Attributes:
        instrumented: The program whose instructions observers, or a watch, are told of; None where none are.
        timed: The program whose instructions have stamps.
        clock: What the stamps are of.
        code: The code, if it has been loaded so that other tools know of it.
        checked: The runs that the sanitizer checks; None if it does not.
    """

    instrumented: IRFunction | None = None
    timed: IRFunction | None = None
    clock: Timed = ""
    code: Functions | None = None
    checked: NumberedRuns | None = None


@final
@dataclass(frozen=True)
class Image(Artifact):
    """A compiled network.

    Attributes:
        maker: The identity of the code: see `Compiler.code_identity`.
        entry: The name of its entry point.
        ports: Its inputs, outputs and variables.
        arena_size: Bytes of working memory.
        symbols: The symbols of which the entry point is told the extents, in that order.
        table: The placeholders and variables in the order of the table of pointers that the entry point takes.
        weights: The keys of its large constants, in the order in which their addresses begin the block of constants.
        block: The block; the addresses are for the process to fill in.
        code: The code.
        held: The large constants of one that was compiled in this process.
        probes: Its reports, if it tells of its runs.
    """

    maker: str
    entry: str
    ports: Ports
    arena_size: int
    symbols: tuple[Symbol, ...]
    table: tuple[str, ...]
    weights: tuple[str, ...]
    block: bytes
    code: Code
    held: Sequence[Weights] = field(default=(), compare=False, repr=False)
    probes: Probes | None = field(default=None, compare=False, repr=False)

    @property
    def digests(self) -> Sequence[str]:
        """The keys of its large constants."""
        return self.weights

    @property
    def code_size(self) -> int:
        """Bytes of the code."""
        code = (self.code.content,) if isinstance(self.code, LinkedCode) else self.code
        return sum(map(len, code))

    def payload(self) -> bytes:
        """The image as bytes: the ports, the block, and the code. Raises UserError for one with probes."""
        if self.probes is not None:
            raise UserError(
                "cannot write a network as bytes that tells of its runs",
                note="compile it without instrument, sanitize, timed, and files for debuggers and profilers",
            )
        is_linked = isinstance(self.code, LinkedCode)
        codes = [self.code.payload()] if isinstance(self.code, LinkedCode) else [*self.code]
        head = {
            "entry": self.entry,
            "arena_size": self.arena_size,
            "symbols": symbol_fields(self.symbols),
            "table": self.table,
            "weights": self.weights,
            "is_linked": is_linked,
        }
        return packed(self.maker, head, [self.ports.payload(), self.block, *codes])

    @staticmethod
    def parse(payload: bytes, maker: str) -> Image:
        """The image that `payload` gave. Raises LoadError for one of another compiler, and one that is damaged."""
        head, parts = unpacked(payload, maker)
        ports, block, *codes = parts
        try:
            code = LinkedCode.parse(codes[0]) if head["is_linked"] else tuple(codes)
        except ValueError as error:
            raise LoadError(f"the compiled network is damaged: {error}") from error
        return Image(
            maker,
            head["entry"],
            Ports.parse(ports),
            head["arena_size"],
            tuple(Symbol(*fields) for fields in head["symbols"]),
            tuple(head["table"]),
            tuple(head["weights"]),
            block,
            code,
        )
