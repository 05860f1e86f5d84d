"""The CPU backend: keeps what it has kernels for, brings in packed products, and compiles programs to machine code.

A network that is in the cache is loaded and run by what is imported here. The compiler is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, ClassVar

from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.device import CpuDevice
from glowpy.backends.cpu.known_target import known_code_identity, note_code_identity
from glowpy.backends.cpu.lazy_compiler import LazyCompiler
from glowpy.backends.cpu.options import MOST_THREADS, CpuOptions, Timed
from glowpy.operators import operator_sets
from glowpy.support.errors import UserError
from glowpy.support.imported import imported

if TYPE_CHECKING:
    from glowpy.backend import Operation, Program
    from glowpy.backends.cpu.compiler import Compiler
    from glowpy.backends.cpu.image import Image
    from glowpy.backends.cpu.strategy.explain import Explanation
    from glowpy.backends.cpu.target import CpuTarget
    from glowpy.graph.node import Node
    from glowpy.ir.inst import Instruction
    from glowpy.llvm.bundle_compiler import BundleCompiler
    from glowpy.llvm.kernels import Kernels
    from glowpy.llvm.library import KernelLibrary
    from glowpy.measuring.meter import Meter
    from glowpy.measuring.tuned import Tuning
    from glowpy.passes import GraphPass, IRPass

__all__ = ["CpuBackend"]

_OPERATIONS = "glowpy.backends.cpu.operations"


class CpuBackend(Backend):
    """Machine code for one processor, by LLVM, from the kernels of libjit.

    Raises UserError for a target LLVM does not know and for options it has no use for, UnsupportedError for one without
    kernels.

    Attributes:
        options: As they were given.
        device: What loads and runs what is compiled, if it is for this machine.
    """

    name: ClassVar[str] = "cpu"
    symbolic: ClassVar[bool] = True
    stacks: ClassVar[bool] = True
    probes: ClassVar[frozenset[str]] = frozenset({"instrument", "sanitize"})
    nodes: ClassVar[tuple[type[Node], ...]] = imported(_OPERATIONS, "NODES")
    instructions: ClassVar[tuple[type[Instruction], ...]] = imported(_OPERATIONS, "INSTS")
    options_type: ClassVar[type | None] = CpuOptions
    libraries: ClassVar[tuple[KernelLibrary, ...]] = imported(
        "glowpy.backends.cpu.libjit", "LIBRARIES"
    )
    """Libraries of the kernels; a backend that derives from this one may add its settings."""

    device: CpuDevice

    def __init__(self, options: CpuOptions | None = None) -> None:
        super().__init__()
        self.options = options or CpuOptions()
        cls = type(self)
        is_plain = cls is CpuBackend and self.options.tune is None
        known = known_code_identity(self.options) if is_plain else ""
        self._lazy = LazyCompiler(self.options, lambda: cls.libraries, CpuBackend, known)
        if not known:
            _ = self.compiler  # which raises what is wrong with the options
        if not 0 <= self.options.threads <= MOST_THREADS:
            raise UserError(f"expected 0 to {MOST_THREADS:,} threads, got {self.options.threads:,}")
        self.device = CpuDevice(self.options.thread_count, self._lazy)

    @property
    def compiler(self) -> Compiler:
        """The compiler for the target."""
        return self._lazy.compiler

    @property
    def target(self) -> CpuTarget:
        """The processor that comes out of the options."""
        return self.compiler.target

    @property
    def kernels(self) -> Kernels:
        """The kernels there are for the target: those of other packages' operators, too, as soon as they are known."""
        return self.compiler.kernels

    @property
    def bundle_compiler(self) -> BundleCompiler:
        """The part that makes the code of bundles."""
        return self.compiler.for_bundles

    @property
    def meter(self) -> Meter:
        """Measures this machine, and what runs there."""
        from glowpy.backends.cpu.measuring.meter import CpuMeter  # noqa: PLC0415 - the compiler

        def twin(clock: Timed) -> CpuBackend:
            return type(self)(replace(self.options, tune=None, timed=clock))

        return CpuMeter(self, twin)

    @property
    def tuning(self) -> Tuning | None:
        """Measurements of the products of networks, with the option `tune`."""
        return None if self.options.tune is None else self.compiler.tuning

    def unsupported(self, operation: Operation) -> str:
        """Explains why kernels for this processor lack an operation, or why its weights are packed for another one."""
        return self.compiler.unsupported(operation)

    def keeps(self, node: Node) -> bool:
        """Whether a kernel is declared, even if the bitcode does not define it; for halves, a kernel in f32.

        The same holds for weights that products read as they are stored.

        A node whose kernel has been forgotten is refused with the kernel's name: lowering it would hide that.
        """
        return self.compiler.keeps(node)

    def pipeline(self, default: Sequence[GraphPass]) -> Sequence[GraphPass]:
        """Convolutions read shuffled channels; with few output channels they fill the target's vectors.

        Transposed ones do so before they are lowered.
        """
        return self.compiler.pipeline(default)

    def post_lowering(self) -> Sequence[GraphPass]:
        """Halves are computed with in f32; products get packed weights and register tiles for the target.

        Without floating point, stored integers are rounded in integers.
        """
        return self.compiler.post_lowering()

    def ir_passes(self) -> Sequence[IRPass]:
        """Products take no more scratch memory than there is room for."""
        return self.compiler.ir_passes()

    def explained(self, program: Program) -> Iterator[Explanation]:
        """Yields the decisions about the products of a program that this backend has compiled."""
        return self.compiler.explained(program)

    def emit(self, program: Program, form: str) -> str:
        """The optimized LLVM IR (`llvm`) or the assembly (`asm`) of a program, for any target, or its decisions.

        Code has the plain entry point only. `strategy` says for people how products are tiled and why, `strategy-json`
        for programs.
        """
        if form in ("strategy", "strategy-json", "llvm", "asm"):
            return self.compiler.emit(program, form)
        return super().emit(program, form)

    def compile(self, program: Program, options: CompileOptions) -> Image:
        """Machine code for this machine.

        Raises UserError if the backend is bound to another one.
        """
        image = self.compiler.compile(program, options)
        if self._keeps_artifacts(options) and not self._lazy.known and not operator_sets():
            self._lazy.known = image.maker
            note_code_identity(self.options, image.maker)
        return image

    def artifact_key(self, options: CompileOptions) -> str:
        """The identity of the code, and the options that it depends on."""
        if not self._keeps_artifacts(options):
            return ""
        own = self.options
        return f"{self._lazy.code_identity} {own.exact} {own.low_memory} {own.precision}"

    def _keeps_artifacts(self, options: CompileOptions) -> bool:
        """Whether the cache has images: not where code comes with files beside it, tells what it does, or was tuned."""
        settings = self.options
        told = settings.debug, settings.perf_map, settings.jitdump, settings.timed
        special = options.instrument or options.sanitize or any(told) or settings.tune is not None
        return type(self) is CpuBackend and options.cache and not special

    def close(self) -> None:
        """Ends the threads that compiled functions have begun; a function that is called again begins others."""
        self.device.close()
