"""`LazyCompiler`: the compiler of a target, which is imported when something has to be compiled."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, final

from glowpy.operators import operator_sets

if TYPE_CHECKING:
    from glowpy.backends.cpu.backend import CpuBackend
    from glowpy.backends.cpu.compiler import Compiler
    from glowpy.backends.cpu.options import CpuOptions
    from glowpy.backends.cpu.target import CpuTarget
    from glowpy.llvm.library import KernelLibrary

__all__ = ["LazyCompiler"]


@final
class LazyCompiler:
    """Parts that a backend and its device share: the compiler, and the identity of code without it where that is known.

    Attributes:
        known: `Compiler.code_identity` as another compilation has found it out; empty if none has.
    """

    def __init__(
        self,
        options: CpuOptions,
        libraries: Callable[[], tuple[KernelLibrary, ...]],
        backend_of: Callable[[CpuOptions], CpuBackend],
        known: str,
    ) -> None:
        self._options = options
        self._libraries = libraries
        self._backend_of = backend_of
        self.known = known

    @cached_property
    def compiler(self) -> Compiler:
        """The compiler. Raises UserError for options that it has no use for."""
        from glowpy.backends.cpu.compiler import Compiler  # noqa: PLC0415 - LLVM and all passes

        return Compiler(self._options, self._libraries(), self._backend_of)

    @property
    def target(self) -> CpuTarget:
        """The processor that comes out of the options."""
        return self.compiler.target

    def check_host(self) -> None:
        """Raises UserError if this process cannot run code for the target; where it is known, somebody's has."""
        if not self.known:
            self.compiler.check_host()

    @property
    def code_identity(self) -> str:
        """The identity of code for the target; see `Compiler.code_identity`."""
        return self.known if self.known and not operator_sets() else self.compiler.code_identity
