"""The kernels that there are for one variant: what the tables declare, as far as the bitcode holds it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property

from glowpy.backend import Operation
from glowpy.ir.inst import Instruction
from glowpy.llvm.builtin import BUILTIN
from glowpy.llvm.kernel import KernelSpec
from glowpy.llvm.library import KernelLibrary
from glowpy.llvm.variant import KernelVariant
from glowpy.support.errors import InternalError

__all__ = ["Kernels"]

_WITHOUT_KERNEL = (*BUILTIN, "if", "loop")
"""Mnemonics of instructions for which the code generator itself writes the code."""


class Kernels:
    """The kernels of some libraries for one variant.

    Raises InternalError where two libraries declare kernels of the same instruction.
    """

    def __init__(self, libraries: Sequence[KernelLibrary], variant: KernelVariant) -> None:
        self.libraries = tuple(libraries)
        self.variant = variant
        self._declared: dict[str, tuple[KernelLibrary, KernelSpec]] = {}
        for library in self.libraries:
            for mnemonic, spec in library.specs.items():
                if mnemonic in self._declared:
                    other = self._declared[mnemonic][1].source
                    raise InternalError(
                        f"the kernel of {mnemonic} is declared twice: {other}, {spec.source}"
                    )
                self._declared[mnemonic] = library, spec

    @cached_property
    def bitcode(self) -> tuple[bytes, ...]:
        """Bitcode to link with. Raises UserError where some has to be compiled and the compiler is not installed."""
        return tuple(library.bitcode(self.variant) for library in self.libraries)

    def symbol(self, inst: Instruction) -> str:
        """The kernel of an instruction that is supported and has one."""
        _, spec = self._declared[inst.SCHEMA.mnemonic]
        return spec.symbol({ref.name: ref.value.type for ref in inst.operands})

    def declares(self, operation: Operation) -> bool:
        """Whether code can be generated for an operation, or could if every kernel that is declared were defined."""
        if operation.mnemonic in _WITHOUT_KERNEL:
            return True
        declared = self._declared.get(operation.mnemonic)
        return declared is not None and bool(declared[1].symbol(operation.types))

    def undeclared(self, instructions: Iterable[type[Instruction]]) -> list[str]:
        """Describes the instructions for which no library has a kernel."""
        return [
            f"{inst.__name__} has no kernel: expected {inst.SCHEMA.mnemonic} in the KERNELS of one of the "
            f"libraries {', '.join(library.name for library in self.libraries)}"
            for inst in instructions
            if inst.SCHEMA.mnemonic not in {*self._declared, *_WITHOUT_KERNEL}
        ]

    def missing(self) -> list[str]:
        """Returns the kernels that a spec declares and no library defines. Raises UserError as `bitcode` does."""
        missing = []
        for library, spec in self._declared.values():
            undefined = set(spec.symbols()) - library.symbols(self.variant)
            missing += [self._undefined(library, spec, symbol) for symbol in sorted(undefined)]
        return missing

    def _undefined(self, library: KernelLibrary, spec: KernelSpec, symbol: str) -> str:
        return (
            f"{spec.source} declares {symbol}, which the kernels of {library.name} for {self.variant.name} "
            "do not define"
        )

    def unsupported(self, operation: Operation) -> str:
        """Why code cannot be generated for an operation; empty if it can.

        A kernel that is declared and that the library does not define is as good as none, but is said with its name:
        its author has forgotten it.
        """
        if operation.mnemonic in _WITHOUT_KERNEL:
            return ""
        declared = self._declared.get(operation.mnemonic)
        if declared is None:
            return f"no kernel for {operation}"
        library, spec = declared
        symbol = spec.symbol(operation.types)
        if not symbol:
            return f"no kernel for {operation}"
        if symbol not in library.symbols(self.variant):
            return f"no kernel for {operation}: {self._undefined(library, spec, symbol)}"
        return ""
