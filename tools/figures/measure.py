"""Computes the figures of a row: compiles the network for its machine, whatever machine this one is."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from tempfile import TemporaryDirectory

from glowpy.backend import CompileOptions, Program
from glowpy.backends.cpu.backend import CpuBackend
from glowpy.backends.cpu.codegen import entry_name, generate_llvm
from glowpy.bundling.make import bundle
from glowpy.bundling.options import BundleOptions
from glowpy.core.schema import Trait
from glowpy.engine import compilation, context
from glowpy.ir.inst import Instruction
from glowpy.ir.insts_gen import CopyInst, TransposeInst
from glowpy.llvm.code_options import CodeOptions, EntryOptions
from glowpy.llvm.object_file import read_sections
from glowpy.llvm.objects import compile_objects
from tools.figures.emulate import executed
from tools.figures.rows import Row

__all__ = ["Figures", "figures_of"]

Figures = dict[str, int]
"""Counts and bytes by the names of the table's columns."""


def figures_of(row: Row, *, emulate: bool = True) -> Figures:
    """Every figure of a row. Executed instructions are left out without `emulate`, and where there is no emulator."""
    backend, options = CpuBackend(row.options), CompileOptions()
    module, ctx = row.load(), context(options)
    stages = compilation(module.main, backend, options, ctx=ctx)
    program = stages.program
    figures = {
        "nodes": len(stages.lowered.nodes),
        "rewrites": sum(ctx.applied.values()),
        **_program_figures(program),
    }
    texts = _texts(program, backend)
    figures |= {"functions": len(texts), "llvm": sum(map(len, texts))}
    if row.bundled:
        with TemporaryDirectory() as folder:
            figures |= _bundle_figures(row, Path(folder), backend)
            if row.emulated and emulate:
                figures |= executed(Path(folder), row.options.target)
    else:
        target, libraries = backend.target.machine, backend.kernels.bitcode
        objects = compile_objects(texts, target, libraries, use_cache=True)
        figures["code"] = sum(read_sections(code).text for code in objects)
    stages.close()
    return figures


def _program_figures(program: Program) -> Figures:
    functions = [callee.ir for callee in program.callees] + [program.ir]
    computing = [i for f in functions for i in f.instructions if not i.has(Trait.MEMORY)]
    plan = program.plan
    return {
        "instructions": len(computing),
        "runs": sum(len(f.runs) for f in functions),
        "copies": _count(computing, CopyInst),
        "transposes": _count(computing, TransposeInst),
        "peak": plan.peak,
        "bound": plan.lower_bound,
        "constants": plan.constant.size,
    }


def _count(instructions: Sequence[Instruction], cls: type[Instruction]) -> int:
    return sum(isinstance(inst, cls) for inst in instructions)


def _texts(program: Program, backend: CpuBackend) -> list[str]:
    """Generates the LLVM IR that sessions compile, each function once."""
    options = CodeOptions(EntryOptions(bound=True, parallel=True), separate=True)
    programs = {entry_name(program): program}
    return list(dict.fromkeys(generate_llvm(programs, backend.target, backend.kernels, options)))


def _bundle_figures(row: Row, folder: Path, backend: CpuBackend) -> Figures:
    """The sizes of the bundle; of the object file alone where its format is not measured."""
    options = BundleOptions("net", selftest=1, weights="embedded")
    made = bundle(row.load(), folder, options, backend)
    library = next(chain(folder.glob("*.o"), folder.glob("*.wasm"), folder.glob("*.a")))
    figures = {"object": library.stat().st_size}
    if (report := made.report) is not None:
        figures |= {"text": report.text, "rodata": report.rodata, "weights": report.weights}
        figures |= {"ram": report.ram, "stack": report.stack}
    return figures
