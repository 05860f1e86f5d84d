"""The CPU backend: keeps what it has kernels for, brings in packed products, and compiles programs to machine code."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, final

from glowpy.backend import Backend, CompiledFunction, CompileOptions, Program
from glowpy.backends.cpu import insts_gen, nodes_gen
from glowpy.backends.cpu.bitcode import bitcode_path
from glowpy.backends.cpu.cache import code_key, read_code, write_code
from glowpy.backends.cpu.codegen import entry_name, generate_llvm, unsupported
from glowpy.backends.cpu.jit import JitFunction
from glowpy.backends.cpu.llvm import LLVM_VERSION, LoadedCode
from glowpy.backends.cpu.passes.pack_products import PackProductsPass
from glowpy.backends.cpu.target import resolve_target
from glowpy.graph.node import Node
from glowpy.ir.inst import Instruction
from glowpy.passes import GraphPass
from glowpy.support.errors import UserError

__all__ = ["CpuBackend"]


@final
class CpuBackend(Backend):
    """Machine code for one processor, by LLVM, from the kernels of libjit."""

    name: ClassVar[str] = "cpu"
    nodes: ClassVar[tuple[type[Node], ...]] = nodes_gen.NODES
    instructions: ClassVar[tuple[type[Instruction], ...]] = insts_gen.INSTS

    def unsupported(self, inst: Instruction) -> str:
        """Whether the kernel library has what the instruction needs for its element kinds."""
        return unsupported(inst)

    def post_lowering(self, options: CompileOptions) -> Sequence[GraphPass]:
        """Products with constant right sides get packed weights and register tiles for the target."""
        return (PackProductsPass(resolve_target(options).variant),)

    def emit(self, program: Program, options: CompileOptions, form: Literal["llvm", "asm"]) -> str:
        """The optimized LLVM IR or the assembly of a program, for any target, with the plain entry point only."""
        target = resolve_target(options)
        text = generate_llvm(program, target, bound=False)
        library = bitcode_path(target.variant)
        if form == "asm":
            return target.machine.assembly(text, library)
        return target.machine.optimized(text, library)

    def compile(self, program: Program, options: CompileOptions) -> CompiledFunction:
        """Machine code for this process, from the cache if it was made before.

        Raises UserError if the options name another target.
        """
        if options.target:
            raise UserError(
                f"cannot run code for '{options.target}' here",
                note="leave the target out, or dump its assembly",
            )
        target = resolve_target(options)
        text = generate_llvm(program, target, bound=True)
        library = bitcode_path(target.variant)
        machine = target.machine
        key = code_key(
            text,
            machine.triple,
            machine.cpu,
            machine.features,
            LLVM_VERSION,
            library.name,
            str(library.stat().st_size),
        )
        code = read_code(key) if options.cache else None
        if code is None:
            code = machine.object_code(text, library)
            if options.cache:
                write_code(key, code)
        return JitFunction(program, LoadedCode(machine, [code]), entry_name(program))
