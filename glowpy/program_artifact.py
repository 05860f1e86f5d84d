"""`ProgramArtifact`: a program as it stands, for devices that walk it instead of running code of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import final

import numpy as np

from glowpy.backend import CompileOptions, Program
from glowpy.core.tensor import LARGE, Tensor
from glowpy.core.type import Type, parse_type
from glowpy.ir.inst import Instruction
from glowpy.ir.parser import parse_irfunction
from glowpy.ir.plan import parse_plan, print_plan
from glowpy.ir.printer import print_irfunction
from glowpy.operators import operator_sets
from glowpy.runtime.artifact import Artifact, packed, unpacked
from glowpy.runtime.ports import Ports
from glowpy.runtime.weights import Weights, find_weights, weights_of
from glowpy.support.cache import Key
from glowpy.support.errors import UserError
from glowpy.support.identity import package_identity

__all__ = ["ProgramArtifact", "program_identity"]


def program_identity() -> str:
    """Identity of programs as they stand: made of this package, and of other packages' operators."""
    operators = [operators.identity for operators in operator_sets()]
    return Key.of("program", package_identity(), *operators).digest


@final
class ProgramArtifact(Artifact):
    """A program that a device walks.

    As bytes it is the ports, the text of the IR and of the memory plans, and the elements of small constants.

    Attributes:
        program: The program, with those of its constants that are here: all, if it was compiled in this process.
        options: How it was compiled.
        elsewhere: The types and digests of its other constants, by name.
    """

    def __init__(
        self,
        program: Program,
        options: CompileOptions | None = None,
        elsewhere: Mapping[str, tuple[Type, str]] | None = None,
    ) -> None:
        self.ports = program.ports
        self.arena_size = program.plan.peak
        self.program = program
        self.options = options or CompileOptions()
        self.elsewhere = elsewhere or {}

    @property
    def digests(self) -> Sequence[str]:
        """The digests of the large constants."""
        return [digest for _, digest in self._large.values()]

    @cached_property
    def _held(self) -> Mapping[str, Weights]:
        """The large constants that are here, by name, where other artifacts and processes find them."""
        return {
            name: weights_of(tensor, use_cache=self.options.cache)
            for name, tensor in self.program.constants.items()
            if tensor.type.size >= LARGE
        }

    @property
    def _large(self) -> Mapping[str, tuple[Type, str]]:
        """The types and digests of all large constants, by name."""
        tensors = self.program.constants
        held = {name: (tensors[name].type, weights.key) for name, weights in self._held.items()}
        return {**self.elsewhere, **held}

    def whole(self, *, use_cache: bool) -> Program | None:
        """The program with all of its constants; None where one is neither in this process nor in the cache."""
        tensors = dict(self.program.constants)
        for name, (type, digest) in self.elsewhere.items():
            weights = find_weights(digest, use_cache=use_cache)
            if weights is None:
                return None
            tensors[name] = _tensor(type, weights.memory.data)
        return _with_constants(self.program, tensors) if self.elsewhere else self.program

    def payload(self) -> bytes:
        """The program as bytes. Raises UserError for one that tells of its runs."""
        if self.options.instrument or self.options.sanitize:
            raise UserError(
                "cannot write a network as bytes that tells of its runs",
                note="compile it without instrument and sanitize",
            )
        program = self.program
        small = {n: t for n, t in program.constants.items() if n not in self._held}
        texts = [print_irfunction(program.ir)]
        texts += [print_plan(function.plan) for function in (*program.callees, program)]
        head = {
            "large": {name: (str(type), digest) for name, (type, digest) in self._large.items()},
            "small": {name: str(tensor.type) for name, tensor in small.items()},
        }
        elements = [b"".join(p.tobytes() for p in tensor.raw_pieces()) for tensor in small.values()]
        parts = [self.ports.payload(), *elements, *(text.encode() for text in texts)]
        return packed(program_identity(), head, parts)

    @staticmethod
    def parse(payload: bytes, instructions: Sequence[type[Instruction]] = ()) -> ProgramArtifact:
        """The program that `payload` gave, which may have these instructions beside the core's.

        Raises LoadError for bytes that are something else, of another glowpy, or damaged.
        """
        head, parts = unpacked(payload, program_identity())
        ports, *elements = parts[: 1 + len(head["small"])]
        text, *plans = (part.decode() for part in parts[1 + len(head["small"]) :])
        ir = parse_irfunction(text, extra=tuple(instructions))
        pairs = zip(head["small"].items(), elements, strict=True)
        constants = {name: _tensor(parse_type(type), part) for (name, type), part in pairs}
        functions = zip((*ir.callees.values(), ir), map(parse_plan, plans), strict=True)
        *callees, program = (Program(f, plan, constants, Ports()) for f, plan in functions)
        elsewhere = {
            name: (parse_type(type), digest) for name, (type, digest) in head["large"].items()
        }
        program = replace(program, ports=Ports.parse(ports), callees=tuple(callees))
        return ProgramArtifact(program, elsewhere=elsewhere)


def _tensor(type: Type, content: bytes | memoryview) -> Tensor:
    flat = np.frombuffer(content, type.kind.dtype, math.prod(type.extents))
    return Tensor(type, flat.reshape(type.extents))


def _with_constants(program: Program, constants: Mapping[str, Tensor]) -> Program:
    callees = tuple(replace(function, constants=constants) for function in program.callees)
    return replace(program, constants=constants, callees=callees)
