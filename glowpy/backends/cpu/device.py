"""The processor as a device: loads images into this process, whose functions share threads and what runs rounds."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, final

from glowpy.backends.cpu.image import Image, Probes
from glowpy.backends.cpu.jit import JitFunction
from glowpy.backends.cpu.workers import Workers, load_workers
from glowpy.core.tensor import Array
from glowpy.llvm.code_image import load_code
from glowpy.runtime.compiled import CompiledFunction
from glowpy.runtime.device import Device
from glowpy.runtime.host_memory import HOST
from glowpy.runtime.weights import find_weights

if TYPE_CHECKING:
    from glowpy.backends.cpu.lazy_compiler import LazyCompiler
    from glowpy.backends.cpu.rounds import RunRounds

__all__ = ["CpuDevice"]


@final
class CpuDevice(Device[Array, Image]):
    """The processor of this process. Safe from several threads."""

    memory = HOST

    def __init__(self, threads: int, compiler: LazyCompiler) -> None:
        """The compiler is asked for where something has to be compiled that the cache does not have."""
        self._threads = threads
        self._compiler = compiler
        self._workers: Workers | None = None
        self._rounds: RunRounds | None = None

    def executable(self, artifact: Image, *, use_cache: bool = True) -> CompiledFunction | None:
        """Loads an image with the large constants that it names, which this process has or, if it is used, the cache.

        None where one of these is in neither. Raises UserError if this processor cannot run code for the target.
        """
        self._compiler.check_host()
        weights = [find_weights(digest, use_cache=use_cache) for digest in artifact.weights]
        constants = [constant for constant in weights if constant is not None]
        if len(constants) < len(weights):
            return None
        probes = artifact.probes or Probes()
        code = probes.code
        if code is None:
            code = load_code(artifact.code, lambda: self._compiler.target.machine)
        workers = self._shared_workers(use_cache=use_cache)
        rounds = partial(self._shared_rounds, use_cache=use_cache)
        function = JitFunction(artifact, constants, code, workers, rounds)
        if probes.checked is None:
            return function
        from glowpy.sanitizer import SanitizedFunction  # noqa: PLC0415 - what a cache keeps has none

        return SanitizedFunction(function, function, probes.checked)

    def parse(self, payload: bytes) -> Image:
        """The image whose bytes these are. Raises LoadError for other bytes, and those of another compiler."""
        return Image.parse(payload, self._compiler.code_identity)

    def close(self) -> None:
        """Ends the threads that functions have begun; a function that is called again begins others."""
        if self._workers is not None:
            self._workers.close()

    def _shared_workers(self, *, use_cache: bool) -> Workers | None:
        """The threads of all functions; None for one thread."""
        if self._workers is None and self._threads > 1:
            identity = self._compiler.code_identity, lambda: self._compiler.target
            self._workers = load_workers(self._threads, *identity, use_cache=use_cache)
        return self._workers

    def _shared_rounds(self, *, use_cache: bool) -> RunRounds:
        """The code that runs rounds of loops, of all functions."""
        if self._rounds is None:
            from glowpy.backends.cpu.rounds import load_rounds  # noqa: PLC0415 - most have none

            identity = self._compiler.code_identity, lambda: self._compiler.target
            self._rounds = load_rounds(*identity, use_cache=use_cache)
        return self._rounds
