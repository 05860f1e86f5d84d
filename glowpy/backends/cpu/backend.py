"""The CPU backend: keeps what it has kernels for, brings in packed products, and compiles programs to machine code."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar, final

from glowpy.backend import Backend, CompiledFunction, CompileOptions, Program
from glowpy.backends.cpu import insts_gen, nodes_gen
from glowpy.backends.cpu.bitcode import bitcode_path
from glowpy.backends.cpu.codegen import CodeOptions, entry_name, generate_llvm, ir_text, unsupported
from glowpy.backends.cpu.entry import EntryOptions
from glowpy.backends.cpu.jit import JitFunction
from glowpy.backends.cpu.jitdump import write_jitdump
from glowpy.backends.cpu.passes.pack_products import PackProductsPass
from glowpy.backends.cpu.perf_map import write_perf_map
from glowpy.backends.cpu.target import resolve_target
from glowpy.graph.node import Node
from glowpy.ir.inst import Instruction
from glowpy.llvm.machine import LoadedCode, host_features
from glowpy.llvm.objects import compile_parts, usable_cores
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

    def emit(self, program: Program, options: CompileOptions, form: str) -> str:
        """The optimized LLVM IR (`llvm`) or the assembly (`asm`) of a program, for any target.

        It has the plain entry point only.
        """
        if form not in ("llvm", "asm"):
            return super().emit(program, options, form)
        target = resolve_target(options)
        (text,) = generate_llvm({entry_name(program): program}, target)
        libraries = (bitcode_path(target.variant),)
        if form == "asm":
            return target.machine.assembly(text, libraries)
        return target.machine.optimized(text, libraries)

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
        lacking = ", ".join(sorted(target.variant.requires - host_features()))
        if lacking:
            raise UserError(
                f"cannot run code for {target.machine.cpu} here: this processor lacks {lacking}",
                note="leave cpu and features out to compile for this machine",
            )
        name = entry_name(program)
        debug = None
        if options.debug:
            Path(options.debug).mkdir(parents=True, exist_ok=True)
            Path(options.debug, f"{name}.ir").write_text(ir_text({name: program}), encoding="utf-8")
            debug = (f"{name}.ir", str(Path(options.debug).resolve()))
        entry = EntryOptions(bound=True, instrument="table" if options.instrument else "")
        how = CodeOptions(
            entry, debug, usable_cores(), visible=options.perf_map or bool(options.jitdump)
        )
        texts = generate_llvm({name: program}, target, how)
        libraries = (bitcode_path(target.variant),)
        objects = compile_parts(texts, target.machine, libraries, use_cache=options.cache)
        code = LoadedCode(target.machine, objects)
        if options.perf_map:
            write_perf_map(code, objects)
        if options.jitdump:
            write_jitdump(code, objects, Path(options.jitdump))
        return JitFunction(program, code, name, instrumented=options.instrument)
