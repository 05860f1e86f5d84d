"""The CPU backend's code for bundles."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import final

from glowpy.backend import Program
from glowpy.backends.cpu.codegen import generate_llvm
from glowpy.backends.cpu.options import CpuOptions
from glowpy.backends.cpu.target import CpuTarget
from glowpy.llvm.bundle_compiler import BundleCompiler
from glowpy.llvm.code_options import CodeOptions
from glowpy.llvm.kernels import Kernels

__all__ = ["CpuBundleCompiler"]

_MACHINE_OPTIONS = (
    "target",
    "cpu",
    "features",
    "float_abi",
    "relocation",
    "code_model",
    "optimize",
    "exact",
)
"""Options of the backend that a bundle depends on."""


@final
class CpuBundleCompiler(BundleCompiler):
    """Compiler of bundles for a processor."""

    def __init__(self, options: CpuOptions, target: CpuTarget, kernels: Kernels) -> None:
        self._target = target
        self._options = options
        self._kernels = kernels

    @property
    def target(self) -> CpuTarget:
        """The processor."""
        return self._target

    @property
    def bitcode(self) -> Sequence[bytes]:
        """The kernels."""
        return self._kernels.bitcode

    @property
    def settings(self) -> Mapping[str, object]:
        """Options for the processor. Whoever makes a tuned bundle again takes what was measured then."""
        tuned = {} if self._options.tune is None else {"tune": 0.0}
        precision = {"precision": self._options.precision} if self._target.machine.bf16 else {}
        settings = {name: getattr(self._options, name) for name in _MACHINE_OPTIONS}
        return settings | precision | tuned | self._memory

    @property
    def identity(self) -> Sequence[str]:
        """Whether code is exact, and whether products are computed as was measured to be best, not what that was."""
        exact, tuned = str(self._options.exact), str(self._options.tune is not None)
        return exact, tuned, *self._memory

    @property
    def _memory(self) -> dict[str, object]:
        """The option for weights in little memory, spoken of only where it is given."""
        return {"low_memory": True} if self._options.low_memory else {}

    def code(self, programs: Mapping[str, Program], options: CodeOptions) -> str:
        """Returns programs as one module."""
        (text,) = generate_llvm(programs, self._target, self._kernels, options)
        return text
