"""The CPU backend: keeps what it has kernels for, brings in packed products, and compiles programs to machine code."""

from __future__ import annotations

from typing import ClassVar, final

from glowpy.backend import Backend, CompiledFunction, CompileOptions, Program
from glowpy.ir.inst import Instruction
from glowpy.support.errors import InternalError

__all__ = ["CpuBackend"]


@final
class CpuBackend(Backend):
    """Machine code for one processor."""

    name: ClassVar[str] = "cpu"

    def unsupported(self, inst: Instruction) -> str:
        """Not yet."""
        return f"no kernel for {inst.SCHEMA.mnemonic}"

    def compile(self, program: Program, options: CompileOptions) -> CompiledFunction:
        """Not yet."""
        raise InternalError("being written")
