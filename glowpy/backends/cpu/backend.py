"""The CPU backend: keeps what it has kernels for, brings in packed products, and compiles programs to machine code.

A network that is in the cache is loaded and run by what is imported here. The compiler is imported when it is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property, partial
from typing import TYPE_CHECKING, ClassVar

from glowpy.backend import Backend, CompileOptions
from glowpy.backends.cpu.constants import find_weights
from glowpy.backends.cpu.image import Image
from glowpy.backends.cpu.jit import JitFunction
from glowpy.backends.cpu.known_target import known_code_identity, note_code_identity
from glowpy.backends.cpu.options import MOST_THREADS, CpuOptions
from glowpy.backends.cpu.workers import Workers, load_workers
from glowpy.llvm.linked import load_code
from glowpy.operators import operator_sets
from glowpy.support.cache import Key, read, write
from glowpy.support.errors import UserError
from glowpy.support.imported import imported

if TYPE_CHECKING:
    from glowpy.backend import Operation, Program
    from glowpy.backends.cpu.compiler import Compiler
    from glowpy.backends.cpu.measuring.tuning import Tuned
    from glowpy.backends.cpu.rounds import RunRounds
    from glowpy.backends.cpu.strategy.explain import Explanation
    from glowpy.backends.cpu.target import CpuTarget
    from glowpy.graph.node import Node
    from glowpy.ir.inst import Instruction
    from glowpy.llvm.kernels import Kernels
    from glowpy.llvm.library import KernelLibrary
    from glowpy.passes import GraphPass
    from glowpy.runtime.compiled import CompiledFunction

__all__ = ["CpuBackend"]

_OPERATIONS = "glowpy.backends.cpu.operations"


class CpuBackend(Backend):
    """Machine code for one processor, by LLVM, from the kernels of libjit.

    Raises UserError for a target LLVM does not know and for options it has no use for, UnsupportedError for one without
    kernels.

    Attributes:
        options: As they were given.
    """

    name: ClassVar[str] = "cpu"
    symbolic: ClassVar[bool] = True
    stacks: ClassVar[bool] = True
    nodes: ClassVar[tuple[type[Node], ...]] = imported(_OPERATIONS, "NODES")
    instructions: ClassVar[tuple[type[Instruction], ...]] = imported(_OPERATIONS, "INSTS")
    options_type: ClassVar[type | None] = CpuOptions
    libraries: ClassVar[tuple[KernelLibrary, ...]] = imported(
        "glowpy.backends.cpu.libjit", "LIBRARIES"
    )
    """Libraries of the kernels; a backend that derives from this one may add its settings."""

    def __init__(self, options: CpuOptions | None = None) -> None:
        super().__init__()
        self.options = options or CpuOptions()
        is_plain = type(self) is CpuBackend and self.options.tune is None
        self._known = known_code_identity(self.options) if is_plain else ""
        if not self._known:
            _ = self.compiler  # which raises what is wrong with the options
        if not 0 <= self.options.threads <= MOST_THREADS:
            raise UserError(f"expected 0 to {MOST_THREADS:,} threads, got {self.options.threads:,}")
        self._workers: Workers | None = None
        self._rounds: RunRounds | None = None

    @cached_property
    def compiler(self) -> Compiler:
        """The compiler for the target."""
        from glowpy.backends.cpu.compiler import Compiler  # noqa: PLC0415 - LLVM and all passes

        return Compiler(self.options, self.libraries)

    @property
    def target(self) -> CpuTarget:
        """The processor that comes out of the options."""
        return self.compiler.target

    @property
    def kernels(self) -> Kernels:
        """The kernels there are for the target: those of other packages' operators, too, as soon as they are known."""
        return self.compiler.kernels

    @property
    def tuned(self) -> Sequence[Tuned]:
        """Measurements of the products of networks that were compiled with the option `tune`."""
        return self.compiler.tuned

    @property
    def tuned_busy(self) -> float:
        """The share of the time of all measurements for which this process had a processor, at most 1."""
        return self.compiler.tuned_busy

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

    def compile(self, program: Program, options: CompileOptions) -> CompiledFunction:
        """Machine code for this process, from the cache if it was made before.

        Raises UserError if the backend is bound to another machine.
        """
        self.compiler.check_host()
        workers = self._shared_workers(use_cache=options.cache)
        rounds = partial(self._shared_rounds, use_cache=options.cache)
        return self.compiler.compile(program, options, workers, rounds)

    def remembers(self, options: CompileOptions) -> bool:
        """Whether functions are cached: not where code comes with files beside it, tells what it does, or was tuned."""
        settings = self.options
        told = settings.debug, settings.perf_map, settings.jitdump, settings.timed
        special = options.instrument or options.sanitize or any(told) or settings.tune is not None
        return type(self) is CpuBackend and options.cache and not special

    def remember(self, key: str, function: CompiledFunction) -> None:
        """Puts the image into the cache; the weights are there."""
        if isinstance(function, JitFunction):
            write(self._key(key), function.image.payload())
            if not self._known and not operator_sets():
                self._known = self.compiler.code_identity
                note_code_identity(self.options, self._known)

    def recall(self, key: str) -> CompiledFunction | None:
        """The network of an image in the cache, if all of its weights are there as well."""
        payload = read(self._key(key))
        if payload is None:
            return None
        if not self._known:
            self.compiler.check_host()
        image = Image.parse(payload)
        weights = []
        for digest in image.weights:
            constant = find_weights(digest, use_cache=True)
            if constant is None:
                return None
            weights.append(constant)
        code = load_code(image.code, lambda: self.target.machine)
        workers = self._shared_workers(use_cache=True)
        rounds = partial(self._shared_rounds, use_cache=True)
        return JitFunction(image, weights, code, workers, load_rounds=rounds)

    def _key(self, key: str) -> Key:
        """Everything that an image depends on: the model that `key` names, and what code of it depends on."""
        exact, low_memory = self.options.exact, self.options.low_memory
        return Key.of("program", key, self._code_identity(), str(exact), str(low_memory))

    def _code_identity(self) -> str:
        return self.compiler.code_identity if operator_sets() or not self._known else self._known

    def close(self) -> None:
        """Ends the threads that compiled functions have begun; a function that is called again begins others."""
        if self._workers is not None:
            self._workers.close()

    def _shared_workers(self, *, use_cache: bool) -> Workers | None:
        """The threads of all functions that this backend compiles; None for one thread."""
        threads = self.options.thread_count
        if self._workers is None and threads > 1:
            identity = self._code_identity(), lambda: self.target
            self._workers = load_workers(threads, *identity, use_cache=use_cache)
        return self._workers

    def _shared_rounds(self, *, use_cache: bool) -> RunRounds:
        """Returns the runner of loops' iterations, shared by all functions that this backend compiles."""
        if self._rounds is None:
            from glowpy.backends.cpu.rounds import load_rounds  # noqa: PLC0415 - most have none

            identity = self._code_identity(), lambda: self.target
            self._rounds = load_rounds(*identity, use_cache=use_cache)
        return self._rounds
